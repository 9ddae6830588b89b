//! Context as memory: what a request holds, and what it will cost to send.

pub mod estimate;
