//! Leaving at once, as a crash would.
#![expect(unsafe_code, reason = "_exit is a foreign function")]

/// Ends the process: nothing is flushed, no destructor and no exit handler runs. Children die as they would if this
/// process were killed.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: `_exit` takes any status, touches no memory of ours and does not return.
    unsafe { libc::_exit(status) }
}
