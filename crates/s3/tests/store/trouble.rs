//! Connections that fail, stall, are cut, or never end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use castle_engine::StoreErrorKind::{self, Refused, Unavailable, Unknown};
use castle_engine::{Expect, Store, StoreError, Tag};
use castle_s3::{DEADLINE, S3Store};
use castle_seams::{Clock, Dial};
use castle_testbed::{VirtualClock, in_virtual_time};

use crate::server::{Asked, Refusing, Reply, Server, Silent, answer, config, credentials, head};

/// The kinds of failures in the order get, put, list, delete.
async fn ask_all(store: &S3Store) -> [StoreErrorKind; 4] {
    fn kind<T>(result: Result<T, StoreError>) -> StoreErrorKind {
        result.err().unwrap().kind
    }
    [
        kind(store.get("a").await),
        kind(store.put("a", b"x", Expect::Nothing).await),
        kind(store.list("").await),
        kind(store.delete("a").await),
    ]
}

const WRITES_UNKNOWN: [StoreErrorKind; 4] = [Unavailable, Unknown, Unavailable, Unknown];

fn ask_server(respond: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> [StoreErrorKind; 4] {
    in_virtual_time(async |clock| ask_all(&Server::new(clock, respond).store()).await)
}

fn store(dial: impl Dial + 'static, clock: &VirtualClock) -> S3Store {
    S3Store::new(&config(), credentials(), Arc::new(dial), Arc::new(*clock)).unwrap()
}

#[test]
fn without_a_connection_nothing_was_written() {
    in_virtual_time(async |clock| {
        assert_eq!(ask_all(&store(Refusing, clock)).await, [Unavailable; 4]);
        let error = store(Refusing, clock).put("a", b"x", Expect::Nothing).await.unwrap_err();
        assert_eq!(error.evidence, "cannot connect to s3.example:9000: connection refused");
    });
    in_virtual_time(async |clock| {
        let begun = clock.monotonic();
        assert_eq!(ask_all(&store(Silent, clock)).await, [Unavailable; 4]);
        assert_eq!(clock.monotonic() - begun, 4 * DEADLINE);
    });
}

#[test]
fn a_silent_server_meets_the_deadline() {
    in_virtual_time(async |clock| {
        let begun = clock.monotonic();
        let server = Server::new(clock, |_| Reply::Stall(Vec::new()));
        assert_eq!(ask_all(&server.store()).await, WRITES_UNKNOWN);
        assert_eq!(clock.monotonic() - begun, 4 * DEADLINE);
        let brief = server.store().with_deadline(Duration::from_secs(2));
        let error = brief.get("a").await.unwrap_err();
        assert_eq!(error.evidence, "no whole answer within 2 s (asked s3.example:9000)");
        assert_eq!(clock.monotonic() - begun, 4 * DEADLINE + Duration::from_secs(2));
    });
}

#[test]
fn a_slow_server_meets_the_deadline_too() {
    in_virtual_time(async |clock| {
        let begun = clock.monotonic();
        let slow = |_: &Asked| {
            let mut bytes = head(200, &[("ETag", "\"1\"")], 1_000);
            bytes.resize(bytes.len() + 1_000, b'x');
            Reply::Drip(bytes, Duration::from_millis(100))
        };
        assert_eq!(ask_all(&Server::new(clock, slow).store()).await, WRITES_UNKNOWN);
        assert_eq!(clock.monotonic() - begun, 4 * DEADLINE);
    });
}

#[test]
fn a_server_that_is_slow_enough_is_heard() {
    in_virtual_time(async |clock| {
        let slow = |_: &Asked| {
            let mut bytes = head(200, &[("ETag", "\"1\"")], 5);
            bytes.extend_from_slice(b"whole");
            Reply::Drip(bytes, Duration::from_millis(100))
        };
        assert_eq!(Server::new(clock, slow).store().get("a").await.unwrap().unwrap().bytes, b"whole");
    });
}

#[test]
fn an_answer_that_is_cut_is_no_answer() {
    let whole = |status| {
        let mut bytes = head(status, &[("ETag", "\"1\"")], 100);
        bytes.extend_from_slice(b"the first of a hundred bytes");
        bytes
    };
    for status in [200, 404, 412, 403, 500] {
        let length = whole(status).len();
        for keep in [0, 5, 20, length - 50, length] {
            let kinds = ask_server(move |_| Reply::Bytes(whole(status)[..keep].to_vec()));
            assert_eq!(kinds, WRITES_UNKNOWN, "{status}, {keep} bytes");
        }
    }
    let chunked =
        |_: &Asked| Reply::Bytes(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n".to_vec());
    assert_eq!(ask_server(chunked), WRITES_UNKNOWN);
}

#[test]
fn an_answer_of_unknown_length_is_no_record() {
    let endless = |_: &Asked| Reply::Bytes(b"HTTP/1.1 200 OK\r\nETag: \"1\"\r\n\r\nall of it?".to_vec());
    in_virtual_time(async |clock| {
        let error = Server::new(clock, endless).store().get("a").await.unwrap_err();
        assert_eq!(error.kind, Refused, "{error}");
    });
}

#[test]
fn what_is_no_http_is_no_answer() {
    assert_eq!(ask_server(|_| Reply::Bytes(b"SSH-2.0-OpenSSH_9.6\r\n".to_vec())), WRITES_UNKNOWN);
    assert_eq!(ask_server(|_| Reply::Bytes(vec![0xff; 1 << 20])), WRITES_UNKNOWN);
    assert_eq!(
        ask_server(|_| Reply::Flood(b"HTTP/1.1 200 OK\r\n".to_vec(), b"x: y\r\n".to_vec(), 1 << 17)),
        WRITES_UNKNOWN
    );
}

#[test]
fn an_answer_that_is_too_large_is_not_kept() {
    let expected = [Refused, Unknown, Refused, Unknown];
    let announced = |_: &Asked| Reply::Stall(head(200, &[("ETag", "\"1\"")], (64 << 20) + 1));
    assert_eq!(ask_server(announced), expected);
    in_virtual_time(async |clock| {
        let begun = clock.monotonic();
        let chunk = [b"100000\r\n".to_vec(), vec![b'x'; 1 << 20], b"\r\n".to_vec()].concat();
        let head = b"HTTP/1.1 200 OK\r\nETag: \"1\"\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        let server = Server::new(clock, move |_| Reply::Flood(head.clone(), chunk.clone(), usize::MAX));
        let error = server.store().get("a").await.unwrap_err();
        assert_eq!((error.kind, error.evidence.as_str()), (Refused, "it is larger than 64 MiB"));
        assert_eq!(clock.monotonic(), begun);
    });
}

#[test]
fn a_record_that_is_too_large_is_not_sent() {
    in_virtual_time(async |clock| {
        let server = Server::new(clock, |_| answer(200, &[("ETag", "\"1\"")], b""));
        let error = server.store().put("a", &vec![0; (64 << 20) + 1], Expect::Nothing).await.unwrap_err();
        assert_eq!(error.kind, Refused);
        assert!(server.asked.lock().unwrap().is_empty());
    });
}

/// Goal: a write whose answer is lost is told as what it is, and reading tells that it took place.
#[test]
fn a_lost_answer_leaves_the_effect_unknown_and_reading_tells() {
    in_virtual_time(async |clock| {
        let (kept, is_lossy) = (Mutex::new(None::<Vec<u8>>), AtomicBool::new(true));
        let server = Server::new(clock, move |asked| {
            let mut kept = kept.lock().unwrap();
            match (asked.method.as_str(), kept.as_ref()) {
                ("PUT", None) => {
                    *kept = Some(asked.body.clone());
                    assert!(is_lossy.swap(false, Ordering::Relaxed));
                    Reply::Bytes(Vec::new())
                }
                ("PUT", Some(_)) => answer(412, &[], b""),
                (_, Some(bytes)) => answer(200, &[("ETag", "\"1\"")], bytes),
                (_, None) => answer(404, &[], b""),
            }
        });
        let store = server.store();
        assert_eq!(store.put("a", b"mine", Expect::Nothing).await.unwrap_err().kind, Unknown);
        let found = store.get("a").await.unwrap().unwrap();
        assert_eq!((found.bytes.as_slice(), found.tag), (&b"mine"[..], Tag("\"1\"".to_owned())));
        assert_eq!(store.put("a", b"mine", Expect::Nothing).await.unwrap_err().kind, StoreErrorKind::Conflict);
    });
}
