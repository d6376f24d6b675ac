//! Whatever the other end does not do, the deadline ends it, and the failure tells how far it came.

use std::time::Duration;

use castle_http::{Ask, Bytes, DEADLINE, Failure, Method};
use castle_seams::Clock;
use castle_testbed::in_virtual_time;

use crate::server::{OK, Reply, Server, get};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn while_dialling() {
    in_virtual_time(async |clock| {
        let (server, client) = Server { dial_time: 99 * SECOND, ..Server::saying(clock, OK) }.plain();
        let failure = client.ask(&get()).await.unwrap_err();
        assert_eq!(failure, Failure::NotSent("no connection to h.example:8006: no result within 30 s".to_owned()));
        assert_eq!(clock.monotonic(), DEADLINE);
        assert!(server.used().is_empty());
    });
}

#[test]
fn in_tls() {
    in_virtual_time(async |clock| {
        let server = Server { is_deaf: true, ..Server::saying(clock, OK) };
        let (_, client) = server.open("https://h.example", &castle_http::Trust::PublicRoots);
        let failure = client.ask(&get()).await.unwrap_err();
        assert!(matches!(failure, Failure::NotSent(_)), "{failure:?}");
        assert_eq!(clock.monotonic(), DEADLINE);
    });
}

#[test]
fn while_sending() {
    in_virtual_time(async |clock| {
        let (_, client) = Server { is_deaf: true, ..Server::saying(clock, OK) }.plain();
        let ask = Ask { body: Bytes::from(vec![b'x'; 1 << 20]), ..Ask::new(Method::PUT, "/x") };
        let failure = client.with_deadline(2 * SECOND).ask(&ask).await.unwrap_err();
        assert_eq!(failure, Failure::Lost("no whole answer within 2 s".to_owned()));
        assert_eq!(clock.monotonic(), 2 * SECOND);
    });
}

#[test]
fn while_answering() {
    for kept in [0, 10, OK.len() - 1] {
        in_virtual_time(async |clock| {
            let (_, client) = Server::new(clock, move |_| Reply::Stall(OK.as_bytes()[..kept].to_vec())).plain();
            let failure = client.ask(&get()).await.unwrap_err();
            assert!(matches!(failure, Failure::Lost(_)), "{failure:?}");
            assert_eq!(clock.monotonic(), DEADLINE);
        });
    }
}

#[test]
fn dialling_and_answering_share_one_deadline() {
    in_virtual_time(async |clock| {
        let server = Server { dial_time: 20 * SECOND, ..Server::new(clock, |_| Reply::Stall(Vec::new())) };
        let failure = server.plain().1.ask(&get()).await.unwrap_err();
        assert!(matches!(failure, Failure::Lost(_)), "{failure:?}");
        assert_eq!(clock.monotonic(), DEADLINE);
    });
}

/// Goal: what was given up is not asked over again: its late answer would be taken for that of the next request.
#[test]
fn a_connection_that_met_the_deadline_is_not_used_again() {
    in_virtual_time(async |clock| {
        let respond = |asked: &str| match asked.contains("slow") {
            true => Reply::Stall(Vec::new()),
            false => Reply::Bytes(OK.into()),
        };
        let (server, client) = Server::new(clock, respond).plain();
        let client = client.with_deadline(SECOND);
        client.ask(&get()).await.unwrap();
        client.ask(&Ask::new(Method::GET, "/slow")).await.unwrap_err();
        client.ask(&get()).await.unwrap();
        assert_eq!(server.used(), [1, 1, 2]);
    });
}
