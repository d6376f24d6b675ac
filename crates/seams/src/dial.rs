//! Connections: from a host and a port to a stream of bytes.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout};

use crate::{BoxFuture, spoken};

#[cfg(test)]
mod tests;

/// The door to the network.
pub trait Dial: Send + Sync {
    /// Connects to `target`. One attempt, bounded in time; repeating it is the caller's business.
    fn dial<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>>;
}

/// A connection: bytes both ways, and nothing known about what carries them.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// Where to connect to.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Target {
    /// A name or an IP address, the latter without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

impl Target {
    /// The brackets that an IPv6 address wears inside a URL are removed.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Self {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Self { host: bare.to_owned(), port }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        // A colon and not a parse: link-local addresses carry a zone (fe80::1%eth0), which is part of no address type.
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// There is no connection.
///
/// Whatever the kind, not one byte of the caller's was sent: a request that fails with this error was refused before
/// it could have any effect, and may be repeated without looking first.
#[derive(Debug, Error)]
#[error("cannot connect to {target}: {}{}", self.reason(), self.trail())]
pub struct DialError {
    /// What was dialled.
    pub target: Target,
    /// What happened. If addresses failed differently, the most telling failure.
    pub kind: DialErrorKind,
    /// The addresses that were tried, in order. Empty if it did not come to that.
    pub tried: Vec<SocketAddr>,
    /// The operating system's word for it. Spelled raw so that it is no link of the error chain: `Display` tells it
    /// already, and a cause is told once.
    pub r#source: io::Error,
}

impl DialError {
    fn reason(&self) -> String {
        match self.kind {
            DialErrorKind::Refused => "connection refused".to_owned(),
            DialErrorKind::Unresolved => format!("the name did not resolve: {}", self.r#source),
            DialErrorKind::TimedOut | DialErrorKind::Unreachable | DialErrorKind::Other => self.r#source.to_string(),
        }
    }

    /// The addresses, unless they say nothing that the target does not say itself.
    fn trail(&self) -> String {
        let tried: Vec<String> = self.tried.iter().map(SocketAddr::to_string).collect();
        if tried.is_empty() || tried == [self.target.to_string()] {
            return String::new();
        }
        format!(" (tried {})", tried.join(", "))
    }
}

/// What keeps a connection from being made, the most telling first: a refusal proves a living host, silence at least a
/// route, and the rest often is a matter of this machine alone (such as a name with IPv6 addresses where there is
/// none).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum DialErrorKind {
    /// The host answered that nothing listens there.
    Refused,
    /// No answer in the time allowed, be it from the host or from the resolver.
    TimedOut,
    /// There is no way to the host.
    Unreachable,
    /// The name has no address, or the resolver failed.
    Unresolved,
    /// Anything else.
    Other,
}

impl From<&io::Error> for DialErrorKind {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::TimedOut => Self::TimedOut,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Self::Unreachable,
            _ => Self::Other,
        }
    }
}

/// TCP by the operating system, names by its resolver.
#[derive(Clone, Copy, Debug)]
pub struct TcpDial {
    /// The time allowed for everything together: resolving, and all addresses.
    pub timeout: Duration,
}

impl Dial for TcpDial {
    fn dial<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
        Box::pin(async move {
            let start = Instant::now();
            let addresses = resolve(target, self.timeout).await?;
            let stream = connect_first(target, &addresses, start, self.timeout, connect).await?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        })
    }
}

async fn resolve(target: &Target, limit: Duration) -> Result<Vec<SocketAddr>, DialError> {
    if let Ok(literal) = target.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(literal, target.port)]);
    }
    let failed = |kind, source| DialError { target: target.clone(), kind, tried: Vec::new(), source };
    match timeout(limit, lookup_host((target.host.as_str(), target.port))).await {
        Ok(Ok(found)) => Ok(found.collect()),
        Ok(Err(error)) => Err(failed(DialErrorKind::Unresolved, error)),
        Err(_) => Err(failed(
            DialErrorKind::TimedOut,
            io::Error::new(io::ErrorKind::TimedOut, format!("the name did not resolve within {}", spoken(limit))),
        )),
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // Requests are small and answered one by one: Nagle's algorithm would add a delay to each and save nothing.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The first address that connects, in the resolver's order. Each gets an equal share of the time that is left, so that
/// a silent first one cannot use up the time of those behind it.
async fn connect_first<S, F: Future<Output = io::Result<S>>>(
    target: &Target,
    addresses: &[SocketAddr],
    start: Instant,
    limit: Duration,
    connect: impl Fn(SocketAddr) -> F,
) -> Result<S, DialError> {
    let mut failure: Option<(DialErrorKind, io::Error)> = None;
    let mut tried = Vec::new();
    for (&address, left) in addresses.iter().zip((1..=addresses.len()).rev()) {
        let share = limit.saturating_sub(start.elapsed()) / u32::try_from(left).unwrap_or(u32::MAX);
        tried.push(address);
        let error = match timeout(share, connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {}", spoken(limit))),
        };
        let kind = DialErrorKind::from(&error);
        if failure.as_ref().is_none_or(|(told, _)| kind < *told) {
            failure = Some((kind, error));
        }
    }
    let (kind, source) = failure.unwrap_or_else(|| (DialErrorKind::Unresolved, io::Error::other("it has no address")));
    Err(DialError { target: target.clone(), kind, tried, source })
}
