//! The console: what runs, and why it failed. Nothing is done per packet for its sake, no question is without bounds, and
//! what was said is shown to those alone who may see it, and asked for it.

pub(crate) mod answers;
pub(crate) mod find;
pub(crate) mod frames;
pub(crate) mod marks;
mod refusals;
mod sentence;
pub(crate) mod visitor;

use capstan_protocol::{Fault, Timestamp};

use crate::app::App;
use refusals::Refusals;
pub(crate) use refusals::Refused;

/// What this process remembers for the console.
#[derive(Default)]
pub(crate) struct Console {
    pub(crate) refusals: Refusals,
}

impl Console {
    /// When this life began: nothing is remembered from before.
    pub(crate) fn started(&self, app: &App) -> Timestamp {
        let ago = i64::try_from(app.started.elapsed().as_micros()).unwrap_or(0);
        Timestamp::from_micros(app.wall.now().as_micros().saturating_sub(ago))
    }

    /// A request was refused.
    pub(crate) fn refused(&self, app: &App, refused: Refused, fault: &Fault) {
        self.refusals.add(refused.told(fault, app.wall.now()));
    }
}
