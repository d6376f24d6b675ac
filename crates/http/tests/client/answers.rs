//! What is sent, what is read of an answer, and what is shown of both.

use castle_http::header::{AUTHORIZATION, HOST, HeaderValue, SET_COOKIE};
use castle_http::{Answer, Ask, Bytes, Failure, Method, Trust};
use castle_testbed::in_virtual_time;

use crate::server::{OK, Reply, Server, get};

fn answer(text: &str) -> Result<Answer, Failure> {
    let text = text.to_owned();
    in_virtual_time(async |clock| {
        let (_, client) = Server::new(clock, move |_| Reply::End(text.clone().into())).plain();
        client.with_limit(1_000).ask(&get()).await
    })
}

#[test]
fn the_words_after_the_status_are_read() {
    let told = "Permission check failed (/vms/421, VM.Audit)";
    let refused = answer(&format!("HTTP/1.1 403 {told}\r\ncontent-length: 0\r\n\r\n")).unwrap();
    assert_eq!((refused.status.as_u16(), refused.reason.as_deref()), (403, Some(told)));
    let odd = answer("HTTP/1.1 596 Connection timed out\r\ncontent-length: 0\r\n\r\n").unwrap();
    assert_eq!((odd.status.as_u16(), odd.reason.as_deref()), (596, Some("Connection timed out")));
    for unsaid in ["HTTP/1.1 200 OK", "HTTP/1.1 200 ", "HTTP/1.1 200", "HTTP/1.1 500 für nichts"] {
        assert_eq!(answer(&format!("{unsaid}\r\ncontent-length: 0\r\n\r\n")).unwrap().reason, None, "{unsaid}");
    }
}

#[test]
fn an_answer_that_is_too_large_is_not_kept() {
    let announced = "HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n";
    assert_eq!(answer(announced).unwrap_err(), Failure::TooLarge);
    let chunk = format!("1f4\r\n{}\r\n", "x".repeat(500));
    let chunked = |count: usize| {
        answer(&format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk.repeat(count)))
    };
    assert_eq!(chunked(3).unwrap_err(), Failure::TooLarge);
    assert_eq!(chunked(2).unwrap().body.len(), 1_000);
}

#[test]
fn an_answer_that_is_cut_is_lost() {
    for kept in 0..OK.len() {
        let failure = answer(&OK[..kept]).unwrap_err();
        assert!(matches!(failure, Failure::Lost(_)), "{kept}: {failure:?}");
    }
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n";
    assert!(matches!(answer(chunked).unwrap_err(), Failure::Lost(_)));
    assert!(matches!(answer("SSH-2.0-OpenSSH_9.6\r\n").unwrap_err(), Failure::Lost(_)));
}

#[test]
fn the_request_is_as_it_was_given() {
    in_virtual_time(async |clock| {
        let (server, client) = Server::saying(clock, OK).open("http://[::1]:8006/api/", &Trust::PublicRoots);
        let mut ask = Ask { body: Bytes::from("a=b"), ..Ask::new(Method::PUT, "/x%20y?q=1") };
        ask.headers.insert(HOST, HeaderValue::from_static("other.example"));
        ask.headers.insert("content-type", HeaderValue::from_static("text/plain"));
        client.ask(&ask).await.unwrap();
        assert_eq!(
            server.last(),
            "PUT /api/x%20y?q=1 HTTP/1.1\r\nhost: [::1]:8006\r\nuser-agent: castle\r\naccept-encoding: identity\r\n\
             content-type: text/plain\r\ncontent-length: 3\r\n\r\na=b"
        );
        client.ask(&Ask::new(Method::POST, "/x")).await.unwrap();
        assert!(server.last().contains("content-length: 0\r\n"), "{}", server.last());
        client.ask(&get()).await.unwrap();
        assert!(!server.last().contains("content-length"), "{}", server.last());
    });
}

#[test]
fn a_path_that_is_not_encoded_is_not_sent() {
    in_virtual_time(async |clock| {
        let (server, client) = Server::saying(clock, OK).plain();
        for path in ["/a b", "/planted\r\nx: y"] {
            let failure = client.ask(&Ask::new(Method::GET, path)).await.unwrap_err();
            assert!(matches!(failure, Failure::NotSent(_)), "{failure:?}");
            assert!(!format!("{failure} {failure:?}").contains("planted"), "{failure}");
        }
        assert_eq!(*server.connections.lock().unwrap(), 0);
    });
}

#[test]
fn nothing_that_is_shown_holds_a_secret() {
    in_virtual_time(async |clock| {
        let text = "HTTP/1.1 200 planted\r\nset-cookie: planted\r\ncontent-length: 7\r\n\r\nplanted";
        let (server, client) = Server::saying(clock, text).plain();
        let mut ask = Ask { body: Bytes::from("planted"), ..Ask::new(Method::POST, "/x?token=planted") };
        let mut secret = HeaderValue::from_static("planted");
        secret.set_sensitive(true);
        ask.headers.insert(AUTHORIZATION, secret);
        let answer = client.ask(&ask).await.unwrap();
        assert!(server.last().contains("authorization: planted\r\n"));
        assert_eq!(answer.headers[SET_COOKIE], "planted");
        let shown = format!("{ask:?} {answer:?} {client:?}");
        assert!(!shown.contains("planted"), "{shown}");
        assert!(shown.contains("\"/x\"") && shown.contains("h.example"), "{shown}");
    });
}
