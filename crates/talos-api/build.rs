//! Makes Rust of the protocol files, without protoc.

use std::error::Error;

/// Messages that carry keys or configurations: what is shown of them is written by hand, in `src/shown.rs`.
const NEVER_SHOWN: [&str; 5] = [
    ".common.Data",
    ".cosi.resource.Spec",
    ".machine.ApplyConfigurationRequest",
    ".machine.GenerateClientConfiguration",
    ".machine.MetaWriteRequest",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = [
        "cluster/cluster.proto",
        "cosi/state.proto",
        "machine/events.proto",
        "machine/image.proto",
        "machine/lifecycle.proto",
        "machine/machine.proto",
        "storage/storage.proto",
        "time/time.proto",
    ];
    let described = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure()
        .btree_map(".")
        .build_transport(false)
        .generate_default_stubs(true)
        .include_file("api.rs")
        .skip_debug(NEVER_SHOWN)
        // Skipped along with the message that it is written in.
        .enum_attribute(".machine.ApplyConfigurationRequest.Mode", "#[derive(Debug)]")
        .compile_fds(described)?;
    Ok(())
}
