//! The model's context as memory: what is in the window, what has left it, and how that is found again.

pub mod archive;
pub mod note;
