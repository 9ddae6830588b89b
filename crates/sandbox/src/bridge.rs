//! The one way out of a command that may talk to a proxy: a loopback port inside, the proxy's Unix socket outside.
//!
//! Nothing of it runs inside. Where the command has a network of its own the port is opened in there by the child before it
//! becomes the program, and the listening socket handed out to us; where it has not, the port is ours and the command's
//! rules let it connect to no other. Either way we accept, and carry bytes.

use std::convert::Infallible;
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener as Unregistered};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::net::{TcpListener, UnixStream};
use tokio::task::JoinSet;

use crate::confine::{Confined, Confinement, Network};
use crate::plan::PROXY_PORT;

/// Connections at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 128;

pub(crate) struct Bridge {
    socket: PathBuf,
    port: u16,
    /// Where the command has our network.
    outside: Option<Unregistered>,
}

impl Bridge {
    /// None: this command talks to no proxy.
    pub(crate) fn before(confinement: &Confinement) -> io::Result<Option<Self>> {
        let Confinement::Confined(confined) = confinement else { return Ok(None) };
        let Confined { way, network, .. } = &**confined;
        let socket = match network {
            Network::Proxy { socket } => socket.clone(),
            Network::Off | Network::Open => return Ok(None),
        };
        if way.has_namespaces() {
            return Ok(Some(Self { socket, port: PROXY_PORT, outside: None }));
        }
        let listener = Unregistered::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        Ok(Some(Self { socket, port: listener.local_addr()?.port(), outside: Some(listener) }))
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Carries connections until dropped. `handed`: where the child's listening socket arrives.
    pub(crate) async fn carry(self, handed: Option<OwnedFd>) -> Infallible {
        let inside = || handed.as_ref().and_then(|handed| receive(handed).ok());
        let listener = self.outside.or_else(inside).and_then(|listener| TcpListener::from_std(listener).ok());
        let Some(listener) = listener else {
            // the command finds nobody at the port, and says so
            return std::future::pending().await;
        };
        let mut carried = JoinSet::new();
        loop {
            while carried.try_join_next().is_some() {}
            if carried.len() >= CONNECTIONS_MAX {
                carried.join_next().await;
                continue;
            }
            match listener.accept().await {
                Ok((mut inner, _)) => {
                    let socket = self.socket.clone();
                    carried.spawn(async move {
                        let mut outer = UnixStream::connect(socket).await?;
                        tokio::io::copy_bidirectional(&mut inner, &mut outer).await
                    });
                }
                // too many open files, or the connection is gone already: neither is for ever
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            }
        }
    }
}

/// The socket that the child sent before it was a program.
fn receive(handed: &OwnedFd) -> io::Result<Unregistered> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(handed, &mut [io::IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let sockets = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        RecvAncillaryMessage::ScmCredentials(_) | _ => None,
    });
    sockets.last().map(Unregistered::from).ok_or_else(|| io::ErrorKind::NotFound.into())
}
