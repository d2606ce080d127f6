//! What is done on a connection, one thing at a time.

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
    /// Again and again, until the other side gives up.
    Pulse {
        bytes: Vec<u8>,
        every: Duration,
    },
    /// Nothing more; the connection closes after the time, if there is one, or when the other side
    /// gives up.
    Silence(Option<Duration>),
    Reset,
    Close,
    /// The response is complete by HTTP's rules.
    End,
}
