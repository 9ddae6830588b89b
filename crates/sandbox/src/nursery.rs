//! The threads that start all children: one for those that keep our capabilities, and one for those in namespaces that keep
//! only some, for which it has given up the others' return before: thirty system calls less for each child.
//!
//! A child is made by `clone(CLONE_VM | CLONE_VFORK)`, as `posix_spawn` does it: nothing of our memory is copied, whatever
//! our size, and this thread sleeps until the child has become the program or given up. `posix_spawn` itself cannot ask
//! for a parent-death signal.
//!
//! A command with namespaces takes two children. The first is born into the namespaces, makes them what the plan says,
//! confines itself, bears the second, which waits, and turns into the first process of the namespace (see `init`). Only when
//! that one has left our memory does the second become the program: what runs inside may look into its own first process.
#![expect(
    unsafe_code,
    reason = "the parent-death signal needs code of ours between clone and exec; registering a process handle"
)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use crate::attack::Attacks;
use crate::confine::Step;
use crate::inside::{self, Bound};
use crate::laid::Laid;
use crate::plan::{KEPT_IN_NAMESPACES, Plan, high};

/// Everything the child needs, made ready before it exists: it must not allocate.
pub(crate) struct Order {
    /// Tried one after the other, as a shell goes through `PATH`.
    pub(crate) programs: Vec<CString>,
    pub(crate) argv: Vec<CString>,
    pub(crate) env: Vec<CString>,
    pub(crate) cwd: CString,
    /// Become 0, 1 and 2. Their own numbers are above 2.
    pub(crate) stdio: [OwnedFd; 3],
    /// None: nothing of ours is around it.
    pub(crate) plan: Option<Plan>,
    /// Tried before the program runs.
    pub(crate) attacks: Option<Arc<Attacks>>,
}

/// A process that has become the program asked for.
#[derive(Debug)]
pub(crate) struct Born {
    pub(crate) pid: Pid,
    pub(crate) handle: OwnedFd,
}

/// Why there is none.
#[derive(Debug)]
pub(crate) enum Stillborn {
    Folder(io::Error),
    Exec(io::Error),
    Sandbox(Step, io::Error),
    System(io::Error),
}

/// Has `order` carried out by the spawning thread. `wrap` is called there with the newborn, so that no moment passes in
/// which nobody is answerable for it: if the asker is gone, what `wrap` made is dropped.
pub(crate) async fn start<T: Send + 'static>(
    order: Order,
    wrap: impl FnOnce(Born) -> T + Send + 'static,
) -> Result<T, Stillborn> {
    let kind = if order.plan.as_ref().is_some_and(Plan::keeps_some_of_ours) { Kind::Bound } else { Kind::Free };
    let thread = thread(kind).map_err(Stillborn::System)?;
    let (reply, answer) = oneshot::channel();
    let job: Job = Box::new(move |nursery| {
        let born = nursery.bear(&order).map(wrap);
        // their ends of the pipes: the program alone decides when an output is over
        drop(order);
        let _ = reply.send(born);
    });
    thread.jobs.send(job).map_err(|_| Stillborn::System(gone()))?;
    answer.await.map_err(|_| Stillborn::System(gone()))?
}

fn gone() -> io::Error {
    io::Error::other("the spawning thread is gone")
}

/// Becomes readable when the process has ended.
pub(crate) fn watch(handle: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: the descriptor is owned by the `Arc` that is moved in and cannot be taken out of while it is registered: it
    // stays open, and stays the same, for as long as the registration lives.
    unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE) }.map_err(io::Error::from)
}

/// Whether this is a spawning thread: direct children hang on those, adopted ones on another.
pub(crate) fn is_spawner(thread: Pid) -> bool {
    THREADS
        .iter()
        .any(|spawner| spawner.get().is_some_and(|made| made.as_ref().is_ok_and(|made| made.id == Some(thread))))
}

type Job = Box<dyn FnOnce(&mut Nursery) + Send>;

struct Thread {
    jobs: mpsc::Sender<Job>,
    id: Option<Pid>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Free,
    /// Neither it nor its children gain a capability that a plan in namespaces does not keep.
    Bound,
}

static THREADS: [OnceLock<Result<Thread, io::ErrorKind>>; 2] = [const { OnceLock::new() }; 2];

/// Starts the thread at the first child; it ends with the process, because `THREADS` keeps its sender.
fn thread(kind: Kind) -> io::Result<&'static Thread> {
    THREADS[kind as usize]
        .get_or_init(|| {
            // without it, survivors go to init and are found by their mark only
            let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
            let (jobs, orders) = mpsc::channel::<Job>();
            let (tell, told) = mpsc::channel();
            thread::Builder::new()
                .name("longrein-spawn".to_owned())
                .spawn(move || {
                    let _ = tell.send(rustix::thread::gettid());
                    let mut nursery = Nursery::new(kind);
                    for job in orders {
                        job(&mut nursery);
                    }
                })
                .map_err(|error| error.kind())?;
            Ok(Thread { jobs, id: told.recv().ok() })
        })
        .as_ref()
        .map_err(|kind| io::Error::from(*kind))
}

/// What the thread owns: stacks that one child at a time runs on until it is the program, and that child's own child.
struct Nursery {
    stack: Vec<u128>,
    inner_stack: Vec<u128>,
    bound: Bound,
}

/// The child calls a dozen small functions; glibc takes 32 KiB for the same.
const STACK_BYTES: usize = 64 * 1024;

impl Nursery {
    fn new(kind: Kind) -> Self {
        // SAFETY: an all-zero sigset_t is a valid value, sigfillset makes it a full one, and pthread_sigmask only reads it.
        unsafe {
            let mut every: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut every);
            // the child shares our memory until exec: no handler of ours may run in it
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const every, ptr::null_mut());
        }
        let bound = match kind {
            Kind::Free => Bound::NotYet,
            // SAFETY: this thread becomes no program, and its children keep no more than that.
            Kind::Bound => unsafe { inside::bound(KEPT_IN_NAMESPACES) },
        };
        let stack = || vec![0; STACK_BYTES / size_of::<u128>()];
        Self { stack: stack(), inner_stack: stack(), bound }
    }

    fn bear(&mut self, order: &Order) -> Result<Born, Stillborn> {
        let space = order.plan.as_ref().and_then(|plan| plan.space.as_ref());
        let laid =
            space.filter(|space| space.may_be_laid()).and_then(|space| Some((space, space.drawn.laid.get(space)?)));
        let Some((space, laid)) = laid else { return self.bear_in(order, None) };
        let born = self.bear_in(order, Some(&laid));
        if laid.is_unfit() {
            space.drawn.laid.forget();
            return self.bear_in(order, None);
        }
        laid.say_had();
        born
    }

    /// `laid`: where its view lies already, but for what is its own.
    fn bear_in(&mut self, order: &Order, laid: Option<&Laid>) -> Result<Born, Stillborn> {
        let programs = pointers(&order.programs);
        let argv = pointers(&order.argv);
        let env = pointers(&order.env);
        let launch = Launch {
            programs: programs.as_ptr(),
            argv: argv.as_ptr(),
            env: env.as_ptr(),
            cwd: order.cwd.as_ptr(),
            stdio: [order.stdio[0].as_raw_fd(), order.stdio[1].as_raw_fd(), order.stdio[2].as_raw_fd()],
            parent: rustix::process::getpid().as_raw_nonzero().get(),
            processes: process_limit(),
            plan: order.plan.as_ref(),
            laid,
            bound: self.bound,
            attacks: order.attacks.as_deref(),
            may_go: -1,
            gate: -1,
            inner_stack: self.inner_stack.as_mut_ptr_range().end.cast::<c_void>(),
            failed_in: AtomicI32::new(NOWHERE),
            errno: AtomicI32::new(0),
        };
        let space = order.plan.as_ref().and_then(|plan| plan.space.as_ref());
        let (first, flags): (extern "C" fn(*mut c_void) -> c_int, c_int) = match space {
            // it goes where something is laid, and need not be born into a copy of all that we see
            Some(space) if laid.is_some() => (into_init, space.flags & !libc::CLONE_NEWNS),
            Some(space) => (into_init, space.flags),
            None => (into_program, 0),
        };
        let gate = space.map(|_| Gate::new()).transpose().map_err(Stillborn::System)?;
        let launch = Launch {
            may_go: gate.as_ref().map_or(-1, |gate| gate.inner.as_raw_fd()),
            gate: gate.as_ref().map_or(-1, |gate| gate.outer.as_raw_fd()),
            ..launch
        };
        let mut handle: c_int = -1;
        // SAFETY: the stack is ours, aligned to 16 and grows down from its end; no other child uses it, because
        // CLONE_VFORK holds this thread here until the child has execed or exited. For the same reason `launch` and the
        // strings behind it outlive the child's use of them. Both functions make only async-signal-safe calls.
        let pid = unsafe {
            libc::clone(
                first,
                self.stack.as_mut_ptr_range().end.cast::<c_void>(),
                libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD | flags,
                (&raw const launch).cast_mut().cast::<c_void>(),
                &raw mut handle,
            )
        };
        if pid < 0 {
            let error = io::Error::last_os_error();
            return Err(match space {
                // no memory and too many processes can happen to anybody
                Some(_) if !matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN)) => {
                    Stillborn::Sandbox(Step::Namespaces, error)
                }
                Some(_) | None => Stillborn::System(error),
            });
        }
        // SAFETY: clone succeeded with CLONE_PIDFD, so `handle` is a new descriptor that nobody else owns.
        let handle = unsafe { OwnedFd::from_raw_fd(handle) };
        let pid = Pid::from_raw(pid).expect("clone gives a positive number in the parent");
        if let Some(gate) = gate {
            gate.pass();
        }
        let failed_in = launch.failed_in.load(Ordering::Acquire);
        if failed_in == NOWHERE {
            return Ok(Born { pid, handle });
        }
        // it has exited: CLONE_VFORK returned
        let _ = rustix::process::waitid(
            rustix::process::WaitId::PidFd(std::os::fd::AsFd::as_fd(&handle)),
            rustix::process::WaitIdOptions::EXITED,
        );
        let error = io::Error::from_raw_os_error(launch.errno.load(Ordering::Acquire));
        Err(match failed_in {
            IN_FOLDER => Stillborn::Folder(error),
            IN_EXEC => Stillborn::Exec(error),
            place => match usize::try_from(place - IN_SANDBOX).ok().and_then(|step| Step::ALL.get(step)) {
                Some(step) => Stillborn::Sandbox(*step, error),
                None => Stillborn::System(error),
            },
        })
    }
}

/// Holds the program back until the first process of its namespace is a program of its own: before that, that process
/// shares our memory, and is in the command's reach.
struct Gate {
    /// The program reads here. Closed by exec and by exit: then nobody but us uses our memory.
    inner: OwnedFd,
    /// The first process writes here.
    outer: OwnedFd,
}

impl Gate {
    fn new() -> io::Result<Self> {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // out of the way of the three that get fixed numbers
        Ok(Self { inner: high(read)?, outer: high(write)? })
    }

    /// To be called when the first process is a program, or has given up. Waits until the command is one or has: who could
    /// write is told when nobody could read any more.
    fn pass(self) {
        let Self { inner, outer } = self;
        drop(inner);
        let mut outer = [PollFd::new(&outer, PollFlags::empty())];
        while poll(&mut outer, None) == Err(rustix::io::Errno::INTR) {}
    }
}

/// A command that starts processes without end gets no more when its user has this many: enough for any build, few enough
/// for a person to end them. The kernel counts a user's processes and threads together and does not bound root's; of the
/// two limits it is the soft one, so that a program that knows better can raise it.
pub(crate) const PROCESSES_MAX: libc::rlim_t = 16 * 1024;

fn process_limit() -> libc::rlimit {
    let now = rustix::process::getrlimit(rustix::process::Resource::Nproc);
    let unlimited = libc::RLIM_INFINITY;
    libc::rlimit {
        rlim_cur: now.current.unwrap_or(unlimited).min(PROCESSES_MAX),
        rlim_max: now.maximum.unwrap_or(unlimited),
    }
}

/// A list of C strings as exec wants it: pointers, the last one null.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// What the child reads and reports through, in the memory it shares with us.
struct Launch<'a> {
    programs: *const *const c_char,
    argv: *const *const c_char,
    env: *const *const c_char,
    cwd: *const c_char,
    stdio: [c_int; 3],
    parent: libc::pid_t,
    processes: libc::rlimit,
    plan: Option<&'a Plan>,
    laid: Option<&'a Laid>,
    bound: Bound,
    attacks: Option<&'a Attacks>,
    /// The program waits here,
    may_go: c_int,
    /// until its first process writes here.
    gate: c_int,
    inner_stack: *mut c_void,
    failed_in: AtomicI32,
    errno: AtomicI32,
}

const NOWHERE: i32 = 0;
const IN_SETUP: i32 = 1;
const IN_FOLDER: i32 = 2;
const IN_EXEC: i32 = 3;
/// And from here on the steps of the sandbox.
const IN_SANDBOX: i32 = 100;

/// Signals have numbers from 1 to 64 on Linux.
const LAST_SIGNAL: c_int = 64;

/// The size of the kernel's set of 64 signals.
const SIGSET_BYTES: usize = 8;

/// The function a child runs that becomes the program: puts its house in order and confines itself, if it was not born
/// confined.
extern "C" fn into_program(launch: *mut c_void) -> c_int {
    // SAFETY: `bear` passes a pointer to a `Launch` that it keeps alive and only reads until we have execed or exited;
    // the arrays in it end with null. Every call below is async-signal-safe, touches no lock and no heap. Handlers and
    // descriptors are the child's own copies (no CLONE_SIGHAND, no CLONE_FILES).
    unsafe {
        let launch = &*launch.cast::<Launch<'_>>();
        let is_born_confined = launch.plan.is_some_and(|plan| plan.space.is_some());
        if is_born_confined {
            own_session(launch);
        } else {
            own_house(launch);
            tie_to_parent(launch);
        }
        for (target, source) in (0..).zip(launch.stdio) {
            if libc::dup2(source, target) < 0 {
                give_up(launch, IN_SETUP);
            }
        }
        if !is_born_confined && let Some(plan) = launch.plan {
            if libc::chdir(launch.cwd) < 0 {
                give_up(launch, IN_FOLDER);
            }
            if let Err(step) = inside::restrict(plan, launch.bound) {
                give_up(launch, IN_SANDBOX + step as i32);
            }
        }
        if let Some(attacks) = launch.attacks {
            attacks.carry_out();
        }
        // Before Linux 5.9 this fails and close-on-exec, which everything of Rust has, must do. In namespaces nothing is
        // closed before exec: that tells that we are gone from the memory we share.
        let how = if is_born_confined { libc::CLOSE_RANGE_CLOEXEC } else { 0 };
        libc::syscall(libc::SYS_close_range, 3 as libc::c_uint, libc::c_uint::MAX, how as libc::c_uint);
        if is_born_confined {
            let mut byte = 0_u8;
            if libc::read(launch.may_go, (&raw mut byte).cast(), 1) != 1 {
                libc::_exit(127);
            }
        }
        if libc::chdir(launch.cwd) < 0 {
            give_up(launch, IN_FOLDER);
        }
        let mut unblocked: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut unblocked);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const unblocked, ptr::null_mut());
        let mut forbidden = false;
        let mut program = launch.programs;
        while !(*program).is_null() {
            libc::execve(*program, launch.argv, launch.env);
            match *libc::__errno_location() {
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => forbidden = true,
                _ => give_up(launch, IN_EXEC),
            }
            program = program.add(1);
        }
        *libc::__errno_location() = if forbidden { libc::EACCES } else { libc::ENOENT };
        give_up(launch, IN_EXEC)
    }
}

/// The function a child runs that becomes the first process of new namespaces: settles them, and bears the program.
extern "C" fn into_init(launch: *mut c_void) -> c_int {
    // SAFETY: as for `into_program`. The inner child runs on a stack of its own, and `bear` keeps everything until it is the
    // program or has given up.
    unsafe {
        let shared = launch;
        let launch = &*launch.cast::<Launch<'_>>();
        let Some((plan, space)) = launch.plan.and_then(|plan| Some((plan, plan.space.as_ref()?))) else {
            libc::_exit(127)
        };
        own_house(launch);
        tie_to_parent(launch);
        if let Err(step) = inside::settle(space, launch.laid) {
            give_up(launch, IN_SANDBOX + step as i32);
        }
        if let Err(step) = inside::restrict(plan, launch.bound) {
            give_up(launch, IN_SANDBOX + step as i32);
        }
        // it goes on beside us, and waits at the gate
        let flags = libc::CLONE_VM | libc::SIGCHLD;
        if libc::clone(into_program, launch.inner_stack, flags, shared) < 0 {
            give_up(launch, IN_SETUP);
        }
        inside::become_init(space, launch.gate, launch.env);
        give_up(launch, IN_SANDBOX + Step::Init as i32)
    }
}

/// No handler, no terminal, no core dump, and not more processes than a person can end. Its own children have the same.
///
/// # Safety
/// Only in a child that is about to be a program.
unsafe fn own_house(launch: &Launch<'_>) {
    // SAFETY: as for `into_program`.
    unsafe {
        // ignored signals would stay ignored after exec: Rust ignores SIGPIPE. All zeroes is "default, no flags" in every
        // layout of the kernel's struct; glibc's own function would refuse the signals it keeps for itself
        let default = [0_u64; 8];
        for signal in 1..=LAST_SIGNAL {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), ptr::null_mut::<c_void>(), SIGSET_BYTES);
        }
        own_session(launch);
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        // no reason to give up: what the system allows anyway bounds it
        libc::setrlimit(libc::RLIMIT_NPROC, &raw const launch.processes);
    }
}

/// No terminal.
///
/// # Safety
/// As for [`own_house`].
unsafe fn own_session(launch: &Launch<'_>) {
    // SAFETY: as for `into_program`.
    unsafe {
        if libc::setsid() < 0 {
            give_up(launch, IN_SETUP);
        }
    }
}

/// When we die, it dies.
///
/// # Safety
/// Only in a child of the spawning thread.
unsafe fn tie_to_parent(launch: &Launch<'_>) {
    // SAFETY: as for `into_program`.
    unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) < 0 {
            give_up(launch, IN_SETUP);
        }
        // it may have died before the signal was asked for; from a new namespace its number is not to be seen
        let is_orphan = match launch.plan {
            Some(plan) => inside::is_orphan(plan),
            None => libc::getppid() != launch.parent,
        };
        if is_orphan {
            libc::_exit(127);
        }
    }
}

/// Tells the parent where and why, and ends the child.
fn give_up(launch: &Launch<'_>, place: i32) -> ! {
    // SAFETY: errno is this thread's own; _exit runs no handlers and does not return.
    unsafe {
        launch.errno.store(*libc::__errno_location(), Ordering::Release);
        launch.failed_in.store(place, Ordering::Release);
        libc::_exit(127)
    }
}
