//! A node at the other end of a pipe: how it is reached, and how it goes away.

use std::io;
use std::sync::{Arc, Mutex};

use castle_seams::{BoxFuture, ByteStream, Clock, Dial, DialError, DialErrorKind, Target};
use castle_talos::client::{Contact, Node, PORT, Trust};
use castle_talos_api::cosi::resource::state_server::StateServer;
use castle_talos_api::machine::machine_service_server::MachineServiceServer;
use castle_talos_api::storage::storage_service_server::StorageServiceServer;
use castle_talos_api::time::time_service_server::TimeServiceServer;
use castle_testbed::VirtualClock;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::duplex;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tonic::codegen::Service;

use crate::node::Fake;

/// What happens to whoever dials.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Door {
    Open,
    Refuses,
    NeverAnswers,
    /// Lets in, and says nothing before it is spoken to.
    Shy,
}

/// A node where it is found.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) fake: Arc<Fake>,
    pub(crate) clock: VirtualClock,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) door: Arc<Mutex<Door>>,
    pub(crate) connections: Arc<Mutex<usize>>,
    /// Ends all connections there are.
    pub(crate) outage: Arc<Notify>,
}

impl Site {
    pub(crate) fn new(clock: &VirtualClock) -> Self {
        Self {
            fake: Arc::default(),
            clock: *clock,
            tls: None,
            door: Arc::new(Mutex::new(Door::Open)),
            connections: Arc::default(),
            outage: Arc::default(),
        }
    }

    pub(crate) fn node(&self, trust: &Trust) -> Node {
        Node::new("cp-1", target(), trust, Arc::new(self.clone()), Arc::new(self.clock)).unwrap()
    }

    pub(crate) fn plain(&self) -> Node {
        self.node(&Trust::Plain(None))
    }

    pub(crate) fn plain_contact(&self) -> Contact {
        let (dial, clock): (Arc<dyn Dial>, Arc<dyn Clock>) = (Arc::new(self.clone()), Arc::new(self.clock));
        Contact::plain("cp-1", &target(), None, &dial, &clock).unwrap()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

pub(crate) fn target() -> Target {
    Target::new("10.0.0.11", PORT)
}

impl Dial for Site {
    fn dial<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
        Box::pin(async move {
            let door = *self.door.lock().unwrap();
            match door {
                Door::Refuses => {
                    let (target, source) = (target.clone(), io::ErrorKind::ConnectionRefused.into());
                    return Err(DialError { target, kind: DialErrorKind::Refused, tried: Vec::new(), source });
                }
                Door::NeverAnswers => std::future::pending().await,
                Door::Open | Door::Shy => {}
            }
            *self.connections.lock().unwrap() += 1;
            let (near, far) = duplex(64 << 10);
            let site = self.clone();
            tokio::spawn(async move {
                let outage = site.outage.notified();
                tokio::select! {
                    () = serve(far, site.tls.clone(), site.fake.clone(), door == Door::Shy) => {}
                    () = outage => {}
                }
            });
            Ok(Box::new(near) as Box<dyn ByteStream>)
        })
    }
}

/// Serves one connection to its end.
pub(crate) async fn serve(stream: impl ByteStream + 'static, tls: Option<TlsAcceptor>, fake: Arc<Fake>, shy: bool) {
    match tls {
        None => speak(stream, fake).await,
        Some(tls) => {
            let Ok(mut stream) = tls.accept(stream).await else { return };
            if shy {
                use tokio::io::{AsyncReadExt, join, split};
                let mut first = vec![0; 64];
                let length = stream.read(&mut first).await.unwrap();
                first.truncate(length);
                let (reader, writer) = split(stream);
                return speak(join(io::Cursor::new(first).chain(reader), writer), fake).await;
            }
            speak(stream, fake).await;
        }
    }
}

async fn speak(stream: impl ByteStream + 'static, fake: Arc<Fake>) {
    let machine = MachineServiceServer::from_arc(fake.clone());
    let storage = StorageServiceServer::from_arc(fake.clone());
    let time = TimeServiceServer::from_arc(fake.clone());
    let state = StateServer::from_arc(fake);
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let (mut machine, mut storage, mut state) = (machine.clone(), storage.clone(), state.clone());
        let mut time = time.clone();
        async move {
            match request.uri().path().split('/').nth(1) {
                Some("storage.StorageService") => storage.call(request).await,
                Some("cosi.resource.State") => state.call(request).await,
                Some("time.TimeService") => time.call(request).await,
                _ => machine.call(request).await,
            }
        }
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    // How a connection ends is what some tests are about; the client tells.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}
