//! References between secrets: `${NAME}` of the same folder, `${environment.folder.NAME}` of another.

use super::state::{Project, Spot};

/// How deep references are followed.
const DEPTH: usize = 10;

/// The value with its references replaced by what they refer to; those that refer to nothing stay as they are.
pub(super) fn value(project: &Project, at: Spot<'_>, text: &str) -> String {
    expanded(project, at.environment, at.path, text, DEPTH)
}

fn expanded(project: &Project, environment: &str, path: &str, text: &str, depth: usize) -> String {
    let (mut shown, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        shown.push_str(before);
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.@".contains(letter);
        let inside = after.split_once('}').filter(|(inside, _)| !inside.is_empty() && inside.chars().all(is_letter));
        let Some((inside, behind)) = inside else {
            shown.push_str("${");
            rest = after;
            continue;
        };
        let parts: Vec<&str> = inside.split('.').collect();
        let (at, folder, name) = match parts.as_slice() {
            [name] => (environment, path.to_owned(), *name),
            [other, folders @ .., name] => (*other, format!("/{}", folders.join("/")), *name),
            [] => (environment, path.to_owned(), ""),
        };
        let found = project.environments.get(at).and_then(|there| there.folders.get(&folder)?.secrets.get(name));
        match found {
            Some(secret) if depth > 0 => {
                shown.push_str(&expanded(project, at, &folder, &secret.value, depth - 1));
            }
            Some(secret) => shown.push_str(&secret.value),
            None => shown.push_str(&format!("${{{inside}}}")),
        }
        rest = behind;
    }
    shown + rest
}
