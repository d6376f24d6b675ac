//! What each answer is taken for.

use castle_engine::StoreErrorKind::{self, Conflict, Refused, Unavailable, Unknown};
use castle_engine::{Expect, Found, Store, StoreError, Tag};
use castle_s3::S3Config;
use castle_testbed::in_virtual_time;

use crate::server::{Asked, Reply, Server, answer, complaint, config};

/// What each of the five deeds makes of an answer.
struct Said {
    get: Result<Option<Found>, StoreError>,
    put_new: Result<Tag, StoreError>,
    put_over: Result<Tag, StoreError>,
    list: Result<Vec<String>, StoreError>,
    delete: Result<(), StoreError>,
}

fn ask_all(respond: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Said {
    in_virtual_time(async |clock| {
        let store = Server::new(clock, respond).store();
        let tag = Tag("\"1\"".to_owned());
        Said {
            get: store.get("a/lease").await,
            put_new: store.put("a/lease", b"x", Expect::Nothing).await,
            put_over: store.put("a/lease", b"x", Expect::Version(&tag)).await,
            list: store.list("a/").await,
            delete: store.delete("a/lease").await,
        }
    })
}

fn kind<T>(result: &Result<T, StoreError>) -> Option<StoreErrorKind> {
    result.as_ref().err().map(|error| error.kind)
}

/// The kinds in the order get, put new, put over, list, delete; nothing for a success.
fn check(status: u16, code: &'static str, expected: [Option<StoreErrorKind>; 5]) -> Said {
    let said = ask_all(move |_| if code.is_empty() { answer(status, &[], b"") } else { complaint(status, code) });
    let kinds = [kind(&said.get), kind(&said.put_new), kind(&said.put_over), kind(&said.list), kind(&said.delete)];
    assert_eq!(kinds, expected, "{status} {code}");
    if let Err(error) = &said.put_new {
        assert_eq!(error.subject, "s3://castles/team/a/lease");
        assert!(error.evidence.contains(&status.to_string()) && error.evidence.contains(code), "{error}");
    }
    said
}

const ALL_REFUSED: [Option<StoreErrorKind>; 5] = [Some(Refused); 5];
const ALL_LATER: [Option<StoreErrorKind>; 5] = [Some(Unavailable); 5];
/// Who reads may simply read again; who writes does not know.
const WRITES_UNKNOWN: [Option<StoreErrorKind>; 5] =
    [Some(Unavailable), Some(Unknown), Some(Unknown), Some(Unavailable), Some(Unknown)];

#[test]
fn absence_is_an_answer_and_not_an_error() {
    let said = check(404, "NoSuchKey", [None, Some(Refused), Some(Conflict), Some(Refused), None]);
    assert_eq!(said.get, Ok(None));
    assert!(said.put_over.unwrap_err().evidence.contains("someone else wrote in between"));
}

#[test]
fn a_lost_race_is_a_conflict_and_a_draw_is_not() {
    let said =
        check(412, "PreconditionFailed", [Some(Refused), Some(Conflict), Some(Conflict), Some(Refused), Some(Refused)]);
    assert_eq!(said.put_new.unwrap_err().evidence, "412 PreconditionFailed: It is said; someone else wrote in between");
    check(409, "ConditionalRequestConflict", ALL_LATER);
    check(409, "OperationAborted", ALL_LATER);
    check(409, "InvalidBucketState", ALL_REFUSED);
}

#[test]
fn who_is_turned_away_may_come_again() {
    check(503, "SlowDown", ALL_LATER);
    check(503, "SlowDownWrite", ALL_LATER);
    check(429, "TooManyRequests", ALL_LATER);
    check(400, "RequestTimeout", ALL_LATER);
}

#[test]
fn a_server_in_trouble_may_have_written() {
    for (status, code) in
        [(500, "InternalError"), (502, ""), (503, ""), (503, "ServiceUnavailable"), (504, ""), (408, "")]
    {
        check(status, code, WRITES_UNKNOWN);
    }
}

#[test]
fn what_stays_refused_says_what_to_do() {
    let told = |said: Said| said.put_new.unwrap_err().evidence;
    let denied = told(check(403, "AccessDenied", ALL_REFUSED));
    assert!(denied.contains("bucket `castles` in region `eu-central-1`: allow s3:ListBucket"), "{denied}");
    let wrong = told(check(403, "SignatureDoesNotMatch", ALL_REFUSED));
    assert!(wrong.contains("correct the access key"), "{wrong}");
    let skewed = told(check(403, "RequestTimeTooSkewed", ALL_REFUSED));
    assert!(skewed.contains("clock"), "{skewed}");
    let expired = told(check(400, "ExpiredToken", ALL_REFUSED));
    assert!(expired.contains("get new credentials"), "{expired}");
    let missing = told(check(404, "NoSuchBucket", ALL_REFUSED));
    assert!(missing.contains("there is no bucket `castles` in region `eu-central-1`: create it"), "{missing}");
    let moved = told(check(301, "PermanentRedirect", ALL_REFUSED));
    assert!(moved.contains("the bucket `castles` is not in region `eu-central-1`"), "{moved}");
    let lacking = told(check(501, "NotImplemented", ALL_REFUSED));
    assert!(lacking.contains("no conditional writes"), "{lacking}");
    check(400, "InvalidRequest", ALL_REFUSED);
    let full = told(check(507, "XMinioStorageFull", ALL_REFUSED));
    assert!(full.contains("no room left"), "{full}");
}

#[test]
fn the_right_region_is_named() {
    let said = ask_all(|_| answer(301, &[("x-amz-bucket-region", "eu-west-1")], b""));
    let told = said.get.unwrap_err().evidence;
    assert!(told.contains("is not in region `eu-central-1` but in `eu-west-1`: set region"), "{told}");
    let body = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>us-west-2</Region></Error>";
    let told = ask_all(|_| answer(400, &[], body)).list.unwrap_err().evidence;
    assert!(told.contains("but in `us-west-2`"), "{told}");
    let odd = ask_all(|_| answer(301, &[("x-amz-bucket-region", "run `rm -r` at once")], b""));
    assert!(!odd.get.unwrap_err().evidence.contains("rm -r"));
}

/// Goal: something that is no object store (a gateway, a sign-in page) is never taken for an empty bucket.
#[test]
fn a_stranger_is_not_an_empty_bucket() {
    let lost = ask_all(|_| answer(404, &[], b"<html>nothing here</html>"));
    assert_eq!(kind(&lost.get), Some(Refused));
    assert_eq!(kind(&lost.list), Some(Refused));
    assert_eq!(kind(&lost.delete), Some(Refused));
    let portal = ask_all(|_| answer(200, &[], b"<html>sign in</html>"));
    assert_eq!(kind(&portal.get), Some(Refused), "it names no version");
    assert_eq!(kind(&portal.put_new), Some(Unknown), "it says that it was written");
    assert_eq!(kind(&portal.list), Some(Refused));
}

#[test]
fn versions_are_taken_as_they_are_and_never_weak() {
    let with = |tag: &'static str| ask_all(move |_| answer(200, &[("ETag", tag)], b"x"));
    let tag = Tag("\"abc-2\"".to_owned());
    for written in ["\"abc-2\"", "abc-2"] {
        let said = with(written);
        assert_eq!(said.get, Ok(Some(Found { bytes: b"x".to_vec(), tag: tag.clone() })));
        assert_eq!(said.put_over, Ok(tag.clone()));
    }
    for odd in ["W/\"abc-2\"", "\"\"", "\"a\", \"b\"", "\"a"] {
        let said = with(odd);
        assert_eq!(kind(&said.get), Some(Refused), "{odd}");
        assert_eq!(kind(&said.put_new), Some(Unknown), "{odd}");
    }
}

/// Goal: a version that would match anything is never sent. Method: nothing may be asked at all.
#[test]
fn a_version_that_is_none_never_matches() {
    in_virtual_time(async |clock| {
        let server = Server::new(clock, |_| answer(200, &[("ETag", "\"2\"")], b""));
        for odd in ["*", "", "\"a\", \"b\"", "\"a\r\nx: y\"", "a"] {
            let put = server.store().put("a", b"x", Expect::Version(&Tag(odd.to_owned()))).await;
            assert_eq!(kind(&put), Some(Conflict), "{odd}");
        }
        assert!(server.asked.lock().unwrap().is_empty());
    });
}

#[test]
fn keys_that_are_none_are_not_sent() {
    in_virtual_time(async |clock| {
        let server = Server::new(clock, |_| answer(200, &[], b""));
        for odd in ["", "/a", "a/", "a//b", "a/../b", "A", "a b", "a?b", "ü"] {
            assert_eq!(kind(&server.store().get(odd).await), Some(Refused), "{odd}");
            assert_eq!(kind(&server.store().delete(odd).await), Some(Refused), "{odd}");
            assert_eq!(kind(&server.store().put(odd, b"", Expect::Nothing).await), Some(Refused), "{odd}");
        }
        assert!(server.asked.lock().unwrap().is_empty());
    });
}

#[test]
fn what_is_sent_is_conditional_and_the_condition_is_signed() {
    in_virtual_time(async |clock| {
        let put = async |expect: Expect<'_>| {
            let server = Server::new(clock, |_| answer(200, &[("ETag", "\"2\"")], b""));
            assert_eq!(server.store().put("a/b-1", b"bytes", expect).await, Ok(Tag("\"2\"".to_owned())));
            server.only()
        };
        let new = put(Expect::Nothing).await;
        assert_eq!(
            (new.method.as_str(), new.path.as_str(), new.body.as_slice()),
            ("PUT", "/castles/team/a/b-1", &b"bytes"[..])
        );
        assert_eq!(new.headers["if-none-match"], "*");
        assert_eq!(new.headers.get("if-match"), None);
        assert_eq!(new.headers["host"], "s3.example:9000");
        assert_eq!(new.headers["content-length"], "5");
        assert_eq!(new.headers["x-amz-date"], "20260921T141320Z");
        let signed =
            "SignedHeaders=content-type;host;if-none-match;x-amz-content-sha256;x-amz-date;x-amz-security-token,";
        assert!(new.headers["authorization"].contains(signed), "{:?}", new.headers);
        assert!(new.headers["authorization"].contains("/20260921/eu-central-1/s3/aws4_request"));

        let over = put(Expect::Version(&Tag("\"1\"".to_owned()))).await;
        assert_eq!(over.headers["if-match"], "\"1\"");
        assert_eq!(over.headers.get("if-none-match"), None);
        assert!(over.headers["authorization"].contains(";if-match;"));
    });
}

#[test]
fn an_empty_record_is_a_record() {
    in_virtual_time(async |clock| {
        let server = Server::new(clock, |_| answer(200, &[("ETag", "\"e\"")], b""));
        server.store().put("a", b"", Expect::Nothing).await.unwrap();
        assert_eq!(server.only().headers["content-length"], "0");
        assert_eq!(server.store().get("a").await.unwrap().unwrap().bytes, b"");
    });
}

#[test]
fn the_bucket_may_be_in_the_host_and_the_prefix_may_be_odd() {
    in_virtual_time(async |clock| {
        let server = Server::new(clock, |_| complaint(404, "NoSuchKey"));
        let prefix = "wächter +1/~x".to_owned();
        let config = S3Config { path_style: false, prefix, endpoint: "http://s3.example".to_owned(), ..config() };
        assert_eq!(server.store_with(&config).get("a").await, Ok(None));
        let asked = server.only();
        assert_eq!((asked.headers["host"].as_str(), asked.path.as_str()), ("castles.s3.example", "/wächter +1/~x/a"));
    });
}
