//! What a witness can do to requests.

use std::sync::Arc;
use std::sync::Mutex;

use castle_datacenter::{Asked, Reply, Witness};
use castle_http::{Ask, Failure, Method};

use crate::site::{both, encoded};

/// Loses the answers of all changes, after they were had or before.
struct Loses {
    after: bool,
    seen: Mutex<Vec<Asked>>,
}

impl Witness for Loses {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        self.seen.lock().unwrap().push(asked.clone());
        if !asked.is_change {
            return Some(handle());
        }
        if self.after {
            handle();
        }
        None
    }
}

fn check(after: bool) {
    both(async |site| {
        let witness = Arc::new(Loses { after, seen: Mutex::default() });
        site.datacenter.watch(witness.clone());
        let mut ask = Ask::new(Method::POST, "/nodes/pve/qemu");
        ask.body = encoded(&[("vmid", "421"), ("description", "a b")]).into();
        ask.headers.extend(site.headers.iter().cloned());
        let lost = site.client.ask(&ask).await.unwrap_err();
        assert!(matches!(lost, Failure::Lost(_)), "{lost:?}");
        assert_eq!(site.datacenter.look().guests.contains_key(&421), after);
        let seen = witness.seen.lock().unwrap()[0].clone();
        assert_eq!(
            (seen.number, seen.method.as_str(), seen.path.as_str(), seen.is_change),
            (0, "POST", "/nodes/pve/qemu", true)
        );
        assert_eq!(
            seen.parameters,
            [("vmid".to_owned(), "421".to_owned()), ("description".to_owned(), "a b".to_owned())]
        );
        site.datacenter.unwatch();
        site.get("/version").await;
    });
}

#[test]
fn an_answer_is_lost_after_the_effect() {
    check(true);
}

#[test]
fn a_request_is_lost_before_the_effect() {
    check(false);
}

struct Refuses;

impl Witness for Refuses {
    fn request(&self, _: &Asked, _: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        Some(Reply::failure(596, "Broken pipe"))
    }
}

#[test]
fn a_request_is_refused() {
    both(async |site| {
        site.datacenter.watch(Arc::new(Refuses));
        assert_eq!(site.ask("GET", "/version", &[]).await.line(), "596 Broken pipe");
    });
}
