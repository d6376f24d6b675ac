//! A server at the other end of a pipe.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use castle_http::{Ask, Client, Endpoint, Method, Trust};
use castle_seams::{BoxFuture, ByteStream, Clock, Dial, DialError, Target};
use castle_testbed::VirtualClock;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio_rustls::TlsAcceptor;

/// A whole answer.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwhole";

/// What the server does with a request.
pub(crate) enum Reply {
    /// These bytes; then it waits for the next request.
    Bytes(Vec<u8>),
    /// These bytes, and the end.
    End(Vec<u8>),
    /// These bytes, and the end when so much time has passed.
    EndAfter(Vec<u8>, Duration),
    /// These bytes, and nothing more, forever.
    Stall(Vec<u8>),
}

type Respond = Box<dyn Fn(&str) -> Reply + Send + Sync>;

/// A server that answers each request by a function.
pub(crate) struct Server {
    pub(crate) clock: VirtualClock,
    /// How long it takes until somebody is there.
    pub(crate) dial_time: Duration,
    /// Whether it reads nothing at all.
    pub(crate) is_deaf: bool,
    /// Whether it closes every connection before anything is said.
    pub(crate) hangs_up: bool,
    /// Whether it reads more of a request than its head.
    pub(crate) reads_bodies: bool,
    /// What it says before it is asked.
    pub(crate) greets: &'static [u8],
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) respond: Respond,
    /// The number of the connection, and the request as it came.
    pub(crate) asked: Mutex<Vec<(usize, String)>>,
    pub(crate) connections: Mutex<usize>,
}

/// How it is reached.
pub(crate) struct Pipe(pub(crate) Arc<Server>);

impl Server {
    pub(crate) fn new(clock: &VirtualClock, respond: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self {
            clock: *clock,
            dial_time: Duration::ZERO,
            is_deaf: false,
            hangs_up: false,
            reads_bodies: true,
            greets: b"",
            tls: None,
            respond: Box::new(respond),
            asked: Mutex::default(),
            connections: Mutex::default(),
        }
    }

    /// One that says the same to everybody.
    pub(crate) fn saying(clock: &VirtualClock, text: &str) -> Self {
        let text = text.as_bytes().to_vec();
        Self::new(clock, move |_| Reply::Bytes(text.clone()))
    }

    /// The server where it is found, and its client.
    pub(crate) fn open(self, address: &str, trust: &Trust) -> (Arc<Self>, Client) {
        let server = Arc::new(self);
        let (dial, clock) = (Arc::new(Pipe(server.clone())), Arc::new(server.clock));
        let client = Client::new(Endpoint::parse(address).unwrap(), trust, dial, clock).unwrap();
        (server, client)
    }

    pub(crate) fn plain(self) -> (Arc<Self>, Client) {
        self.open("http://h.example:8006/api", &Trust::PublicRoots)
    }

    /// The numbers of the connections that requests came over, in the order of the requests.
    pub(crate) fn used(&self) -> Vec<usize> {
        self.asked.lock().unwrap().iter().map(|(number, _)| *number).collect()
    }

    /// The last request.
    pub(crate) fn last(&self) -> String {
        self.asked.lock().unwrap().last().unwrap().1.clone()
    }

    async fn serve(&self, number: usize, mut stream: impl ByteStream) -> io::Result<()> {
        if self.is_deaf {
            return std::future::pending().await;
        }
        stream.write_all(self.greets).await?;
        loop {
            let asked = receive(&mut stream, self.reads_bodies).await?;
            let reply = (self.respond)(&asked);
            self.asked.lock().unwrap().push((number, asked));
            let (Reply::Bytes(bytes) | Reply::End(bytes) | Reply::EndAfter(bytes, _) | Reply::Stall(bytes)) = &reply;
            stream.write_all(bytes).await?;
            stream.flush().await?;
            match reply {
                Reply::Bytes(_) => {}
                Reply::End(_) => return stream.shutdown().await,
                Reply::EndAfter(_, time) => {
                    self.clock.sleep(time).await;
                    return stream.shutdown().await;
                }
                Reply::Stall(_) => return std::future::pending().await,
            }
        }
    }
}

impl Dial for Pipe {
    fn dial<'a>(&'a self, _: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
        Box::pin(async {
            self.0.clock.sleep(self.0.dial_time).await;
            let (near, far) = duplex(64 << 10);
            let server = self.0.clone();
            let number = {
                let mut connections = server.connections.lock().unwrap();
                *connections += 1;
                *connections
            };
            if server.hangs_up {
                return Ok(Box::new(near) as Box<dyn ByteStream>);
            }
            tokio::spawn(async move {
                match server.tls.clone() {
                    Some(tls) => server.serve(number, tls.accept(far).await?).await,
                    None => server.serve(number, far).await,
                }
            });
            Ok(Box::new(near) as Box<dyn ByteStream>)
        })
    }
}

/// A request, in full or its head.
async fn receive(stream: &mut impl ByteStream, with_body: bool) -> io::Result<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await?);
    }
    let mut text = String::from_utf8(bytes).unwrap();
    if !with_body {
        return Ok(text);
    }
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).map(str::parse);
    let mut body = vec![0; length.map_or(0, Result::unwrap)];
    stream.read_exact(&mut body).await?;
    text.push_str(str::from_utf8(&body).unwrap());
    Ok(text)
}

pub(crate) fn get() -> Ask {
    Ask::new(Method::GET, "/x")
}
