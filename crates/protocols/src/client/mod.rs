//! Tool servers of other people.
