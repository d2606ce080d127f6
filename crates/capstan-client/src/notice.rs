//! Notices: what happens while a call recovers, for applications that show it.

use std::fmt;
use std::time::Duration;

use capstan_protocol::StreamError;

/// An event between packets.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Notice {
    /// A request goes out; the cursor is where it resumes.
    Connecting {
        /// `Last-Event-ID`, if this is not the first.
        cursor: Option<String>,
    },
    /// The server answers with a stream.
    Connected,
    /// The stream continues at a cursor.
    Resumed {
        /// The cursor.
        cursor: String,
    },
    /// The connection is gone, or the run waits.
    Retrying {
        /// When the next request goes out.
        wait: Duration,
        /// Why.
        because: String,
    },
    /// A packet came again.
    Duplicate {
        /// Its place.
        seq: u64,
    },
    /// Packets are missing.
    Gap {
        /// The place that should have been next.
        expected: u64,
        /// The place that came.
        found: u64,
    },
    /// An attempt failed with a TRANSIENT error; the run continues, or waits.
    AttemptFailed {
        /// The error.
        error: Box<StreamError>,
    },
    /// A minor part failed and the stream continues. The packet itself follows.
    Warning {
        /// The error.
        error: Box<StreamError>,
    },
}

impl Notice {
    /// Whether a log should show it as a warning; others are for debugging.
    pub fn is_warning(&self) -> bool {
        match self {
            Self::Retrying { .. }
            | Self::Gap { .. }
            | Self::AttemptFailed { .. }
            | Self::Warning { .. } => true,
            Self::Connecting { .. }
            | Self::Connected
            | Self::Resumed { .. }
            | Self::Duplicate { .. } => false,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connecting { cursor: None } => f.write_str("connecting"),
            Self::Connecting { cursor: Some(cursor) } => {
                write!(f, "connecting, to resume after {cursor}")
            }
            Self::Connected => f.write_str("connected"),
            Self::Resumed { cursor } => write!(f, "resumed after {cursor}"),
            Self::Retrying { wait, because } => {
                write!(
                    f,
                    "Connection dropped. Retrying in {:.1} seconds: {because}",
                    wait.as_secs_f64()
                )
            }
            Self::Duplicate { seq } => write!(f, "packet {seq} came again and was dropped"),
            Self::Gap { expected, found } => {
                write!(f, "packet {found} came where {expected} was due")
            }
            Self::AttemptFailed { error } => write!(f, "an attempt failed: {error}"),
            Self::Warning { error } => write!(f, "the agent warns: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_is_told_with_its_wait() {
        let notice = Notice::Retrying { wait: Duration::from_millis(500), because: "reset".into() };
        assert_eq!(notice.to_string(), "Connection dropped. Retrying in 0.5 seconds: reset");
    }
}
