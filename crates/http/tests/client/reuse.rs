//! Which connections are used again, and what it means when that goes wrong.

use std::time::Duration;

use castle_http::{Ask, Bytes, Failure, IDLE_CONNECTIONS, IDLE_TIME, Method};
use castle_seams::Clock;
use castle_testbed::{VirtualClock, in_virtual_time};
use futures_util::future::join_all;

use crate::server::{OK, Reply, Server, get};

const MOMENT: Duration = Duration::from_millis(1);

#[test]
fn a_connection_is_used_again_for_a_while() {
    in_virtual_time(async |clock| {
        let (server, client) = Server::saying(clock, OK).plain();
        client.ask(&get()).await.unwrap();
        client.ask(&get()).await.unwrap();
        clock.sleep(IDLE_TIME - MOMENT).await;
        client.ask(&get()).await.unwrap();
        assert_eq!(server.used(), [1, 1, 1]);
        clock.sleep(IDLE_TIME).await;
        client.ask(&get()).await.unwrap();
        assert_eq!(server.used(), [1, 1, 1, 2]);
    });
}

#[test]
fn few_idle_connections_are_kept() {
    in_virtual_time(async |clock| {
        let (server, client) = Server::saying(clock, OK).plain();
        let many = IDLE_CONNECTIONS + 2;
        for round in 0..2 {
            for answer in join_all((0..many).map(async |_| client.ask(&get()).await)).await {
                assert_eq!(answer.unwrap().body, "whole");
            }
            assert_eq!(*server.connections.lock().unwrap(), many + 2 * round);
        }
    });
}

/// Goal: a connection that cannot be used again takes no place. Method: it would drive out one of four that are good.
#[test]
fn only_connections_that_can_be_used_are_kept() {
    in_virtual_time(async |clock| {
        let (server, client) = half_read(clock).plain();
        let ask_all = async || join_all((0..IDLE_CONNECTIONS).map(async |_| client.ask(&get()).await.unwrap())).await;
        ask_all().await;
        client.ask(&Ask { fresh: true, ..large() }).await.unwrap();
        ask_all().await;
        assert_eq!(*server.connections.lock().unwrap(), IDLE_CONNECTIONS + 1);
    });
}

#[test]
fn who_insists_on_a_new_connection_gets_one() {
    in_virtual_time(async |clock| {
        let (server, client) = Server::saying(clock, OK).plain();
        client.ask(&get()).await.unwrap();
        client.ask(&Ask { fresh: true, ..get() }).await.unwrap();
        client.ask(&get()).await.unwrap();
        assert_eq!(server.used(), [1, 2, 2]);
        assert!(!server.last().contains("connection:"), "{}", server.last());
    });
}

#[test]
fn one_request_a_connection_can_be_had() {
    in_virtual_time(async |clock| {
        let (server, client) = Server::saying(clock, OK).plain();
        let client = client.without_reuse();
        client.ask(&get()).await.unwrap();
        client.ask(&get()).await.unwrap();
        assert_eq!(server.used(), [1, 2]);
        assert!(server.last().contains("connection: close\r\n"), "{}", server.last());
    });
}

/// Goal: a connection that was closed while idle costs nothing but a new one, whether the server says so before or not.
#[test]
fn a_closed_idle_connection_is_replaced() {
    let silently = |_: &str| Reply::End(OK.into());
    let later = |_: &str| Reply::EndAfter(OK.into(), Duration::from_secs(1));
    let politely = |_: &str| Reply::End(OK.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n").into());
    let chattily = |_: &str| Reply::Bytes(format!("{OK}HTTP/1.1 408 Too late\r\n\r\n").into());
    let respond: [fn(&str) -> Reply; 4] = [silently, later, politely, chattily];
    for respond in respond {
        in_virtual_time(async |clock| {
            let (server, client) = Server::new(clock, respond).plain();
            for _ in 0..3 {
                assert_eq!(client.ask(&get()).await.unwrap().body, "whole");
                clock.sleep(Duration::from_secs(2)).await;
            }
            assert_eq!(server.used(), [1, 2, 3]);
        });
    }
}

/// Goal: what may have been read is never sent again. Method: the server takes the second request and hangs up.
#[test]
fn a_request_that_was_sent_is_lost_and_not_repeated() {
    in_virtual_time(async |clock| {
        let respond = |asked: &str| match asked.starts_with("POST") {
            true => Reply::End(Vec::new()),
            false => Reply::Bytes(OK.into()),
        };
        let (server, client) = Server::new(clock, respond).plain();
        client.ask(&get()).await.unwrap();
        let failure = client.ask(&Ask::new(Method::POST, "/x")).await.unwrap_err();
        assert!(matches!(failure, Failure::Lost(_)), "{failure:?}");
        assert_eq!(server.used(), [1, 1]);
        client.ask(&get()).await.unwrap();
        assert_eq!(server.used(), [1, 1, 2]);
    });
}

/// A server that answers after the head of a request; what has a body it then ignores.
fn half_read(clock: &VirtualClock) -> Server {
    let respond = |asked: &str| match asked.starts_with("DELETE") {
        true => Reply::Stall(OK.into()),
        false => Reply::Bytes(OK.into()),
    };
    Server { reads_bodies: false, ..Server::new(clock, respond) }
}

/// A request that is larger than the pipe.
fn large() -> Ask {
    Ask { body: Bytes::from(vec![b'x'; 1 << 20]), ..Ask::new(Method::DELETE, "/x") }
}

/// Goal: a server that answers without having read the request gets no second one over the same connection.
#[test]
fn a_connection_with_a_request_half_sent_is_not_used_again() {
    in_virtual_time(async |clock| {
        let (server, client) = half_read(clock).plain();
        assert_eq!(client.ask(&large()).await.unwrap().body, "whole");
        client.ask(&get()).await.unwrap();
        assert_eq!(server.used(), [1, 2]);
    });
}

/// Goal: a server that hangs up at once has read nothing, and the failure says so.
#[test]
fn nothing_is_sent_to_whoever_hangs_up_at_once() {
    in_virtual_time(async |clock| {
        let (server, client) = Server { hangs_up: true, ..Server::saying(clock, OK) }.plain();
        let failure = client.ask(&get()).await.unwrap_err();
        assert!(matches!(failure, Failure::NotSent(_)), "{failure:?}");
        assert!(server.used().is_empty());
    });
}
