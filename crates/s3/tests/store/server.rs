//! A server at the other end of a pipe.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use castle_s3::{Credentials, S3Config, S3Store};
use castle_seams::{BoxFuture, ByteStream, Clock, Dial, DialError, DialErrorKind, Target};
use castle_secrets::Secret;
use castle_testbed::VirtualClock;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex};
use tokio_rustls::TlsAcceptor;

pub(crate) const ID: &str = "AKIDPLANTED";
pub(crate) const SECRET: &str = "planted/secret+key";
pub(crate) const TOKEN: &str = "planted-session-token==";

/// What was asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// What happens then.
pub(crate) enum Reply {
    /// These bytes, and the end.
    Bytes(Vec<u8>),
    /// These bytes, and nothing more, forever.
    Stall(Vec<u8>),
    /// These bytes, one each time so much time has passed.
    Drip(Vec<u8>, Duration),
    /// These bytes so many times, and the end.
    Flood(Vec<u8>, Vec<u8>, usize),
}

type Respond = Box<dyn Fn(&Asked) -> Reply + Send + Sync>;

/// A server that answers each request by a function.
pub(crate) struct Server {
    respond: Respond,
    clock: VirtualClock,
    tls: Option<TlsAcceptor>,
    pub(crate) asked: Mutex<Vec<Asked>>,
}

/// How the other end of [`Server`] is reached.
#[derive(Clone)]
struct Pipe(Arc<Server>);

impl Server {
    pub(crate) fn new(clock: &VirtualClock, respond: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Arc<Self> {
        Self::with_tls(clock, None, respond)
    }

    pub(crate) fn with_tls(
        clock: &VirtualClock,
        tls: Option<TlsAcceptor>,
        respond: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { respond: Box::new(respond), clock: *clock, tls, asked: Mutex::default() })
    }

    /// A store in the bucket `castles` under `team` of this server.
    pub(crate) fn store(self: &Arc<Self>) -> S3Store {
        S3Store::new(&config(), credentials(), Arc::new(Pipe(self.clone())), Arc::new(self.clock)).unwrap()
    }

    pub(crate) fn store_with(self: &Arc<Self>, config: &S3Config) -> S3Store {
        S3Store::new(config, credentials(), Arc::new(Pipe(self.clone())), Arc::new(self.clock)).unwrap()
    }

    /// The only request there was.
    pub(crate) fn only(&self) -> Asked {
        let asked = self.asked.lock().unwrap();
        assert_eq!(asked.len(), 1);
        asked[0].clone()
    }

    async fn serve(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let asked = receive(&mut stream).await?;
        let reply = (self.respond)(&asked);
        self.asked.lock().unwrap().push(asked);
        match reply {
            Reply::Bytes(bytes) => stream.write_all(&bytes).await?,
            Reply::Stall(bytes) => {
                stream.write_all(&bytes).await?;
                stream.flush().await?;
                std::future::pending::<()>().await;
            }
            Reply::Drip(bytes, pause) => {
                for byte in bytes {
                    self.clock.sleep(pause).await;
                    stream.write_all(&[byte]).await?;
                    stream.flush().await?;
                }
            }
            Reply::Flood(head, bytes, times) => {
                stream.write_all(&head).await?;
                for _ in 0..times {
                    stream.write_all(&bytes).await?;
                }
            }
        }
        stream.shutdown().await
    }
}

impl Dial for Pipe {
    fn dial<'a>(&'a self, _: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
        let (near, far) = duplex(64 << 10);
        let server = self.0.clone();
        tokio::spawn(async move {
            match server.tls.clone() {
                Some(tls) => server.serve(tls.accept(far).await?).await,
                None => server.serve(far).await,
            }
        });
        Box::pin(std::future::ready(Ok(Box::new(near) as Box<dyn ByteStream>)))
    }
}

/// Nobody is there.
pub(crate) struct Refusing;

impl Dial for Refusing {
    fn dial<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
        let source = io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = DialError { target: target.clone(), kind: DialErrorKind::Refused, tried: Vec::new(), source };
        Box::pin(std::future::ready(Err(error)))
    }
}

/// Nobody says whether someone is there.
pub(crate) struct Silent;

impl Dial for Silent {
    fn dial<'a>(&'a self, _: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
        Box::pin(std::future::pending())
    }
}

pub(crate) fn config() -> S3Config {
    S3Config {
        endpoint: "http://s3.example:9000".to_owned(),
        region: "eu-central-1".to_owned(),
        bucket: "castles".to_owned(),
        prefix: "/team/".to_owned(),
        path_style: true,
        ca_pem: None,
    }
}

pub(crate) fn credentials() -> Credentials {
    Credentials {
        access_key_id: ID.to_owned(),
        secret_access_key: Secret::from(SECRET.to_owned()),
        session_token: Some(Secret::from(TOKEN.to_owned())),
    }
}

/// A whole answer.
pub(crate) fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let mut bytes = head(status, headers, body.len());
    bytes.extend_from_slice(body);
    Reply::Bytes(bytes)
}

pub(crate) fn head(status: u16, headers: &[(&str, &str)], length: usize) -> Vec<u8> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status} Whatever\r\n{headers}content-length: {length}\r\n\r\n").into_bytes()
}

/// An answer as object stores complain.
pub(crate) fn complaint(status: u16, code: &str) -> Reply {
    answer(status, &[("content-type", "application/xml")], complaint_body(code, "It is said.").as_bytes())
}

pub(crate) fn complaint_body(code: &str, message: &str) -> String {
    format!("<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>")
}

async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Asked> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let mut first = lines.next().unwrap().split(' ');
    let (method, target) = (first.next().unwrap().to_owned(), first.next().unwrap());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = pairs.map(|(name, value)| (decode(name), decode(value))).collect();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let mut body = vec![0; headers.get("content-length").map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await?;
    Ok(Asked { method, path: decode(path), query, headers, body })
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                bytes.push(u8::from_str_radix(str::from_utf8(&digits).unwrap(), 16).unwrap());
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).unwrap()
}
