//! Objects as Git hashes and packs them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::{Commit, Files, Repository};

pub(super) type Id = [u8; 20];

/// The kinds of objects, by the number that a pack tells them by.
#[derive(Clone, Copy)]
enum Kind {
    Commit = 1,
    Tree = 2,
    Blob = 3,
}

/// The objects of a pack, by their ids.
type Objects = BTreeMap<Id, (Kind, Vec<u8>)>;

pub(super) fn hex(id: &Id) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha1(bytes: &[u8]) -> Id {
    let mut id = Id::default();
    id.copy_from_slice(digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref());
    id
}

fn keep(objects: &mut Objects, kind: Kind, bytes: Vec<u8>) -> Id {
    let word = match kind {
        Kind::Commit => "commit",
        Kind::Tree => "tree",
        Kind::Blob => "blob",
    };
    let mut whole = format!("{word} {}\0", bytes.len()).into_bytes();
    whole.extend_from_slice(&bytes);
    let id = sha1(&whole);
    objects.insert(id, (kind, bytes));
    id
}

/// Keeps a folder and all in it; `prefix` is its path with a slash at the end.
fn keep_tree(objects: &mut Objects, files: &Files, prefix: &str) -> Id {
    // Folders are in order as if their names had a slash at the end.
    let mut entries: BTreeMap<String, (&str, String, Id)> = BTreeMap::new();
    let mut folders = BTreeSet::new();
    let own = files.range(prefix.to_owned()..).take_while(|(path, _)| path.starts_with(prefix));
    for (path, bytes) in own {
        let rest = &path[prefix.len()..];
        match rest.split_once('/') {
            Some((folder, _)) => drop(folders.insert(folder)),
            None => {
                let id = keep(objects, Kind::Blob, bytes.to_vec());
                entries.insert(rest.to_owned(), ("100644", rest.to_owned(), id));
            }
        }
    }
    for folder in folders {
        let id = keep_tree(objects, files, &format!("{prefix}{folder}/"));
        entries.insert(format!("{folder}/"), ("40000", folder.to_owned(), id));
    }
    let mut bytes = Vec::new();
    for (mode, name, id) in entries.values() {
        bytes.extend_from_slice(format!("{mode} {name}\0").as_bytes());
        bytes.extend_from_slice(id);
    }
    keep(objects, Kind::Tree, bytes)
}

fn keep_commit(objects: &mut Objects, commit: &Commit) -> Id {
    let tree = keep_tree(objects, &commit.files, "");
    let parent = commit.parent.map(|id| format!("parent {}\n", hex(&id))).unwrap_or_default();
    let who = format!("Somebody <somebody@example.com> {} +0000", commit.at);
    let text = format!("tree {}\n{parent}author {who}\ncommitter {who}\n\n{}\n", hex(&tree), commit.message);
    keep(objects, Kind::Commit, text.into_bytes())
}

pub(super) fn commit_id(commit: &Commit) -> Id {
    keep_commit(&mut Objects::new(), commit)
}

/// A pack of commits with all that is before them, or (if it is shallow) without.
pub(super) fn pack(repository: &Repository, wants: &[Id], is_shallow: bool) -> Vec<u8> {
    let mut objects = Objects::new();
    let mut open = wants.to_vec();
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        let Some(commit) = repository.commits.get(&id).filter(|_| seen.insert(id)) else { continue };
        keep_commit(&mut objects, commit);
        open.extend(commit.parent.filter(|_| !is_shallow));
    }
    let count = u32::try_from(objects.len()).unwrap_or(u32::MAX);
    let mut pack = [b"PACK".as_slice(), &2_u32.to_be_bytes(), &count.to_be_bytes()].concat();
    for (kind, bytes) in objects.values() {
        let mut size = bytes.len();
        let mut byte = (*kind as u8) << 4 | (size & 15) as u8;
        size >>= 4;
        while size > 0 {
            pack.push(byte | 128);
            byte = (size & 127) as u8;
            size >>= 7;
        }
        pack.push(byte);
        pack.extend_from_slice(&deflated(bytes));
    }
    let end = sha1(&pack);
    pack.extend_from_slice(&end);
    pack
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    // Writing into memory does not fail.
    let written = encoder.write_all(bytes);
    encoder.finish().ok().filter(|_| written.is_ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn ids_are_those_of_git() {
        // As `git hash-object` and `git mktree` tell them.
        let mut objects = Objects::new();
        assert_eq!(
            hex(&keep(&mut objects, Kind::Blob, b"hello\n".to_vec())),
            "ce013625030ba8dba906f756967f9e9ca394464a"
        );
        let empty = keep_tree(&mut objects, &Files::new(), "");
        assert_eq!(hex(&empty), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
        let hello: Arc<[u8]> = Arc::from(b"hello\n".as_slice());
        // A folder `a` comes after a file `a.b`: as if it were named `a/`.
        let files: Files = ["a/b", "a.b", "a-b"].map(|path| (path.to_owned(), hello.clone())).into();
        assert_eq!(hex(&keep_tree(&mut objects, &files, "")), "12c2a6a664f16d9ad41e5312fcccbefde15bf255");
    }
}
