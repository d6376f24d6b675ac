//! A bucket in memory that keeps the rules of conditional writes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use castle_engine::{Expect, Found, Store, StoreErrorKind, Tag};
use castle_testbed::{VirtualClock, in_virtual_time};

use crate::server::{Asked, Reply, Server, answer, complaint};

/// Objects by key, each with the number of the write that made it.
#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, (Vec<u8>, u64)>,
    writes: u64,
}

impl Bucket {
    fn respond(&mut self, asked: &Asked, page: usize) -> Reply {
        let Some(key) = asked.path.strip_prefix("/castles/") else { return self.page(asked, page) };
        let found = self.objects.get(key);
        let tag = |number: u64| format!("\"{number}\"");
        match asked.method.as_str() {
            "GET" => match found {
                Some((bytes, number)) => answer(200, &[("ETag", &tag(*number))], bytes),
                None => complaint(404, "NoSuchKey"),
            },
            "PUT" => {
                let is_expected = match (asked.headers.get("if-match"), asked.headers.get("if-none-match"), found) {
                    (Some(_), None, None) => return complaint(404, "NoSuchKey"),
                    (Some(wanted), None, Some((_, number))) => *wanted == tag(*number),
                    (None, Some(_), found) => found.is_none(),
                    _ => return complaint(400, "InvalidRequest"),
                };
                if !is_expected {
                    return complaint(412, "PreconditionFailed");
                }
                self.writes += 1;
                self.objects.insert(key.to_owned(), (asked.body.clone(), self.writes));
                answer(200, &[("ETag", &tag(self.writes))], b"")
            }
            _ => {
                self.objects.remove(key);
                Reply::Bytes(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())
            }
        }
    }

    fn page(&self, asked: &Asked, size: usize) -> Reply {
        assert_eq!((asked.path.as_str(), asked.query["list-type"].as_str()), ("/castles", "2"));
        let after = asked.query.get("continuation-token").map_or("", |token| token.strip_prefix("a&b/ü=").unwrap());
        let keys = self.objects.keys().filter(|key| key.starts_with(&asked.query["prefix"]) && key.as_str() > after);
        let keys: Vec<&String> = keys.collect();
        let contents: String =
            keys.iter().take(size).map(|key| format!("<Contents><Key>{key}</Key></Contents>")).collect();
        let more = if keys.len() > size {
            format!(
                "<IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b/ü={}</NextContinuationToken>",
                keys[size - 1]
            )
        } else {
            "<IsTruncated>false</IsTruncated>".to_owned()
        };
        answer(200, &[], format!("<ListBucketResult>{contents}{more}</ListBucketResult>").as_bytes())
    }
}

fn server(clock: &VirtualClock, page: usize, others: &[&str]) -> Arc<Server> {
    let objects = others.iter().map(|key| ((*key).to_owned(), (Vec::new(), 0))).collect();
    let bucket = Mutex::new(Bucket { objects, writes: 0 });
    Server::new(clock, move |asked| bucket.lock().unwrap().respond(asked, page))
}

#[test]
fn a_record_lives_and_ends() {
    in_virtual_time(async |clock| {
        let store = server(clock, 1_000, &[]).store();
        assert_eq!(store.get("a/lease").await, Ok(None));
        let first = store.put("a/lease", b"one", Expect::Nothing).await.unwrap();
        assert_eq!(store.get("a/lease").await, Ok(Some(Found { bytes: b"one".to_vec(), tag: first.clone() })));
        let second = store.put("a/lease", b"two", Expect::Version(&first)).await.unwrap();
        assert_ne!(first, second);
        for stale in [Expect::Nothing, Expect::Version(&first)] {
            assert_eq!(store.put("a/lease", b"x", stale).await.unwrap_err().kind, StoreErrorKind::Conflict);
        }
        assert_eq!(store.get("a/lease").await.unwrap().unwrap().bytes, b"two");
        assert_eq!(store.delete("a/lease").await, Ok(()));
        assert_eq!(store.delete("a/lease").await, Ok(()));
        let gone = store.put("a/lease", b"x", Expect::Version(&second)).await.unwrap_err();
        assert_eq!(gone.kind, StoreErrorKind::Conflict);
        assert_eq!(store.get("a/lease").await, Ok(None));
    });
}

#[test]
fn of_many_writers_one_wins() {
    in_virtual_time(async |clock| {
        let store = Arc::new(server(clock, 1_000, &[]).store());
        let mut expected: Option<Tag> = None;
        for _ in 0..3 {
            let writers: Vec<_> = (0..20_u8)
                .map(|number| {
                    let (store, expected) = (store.clone(), expected.clone());
                    tokio::spawn(async move {
                        let expect = expected.as_ref().map_or(Expect::Nothing, Expect::Version);
                        store.put("a/lease", &[number], expect).await
                    })
                })
                .collect();
            let mut won = Vec::new();
            for writer in writers {
                match writer.await.unwrap() {
                    Ok(tag) => won.push(tag),
                    Err(error) => assert_eq!(error.kind, StoreErrorKind::Conflict),
                }
            }
            assert_eq!(won.len(), 1);
            expected = won.pop();
        }
    });
}

#[test]
fn all_pages_are_listed_in_order() {
    in_virtual_time(async |clock| {
        let server = server(clock, 7, &["team/b-other", "team2/a/x", "team/a", "elsewhere"]);
        let store = server.store();
        let keys: Vec<String> = (0..50).map(|number| format!("a/{number:03}")).collect();
        for key in keys.iter().rev() {
            store.put(key, b"x", Expect::Nothing).await.unwrap();
        }
        let before = server.asked.lock().unwrap().len();
        assert_eq!(store.list("a/").await.unwrap(), keys);
        assert_eq!(server.asked.lock().unwrap().len() - before, 8);
        assert_eq!(store.list("a/04").await.unwrap(), keys[40..]);
        let all = store.list("").await.unwrap();
        assert_eq!((all.len(), all[0].as_str(), all[51].as_str()), (52, "a", "b-other"));
        assert_eq!(store.list("none").await.unwrap(), Vec::<String>::new());
    });
}

#[test]
fn what_else_lies_in_the_bucket_is_no_record() {
    in_virtual_time(async |clock| {
        let others = ["team/", "team/a/", "team/.DS_Store", "team/a/notes.txt", "team/a/lease", "team/A"];
        assert_eq!(server(clock, 1_000, &others).store().list("").await.unwrap(), ["a/lease"]);
    });
}

#[test]
fn lists_without_end_are_ended() {
    in_virtual_time(async |clock| {
        let number = Mutex::new(0);
        let server = Server::new(clock, move |_| {
            let mut number = number.lock().unwrap();
            *number += 1;
            let next = format!("<NextContinuationToken>{number}</NextContinuationToken>");
            let body = format!("<ListBucketResult><IsTruncated>true</IsTruncated>{next}</ListBucketResult>");
            answer(200, &[], body.as_bytes())
        });
        let error = server.store().list("").await.unwrap_err();
        assert_eq!(
            (error.kind, error.evidence.as_str()),
            (StoreErrorKind::Refused, "the list has more than 1000 pages")
        );
        assert_eq!(server.asked.lock().unwrap().len(), 1_000);
    });
    for next in ["", "<NextContinuationToken/>", "<NextContinuationToken>same</NextContinuationToken>"] {
        in_virtual_time(async |clock| {
            let server = Server::new(clock, move |_| {
                let body = format!("<ListBucketResult><IsTruncated>true</IsTruncated>{next}</ListBucketResult>");
                answer(200, &[], body.as_bytes())
            });
            let error = server.store().list("").await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
            assert!(server.asked.lock().unwrap().len() <= 2);
        });
    }
}

#[test]
fn a_page_that_is_broken_is_no_list() {
    in_virtual_time(async |clock| {
        let cut = Server::new(clock, |_| answer(200, &[], b"<ListBucketResult><Contents><Key>team/a</Key></Contents>"));
        assert_eq!(cut.store().list("").await.unwrap_err().kind, StoreErrorKind::Unavailable);
    });
}
