//! Once over real sockets, by the clock of the machine.

use std::sync::Arc;
use std::time::Duration;

use castle_seams::{Clock, Dial, SystemClock, Target, TcpDial};
use castle_talos::client::{Contact, ErrorClass, Presence};
use tokio::net::TcpListener;

use crate::node::Fake;
use crate::serving::serve;
use crate::tls::{Authority, acceptor};

#[tokio::test]
async fn a_node_is_spoken_with_over_real_sockets() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let tls = acceptor(&ours.server("127.0.0.1"), Some(&ours));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target::new("127.0.0.1", listener.local_addr().unwrap().port());
    let fake = Arc::new(Fake::default());
    let server = tokio::spawn({
        let fake = fake.clone();
        async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Some(tls.clone()), fake.clone(), false));
            }
        }
    });
    let dial: Arc<dyn Dial> = Arc::new(TcpDial { timeout: Duration::from_secs(10) });
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let contact =
        |authority: &Authority| Contact::new("cp-1", &target, &authority.credentials(), None, &dial, &clock).unwrap();
    let found = contact(&ours).probe().await;
    assert!(matches!(&found, Presence::Running(version) if version.tag == "v1.13.9"), "{found:?}");
    contact(&ours).running().bootstrap().await.unwrap();
    assert!(matches!(contact(&theirs).probe().await, Presence::Stranger(_)));
    assert_eq!(fake.asked(), ["Version", "Bootstrap"]);
    server.abort();
    assert!(server.await.unwrap_err().is_cancelled());
    let refusal = contact(&ours).running().version().await.unwrap_err();
    assert_eq!(refusal.class, ErrorClass::Unreachable);
}
