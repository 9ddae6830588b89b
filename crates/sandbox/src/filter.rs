//! The system calls a confined command may make, as a program for the kernel (seccomp). Pure: only `inside` installs it.
//!
//! What is refused is refused with an error, never with a signal, so that a program can go on without it. Written by hand
//! and not with a crate because the answers differ: what libraries have a fallback for must look as if the kernel were
//! old (`ENOSYS`), the rest as forbidden (`EPERM`).

use std::collections::BTreeMap;
use std::ffi::c_long;
use std::sync::OnceLock;

/// One instruction of the kernel's packet filter machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

/// What may be talked through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// The command has a network of its own: Unix sockets reach its own processes, and what lies in its folders.
    OwnNetwork,
    /// Pairs only.
    None,
    /// TCP only, and only where Landlock lets it connect.
    TcpOnly,
    /// The network of this machine, but none of its Unix sockets.
    Internet,
    /// The network of this machine from a file system of its own.
    InternetAndUnix,
}

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const JUMP_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const JUMP_ANY_BIT: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

const ALLOW: u32 = 0x7fff_0000;
const REFUSE: u32 = 0x0005_0000; // with the error number in the low half

/// Offsets in the kernel's `seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const fn argument(index: u32) -> u32 {
    // the low half of a 64-bit argument on a little-endian machine; flags, modes and families all lie there
    16 + 8 * index
}

#[cfg(target_arch = "x86_64")]
const OURS: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OURS: u32 = 0xc000_00b7;

/// Other machines have no filter: tiers A to C need one.
pub(crate) const IS_KNOWN_HERE: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// `CLONE_NEWNS` and its kin.
const NEW_NAMESPACES: u32 = 0x7e02_0080;
/// set-user-id and set-group-id
const SET_ID_BITS: u32 = 0o6000;
const MSG_FASTOPEN: u32 = 0x2000_0000;
/// Not among libc's constants for every target.
const SYS_FCHMODAT2: c_long = 452;

/// Kernel interfaces no command needs, or that lead out. Their callers have no fallback, or need none.
const FORBIDDEN: &[c_long] = &[
    // other processes
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    // the view of files
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_fanotify_init,
    // namespaces
    libc::SYS_unshare,
    libc::SYS_setns,
    // keys, programs in the kernel, measuring, faults
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    // the machine itself
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// What every user of has a way to do without. `clone3` takes its flags, and `openat2` its mode, from memory that a filter
/// cannot read.
const UNKNOWN: &[c_long] = &[
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// System calls that set a file's mode, and in which argument. A set-user-id file made by us would be one for everybody on
/// the machine.
const MODES: &[(c_long, u32)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (SYS_FCHMODAT2, 2),
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
];

/// The same for those that take a mode only when they make a file.
const OPENS: &[(c_long, u32)] = &[
    (libc::SYS_openat, 3),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
];

/// Put characters into a terminal's input, or speak to the console.
const TERMINAL_TRICKS: [u32; 2] = [0x5412, 0x541c]; // TIOCSTI, TIOCLINUX

/// The program for this, made once.
pub(crate) fn for_sockets(sockets: Sockets) -> &'static [Instruction] {
    static MADE: [OnceLock<Vec<Instruction>>; 5] = [const { OnceLock::new() }; 5];
    MADE[sockets as usize].get_or_init(|| program(sockets))
}

/// The kernel compiles it for every command, and asks it once for each system call there is, to remember those that are always
/// allowed. So it is short, and the number is looked for by halves.
fn program(sockets: Sockets) -> Vec<Instruction> {
    let mut made = Vec::with_capacity(256);
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    made.extend([
        step(LOAD, ARCHITECTURE),
        jump(JUMP_EQUAL, OURS, 1, 0),
        // 32-bit programs: their numbers mean other calls
        step(RETURN, REFUSE | libc::ENOSYS as u32),
    ]);
    made.push(step(LOAD, NUMBER));
    #[cfg(target_arch = "x86_64")]
    made.extend([jump(JUMP_AT_LEAST, X32, 0, 1), step(RETURN, REFUSE | libc::ENOSYS as u32)]);
    let mut answers = Answers::new();
    for number in FORBIDDEN {
        answers.give(*number, &[step(RETURN, REFUSE | libc::EPERM as u32)]);
    }
    for number in UNKNOWN {
        answers.give(*number, &[step(RETURN, REFUSE | libc::ENOSYS as u32)]);
    }
    answers.give(libc::SYS_clone, &refused_if_any_bit(0, NEW_NAMESPACES));
    for (number, index) in MODES.iter().chain(OPENS) {
        answers.give(*number, &refused_if_any_bit(*index, SET_ID_BITS));
    }
    answers.give(
        libc::SYS_ioctl,
        &[
            step(LOAD, argument(1)),
            jump(JUMP_EQUAL, TERMINAL_TRICKS[0], 1, 0),
            jump(JUMP_EQUAL, TERMINAL_TRICKS[1], 0, 1),
            step(RETURN, REFUSE | libc::EPERM as u32),
            step(RETURN, ALLOW),
        ],
    );
    sockets_allowed(&mut answers, sockets);
    made.extend(answers.assembled());
    made
}

#[cfg(target_arch = "x86_64")]
/// Numbers from here on are of the x32 ABI, which would be a way around the list.
const X32: u32 = 0x4000_0000;

fn sockets_allowed(answers: &mut Answers, sockets: Sockets) {
    let unknown_family = step(RETURN, REFUSE | libc::EAFNOSUPPORT as u32);
    let forbidden = step(RETURN, REFUSE | libc::EACCES as u32);
    let allowed = step(RETURN, ALLOW);
    let (unix, internet) = match sockets {
        Sockets::OwnNetwork | Sockets::InternetAndUnix => (allowed, allowed),
        Sockets::None => (forbidden, forbidden),
        Sockets::Internet | Sockets::TcpOnly => (forbidden, allowed),
    };
    let mut body = vec![
        step(LOAD, argument(0)),
        jump(JUMP_EQUAL, libc::AF_UNIX as u32, 0, 1),
        unix,
        jump(JUMP_EQUAL, libc::AF_INET as u32, 2, 0),
        jump(JUMP_EQUAL, libc::AF_INET6 as u32, 1, 0),
        unknown_family,
    ];
    match sockets {
        Sockets::TcpOnly => body.extend([
            step(LOAD, argument(1)),
            step(AND, 0xf),
            jump(JUMP_EQUAL, libc::SOCK_STREAM as u32, 1, 0),
            forbidden,
            // other protocols of this type (MPTCP, SCTP, SMC) are no TCP to Landlock
            step(LOAD, argument(2)),
            jump(JUMP_EQUAL, 0, 1, 0),
            jump(JUMP_EQUAL, libc::IPPROTO_TCP as u32, 0, 1),
            allowed,
            forbidden,
        ]),
        Sockets::OwnNetwork | Sockets::None | Sockets::Internet | Sockets::InternetAndUnix => body.push(internet),
    }
    answers.give(libc::SYS_socket, &body);
    answers.give(
        libc::SYS_socketpair,
        &[step(LOAD, argument(0)), jump(JUMP_EQUAL, libc::AF_UNIX as u32, 0, 1), allowed, unknown_family],
    );
    if sockets == Sockets::TcpOnly {
        // sends and connects at once, and not all kernels let Landlock see that
        for (number, index) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
            answers.give(number, &refused_if_any_bit(index, MSG_FASTOPEN));
        }
    }
}

fn step(code: u16, value: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, value }
}

fn jump(code: u16, value: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction { code, if_true, if_false, value }
}

fn refused_if_any_bit(index: u32, bits: u32) -> [Instruction; 4] {
    [
        step(LOAD, argument(index)),
        jump(JUMP_ANY_BIT, bits, 0, 1),
        step(RETURN, REFUSE | libc::EPERM as u32),
        step(RETURN, ALLOW),
    ]
}

/// What is answered to which system call: ends of a program, each of which returns on every way through.
struct Answers {
    ends: Vec<Vec<Instruction>>,
    of: BTreeMap<u32, usize>,
}

/// To all calls that are not named.
const ALLOWED: usize = 0;

impl Answers {
    fn new() -> Self {
        Self { ends: vec![vec![step(RETURN, ALLOW)]], of: BTreeMap::new() }
    }

    /// The first answer to a call is the one that counts.
    fn give(&mut self, number: c_long, end: &[Instruction]) {
        let at = self.ends.iter().position(|known| known == end).unwrap_or_else(|| {
            self.ends.push(end.to_vec());
            self.ends.len() - 1
        });
        self.of.entry(number as u32).or_insert(at);
    }

    /// Where the answer changes: the first number of each stretch, and its answer.
    fn stretches(&self) -> Vec<(u32, usize)> {
        let mut stretches = vec![(0, ALLOWED)];
        for (number, end) in &self.of {
            for (from, end) in [(*number, *end), (number + 1, ALLOWED)] {
                stretches.retain(|(known, _)| *known != from);
                if stretches.last().is_none_or(|(_, last)| *last != end) {
                    stretches.push((from, end));
                }
            }
        }
        stretches
    }

    /// Looks for the stretch that the loaded number is in, then does what is said there.
    fn assembled(&self) -> Vec<Instruction> {
        let mut halvings = Vec::new();
        halve(&self.stretches(), &mut halvings);
        let mut starts = vec![halvings.len()];
        starts.extend(self.ends.iter().scan(halvings.len(), |at, end| {
            *at += end.len();
            Some(*at)
        }));
        let halvings = halvings.iter().enumerate().map(|(at, Halving { from, above, below })| {
            let to = |way: &Way| match way {
                Way::Halving(index) => *index,
                Way::End(index) => starts[*index],
            };
            let past = |way| u8::try_from(to(way) - at - 1).expect("a filter has fewer than 256 instructions");
            jump(JUMP_AT_LEAST, *from, past(above), past(below))
        });
        halvings.chain(self.ends.iter().flatten().copied()).collect()
    }
}

/// Whether a number is at least `from`, and where that leads.
struct Halving {
    from: u32,
    above: Way,
    below: Way,
}

#[derive(Clone, Copy)]
enum Way {
    Halving(usize),
    End(usize),
}

fn halve(stretches: &[(u32, usize)], made: &mut Vec<Halving>) -> Way {
    let [(_, end)] = stretches else {
        let (below, above) = stretches.split_at(stretches.len() / 2);
        let at = made.len();
        made.push(Halving { from: above[0].0, above: Way::End(ALLOWED), below: Way::End(ALLOWED) });
        made[at].below = halve(below, made);
        made[at].above = halve(above, made);
        return Way::Halving(at);
    };
    Way::End(*end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's machine, as far as our programs use it.
    fn answer(program: &[Instruction], number: c_long, args: [u64; 6]) -> u32 {
        let mut at = 0;
        let mut register = 0_u32;
        loop {
            let Instruction { code, if_true, if_false, value } = program[at];
            at += 1;
            let go = |yes: bool| usize::from(if yes { if_true } else { if_false });
            match code {
                LOAD => {
                    register = match value {
                        NUMBER => number as u32,
                        ARCHITECTURE => OURS,
                        other => args[((other - 16) / 8) as usize] as u32,
                    }
                }
                AND => register &= value,
                JUMP_EQUAL => at += go(register == value),
                JUMP_AT_LEAST => at += go(register >= value),
                JUMP_ANY_BIT => at += go(register & value != 0),
                RETURN => return value,
                other => panic!("{other:#x}"),
            }
        }
    }

    #[test]
    fn answers() {
        let eperm = REFUSE | libc::EPERM as u32;
        let enosys = REFUSE | libc::ENOSYS as u32;
        let eacces = REFUSE | libc::EACCES as u32;
        let family = REFUSE | libc::EAFNOSUPPORT as u32;
        let (unix, inet, inet6) = (libc::AF_UNIX as u64, libc::AF_INET as u64, libc::AF_INET6 as u64);
        let (stream, datagram) = (libc::SOCK_STREAM as u64 | libc::SOCK_CLOEXEC as u64, libc::SOCK_DGRAM as u64);
        let all = [Sockets::OwnNetwork, Sockets::None, Sockets::TcpOnly, Sockets::Internet, Sockets::InternetAndUnix];
        for sockets in all {
            let program = program(sockets);
            let ask = |number, args: &[u64]| {
                let mut six = [0; 6];
                six[..args.len()].copy_from_slice(args);
                answer(&program, number, six)
            };
            let is_named = |number: c_long| {
                let named = FORBIDDEN.iter().chain(UNKNOWN);
                named.chain(MODES.iter().chain(OPENS).map(|(number, _)| number)).any(|named| *named == number)
                    || [libc::SYS_socket, libc::SYS_socketpair].contains(&number)
            };
            for number in (0..1024).filter(|number| !is_named(*number)) {
                assert_eq!(ask(number, &[]), ALLOW, "{number}");
            }
            for number in FORBIDDEN {
                assert_eq!(ask(*number, &[]), eperm, "{number}");
            }
            for number in UNKNOWN {
                assert_eq!(ask(*number, &[]), enosys, "{number}");
            }
            assert_eq!(ask(libc::SYS_clone, &[libc::SIGCHLD as u64 | libc::CLONE_VM as u64]), ALLOW);
            assert_eq!(ask(libc::SYS_clone, &[libc::CLONE_NEWUSER as u64]), eperm);
            assert_eq!(ask(libc::SYS_fchmodat, &[0, 0, 0o755]), ALLOW);
            assert_eq!(ask(libc::SYS_fchmodat, &[0, 0, 0o4755]), eperm);
            assert_eq!(ask(libc::SYS_openat, &[0, 0, 0, 0o2644]), eperm);
            assert_eq!(ask(libc::SYS_ioctl, &[0, 0x5412]), eperm);
            assert_eq!(ask(libc::SYS_ioctl, &[0, 0xffff_ffff_0000_5412]), eperm);
            assert_eq!(ask(libc::SYS_ioctl, &[0, 0x541b]), ALLOW);
            for strange in [libc::AF_NETLINK, libc::AF_VSOCK, libc::AF_PACKET, libc::AF_ALG] {
                assert_eq!(ask(libc::SYS_socket, &[strange as u64, datagram]), family);
            }
            assert_eq!(ask(libc::SYS_socketpair, &[unix, stream]), ALLOW);
            let sees = [(unix, stream), (inet, stream), (inet6, stream), (inet, datagram)]
                .map(|(family, kind)| ask(libc::SYS_socket, &[family, kind]));
            assert_eq!(
                sees,
                match sockets {
                    Sockets::OwnNetwork | Sockets::InternetAndUnix => [ALLOW; 4],
                    Sockets::None => [eacces; 4],
                    Sockets::TcpOnly => [eacces, ALLOW, ALLOW, eacces],
                    Sockets::Internet => [eacces, ALLOW, ALLOW, ALLOW],
                }
            );
            let multipath = ask(libc::SYS_socket, &[inet, stream, 262]);
            let fast = ask(libc::SYS_sendto, &[3, 0, 0, u64::from(MSG_FASTOPEN)]);
            match sockets {
                Sockets::TcpOnly => assert_eq!((multipath, fast), (eacces, eperm)),
                Sockets::None => assert_eq!(multipath, eacces),
                Sockets::OwnNetwork | Sockets::Internet | Sockets::InternetAndUnix => {
                    assert_eq!((multipath, fast), (ALLOW, ALLOW));
                }
            }
        }
    }
}
