//! The actions on a connection, one at a time.

use std::time::Duration;

use crate::packing::Packing;

/// One action on the connection.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A response at once.
    Whole {
        status: u16,
        kind: &'static str,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    },
    /// A streamed response begins.
    Open(Packing),
    /// A part of it.
    Write {
        bytes: Vec<u8>,
        is_token: bool,
    },
    Pause(Duration),
    /// The same part again and again, until the client gives up.
    Pulse {
        bytes: Vec<u8>,
        every: Duration,
    },
    /// Silence. The connection closes after the time, if there is one, or when the client gives up.
    Silence(Option<Duration>),
    Reset,
    Close,
    /// The response is complete by HTTP's rules.
    End,
}
