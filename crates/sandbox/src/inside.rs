//! What a child does to confine itself, between its birth and the program. It shares our memory until then: no allocation,
//! no lock, nothing but system calls on what [`Plan`] made ready.
#![expect(unsafe_code, reason = "a child before exec may only make system calls, on prepared memory")]

use std::ffi::{CStr, c_int, c_ulong};
use std::ptr;

use crate::confine::Step;
use crate::init;
use crate::laid::Laid;
use crate::landlock;
use crate::plan::{Grab, Its, Laying, Need, PROXY_PORT, Plan, READ_ONLY, Rules, Space};

/// Of libc's constants, not there for every target.
const OPEN_TREE_CLONE: c_int = 1;
const MOVE_FROM_EMPTY_PATH: c_int = 4;
const NO_SYMLINKS: u64 = 4;

#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// Whether a call of the C library went well.
fn went(result: impl Into<i64>) -> Result<(), ()> {
    if result.into() < 0 { Err(()) } else { Ok(()) }
}

/// In new namespaces: makes them what the plan says. An error leaves its number in errno.
///
/// # Safety
/// Async-signal-safe. To be called once, in a child that was cloned with the plan's flags, but for that of mounts where
/// something is `laid`, and that may lose its view of files.
pub(crate) unsafe fn settle(space: &Space, laid: Option<&Laid>) -> Result<(), Step> {
    // SAFETY: all pointers are to zero-terminated strings of the plan, which outlives the child's use of it; everything
    // that is changed belongs to the namespaces of the child.
    unsafe {
        if let Some([users, groups]) = &space.users {
            // without this an unprivileged process may not map groups
            let _ = write_to(c"/proc/self/setgroups", c"deny");
            write_to(c"/proc/self/uid_map", users).map_err(|()| Step::UserMap)?;
            write_to(c"/proc/self/gid_map", groups).map_err(|()| Step::UserMap)?;
        }
        spare_us();
        if let Some(most) = &space.processes {
            let _ = write_to(c"/proc/sys/kernel/pid_max", most);
        }
        match laid {
            Some(laid) => enter(laid, space).inspect_err(|_| laid.say_unfit())?,
            None => {
                take_all(space)?;
                root(space)?;
                for step in &space.drawn.steps {
                    lay(step, &space.drawn.grabs)?;
                }
            }
        }
        if let Some(namespace) = space.ipc {
            went(libc::setns(namespace, libc::CLONE_NEWIPC)).map_err(|()| Step::Namespaces)?;
        }
        match space.network {
            Its::Ours => {}
            Its::New => network(space)?,
            Its::Kept(namespace) => {
                went(libc::setns(namespace, libc::CLONE_NEWNET)).map_err(|()| Step::Network)?;
                network(space)?;
            }
        }
    }
    Ok(())
}

/// When memory runs out, the command goes first and not we. In a view of its own this cannot be said any more.
unsafe fn spare_us() {
    // SAFETY: as for `settle`.
    let _ = unsafe { write_to(c"/proc/self/oom_score_adj", c"500") };
}

unsafe fn write_to(path: &CStr, text: &CStr) -> Result<(), ()> {
    // SAFETY: as for `settle`.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        went(file)?;
        let bytes = text.to_bytes();
        let written = libc::write(file, bytes.as_ptr().cast(), bytes.len());
        let error = *libc::__errno_location();
        libc::close(file);
        *libc::__errno_location() = error;
        went(written as i64)
    }
}

/// A copy of what lies at a path, free of any place. The path has no links: one that was put there since is refused.
unsafe fn take(grab: &Grab) -> Result<(), ()> {
    // SAFETY: as for `settle`.
    unsafe {
        let how = OpenHow { flags: (libc::O_PATH | libc::O_CLOEXEC) as u64, mode: 0, resolve: NO_SYMLINKS };
        let found = libc::syscall(
            libc::SYS_openat2,
            libc::AT_FDCWD,
            grab.source.as_ptr(),
            &raw const how,
            size_of::<OpenHow>(),
        );
        went(found)?;
        let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC | libc::AT_RECURSIVE | libc::AT_EMPTY_PATH;
        let copy = libc::syscall(libc::SYS_open_tree, found, c"".as_ptr(), flags);
        went(copy)?;
        libc::close(found as c_int);
        if let Err(()) = set_attributes(copy as c_int, c"", libc::AT_EMPTY_PATH | libc::AT_RECURSIVE, grab.attributes) {
            let error = *libc::__errno_location();
            libc::close(copy as c_int);
            *libc::__errno_location() = error;
            return Err(());
        }
        grab.hold(copy as c_int);
        Ok(())
    }
}

unsafe fn set_attributes(fd: c_int, path: &CStr, flags: c_int, set: u64) -> Result<(), ()> {
    let attributes = MountAttributes { set, clear: 0, propagation: 0, user_namespace: 0 };
    // SAFETY: as for `settle`; the structure is as the kernel has it.
    unsafe {
        went(libc::syscall(
            libc::SYS_mount_setattr,
            fd,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        ))
    }
}

/// A copy of all that was laid out before, and in it what is this command's alone. It may be that something has changed in
/// there since, until it was copied; afterwards it is as in any view that a command has.
unsafe fn enter(laid: &Laid, space: &Space) -> Result<(), Step> {
    // SAFETY: as for `settle`; the array is as long as is said.
    unsafe {
        went(libc::setns(laid.raw(), libc::CLONE_NEWNS)).map_err(|()| Step::Namespaces)?;
        went(libc::unshare(libc::CLONE_NEWNS)).map_err(|()| Step::Namespaces)?;
        let mut mounts = laid.raw_mounts().map(|fd| libc::pollfd { fd, events: libc::POLLPRI, revents: 0 });
        if libc::poll(mounts.as_mut_ptr(), mounts.len() as libc::nfds_t, 0) != 0 {
            return Err(Step::Grab);
        }
        processes()?;
        for step in &space.drawn.own {
            lay(step, &space.drawn.grabs)?;
        }
    }
    Ok(())
}

/// Takes copies of all that the view shows, while it can be seen.
///
/// # Safety
/// In a mount namespace of the caller's own, whose working folder is nobody else's. No other thread may be about to take the
/// same.
pub(crate) unsafe fn take_all(space: &Space) -> Result<(), Step> {
    // SAFETY: as for `settle`.
    unsafe {
        went(libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), libc::MS_REC | libc::MS_PRIVATE, ptr::null()))
            .map_err(|()| Step::Namespaces)?;
        for grab in &space.drawn.grabs {
            grab.reset();
            if take(grab).is_err() && grab.need == Need::Must {
                return Err(Step::Grab);
            }
        }
    }
    Ok(())
}

/// Lays out what commands may share, and takes the old root away for good.
///
/// # Safety
/// As for [`take_all`], which came before.
pub(crate) unsafe fn lay_shared(space: &Space) -> Result<(), Step> {
    // SAFETY: as for `settle`.
    unsafe {
        empty_root(space)?;
        // of two roots at one place the old one is the upper one
        went(libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr())).map_err(|()| Step::Root)?;
        went(libc::umount2(c".".as_ptr(), libc::MNT_DETACH)).map_err(|()| Step::Root)?;
        went(libc::chdir(c"/".as_ptr())).map_err(|()| Step::Root)?;
        for step in &space.drawn.steps {
            match step {
                Laying::Terminals { .. } => {}
                Laying::Folder(_)
                | Laying::File(_)
                | Laying::Link { .. }
                | Laying::Memory { .. }
                | Laying::Nothing { .. }
                | Laying::Place { .. }
                | Laying::Lift { .. }
                | Laying::ReadOnly { .. } => lay(step, &space.drawn.grabs)?,
            }
        }
        // every command covers it with its own
        for step in &space.drawn.steps {
            if let Laying::Memory { at, .. } = step {
                set_attributes(libc::AT_FDCWD, at, 0, READ_ONLY).map_err(|()| Step::Place)?;
            }
        }
        // not this mount alone, as for one command, but the folder wherever it is: it is the same one for all of them
        let flags = libc::MS_REMOUNT | libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
        went(libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), flags, ptr::null())).map_err(|()| Step::Root)?;
    }
    Ok(())
}

/// In memory, with a place for what shows processes; the caller works in it.
unsafe fn empty_root(space: &Space) -> Result<(), Step> {
    // SAFETY: as for `settle`.
    unsafe {
        memory(&space.base, &space.root_options).map_err(|()| Step::Root)?;
        went(libc::chdir(space.base.as_ptr())).map_err(|()| Step::Root)?;
        went(libc::mkdir(c"proc".as_ptr(), 0o755)).map_err(|()| Step::Proc)
    }
}

unsafe fn processes() -> Result<(), Step> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_RDONLY;
    let kind = c"proc".as_ptr();
    // SAFETY: as for `settle`.
    unsafe { went(libc::mount(kind, kind, kind, flags, ptr::null())).map_err(|()| Step::Proc) }
}

/// An empty root folder in memory, and nothing of the old one.
unsafe fn root(space: &Space) -> Result<(), Step> {
    // SAFETY: as for `settle`.
    unsafe {
        empty_root(space)?;
        // while the old one can still be seen: the kernel gives nobody a view of processes that hides less than his
        processes()?;
        // Not pivot_root: taking the old root away waits for all processors, 2.6 ms of every command. Who stands in here
        // has no descriptor of a folder outside, and can get no capability; chroot and mount are refused besides.
        went(libc::chroot(c".".as_ptr())).map_err(|()| Step::Root)?;
        went(libc::chdir(c"/".as_ptr())).map_err(|()| Step::Root)
    }
}

unsafe fn memory(at: &CStr, options: &CStr) -> Result<(), ()> {
    // SAFETY: as for `settle`.
    unsafe { mount_memory(at, options, 0) }
}

unsafe fn mount_memory(at: &CStr, options: &CStr, more: c_ulong) -> Result<(), ()> {
    let (kind, flags) = (c"tmpfs".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV | more);
    // SAFETY: as for `settle`.
    unsafe { went(libc::mount(kind, at.as_ptr(), kind, flags, options.as_ptr().cast())) }
}

unsafe fn lay(step: &Laying, grabs: &[Grab]) -> Result<(), Step> {
    // SAFETY: as for `settle`; errno is this thread's own.
    unsafe {
        match step {
            Laying::Folder(at) => unless_there(libc::mkdir(at.as_ptr(), 0o755)).map_err(|()| Step::Place),
            Laying::File(at) => {
                // made without being opened: an open file keeps its file system writable
                unless_there(libc::mknod(at.as_ptr(), libc::S_IFREG | 0o644, 0)).map_err(|()| Step::Place)
            }
            Laying::Link { at, to } => unless_there(libc::symlink(to.as_ptr(), at.as_ptr())).map_err(|()| Step::Place),
            Laying::Memory { at, options } => memory(at, options).map_err(|()| Step::Place),
            Laying::Nothing { at } => mount_memory(at, c"mode=711,size=64k", libc::MS_RDONLY).map_err(|()| Step::Place),
            Laying::ReadOnly { at } => set_attributes(libc::AT_FDCWD, at, 0, READ_ONLY).map_err(|()| Step::Place),
            Laying::Lift { grab, at } => {
                grabs[*grab].reset();
                let there = libc::open(at.as_ptr(), libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC);
                went(there).map_err(|()| Step::Place)?;
                grabs[*grab].hold(there);
                Ok(())
            }
            Laying::Terminals { at } => {
                let kind = c"devpts".as_ptr();
                let options = c"newinstance,ptmxmode=0666,mode=620".as_ptr();
                // no reason to give up: few programs want a terminal of their own
                libc::mount(kind, at.as_ptr(), kind, libc::MS_NOSUID | libc::MS_NOEXEC, options.cast());
                Ok(())
            }
            Laying::Place { grab, at } => {
                let copy = grabs[*grab].raw();
                if copy < 0 {
                    return Ok(());
                }
                went(libc::syscall(
                    libc::SYS_move_mount,
                    copy,
                    c"".as_ptr(),
                    libc::AT_FDCWD,
                    at.as_ptr(),
                    MOVE_FROM_EMPTY_PATH,
                ))
                .map_err(|()| Step::Place)?;
                libc::close(grabs[*grab].let_go());
                Ok(())
            }
        }
    }
}

unsafe fn unless_there(result: c_int) -> Result<(), ()> {
    // SAFETY: errno is this thread's own.
    if result < 0 && unsafe { *libc::__errno_location() } != libc::EEXIST { Err(()) } else { Ok(()) }
}

/// Gives the calling thread's network its loopback, which a new one has but not in use. Answers as the kernel does.
///
/// # Safety
/// Async-signal-safe. Only in a network that is not ours.
pub(crate) unsafe fn raise_loopback() -> c_int {
    // SAFETY: the structure is initialised and as the kernel has it.
    unsafe {
        let control = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if control < 0 {
            return control;
        }
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        let up = libc::ioctl(control, libc::SIOCSIFFLAGS as _, &raw const request);
        libc::close(control);
        up
    }
}

/// The command's own network: loopback, and where there is a proxy, a socket that listens for it.
unsafe fn network(space: &Space) -> Result<(), Step> {
    // SAFETY: as for `settle`; the structures are initialised and as the kernel has them.
    unsafe {
        let up = match space.network {
            Its::New => raise_loopback(),
            // it is in use already
            Its::Ours | Its::Kept(_) => 0,
        };
        let Some(bridge) = &space.bridge else {
            // some surroundings forbid it; a command without a network is still without one
            return Ok(());
        };
        went(up).map_err(|()| Step::Network)?;
        let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let listener = libc::socket(libc::AF_INET, flags, 0);
        went(listener).map_err(|()| Step::Network)?;
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = PROXY_PORT.to_be();
        address.sin_addr.s_addr = libc::INADDR_LOOPBACK.to_be();
        let bytes = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        went(libc::bind(listener, (&raw const address).cast(), bytes)).map_err(|()| Step::Network)?;
        went(libc::listen(listener, 128)).map_err(|()| Step::Network)?;
        send(std::os::fd::AsRawFd::as_raw_fd(bridge), listener).map_err(|()| Step::Network)?;
        libc::close(listener);
        Ok(())
    }
}

/// Hands a descriptor over to us.
unsafe fn send(through: c_int, fd: c_int) -> Result<(), ()> {
    // SAFETY: the message points to locals that live until it is sent; the buffer has room for one descriptor, aligned as
    // control messages must be.
    unsafe {
        let mut byte = 0_u8;
        let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let mut control = [0_u64; 4];
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<c_int>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as _;
        libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(fd);
        went(libc::sendmsg(through, &raw const message, libc::MSG_NOSIGNAL) as i64)
    }
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

/// Effective, permitted, inheritable: the low half of each, then the high half.
type CapabilitySets = [[u32; 3]; 2];

const CAPABILITIES_3: u32 = 0x2008_0522;
const PR_CAP_AMBIENT: c_int = 47;
const PR_CAP_AMBIENT_CLEAR_ALL: c_ulong = 4;

/// Puts the calling child, and all it starts, behind the plan's limits, for good.
///
/// # Safety
/// Async-signal-safe. Binds the calling thread, which must be a child that is about to be a program.
pub(crate) unsafe fn restrict(plan: &Plan, bound: Bound) -> Result<(), Step> {
    // SAFETY: pointers are to the plan's memory and to locals, with sizes as the kernel has them.
    unsafe {
        for (kind, limit) in &plan.limits {
            went(libc::setrlimit(*kind as _, &raw const *limit)).map_err(|()| Step::Limits)?;
        }
        if plan.space.is_none() {
            spare_us();
        }
        went(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as c_ulong, 0 as c_ulong, 0 as c_ulong, 0 as c_ulong))
            .map_err(|()| Step::Capabilities)?;
        capabilities(plan.capabilities, bound).map_err(|()| Step::Capabilities)?;
        let ruleset = match &plan.rules {
            None => None,
            Some(Rules::Made(ruleset)) => Some(ruleset.raw()),
            Some(Rules::ToMake { version }) => Some(rules(plan, *version)?),
        };
        if let Some(ruleset) = ruleset
            && !landlock::enter(ruleset)
        {
            return Err(Step::Landlock);
        }
        let program =
            libc::sock_fprog { len: plan.filter.len() as u16, filter: plan.filter.as_ptr().cast_mut().cast() };
        went(libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER as c_ulong,
            &raw const program,
            0 as c_ulong,
            0 as c_ulong,
        ))
        .map_err(|()| Step::SystemCalls)
    }
}

/// The rules for a view of its own.
unsafe fn rules(plan: &Plan, version: u32) -> Result<c_int, Step> {
    // SAFETY: as for `restrict`.
    unsafe {
        let ruleset = landlock::make_here(version);
        went(ruleset).map_err(|()| Step::Landlock)?;
        for (path, rights) in plan.space.iter().flat_map(|space| &space.drawn.rules) {
            if !landlock::grant_here(ruleset, path, *rights) {
                return Err(Step::Landlock);
            }
        }
        Ok(ruleset)
    }
}

/// Whether whoever bore a child had given up, for itself and its children, ever to gain a capability that a plan does not keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    Already,
    NotYet,
}

/// Gives up for good ever to gain other capabilities; those that are held stay until they are dropped.
///
/// # Safety
/// Async-signal-safe. Binds the calling thread and all it starts.
pub(crate) unsafe fn bound(kept: u64) -> Bound {
    let mut bound = Bound::Already;
    for number in (0..u64::BITS).filter(|number| kept & (1 << number) == 0) {
        // SAFETY: the kernel takes numbers only; errno is this thread's own.
        let error = unsafe {
            let nothing = 0 as c_ulong;
            let dropped = libc::prctl(libc::PR_CAPBSET_DROP, c_ulong::from(number), nothing, nothing, nothing);
            if dropped < 0 { *libc::__errno_location() } else { 0 }
        };
        match error {
            0 => {}
            // this kernel knows no more of them
            libc::EINVAL => break,
            _ => bound = Bound::NotYet,
        }
    }
    bound
}

unsafe fn capabilities(kept: u64, bound_before: Bound) -> Result<(), ()> {
    // SAFETY: as for `restrict`.
    unsafe {
        libc::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0 as c_ulong, 0 as c_ulong, 0 as c_ulong);
        if bound_before == Bound::NotYet {
            // what cannot be dropped here is never gained either: there are no new privileges
            bound(kept);
        }
        let header = CapabilityHeader { version: CAPABILITIES_3, pid: 0 };
        let mut sets: CapabilitySets = [[0; 3]; 2];
        went(libc::syscall(libc::SYS_capget, &raw const header, &raw mut sets))?;
        let halves = [kept as u32, (kept >> 32) as u32];
        for ([effective, permitted, inheritable], kept) in sets.iter_mut().zip(halves) {
            *permitted &= kept;
            *effective = *permitted;
            *inheritable = 0;
        }
        went(libc::syscall(libc::SYS_capset, &raw const header, &raw const sets))
    }
}

/// Whether we, the parent, are gone: then nobody asked for the signal that would tell.
///
/// # Safety
/// Async-signal-safe.
pub(crate) unsafe fn is_orphan(plan: &Plan) -> bool {
    let mut us = libc::pollfd { fd: std::os::fd::AsRawFd::as_raw_fd(&plan.us), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, and it says so.
    unsafe { libc::poll(&raw mut us, 1, 0) != 0 }
}

/// Becomes the first process of the namespace for good; returns only if that fails.
///
/// # Safety
/// Only in the child that is the first process of its namespace, after the command was born.
pub(crate) unsafe fn become_init(space: &Space, gate: c_int, env: *const *const libc::c_char) {
    // SAFETY: descriptors are the child's own; arrays end with null.
    unsafe {
        let report = std::os::fd::AsRawFd::as_raw_fd(&space.report);
        for standard in 0..3 {
            libc::close(standard);
        }
        if libc::dup2(report, init::REPORT_FD) == init::REPORT_FD && libc::dup2(gate, init::GATE_FD) == init::GATE_FD {
            let (from, to) = ((init::GATE_FD + 1) as libc::c_uint, libc::c_uint::MAX);
            libc::syscall(libc::SYS_close_range, from, to, libc::CLOSE_RANGE_CLOEXEC as libc::c_uint);
            let argv = [c"longrein-init".as_ptr(), ptr::null()];
            libc::syscall(libc::SYS_execveat, space.init, c"".as_ptr(), argv.as_ptr(), env, libc::AT_EMPTY_PATH);
        }
    }
}
