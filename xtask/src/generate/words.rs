//! The words of Talos' API in Rust, made of castle's own protocol files. They change when somebody changes those files: whoever builds castle
//! needs neither `protoc` nor what reads such files in Rust.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

use crate::shell;

/// The crate whose words they are.
const CRATE: &str = "crates/talos-api";

const FILES: [&str; 8] = [
    "cluster/cluster.proto",
    "cosi/state.proto",
    "machine/events.proto",
    "machine/image.proto",
    "machine/lifecycle.proto",
    "machine/machine.proto",
    "storage/storage.proto",
    "time/time.proto",
];

/// Messages that carry keys or configurations: what is shown of them is written by hand, in `src/shown.rs`.
const NEVER_SHOWN: [&str; 5] = [
    ".common.Data",
    ".cosi.resource.Spec",
    ".machine.ApplyConfigurationRequest",
    ".machine.GenerateClientConfiguration",
    ".machine.MetaWriteRequest",
];

/// Writes them; returns which files.
pub(super) fn write() -> Result<Vec<String>> {
    let folder = format!("{CRATE}/src/generated");
    let at = shell::root().join(&folder);
    if at.exists() {
        std::fs::remove_dir_all(&at)?;
    }
    std::fs::create_dir_all(&at)?;
    make(&at)?;
    Ok(read(&at)?.into_keys().map(|name| format!("{folder}/{name}")).collect())
}

fn make(folder: &Path) -> Result<()> {
    let described = protox::compile(FILES, [shell::root().join(CRATE).join("proto")])?;
    tonic_prost_build::configure()
        .out_dir(folder)
        .btree_map(".")
        .build_transport(false)
        .generate_default_stubs(true)
        .include_file("api.rs")
        .skip_debug(NEVER_SHOWN)
        // Skipped along with the message that it is written in.
        .enum_attribute(".machine.ApplyConfigurationRequest.Mode", "#[derive(Debug)]")
        .compile_fds(described)?;
    // What ends a line is not what the house wants to see there.
    for (name, text) in read(folder)? {
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        std::fs::write(folder.join(name), format!("{}\n", lines.join("\n").trim_end()))?;
    }
    Ok(())
}

fn read(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        files.insert(entry.file_name().to_string_lossy().into_owned(), std::fs::read_to_string(entry.path())?);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_talos_are_made_of_the_protocol_files() {
        let anew = tempfile::tempdir().unwrap();
        make(anew.path()).unwrap();
        let committed = read(&shell::root().join(CRATE).join("src/generated")).unwrap();
        assert!(committed == read(anew.path()).unwrap(), "run `cargo xtask generate`");
    }
}
