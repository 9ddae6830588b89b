//! The first bytes a client sends through a tunnel: where they open TLS, the name they ask for must be the host the tunnel
//! was let through for. Else one allowed host of a shared address would open all others there.
//!
//! What lies inside TLS, a `Host` header that names somebody else, is not seen here and not stopped.

use rustls::server::Acceptor;

/// A client's greeting is no longer than this.
const HELLO_MAX_BYTES: usize = 64 * 1024;

/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;

/// A greeting on its way in.
pub(crate) struct Hello {
    acceptor: Acceptor,
    bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// More is to come.
    Unfinished,
    /// Another protocol.
    NotTls,
    /// TLS, for this name if it names one.
    Tls(Option<String>),
    /// It begins like TLS and is none.
    Broken,
}

impl Hello {
    pub(crate) fn new() -> Self {
        Self { acceptor: Acceptor::default(), bytes: 0 }
    }

    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Greeting {
        if self.bytes == 0 && bytes.first().is_some_and(|first| *first != HANDSHAKE) {
            return Greeting::NotTls;
        }
        self.bytes += bytes.len();
        while !bytes.is_empty() {
            match self.acceptor.read_tls(&mut bytes) {
                Ok(0) | Err(_) => return Greeting::Broken,
                Ok(_) => {}
            }
            match self.acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    return Greeting::Tls(accepted.client_hello().server_name().map(str::to_owned));
                }
                Err(_) => return Greeting::Broken,
            }
        }
        if self.bytes > HELLO_MAX_BYTES { Greeting::Broken } else { Greeting::Unfinished }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    /// What a client sends first to this host.
    pub(crate) fn greeting(host: &str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let mut client = ClientConnection::new(Arc::new(config), host.to_owned().try_into().unwrap()).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_name_is_found_however_the_greeting_is_split() {
        for (host, expected) in [("example.com", Some("example.com")), ("127.0.0.1", None)] {
            let bytes = greeting(host);
            for size in [1, 2, 5, 6, 100, bytes.len()] {
                let mut hello = Hello::new();
                let mut last = Greeting::Unfinished;
                for piece in bytes.chunks(size) {
                    assert_eq!(last, Greeting::Unfinished);
                    last = hello.feed(piece);
                }
                assert_eq!(last, Greeting::Tls(expected.map(str::to_owned)), "{size}");
            }
        }
    }

    #[test]
    fn what_is_no_tls() {
        assert_eq!(Hello::new().feed(b"GET / HTTP/1.1\r\n"), Greeting::NotTls);
        assert_eq!(Hello::new().feed(b"SSH-2.0-x\r\n"), Greeting::NotTls);
        assert_eq!(Hello::new().feed(&[0x16, 9, 9, 0, 1, 0]), Greeting::Broken);
        assert_eq!(Hello::new().feed(&[0x16, 3, 1]), Greeting::Unfinished);
        // a handshake that is no client's greeting
        assert_eq!(Hello::new().feed(&[0x16, 3, 1, 0, 4, 2, 0, 0, 0]), Greeting::Broken);
    }
}
