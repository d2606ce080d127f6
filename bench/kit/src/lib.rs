//! What all benches share: rounds, results, a client that costs little, a look at processes.

pub mod environment;
pub mod process;
pub mod response;
pub mod rounds;
pub mod table;
