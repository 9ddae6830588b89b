//! The first process of a command's own process namespace: a program of a few dozen instructions.
//!
//! A process namespace needs a first process that collects orphans and whose end ends all. The command itself cannot be it:
//! signals without a handler do not reach a first process. Nor can a copy of ourselves be it, which would hold all of our
//! memory within the command's reach. So it is a program of its own, made here from instructions that need no library and
//! no memory but a little of the stack, and executed from a file in memory.
//!
//! What it does: make itself invisible and let the command begin through descriptor 4, collect children until the command has ended (the first process born after it, number 2), kill what is
//! left, collect that, write how the command ended and how many were killed to descriptor 3, and end.
#![expect(unsafe_code, reason = "machine code between two labels is read as bytes")]

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::fs::MemfdFlags;

/// What it writes: the status as `wait4` gives it, and a count, both in the machine's order of bytes.
pub(crate) const REPORT_BYTES: usize = 8;

/// Where it writes it.
pub(crate) const REPORT_FD: i32 = 3;

/// Where it lets the command begin.
pub(crate) const GATE_FD: i32 = 4;

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .rodata.longrein_init, \"a\"",
    ".globl longrein_init_start",
    ".hidden longrein_init_start",
    "longrein_init_start:",
    "sub rsp, 32",
    // prctl(PR_SET_DUMPABLE, 0): nobody looks into it
    "mov eax, 157",
    "mov edi, 4",
    "xor esi, esi",
    "syscall",
    // write(4, rsp, 1); close(4): now the command may begin
    "mov eax, 1",
    "mov edi, 4",
    "mov rsi, rsp",
    "mov edx, 1",
    "syscall",
    "mov eax, 3",
    "mov edi, 4",
    "syscall",
    // wait4(-1, rsp, __WALL, 0) until it gives 2, or there is no child
    "20: mov eax, 61",
    "mov rdi, -1",
    "mov rsi, rsp",
    "mov edx, 0x40000000",
    "xor r10d, r10d",
    "syscall",
    "cmp rax, 2",
    "je 30f",
    "cmp rax, -10",
    "jne 20b",
    "mov dword ptr [rsp], 9",
    "30: xor ebx, ebx",
    // kill(-1, SIGKILL); collect; count who died of it; until there is no child
    "40: mov eax, 62",
    "mov rdi, -1",
    "mov esi, 9",
    "syscall",
    "mov eax, 61",
    "mov rdi, -1",
    "lea rsi, [rsp + 16]",
    "mov edx, 0x40000000",
    "xor r10d, r10d",
    "syscall",
    "cmp rax, -10",
    "je 50f",
    "test rax, rax",
    "js 40b",
    "mov eax, dword ptr [rsp + 16]",
    "and eax, 127",
    "cmp eax, 9",
    "jne 40b",
    "inc ebx",
    "jmp 40b",
    // write(3, rsp, 8); exit_group(0)
    "50: mov dword ptr [rsp + 4], ebx",
    "mov eax, 1",
    "mov edi, 3",
    "mov rsi, rsp",
    "mov edx, 8",
    "syscall",
    "mov eax, 231",
    "xor edi, edi",
    "syscall",
    ".globl longrein_init_end",
    ".hidden longrein_init_end",
    "longrein_init_end:",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".pushsection .rodata.longrein_init, \"a\"",
    ".balign 4",
    ".globl longrein_init_start",
    ".hidden longrein_init_start",
    "longrein_init_start:",
    "sub sp, sp, #32",
    // prctl(PR_SET_DUMPABLE, 0): nobody looks into it
    "mov x8, #167",
    "mov x0, #4",
    "mov x1, #0",
    "svc #0",
    // write(4, sp, 1); close(4): now the command may begin
    "mov x8, #64",
    "mov x0, #4",
    "mov x1, sp",
    "mov x2, #1",
    "svc #0",
    "mov x8, #57",
    "mov x0, #4",
    "svc #0",
    // wait4(-1, sp, __WALL, 0) until it gives 2, or there is no child
    "20: mov x8, #260",
    "mov x0, #-1",
    "mov x1, sp",
    "mov x2, #0x40000000",
    "mov x3, #0",
    "svc #0",
    "cmp x0, #2",
    "b.eq 30f",
    "cmn x0, #10",
    "b.ne 20b",
    "mov w9, #9",
    "str w9, [sp]",
    "30: mov w19, #0",
    // kill(-1, SIGKILL); collect; count who died of it; until there is no child
    "40: mov x8, #129",
    "mov x0, #-1",
    "mov x1, #9",
    "svc #0",
    "mov x8, #260",
    "mov x0, #-1",
    "add x1, sp, #16",
    "mov x2, #0x40000000",
    "mov x3, #0",
    "svc #0",
    "cmn x0, #10",
    "b.eq 50f",
    "tbnz x0, #63, 40b",
    "ldr w9, [sp, #16]",
    "and w9, w9, #127",
    "cmp w9, #9",
    "b.ne 40b",
    "add w19, w19, #1",
    "b 40b",
    // write(3, sp, 8); exit_group(0)
    "50: str w19, [sp, #4]",
    "mov x8, #64",
    "mov x0, #3",
    "mov x1, sp",
    "mov x2, #8",
    "svc #0",
    "mov x8, #94",
    "mov x0, #0",
    "svc #0",
    ".globl longrein_init_end",
    ".hidden longrein_init_end",
    "longrein_init_end:",
    ".popsection",
);

/// The program as a file, made once. An error: this kernel executes nothing from memory, or the machine is of another kind.
pub(crate) fn file() -> io::Result<&'static OwnedFd> {
    static FILE: OnceLock<Result<OwnedFd, io::ErrorKind>> = OnceLock::new();
    FILE.get_or_init(|| make().map_err(|error| error.kind())).as_ref().map_err(|kind| io::Error::from(*kind))
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn make() -> io::Result<OwnedFd> {
    let wanted = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // kernels before 6.3 know no MFD_EXEC, and need none
    let memory = rustix::fs::memfd_create("longrein-init", wanted | MemfdFlags::EXEC)
        .or_else(|_| rustix::fs::memfd_create("longrein-init", wanted))?;
    let mut file = File::from(rustix::io::fcntl_dupfd_cloexec(memory, LOW_FDS)?);
    file.write_all(&elf(code()))?;
    rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::all() - rustix::fs::SealFlags::FUTURE_WRITE).or_else(
        |_| {
            let seals = rustix::fs::SealFlags::WRITE | rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW;
            rustix::fs::fcntl_add_seals(&file, seals)
        },
    )?;
    Ok(file.into())
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn make() -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Descriptors from here on are out of the way of those that get fixed numbers in a child.
pub(crate) const LOW_FDS: i32 = 10;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn code() -> &'static [u8] {
    unsafe extern "C" {
        #[link_name = "longrein_init_start"]
        static START: u8;
        #[link_name = "longrein_init_end"]
        static END: u8;
    }
    // SAFETY: the two labels above enclose initialised, never written bytes of one section.
    unsafe {
        let start = &raw const START;
        std::slice::from_raw_parts(start, (&raw const END).offset_from_unsigned(start))
    }
}

/// The smallest file the kernel executes: a header, one segment, the code.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn elf(code: &[u8]) -> Vec<u8> {
    const HEADER_BYTES: u16 = 64;
    const SEGMENT_BYTES: u16 = 56;
    const ADDRESS: u64 = 0x40_0000;
    const MACHINE: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    let code_at = u64::from(HEADER_BYTES + SEGMENT_BYTES);
    let bytes = code_at + code.len() as u64;
    let mut file = Vec::new();
    file.extend([0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for half in [2_u16, MACHINE] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    for word in [ADDRESS + code_at, u64::from(HEADER_BYTES), 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [HEADER_BYTES, SEGMENT_BYTES, 1, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    // a segment to load, read and execute
    for word in [1_u32, 5] {
        file.extend(word.to_le_bytes());
    }
    for word in [0, ADDRESS, ADDRESS, bytes, bytes, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.extend(code);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That it runs is tried wherever namespaces are: outside one it would kill everybody.
    #[test]
    fn it_is_small_and_executable() {
        use std::os::fd::AsRawFd;
        let file = file().unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let header = std::fs::read(path).unwrap();
        assert_eq!(&header[..4], b"\x7fELF");
        assert!(header.len() < 512, "{}", header.len());
    }
}
