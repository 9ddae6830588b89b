//! A program that is talked to for as long as it lives: a server over its standard input and output.
//!
//! It has the same birth, the same walls and the same end as a command: dropping a [`Companion`] ends its whole tree, and so
//! does the end of this process.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::bridge::Bridge;
use crate::confine::Step;
use crate::nursery;
use crate::plan::Ours;
use crate::spec::{Spec, StartError};
use crate::supervise::{above_two, explain, output_pipe, prepare};
use crate::tree::{Inner, Tree};

/// How many live at once in this process; more wait for a place. Apart from the places of commands: those end by themselves.
pub const COMPANIONS_MAX: usize = 256;

pub(crate) static COMPANIONS: Semaphore = Semaphore::const_new(COMPANIONS_MAX);

/// A program that was started and is not yet over.
#[derive(Debug)]
pub struct Companion {
    tree: Tree,
    exit: AsyncFd<Arc<OwnedFd>>,
    bridge: Option<JoinHandle<()>>,
}

/// Our ends of its pipes. None of them ever blocks this process.
#[derive(Debug)]
pub struct Pipes {
    pub stdin: Sender,
    pub stdout: Receiver,
    pub stderr: Receiver,
}

/// Starts a program. Of the spec, `stdin`, `stdout`, `stderr` and `timeout` mean nothing here. Needs a tokio runtime with I/O
/// and time.
pub async fn start(spec: &Spec) -> Result<(Companion, Pipes), StartError> {
    let place =
        COMPANIONS.acquire().await.map_err(|_| StartError::System(io::Error::other("no place for a process")))?;
    let bridge =
        Bridge::before(&spec.confinement).map_err(|source| StartError::Sandbox { step: Step::Network, source })?;
    let (stdio, pipes) = connect().map_err(StartError::System)?;
    let (order, ours) = prepare(spec, bridge.as_ref(), stdio)?;
    let marker = spec.marker.to_string();
    let Ours { report, bridge: listener, network } = ours;
    let tree = nursery::start(order, move |born| Tree::new(born, marker, place, Inner { report, network }))
        .await
        .map_err(|stillborn| explain(stillborn, spec))?;
    let exit = nursery::watch(tree.end()).map_err(StartError::System)?;
    let bridge = bridge.map(|bridge| {
        tokio::spawn(async move {
            bridge.carry(listener).await;
        })
    });
    Ok((Companion { tree, exit, bridge }, pipes))
}

impl Companion {
    /// Returns when the program has ended, whoever still holds its pipes.
    pub async fn ended(&self) {
        // an error means that it cannot be watched: it counts as gone
        let _ = self.exit.readable().await;
    }

    /// Asks it to end; dropping ends it.
    pub fn terminate(&self) {
        self.tree.terminate();
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        if let Some(bridge) = &self.bridge {
            bridge.abort();
        }
    }
}

fn connect() -> io::Result<([OwnedFd; 3], Pipes)> {
    let (their_stdin, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&stdin, true)?;
    let (stdout, their_stdout) = output_pipe()?;
    let (stderr, their_stderr) = output_pipe()?;
    let pipes = Pipes {
        stdin: Sender::from_owned_fd_unchecked(stdin)?,
        stdout: Receiver::from_owned_fd_unchecked(stdout)?,
        stderr: Receiver::from_owned_fd_unchecked(stderr)?,
    };
    Ok(([above_two(their_stdin)?, above_two(their_stdout)?, above_two(their_stderr)?], pipes))
}
