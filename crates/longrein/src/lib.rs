//! Placeholder while the house is laid out.

pub mod taskfile;
