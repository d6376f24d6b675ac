//! The install manifests of the components, applied as they come.

use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::normal::Names;
use super::path;
use super::server::{Clients, Server};
use super::transcript::{Told, pretty};

/// How often a kind is asked for until it is established, and how long between.
const TRIES: usize = 150;
const PAUSE: Duration = Duration::from_millis(100);

/// The files, in the order in which they are applied.
const FILES: [&str; 5] = [
    "metallb-native-v0.16.1.yaml",
    "external-secrets-v2.9.0.yaml",
    "longhorn-v1.12.1.yaml",
    "flux-v2.8.8-install.yaml",
    "flux-v2.9.0-components.yaml",
];

/// An object as it stands in a file.
struct Document {
    text: String,
    api_version: String,
    kind: String,
    name: String,
    namespace: Option<String>,
}

/// Applies everything twice and tells each answer; nothing where the files are not at hand.
pub(crate) async fn play(server: &Server) -> Option<Vec<Told>> {
    let folder = castle_testbed::oracle("mirror")?;
    let clients = Clients::new(server);
    let mut told = Vec::new();
    for file in FILES {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let mut documents: Vec<Document> = text.split("\n---").filter_map(document).collect();
        // The sort is stable: within a stage they keep the order of the file.
        documents.sort_by_key(stage);
        let mut blocks = Vec::new();
        if file.starts_with("external-secrets") {
            let namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: external-secrets\n";
            blocks.push(apply(&clients, &document(namespace)?).await);
        }
        for document in &documents {
            blocks.push(apply(&clients, document).await);
            if document.kind == "CustomResourceDefinition" {
                blocks.push(established(&clients, &document.name).await);
            }
        }
        for document in &documents {
            blocks.push(again(&clients, document).await);
        }
        told.push(Told { title: file.to_owned(), blocks });
    }
    Some(told)
}

/// What is recorded of it: the whole would be megabytes. The bytes of each block are summed up in a digest.
pub(crate) fn digests(told: &[Told]) -> Vec<Told> {
    let digest = |block: &String| {
        let head: Vec<&str> = block.lines().take(2).collect();
        let sum: String = Sha256::digest(block).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("{} {sum}", head.join(" "))
    };
    let digests = |told: &Told| Told { title: told.title.clone(), blocks: told.blocks.iter().map(digest).collect() };
    told.iter().map(digests).collect()
}

fn document(text: &str) -> Option<Document> {
    let mut lines = text.lines();
    let top = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned());
    let (api_version, kind) = (top("apiVersion: ")?, top("kind: ")?);
    lines.find(|line| *line == "metadata:")?;
    let metadata: Vec<&str> = lines.take_while(|line| line.starts_with(' ')).collect();
    let of = |key: &str| {
        let value = metadata.iter().find_map(|line| line.strip_prefix(key));
        value.map(|value| value.trim().trim_matches('"').to_owned())
    };
    Some(Document { text: text.to_owned(), api_version, kind, name: of("  name: ")?, namespace: of("  namespace: ") })
}

fn stage(document: &Document) -> usize {
    match document.kind.as_str() {
        "Namespace" => 0,
        "CustomResourceDefinition" => 1,
        kind if kind.ends_with("WebhookConfiguration") => 3,
        _ => 2,
    }
}

/// Where an object lives. The kinds of these files all have the usual plural.
fn place(document: &Document) -> String {
    let root = if document.api_version == "v1" { "/api/v1" } else { &format!("/apis/{}", document.api_version) };
    let kind = document.kind.to_lowercase();
    let plural = match kind.strip_suffix('y').or_else(|| kind.strip_suffix("ss")) {
        Some(stem) if kind.ends_with('y') => format!("{stem}ies"),
        Some(stem) => format!("{stem}sses"),
        None => format!("{kind}s"),
    };
    let namespace = document.namespace.as_ref().map_or(String::new(), |name| format!("/namespaces/{name}"));
    format!("{root}{namespace}/{plural}/{}", document.name)
}

async fn ask(clients: &Clients, document: &Document) -> (String, Option<Value>) {
    let place = place(document);
    let apply = [("content-type".to_owned(), "application/apply-patch+yaml".to_owned())];
    let path = format!("{place}?fieldManager=castle");
    let answer = clients.ask("admin", "PATCH", &path, &apply, &document.text).await.unwrap();
    let warnings = answer.headers.iter().filter(|(name, _)| name == "warning");
    let warnings: String = warnings.map(|(_, text)| format!("\nwarning: {text}")).collect();
    let object = answer.documents().and_then(|documents| documents.into_iter().next());
    (format!("APPLY {place}\n{}{warnings}", answer.status), object)
}

/// The answer to the first apply, whole: no controller has seen the object yet.
async fn apply(clients: &Clients, document: &Document) -> String {
    let (head, object) = ask(clients, document).await;
    format!("{head}\n{}", pretty(&Names::new().value(&object.unwrap_or_default())))
}

/// Of the second apply only whether it changed what was wanted: controllers may have written elsewhere.
async fn again(clients: &Clients, document: &Document) -> String {
    let (head, object) = ask(clients, document).await;
    let object = object.unwrap_or_default();
    format!("{head}\ngeneration = {}", object["metadata"]["generation"])
}

async fn established(clients: &Clients, name: &str) -> String {
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    for _ in 0..TRIES {
        let answer = clients.ask("admin", "GET", &path, &[], "").await.unwrap();
        let definition = answer.documents().and_then(|documents| documents.into_iter().next()).unwrap_or_default();
        let is_established =
            path::text(&definition, "status.conditions[type=Established].status").as_deref() == Some("True");
        // One that was there before stays established while its new names are looked at.
        if is_established && definition["status"]["acceptedNames"] == definition["spec"]["names"] {
            return format!("GET {path}\n200\n{}", pretty(&Names::new().value(&definition["status"])));
        }
        clients.clock.sleep(PAUSE).await;
    }
    format!("GET {path}\nnever established")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_in_the_text() {
        let at = |text: &str| place(&document(text).unwrap());
        let text = "# a comment\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: \"n\"\n  namespace: s\nspec: {}\n";
        assert_eq!(at(text), "/apis/networking.k8s.io/v1/namespaces/s/networkpolicies/n");
        let text =
            "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata:\n  labels:\n    name: x\n  name: p\n";
        assert_eq!(at(text), "/apis/scheduling.k8s.io/v1/priorityclasses/p");
        assert!(document("# nothing but a comment\n").is_none());
    }
}
