//! The playground that `build.rs` embeds; empty if it was not built.

use capstan_gateway::Asset;

include!(concat!(env!("OUT_DIR"), "/page.rs"));
