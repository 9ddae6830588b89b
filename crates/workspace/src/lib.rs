//! Files of a workspace: reached only as the kernel resolves them, read in bounded pieces, changed byte for byte.
//!
//! Read [`Root`] first. A path as a model wrote it becomes a [`Place`] by [`Root::locate`]; everything else takes a
//! `Place` and refuses to follow any link on the way to it, so that what was ruled on is what is touched. [`apply`] is the
//! edit itself, a pure function over bytes.
//!
//! What it refuses to do: decide whether a place may be touched (the gate's business), follow a link while opening,
//! open anything but regular files, or fall back to something that can be raced where the kernel has no `openat2`. It
//! knows no tools and no model, and nothing here is asynchronous.

mod carry;
mod changed;
mod edit;
mod error;
mod list;
mod named;
mod near;
mod patterns;
mod read;
mod replace;
mod root;
mod search;
mod shown;
mod text;
pub mod trees;
mod walk;

pub use carry::{Carried, Kept, carry};
pub use changed::{ChangeLimits, Changes};
pub use edit::{Argument, EDIT_MAX_BYTES, EditError, Edited, How, Matches, apply};
pub use error::{Error, Special};
pub use list::{Entry, EntryKind, ListLimits, Listing};
pub use near::Candidate;
pub use patterns::Patterns;
pub use read::{Lines, READ_MAX_BYTES, Range, ReadLimits, digest_of};
pub use replace::{Before, Owner, Written};
pub use root::{Found, Located, Place, Root};
pub use search::{Context, Hit, SEARCH_MAX_BYTES, SearchLimits, Searched, Sought};
pub use shown::{json_bytes, shown};
pub use text::{Encoding, Newline, Newlines, Unreadable, decoded};
