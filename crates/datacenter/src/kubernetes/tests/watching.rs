//! Lists in parts, and changes as they come.

use std::time::Duration;

use serde_json::{Value, json};

use super::Bench;
use crate::kubernetes::api::Reply;
use crate::kubernetes::read::Watch;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config(name: &str, label: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "labels": { "a": label } } })
}

fn watch(bench: &mut Bench, query: &str) -> Box<Watch> {
    match bench.ask("GET", &format!("{MAPS}?watch=1&{query}"), "", "") {
        Reply::Watch(watch) => watch,
        other => panic!("{other:?}"),
    }
}

fn events(bench: &Bench, watch: &mut Watch) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    watch
        .next(&bench.kube, Duration::ZERO)
        .iter()
        .map(|event| (text(&event["type"]), text(&event["object"]["metadata"]["name"])))
        .collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(turn, name)| ((*turn).to_owned(), (*name).to_owned())).collect()
}

#[test]
fn a_list_goes_on_where_it_stopped() {
    let mut bench = Bench::new();
    for name in ["a", "b", "c"] {
        bench.post(MAPS, &config(name, "x"));
    }
    let (_, first) = bench.get(&format!("{MAPS}?limit=2"));
    assert_eq!(first["items"].as_array().unwrap().len(), 2);
    assert_eq!(first["metadata"]["remainingItemCount"], 2);
    assert_eq!(first["items"][0].get("kind"), None, "items of built-in lists do not say their kind");
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = bench.get(&format!("{MAPS}?limit=5&continue={token}"));
    let names: Vec<&Value> = second["items"].as_array().unwrap().iter().map(|it| &it["metadata"]["name"]).collect();
    assert_eq!(names, ["c", "kube-root-ca.crt"]);
    bench.kube.store.compact();
    bench.post(MAPS, &config("d", "x"));
    bench.kube.store.compact();
    let (code, gone) = bench.get(&format!("{MAPS}?limit=5&continue={token}"));
    assert_eq!((code, gone["reason"].as_str()), (410, Some("Expired")));
    assert_eq!(bench.get(&format!("{MAPS}?continue=abc")).0, 400);
}

#[test]
fn a_watch_tells_every_change_once() {
    let mut bench = Bench::new();
    bench.post(MAPS, &config("a", "x"));
    let (_, list) = bench.get(MAPS);
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = watch(&mut bench, &format!("resourceVersion={version}&labelSelector=a%3Dx"));
    assert_eq!(events(&bench, &mut watch), []);
    bench.post(MAPS, &config("b", "x"));
    bench.post(MAPS, &config("other", "y"));
    bench.merge(&format!("{MAPS}/a"), &json!({ "metadata": { "labels": { "a": "y" } } }));
    bench.merge(&format!("{MAPS}/other"), &json!({ "metadata": { "labels": { "a": "x" } } }));
    bench.delete(&format!("{MAPS}/b"));
    let expected = [("ADDED", "b"), ("DELETED", "a"), ("ADDED", "other"), ("DELETED", "b")];
    assert_eq!(events(&bench, &mut watch), pairs(&expected));
    assert_eq!(events(&bench, &mut watch), []);
}

#[test]
fn a_watch_from_nowhere_begins_with_what_there_is() {
    let mut bench = Bench::new();
    bench.post(MAPS, &config("a", "x"));
    let mut plain = watch(&mut bench, "labelSelector=a");
    assert_eq!(events(&bench, &mut plain), pairs(&[("ADDED", "a")]));
    let query = "labelSelector=a&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut told = watch(&mut bench, query).next(&bench.kube, Duration::ZERO);
    let end = told.pop().unwrap();
    assert_eq!((end["type"].as_str(), told.len()), (Some("BOOKMARK"), 1));
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

#[test]
fn what_is_forgotten_cannot_be_watched() {
    let mut bench = Bench::new();
    bench.post(MAPS, &config("a", "x"));
    bench.kube.store.compact();
    let mut watch = watch(&mut bench, "resourceVersion=1");
    let told = watch.next(&bench.kube, Duration::ZERO);
    assert_eq!((told[0]["type"].as_str(), told[0]["object"]["code"].as_u64()), (Some("ERROR"), Some(410)));
    assert!(told[0]["object"]["message"].as_str().unwrap().starts_with("too old resource version: 1 ("));
    assert!(watch.is_over());
}

#[test]
fn a_watch_ends_in_its_time_and_is_told_how_far_it_is() {
    let mut bench = Bench::new();
    let mut watch = watch(&mut bench, "timeoutSeconds=90&allowWatchBookmarks=true&resourceVersion=1000000");
    bench.pass(3_600.0);
    assert_eq!(watch.next(&bench.kube, Duration::from_secs(59)), Vec::<Value>::new(), "its time is that of the client");
    let told = watch.next(&bench.kube, Duration::from_secs(61));
    assert_eq!((told.len(), told[0]["type"].as_str()), (1, Some("BOOKMARK")));
    assert!(!watch.is_over());
    watch.next(&bench.kube, Duration::from_secs(90));
    assert!(watch.is_over());
}

#[test]
fn a_watch_of_leases_is_woken_to_tell_of_them() {
    let mut bench = Bench::new();
    let path = "/apis/coordination.k8s.io/v1/leases?watch=1";
    let Reply::Watch(mut watch) = bench.ask("GET", path, "", "") else { panic!("no watch") };
    assert_eq!(watch.wakes(), Duration::from_secs(10));
    watch.next(&bench.kube, Duration::from_secs(10));
    assert_eq!(watch.wakes(), Duration::from_secs(20));
    let Reply::Watch(watch) = bench.ask("GET", "/api/v1/configmaps?watch=1", "", "") else { panic!("no watch") };
    let half_an_hour = Duration::from_secs(1_800);
    assert!((half_an_hour..half_an_hour * 2).contains(&watch.wakes()), "{:?}", watch.wakes());
}
