//! The shipped driver over simulated ports.

mod caches;
mod children;
mod crash_matrix;
mod one_turn_killed;
mod opinions;
mod programs;
mod removed_protections;
mod scenarios;
mod seeds;
mod summaries;
