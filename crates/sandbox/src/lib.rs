//! Runs a program as a tree of processes that cannot outlive its command, its caller or this process.
//!
//! Read [`Spec`] and [`run`] first. A command gets exactly the environment it is given, no terminal, no open files but its
//! three pipes, and a session of its own. However it ends (by itself, out of time, over its output limit, because the
//! future was dropped), what it left running is ended with it.
//!
//! How that is brought about:
//!
//! - All children are spawned by two threads that live as long as the process: a parent-death signal fires when the
//!   spawning *thread* ends. If we are killed, the kernel kills the direct child of every command.
//! - The process is a *child subreaper*: what daemonises becomes our own child, so that the survivors of a command are
//!   found in one short kernel list instead of by searching all processes.
//! - Every process carries `LONGREIN_INSIDE=<run>/<action>/<fence>`. After a crash the next worker finds by it what was left
//!   ([`reap_marked`]).
//!
//! What a command may reach is its [`Confinement`]: namespaces, Landlock, seccomp and limits, as far as [`probe`] saw them
//! hold on this machine. `view`, `layout` and `plan` work out what is to be done, without doing it; `inside` does it, in the child.
//! What commands may share of it is done once and kept: `drawn`, `laid`, `network`. A command whose walls cannot be put up does
//! not run.
//!
//! Without namespaces a process that leaves its session *and* wipes its environment *and* outlives its parents is found only
//! when no other command runs, and not at all after a crash, or where this process itself may not dump core. Linux only
//! (5.9 or newer).
//!
//! The only crate with `unsafe`: in `nursery`, `inside`, `laid`, `landlock`, `network`, `init`, `attack` and `exit`.

#[cfg(not(target_os = "linux"))]
compile_error!("longrein-sandbox needs Linux: pidfd, child subreapers and /proc");

mod attack;
mod bridge;
mod capture;
mod companion;
mod confine;
mod drawn;
mod exit;
mod filter;
mod init;
mod inside;
mod ipc;
mod laid;
mod landlock;
mod layout;
mod network;
mod nursery;
mod plan;
mod probe;
mod process;
mod reap;
mod spec;
mod supervise;
mod toolchain;
mod tree;
mod view;

pub use companion::{COMPANIONS_MAX, Companion, Pipes, start};
pub use confine::{Confined, Confinement, Network, ResourceLimits, Sealed, Step, Tier, Way};
pub use exit::exit_now;
pub use probe::{Attack, Attempt, Became, Probed, probe, probe_blocking, probe_way};
pub use reap::{Reaped, reap_marked, reap_run};
pub use spec::{Captured, Ended, How, INSIDE, Keep, Marker, NO_FLOOD, Spec, StartError, Stderr, Strays};
pub use supervise::{ALIVE_MAX, DRAIN, GRACE, run};
pub use tree::all_gone;
