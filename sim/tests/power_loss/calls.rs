//! The C library's calls that change files, replaced in this test's process: each does what the kernel does and tells the
//! [recorder](crate::record). SQLite's own file system and Rust's both come through here, so the store is recorded as it
//! ships, with nothing in it for tests. The one file outside the sandbox with `unsafe`.
//!
//! Nothing is really synced: who plays a loss of power needs no disk to turn.

#![expect(unsafe_code, reason = "the C library's calls can only be replaced in its own language")]

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libc::{AT_FDCWD, O_CREAT, O_TRUNC, SEEK_CUR, c_char, c_int, c_uint, c_void, mode_t, off64_t, size_t, ssize_t};

use crate::record::{recorder, sync};

/// # Safety
/// `path` points to a C string that lives as long as the call, as the C library's callers promise.
unsafe fn path<'a>(path: *const c_char) -> &'a Path {
    // SAFETY: passed on from this function's own promise.
    let text = unsafe { CStr::from_ptr(path) };
    Path::new(OsStr::from_bytes(text.to_bytes()))
}

/// Two arguments or three: the mode counts only where a file is made, and there it was passed. On Linux's calling
/// conventions a variadic `int` lies where a named one does.
#[unsafe(no_mangle)]
unsafe extern "C" fn open64(name: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let mut recorder = recorder();
    // SAFETY: the caller's arguments, unchanged.
    let fd = unsafe { libc::syscall(libc::SYS_openat, AT_FDCWD, name, flags, mode) } as c_int;
    if fd >= 0 {
        // SAFETY: the kernel has read the same string.
        recorder.opened(fd, unsafe { path(name) }, flags & O_CREAT != 0, flags & O_TRUNC != 0);
    }
    fd
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open(name: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { open64(name, flags, mode) }
}

#[unsafe(no_mangle)]
extern "C" fn close(fd: c_int) -> c_int {
    let mut recorder = recorder();
    recorder.closed(fd);
    // SAFETY: takes a number; a wrong one is answered with an error.
    unsafe { libc::syscall(libc::SYS_close, fd) as c_int }
}

/// # Safety
/// `bytes` points to at least `count` bytes.
unsafe fn wrote(fd: c_int, bytes: *const c_void, count: ssize_t, at: off64_t) {
    if let Ok(count) = usize::try_from(count)
        && count > 0
        && let Ok(at) = usize::try_from(at)
    {
        // SAFETY: passed on from this function's own promise; the kernel has just read them.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), count) };
        recorder().wrote(fd, at, bytes);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, count: size_t) -> ssize_t {
    if !recorder().knows(fd) {
        // SAFETY: the caller's arguments, unchanged. Standard output may block, so not under the recorder's lock.
        return unsafe { libc::syscall(libc::SYS_write, fd, bytes, count) } as ssize_t;
    }
    // SAFETY: takes numbers. The store gives each descriptor to one thread, so nobody moves it in between.
    let at = unsafe { libc::syscall(libc::SYS_lseek, fd, 0, SEEK_CUR) };
    // SAFETY: the caller's arguments, unchanged.
    let written = unsafe { libc::syscall(libc::SYS_write, fd, bytes, count) } as ssize_t;
    // SAFETY: the kernel took `written` bytes from there.
    unsafe { wrote(fd, bytes, written, at) };
    written
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(fd: c_int, bytes: *const c_void, count: size_t, at: off64_t) -> ssize_t {
    // SAFETY: the caller's arguments, unchanged.
    let written = unsafe { libc::syscall(libc::SYS_pwrite64, fd, bytes, count, at) } as ssize_t;
    // SAFETY: the kernel took `written` bytes from there.
    unsafe { wrote(fd, bytes, written, at) };
    written
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite(fd: c_int, bytes: *const c_void, count: size_t, at: off64_t) -> ssize_t {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { pwrite64(fd, bytes, count, at) }
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate64(fd: c_int, length: off64_t) -> c_int {
    let mut recorder = recorder();
    // SAFETY: takes numbers.
    let answer = unsafe { libc::syscall(libc::SYS_ftruncate, fd, length) } as c_int;
    if let (0, Ok(length)) = (answer, usize::try_from(length)) {
        recorder.resized(fd, length);
    }
    answer
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate(fd: c_int, length: off64_t) -> c_int {
    ftruncate64(fd, length)
}

#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    sync(fd);
    0
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    fsync(fd)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdir(name: *const c_char, mode: mode_t) -> c_int {
    let mut recorder = recorder();
    // SAFETY: the caller's arguments, unchanged.
    let answer = unsafe { libc::syscall(libc::SYS_mkdirat, AT_FDCWD, name, mode) } as c_int;
    if answer == 0 {
        // SAFETY: the kernel has read the same string.
        recorder.made_folder(unsafe { path(name) });
    }
    answer
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(name: *const c_char) -> c_int {
    let mut recorder = recorder();
    // SAFETY: the caller's arguments, unchanged.
    let answer = unsafe { libc::syscall(libc::SYS_unlinkat, AT_FDCWD, name, 0) } as c_int;
    if answer == 0 {
        // SAFETY: the kernel has read the same string.
        recorder.removed(unsafe { path(name) });
    }
    answer
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    let mut recorder = recorder();
    // SAFETY: the caller's arguments, unchanged.
    let answer = unsafe { libc::syscall(libc::SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0) } as c_int;
    if answer == 0 {
        // SAFETY: the kernel has read the same strings.
        unsafe { recorder.renamed(path(from), path(to)) };
    }
    answer
}

#[unsafe(no_mangle)]
unsafe extern "C" fn linkat(
    from_folder: c_int,
    from: *const c_char,
    to_folder: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    let mut recorder = recorder();
    // SAFETY: the caller's arguments, unchanged.
    let answer = unsafe { libc::syscall(libc::SYS_linkat, from_folder, from, to_folder, to, flags) } as c_int;
    if answer == 0 {
        // SAFETY: the kernel has read the same strings.
        unsafe { recorder.linked(path(from), path(to)) };
    }
    answer
}
