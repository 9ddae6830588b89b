//! A connection to one of the addresses that were checked, in plain or by TLS with the name.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::Host;

/// One address that swallows packets must not use up the time of the others.
const EACH_MIN: Duration = Duration::from_secs(2);

/// The first of the addresses that answers. None of them is looked up again.
pub(crate) async fn first(addresses: &[SocketAddr], limit: Duration) -> io::Result<TcpStream> {
    let last = Instant::now() + limit;
    let mut failure = io::Error::new(io::ErrorKind::TimedOut, "it did not answer");
    for (at, address) in addresses.iter().enumerate() {
        let left = last.saturating_duration_since(Instant::now());
        let rest = u32::try_from(addresses.len() - at).unwrap_or(u32::MAX);
        match timeout((left / rest).max(EACH_MIN).min(left), TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // small requests: without it, their answers wait for acknowledgements
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => failure = error,
            Err(_) => {}
        }
    }
    Err(failure)
}

/// By TLS, with a certificate of this host.
pub(crate) async fn secured(
    stream: TcpStream,
    host: &Host<String>,
    config: Arc<ClientConfig>,
    until: Instant,
) -> io::Result<TlsStream<TcpStream>> {
    let name = match host {
        Host::Domain(name) => {
            let name = name.strip_suffix('.').unwrap_or(name).to_owned();
            ServerName::try_from(name).map_err(io::Error::other)?
        }
        Host::Ipv4(address) => ServerName::from(std::net::IpAddr::from(*address)),
        Host::Ipv6(address) => ServerName::from(std::net::IpAddr::from(*address)),
    };
    timeout_at(until, TlsConnector::from(config).connect(name, stream))
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The system's certificates, and a configuration of our own: nothing process-wide is needed or installed.
pub(crate) fn system_tls() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_platform_verifier()?
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
