//! Context: the window as volatile memory over the journal, which is the real one. `plan` decides what a request may hold
//! and when the window is made anew; `render` turns the state into a prompt and knows no estimate. A model can be replaced
//! at any turn by a fresh one that carries on from what is rendered.

pub mod archive;
pub(crate) mod arguments;
pub mod block;
pub mod estimate;
pub mod memory;
pub mod meter;
pub mod note;
pub mod plan;
pub mod readmit;
pub mod render;
pub mod settings;
pub mod summary;
pub mod window;
