//! What nodes answer: gRPC over HTTP/2, the same over pipes and over TLS.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_talos_api::cluster::cluster_service_server::ClusterServiceServer;
use castle_talos_api::cosi::resource::state_server::StateServer;
use castle_talos_api::machine::machine_service_server::MachineServiceServer;
use castle_talos_api::storage::storage_service_server::StorageServiceServer;
use castle_talos_api::time::time_service_server::TimeServiceServer;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tonic::Status;
use tonic::codegen::Service;

use super::credentials::CERTIFICATE_HEADER;
use super::route::Door;
use crate::datacenter::Datacenter;

mod apply;
mod bootstrap;
mod call;
mod cluster;
mod etcd;
mod files;
mod machine;
mod more;
mod power;
mod reply;
mod rules;
mod services;
mod state;
mod storage;
mod streams;
mod time;

/// The services that a node has and this one does not.
const ABSENT: [&str; 4] =
    ["inspect.InspectService", "machine.DebugService", "machine.ImageService", "machine.LifecycleService"];

/// The bytes that a message may have.
const MESSAGE_BYTES: usize = 32 << 20;

/// How much may be sent to a server before it has read it: of one call, and of all of a connection.
const STREAM_WINDOW: u32 = 65_535 * 32;
const CONNECTION_WINDOW: u32 = 65_535 * 16;

/// How long a server that ends waits for what it has begun.
const GRACE: Duration = Duration::from_secs(10);

/// What carries a connection, and what it tells about the client.
pub(crate) enum Session {
    /// Nothing but bytes: the client says itself which certificate it has.
    Plain,
    /// TLS, which knows the certificate.
    Tls(Option<CertificateDer<'static>>),
}

/// One connection to the Talos API of one node.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) datacenter: Datacenter,
    pub(crate) vmid: u32,
    door: Door,
    /// Whether there is no TLS, so that a client is told what it would have found out by it.
    is_plain: bool,
    /// Tells the connection to end without another byte.
    cut: Arc<Notify>,
}

/// Serves one connection until either end is gone.
pub(crate) async fn serve<S>(datacenter: Datacenter, vmid: u32, apid: u64, stream: S, session: Session)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let door = Door::Talos(vmid, apid);
    let is_plain = matches!(session, Session::Plain);
    let api = Api { datacenter: datacenter.clone(), vmid, door, is_plain, cut: Arc::new(Notify::new()) };
    let session = Arc::new(session);
    let service = service_fn(|mut request: Request<Incoming>| {
        if let Session::Tls(certificate) = session.as_ref() {
            let header = certificate.as_ref().and_then(|der| HeaderValue::from_str(&STANDARD.encode(der)).ok());
            request.headers_mut().remove(CERTIFICATE_HEADER);
            if let Some(header) = header {
                request.headers_mut().insert(CERTIFICATE_HEADER, header);
            }
        }
        let api = api.clone();
        async move { Ok::<_, Infallible>(api.dispatch(request).await) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.auto_date_header(false);
    // As the vendor's server begins, but for the longest list of headers, which is told by itself.
    builder.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    builder.max_concurrent_streams(None);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // A node that is down is gone at once; a server that ends on one that is up finishes what it has begun.
    let gone = datacenter.until(|world| (!world.is_open(door)).then(|| world.talos.boot(vmid).is_some()));
    let is_graceful = tokio::select! {
        biased;
        () = api.cut.notified() => return,
        is_graceful = gone => is_graceful,
        // The client is gone, or spoke no HTTP/2: nobody is left to be told.
        _ = connection.as_mut() => return,
    };
    if is_graceful {
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            biased;
            () = api.cut.notified() => {}
            _ = connection => {}
            () = datacenter.shared.clock.sleep(GRACE) => {}
        }
    }
}

impl Api {
    async fn dispatch(&self, request: Request<Incoming>) -> Response<tonic::body::Body> {
        /// Hands the request to a service.
        macro_rules! hand {
            ($server:ident) => {{
                let server = $server::new(self.clone());
                let mut server =
                    server.max_decoding_message_size(MESSAGE_BYTES).max_encoding_message_size(MESSAGE_BYTES);
                match server.call(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            }};
        }
        let path = request.uri().path().to_owned();
        if let Some(absent) = Self::absent(&path) {
            return absent.into_http();
        }
        match path.split('/').nth(1).unwrap_or_default() {
            "machine.MachineService" => hand!(MachineServiceServer),
            "cosi.resource.State" => hand!(StateServer),
            "storage.StorageService" => hand!(StorageServiceServer),
            "cluster.ClusterService" => hand!(ClusterServiceServer),
            "time.TimeService" => hand!(TimeServiceServer),
            _ => {
                let certificate = request.headers().get(CERTIFICATE_HEADER).and_then(|value| value.to_str().ok());
                self.unknown(&path, certificate).into_http()
            }
        }
    }

    /// What is said of a service that is not there, to whoever gets through.
    fn unknown(&self, path: &str, certificate: Option<&str>) -> Status {
        let world = self.datacenter.world();
        match self.caller(&world, certificate) {
            Err(status) => status,
            Ok(_) => match path.trim_start_matches('/').split_once('/').unwrap_or((path, "")) {
                (service, method) if ABSENT.contains(&service) => {
                    let name = service.rsplit('.').next().unwrap_or(service);
                    Status::unimplemented(format!("the embedded node simulates no {name}.{method}"))
                }
                (service, _) => Status::unimplemented(format!("unknown service {service}")),
            },
        }
    }
}
