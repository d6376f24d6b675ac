//! A connection over which watches fall silent, without an end and without a word.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use castle_datacenter::PodFault;
use castle_kubernetes::model::Kind;
use castle_kubernetes::steps::Expect;
use castle_seams::{BoxFuture, ByteStream, Clock, Dial, DialError, Target};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::room::{in_room_over, object, well};

/// Leads where another leads.
struct Silencing(Arc<dyn Dial>);

impl Dial for Silencing {
    fn dial<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
        Box::pin(async move {
            let inner = self.0.dial(target).await?;
            Ok(Box::new(Silent { inner, is_watch: false }) as Box<dyn ByteStream>)
        })
    }
}

/// Passes everything on, until a watch is asked for.
struct Silent {
    inner: Box<dyn ByteStream>,
    is_watch: bool,
}

impl AsyncRead for Silent {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_watch {
            return Poll::Pending;
        }
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl AsyncWrite for Silent {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.is_watch |= bytes.windows(10).any(|window| window == b"watch=true");
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[test]
fn a_gate_opens_although_its_watch_says_nothing() {
    in_room_over(
        |dial| Arc::new(Silencing(dial)),
        async |room| {
            let web = object(json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
                "spec": {
                    "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
                    "template": {
                        "metadata": {"labels": {"app": "web"}},
                        "spec": {"tolerations": [{"operator": "Exists"}], "containers": [{"name": "web", "image": "web:1"}]},
                    },
                },
            }));
            room.datacenter().fail_pods("blue", "default", "web-", Some(PodFault::NotReady));
            well(&room.apply("x", &[web]).await);
            let serving = Expect::Serving(Kind::new("apps/v1", "Deployment"), "default".to_owned(), "web".to_owned());
            let mend = async {
                room.clock.sleep(Duration::from_secs(40)).await;
                room.datacenter().fail_pods("blue", "default", "web-", None);
                room.clock.monotonic()
            };
            let (report, mended) = tokio::join!(room.expect(vec![serving], Duration::from_secs(300)), mend);
            well(&report);
            let late = room.clock.monotonic() - mended;
            assert!(late <= Duration::from_secs(16), "{late:?}");
        },
    );
}
