//! The playground, as `build.rs` found it; nothing if it was not built.

use capstan_gateway::Asset;

include!(concat!(env!("OUT_DIR"), "/page.rs"));
