use castle_yaml::YamlErrorKind;
use serde_json::Value;

use super::*;
use crate::model::bundle::{Options, ServiceAccountKey};
use crate::model::config::Contract;
use crate::model::pki::YEAR;
use crate::model::pki::fixture::{NOW, Still};

async fn bundle() -> Bundle {
    let options = Options { contract: Contract::V1_13, service_account: ServiceAccountKey::EcdsaP256 };
    Bundle::generate(options, Still::at(NOW).doors()).await.unwrap()
}

async fn talos(bundle: &Bundle, cluster: &str) -> Secret {
    talosconfig(bundle, cluster, &["10.0.0.1".to_owned()], &[], YEAR, Still::at(NOW).doors()).await.unwrap()
}

async fn kube(bundle: &Bundle, cluster: &str) -> Secret {
    kubeconfig(bundle, cluster, "https://10.0.0.9:6443", YEAR, Still::at(NOW).doors()).await.unwrap()
}

fn value(text: &Secret) -> Value {
    yaml::parse(text.expose()).unwrap().remove(0)
}

/// The text with every value of base64 replaced by how its content begins.
fn shape(text: &Secret) -> String {
    let line = |line: &str| match line.rsplit_once(": ") {
        Some((key, value)) if value.len() > 100 => {
            let content = String::from_utf8(STANDARD.decode(value).unwrap()).unwrap();
            format!("{key}: <{}>\n", content.lines().next().unwrap())
        }
        _ => format!("{line}\n"),
    };
    text.expose().lines().map(line).collect()
}

#[tokio::test]
async fn a_talosconfig_is_written_as_talos_writes_it() {
    let bundle = bundle().await;
    let list = |items: &[&str]| items.iter().map(|&item| item.to_owned()).collect::<Vec<_>>();
    let (endpoints, nodes) = (list(&["10.0.0.1", "10.0.0.2"]), list(&["10.0.0.3"]));
    let text = talosconfig(&bundle, "blue", &endpoints, &nodes, YEAR, Still::at(NOW).doors()).await.unwrap();
    let expected = "\
context: blue
contexts:
    blue:
        endpoints:
            - 10.0.0.1
            - 10.0.0.2
        nodes:
            - 10.0.0.3
        ca: <-----BEGIN CERTIFICATE----->
        crt: <-----BEGIN CERTIFICATE----->
        key: <-----BEGIN ED25519 PRIVATE KEY----->
";
    assert_eq!(shape(&text), expected);
    assert_eq!(value(&text)["contexts"]["blue"]["ca"], STANDARD.encode(&bundle.talos.certificate));

    let bare = talosconfig(&bundle, "blue", &[], &[], YEAR, Still::at(NOW).doors()).await.unwrap();
    assert!(bare.expose().starts_with("context: blue\ncontexts:\n    blue:\n        endpoints: []\n        ca: "));
}

#[tokio::test]
async fn a_kubeconfig_is_written_as_kubernetes_writes_it() {
    let bundle = bundle().await;
    let text = kube(&bundle, "blue").await;
    let expected = "\
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: <-----BEGIN CERTIFICATE----->
    server: https://10.0.0.9:6443
  name: blue
contexts:
- context:
    cluster: blue
    namespace: default
    user: admin@blue
  name: admin@blue
current-context: admin@blue
kind: Config
users:
- name: admin@blue
  user:
    client-certificate-data: <-----BEGIN CERTIFICATE----->
    client-key-data: <-----BEGIN EC PRIVATE KEY----->
";
    assert_eq!(shape(&text), expected);
}

#[tokio::test]
async fn merging_into_nothing_is_the_file_itself() {
    let bundle = bundle().await;
    let (talos, kube) = (talos(&bundle, "blue").await, kube(&bundle, "blue").await);
    for nothing in ["", "# nothing yet\n", "{}\n"] {
        let merged = merge_talosconfig(nothing, &talos).unwrap();
        assert_eq!((merged.text.expose(), merged.context.as_str()), (talos.expose(), "blue"));
        let merged = merge_kubeconfig(nothing, &kube).unwrap();
        assert_eq!((merged.text.expose(), merged.context.as_str()), (kube.expose(), "admin@blue"));
    }
    let empty = "context: \"\"\ncontexts: {}\n";
    assert_eq!(merge_talosconfig(empty, &talos).unwrap().text.expose(), talos.expose());
}

#[tokio::test]
async fn the_same_cluster_is_replaced_and_others_are_kept() {
    let (bundle, other) = (bundle().await, bundle().await);
    let old = merge_talosconfig(talos(&other, "red").await.expose(), &talos(&bundle, "blue").await).unwrap().text;
    let new = talos(&bundle, "blue").await;
    let merged = merge_talosconfig(old.expose(), &new).unwrap();
    let (merged, old, new) = (value(&merged.text), value(&old), value(&new));
    assert_eq!(merged["context"], "blue");
    assert_eq!(merged["contexts"].as_object().unwrap().len(), 2);
    assert_eq!(merged["contexts"]["red"], old["contexts"]["red"]);
    assert_eq!(merged["contexts"]["blue"], new["contexts"]["blue"]);
    assert_ne!(merged["contexts"]["blue"], old["contexts"]["blue"]);

    let old = merge_kubeconfig(kube(&other, "red").await.expose(), &kube(&bundle, "blue").await).unwrap().text;
    let new = kube(&bundle, "blue").await;
    let merged = merge_kubeconfig(old.expose(), &new).unwrap();
    let (merged, old, new) = (value(&merged.text), value(&old), value(&new));
    assert_eq!(merged["current-context"], "admin@blue");
    for list in ["clusters", "contexts", "users"] {
        assert_eq!(merged[list].as_array().unwrap().len(), 2);
        assert_eq!(merged[list][0], old[list][0], "{list}");
        assert_eq!(merged[list][1], new[list][0], "{list}");
    }
}

#[tokio::test]
async fn another_cluster_of_the_same_name_keeps_its_name() {
    let (bundle, other) = (bundle().await, bundle().await);
    let old = talos(&other, "blue").await;
    let once = merge_talosconfig(old.expose(), &talos(&bundle, "blue").await).unwrap();
    assert_eq!(once.context, "blue-1");
    assert_eq!(value(&once.text)["context"], "blue-1");
    assert_eq!(value(&once.text)["contexts"]["blue"], value(&old)["contexts"]["blue"]);
    // Again, it is the same cluster under the other name.
    let again = merge_talosconfig(once.text.expose(), &talos(&bundle, "blue").await).unwrap();
    assert_eq!(again.context, "blue-1");
    assert_eq!(value(&again.text)["contexts"].as_object().unwrap().len(), 2);

    let old = kube(&other, "blue").await;
    let once = merge_kubeconfig(old.expose(), &kube(&bundle, "blue").await).unwrap();
    assert_eq!(once.context, "admin@blue-1");
    let merged = value(&once.text);
    assert_eq!(merged["current-context"], "admin@blue-1");
    assert_eq!(merged["clusters"][1]["name"], "blue-1");
    assert_eq!(merged["users"][1]["name"], "admin@blue-1");
    let context = json!({"cluster": "blue-1", "namespace": "default", "user": "admin@blue-1"});
    assert_eq!(merged["contexts"][1], json!({"context": context, "name": "admin@blue-1"}));
    assert_eq!(merged["clusters"][0], value(&old)["clusters"][0]);
    let again = merge_kubeconfig(once.text.expose(), &kube(&bundle, "blue").await).unwrap();
    assert_eq!(again.context, "admin@blue-1");
    assert_eq!(value(&again.text)["clusters"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_context_that_leads_elsewhere_is_not_taken_over() {
    let (bundle, other) = (bundle().await, bundle().await);
    let mut elsewhere = value(&kube(&other, "far").await);
    elsewhere["contexts"][0]["name"] = "admin@blue".into();
    let merged = merge_kubeconfig(&yaml::emit(&elsewhere), &kube(&bundle, "blue").await).unwrap();
    assert_eq!(merged.context, "admin@blue-1");
    assert_eq!(value(&merged.text)["contexts"][0], elsewhere["contexts"][0]);
}

#[tokio::test]
async fn what_castle_does_not_know_is_kept() {
    let bundle = bundle().await;
    let existing = "\
apiVersion: v1
kind: Config
preferences:
  colors: true
clusters: null
users:
- name: cloud
  user:
    exec:
      command: aws
      args: [eks, get-token]
";
    let merged = value(&merge_kubeconfig(existing, &kube(&bundle, "blue").await).unwrap().text);
    assert_eq!(merged["preferences"], json!({"colors": true}));
    assert_eq!(merged["users"][0]["user"]["exec"]["args"], json!(["eks", "get-token"]));
    // Of castle's own entries, what somebody added; but not a second way to the same key.
    let blue = kube(&bundle, "blue").await;
    let mut edited = merged.clone();
    let index = edited["contexts"].as_array().unwrap().len() - 1;
    edited["contexts"][index]["context"]["namespace"] = json!("monitoring");
    edited["contexts"][index]["context"]["extensions"] = json!([{"name": "mine"}]);
    edited["clusters"][0]["cluster"]["proxy-url"] = json!("socks5://127.0.0.1:1080");
    edited["users"][1]["user"]["client-key"] = json!("/old/key");
    edited["users"][1]["user"]["impersonate"] = json!("me");
    let again = value(&merge_kubeconfig(&yaml::emit(&edited), &blue).unwrap().text);
    edited["users"][1]["user"].as_object_mut().unwrap().remove("client-key");
    for part in ["client-certificate-data", "client-key-data"] {
        edited["users"][1]["user"][part] = value(&blue)["users"][0]["user"][part].clone();
    }
    assert_eq!(again, edited);
    let existing =
        "context: far\ncontexts:\n    far:\n        endpoints: [a]\n        auth: {siderov1: {identity: x}}\n";
    let merged = value(&merge_talosconfig(existing, &talos(&bundle, "blue").await).unwrap().text);
    assert_eq!(merged["contexts"]["far"], json!({"endpoints": ["a"], "auth": {"siderov1": {"identity": "x"}}}));
    assert_eq!(merged["context"], "blue");
}

/// Goal: whoever keeps a file by hand finds it again. Method: files with comments, an order and a style of their own are merged into twice; all of their lines are
/// there in their order, but for those that castle means to change.
#[tokio::test]
async fn lines_that_castle_does_not_mean_stay_as_they_are() {
    let (bundle, other) = (bundle().await, bundle().await);
    let kubeconfig = "\
# mine, since 2021
kind: Config
apiVersion: v1
current-context: far   # the one at work

users:
  # from the portal
  - name: \"cloud\"
    user: {exec: {command: aws, args: [eks, get-token]}}
  # the end of them
contexts:
  - context: {cluster: far, user: cloud}  # never delete this
    name: far
clusters:
  - name: far
    cluster: {server: 'https://far'}
preferences:
  colors: true # nice
";
    let talosconfig = "\
# of the lab
context: far
contexts:
    # in the cellar
    far:
        endpoints: [a, b] # two
        ca: QUJD
";
    for (existing, changed, merge, news) in [
        (
            kubeconfig,
            "current-context: ",
            merge_kubeconfig as fn(&str, &Secret) -> _,
            [kube(&bundle, "blue").await, kube(&other, "blue").await],
        ),
        (talosconfig, "context: ", merge_talosconfig, [talos(&bundle, "blue").await, talos(&other, "blue").await]),
    ] {
        let mut text = existing.to_owned();
        for new in &news {
            let merged = merge(&text, new).unwrap();
            let again = merge(merged.text.expose(), new).unwrap();
            assert_eq!(again.text.expose(), merged.text.expose(), "once more is no change");
            text = merged.text.expose().to_owned();
            let mut lines = text.lines();
            for line in existing.lines().filter(|line| !line.starts_with(changed)) {
                assert!(lines.any(|found| found == line), "{line:?} is gone or elsewhere:\n{}", shape(&merged.text));
            }
        }
        assert!(text.contains("blue-1"), "both are in it");
    }
}

#[tokio::test]
async fn what_is_no_such_file_is_refused_and_not_quoted() {
    let bundle = bundle().await;
    let (talos, kube) = (talos(&bundle, "blue").await, kube(&bundle, "blue").await);
    let file = File::Existing;
    let other = merge_kubeconfig("apiVersion: v1\nkind: Secret\n", &kube).unwrap_err();
    assert_eq!(other, MergeError::Shape { file, key: "kind" });
    let shape = |key| MergeError::Shape { file, key };
    assert_eq!(merge_talosconfig("contexts: [planted]\n", &talos).unwrap_err(), shape("contexts"));
    assert_eq!(merge_talosconfig("planted\n", &talos).unwrap_err(), shape("contexts"));
    assert_eq!(merge_talosconfig("a: 1\n---\nb: 2\n", &talos).unwrap_err(), shape("contexts"));
    assert_eq!(merge_kubeconfig("clusters: {planted: 1}\n", &kube).unwrap_err(), shape("clusters"));
    assert_eq!(merge_kubeconfig("users: planted\n", &kube).unwrap_err(), shape("users"));
    let error = merge_kubeconfig("planted: [", &kube).unwrap_err();
    assert!(matches!(error, MergeError::Yaml { cause, .. } if cause.kind == YamlErrorKind::Syntax));
    assert!(!format!("{error} {error:?}").contains("planted"));
    let error = merge_kubeconfig("", &talos).unwrap_err();
    assert_eq!(error.to_string(), "the new file is not one: look at its `clusters`");
}
