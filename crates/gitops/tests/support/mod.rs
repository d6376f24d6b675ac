//! Files of the tests.
#![allow(dead_code, reason = "not every test needs all of it")]

pub(crate) mod fixtures;

use std::path::{Path, PathBuf};

use castle_seams::{Disk, SystemDisk};

pub(crate) fn place(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A file of this crate.
pub(crate) fn text(path: &str) -> String {
    String::from_utf8(SystemDisk.read(&place(path), 16 << 20).unwrap()).unwrap()
}

/// The names in a folder of this crate.
pub(crate) fn folder(path: &str) -> Vec<String> {
    SystemDisk.list(&place(path)).unwrap().into_iter().map(|name| name.into_string().unwrap()).collect()
}

pub(crate) fn write(path: &str, text: &str) {
    SystemDisk.replace(&place(path), text.as_bytes(), 0o644).unwrap();
}

/// The files in a text: each begins with `-- PATH --` on a line of its own.
pub(crate) fn sections(text: &str) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = Vec::new();
    for line in text.split_inclusive('\n') {
        let path = line.trim_end().strip_prefix("-- ").and_then(|rest| rest.strip_suffix(" --"));
        match (path, files.last_mut()) {
            (Some(path), _) => files.push((path.to_owned(), String::new())),
            (None, Some((_, content))) => content.push_str(line),
            (None, None) => {}
        }
    }
    files
}

/// A file of the mirror of real manifests; nothing where there is no mirror.
pub(crate) fn mirror(file: &str) -> Option<String> {
    castle_testbed::oracle_text(&format!("mirror/{file}"))
}

/// Writes a file, and the folders it lies in.
pub(crate) fn write_at(path: &Path, text: &str) {
    SystemDisk.create_dir_all(path.parent().unwrap(), 0o755).unwrap();
    SystemDisk.replace(path, text.as_bytes(), 0o644).unwrap();
}
