//! Files that a node hands out: some of its own, and those that open its cluster.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_talos_api::common::Data;
use castle_talos_api::machine::{
    FileInfo, GenerateClientConfiguration, GenerateClientConfigurationRequest, GenerateClientConfigurationResponse,
    ListRequest, ReadRequest, list_request,
};
use futures_util::stream;
use serde_json::json;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use super::Api;
use crate::talos::{identity, yaml};
use crate::world::World;

/// The bytes of a block of an archive.
const BLOCK: usize = 512;

impl Api {
    pub(super) async fn read_file(&self, request: Request<ReadRequest>) -> Result<Response<BoxStream<Data>>, Status> {
        let (caller, asked) = self.admit_one("Read", request).await?;
        let world = self.datacenter.world();
        let node = world.talos.nodes.get(&caller.vmid);
        let (Some(node), Some(boot)) = (node, world.talos.boot(caller.vmid)) else {
            return Err(Status::unavailable("the node is down"));
        };
        let text = match asked.path.as_str() {
            "/proc/sys/kernel/random/boot_id" => format!("{}\n", boot.boot_id),
            "/proc/sys/kernel/hostname" => format!("{}\n", node.hostname()),
            "/etc/os-release" => format!(
                "NAME=\"Talos\"\nID=talos\nVERSION_ID={0}\nPRETTY_NAME=\"Talos ({0})\"\nHOME_URL=\"https://www.talos.dev/\"\n\
                 BUG_REPORT_URL=\"https://github.com/siderolabs/talos/issues\"\nVENDOR_NAME=\"Sidero Labs\"\n\
                 VENDOR_URL=\"https://www.siderolabs.com/\"\n",
                node.image.version
            ),
            "/proc/cmdline" => format!("{}\n", node.image.command_line()),
            path => return Err(unread(path)),
        };
        let data = Data { metadata: caller.metadata(), bytes: text.into_bytes() };
        Ok(Response::new(Box::pin(stream::iter([Ok(data)]))))
    }

    pub(super) async fn list_files(
        &self,
        request: Request<ListRequest>,
    ) -> Result<Response<BoxStream<FileInfo>>, Status> {
        let (callers, asked) = self.admit("List", request).await?;
        let world = self.datacenter.world();
        let mut all = Vec::new();
        for caller in &callers {
            let found = world.files(caller.vmid, &asked)?;
            all.extend(found.into_iter().map(|file| Ok(FileInfo { metadata: caller.metadata(), ..file })));
        }
        Ok(Response::new(Box::pin(stream::iter(all))))
    }

    pub(super) async fn kubeconfig_archive(&self, request: Request<()>) -> Result<Response<BoxStream<Data>>, Status> {
        let (caller, ()) = self.admit_one("Kubeconfig", request).await?;
        let (config, serial, seconds) = {
            let mut world = self.datacenter.world();
            world.check_control_plane(caller.vmid, "kubeconfig")?;
            let config = world.talos.nodes.get(&caller.vmid).and_then(|node| node.config()).cloned();
            let mut serial = [1; 16];
            serial[1..].copy_from_slice(&world.chance.bytes("talos kubeconfig")[..15]);
            (config.ok_or_else(|| Status::unavailable("the node is down"))?, serial, world.epoch())
        };
        let text =
            identity::kubeconfig(&config, serial, self.datacenter.calendar()).map_err(Status::failed_precondition)?;
        let bytes = packed(&archive("kubeconfig", text.as_bytes(), seconds));
        Ok(Response::new(Box::pin(stream::iter([Ok(Data { metadata: caller.metadata(), bytes })]))))
    }

    pub(super) async fn client_configuration(
        &self,
        request: Request<GenerateClientConfigurationRequest>,
    ) -> Result<Response<GenerateClientConfigurationResponse>, Status> {
        let now = self.datacenter.calendar();
        self.unary("GenerateClientConfiguration", request, |world, caller, asked| {
            world.check_control_plane(caller.vmid, "generate client configuration")?;
            let ttl = asked.crt_ttl.as_ref().map_or(0, |ttl| ttl.seconds);
            let ttl = u64::try_from(ttl).ok().filter(|ttl| *ttl > 0);
            let ttl = ttl.ok_or_else(|| Status::invalid_argument("crt_ttl should be positive"))?;
            let seed = world.chance.bytes("talos client");
            let config = world.talos.nodes.get(&caller.vmid).and_then(|node| node.config()).cloned();
            let config = config.ok_or_else(|| Status::unavailable("the node is down"))?;
            let made = identity::talos_client(&config.os, &asked.roles, &seed, now, Duration::from_secs(ttl));
            let (crt, key) = made.map_err(Status::unknown)?;
            let context = match asked.roles.as_slice() {
                [role] => format!("{}@{}", role.trim_start_matches("os:"), config.cluster_name),
                _ => config.cluster_name.clone(),
            };
            let wrapped = |text: &str| STANDARD.encode(text);
            let talosconfig = yaml::text(&json!({
                "context": context,
                "contexts": { context: {
                    "endpoints": [],
                    "ca": wrapped(&config.os.pem),
                    "crt": wrapped(&crt),
                    "key": wrapped(&key),
                }},
            }));
            let made = GenerateClientConfiguration {
                metadata: None,
                ca: config.os.pem.clone().into_bytes(),
                crt: crt.into_bytes(),
                key: key.into_bytes(),
                talosconfig: talosconfig.into_bytes(),
            };
            Ok(GenerateClientConfigurationResponse { messages: vec![made] })
        })
        .await
    }
}

/// The folders at the root of a node's files.
const FOLDERS: [&str; 13] =
    ["boot", "dev", "etc", "lib", "opt", "proc", "root", "run", "sbin", "sys", "system", "usr", "var"];

/// Why a file is not read: nobody has it, or it is one that a real node has.
fn unread(path: &str) -> Status {
    let inside = path.strip_prefix('/').unwrap_or_default().trim_end_matches('/');
    let (folder, rest) = inside.split_once('/').unwrap_or((inside, ""));
    match (FOLDERS.contains(&folder), rest) {
        (true, "") => Status::unknown("path must be a regular file"),
        (true, _) => Status::unimplemented(format!("the embedded node simulates no {path}")),
        (false, _) => Status::not_found(format!("stat {path}: no such file or directory")),
    }
}

/// The folder that etcd keeps its data in.
const ETCD: &str = "/var/lib/etcd";
/// The mode of a folder that only its owner looks into, as the vendor's language counts.
const FOLDER: u32 = 0x8000_0000 | 0o700;

impl World {
    /// The folder that etcd keeps its data in, and what is in it. It is there once the disk is mounted and etcd was begun.
    fn files(&self, vmid: u32, asked: &ListRequest) -> Result<Vec<FileInfo>, Status> {
        let root = format!("/{}", asked.root.trim_matches('/'));
        let absent = || Status::unknown(format!("lstat {root}: no such file or directory"));
        let node = self.talos.nodes.get(&vmid).ok_or_else(absent)?;
        let boot = node.boot.as_ref().ok_or_else(absent)?;
        let Some(inside) = root.strip_prefix(ETCD).filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
            let text = format!("the embedded node simulates no files but those of {ETCD}, asked for {root}");
            return Err(Status::unimplemented(text));
        };
        if self.talos.unreadable.contains(&vmid) {
            return Err(Status::unknown(format!("open {root}: input/output error")));
        }
        let is_there = boot.has_ephemeral && node.is_control_plane() && !boot.has_left;
        let held: &[&str] = match node.disk.etcd {
            _ if !is_there => &[],
            None => &[""],
            Some(_) => &["", "/member", "/member/snap", "/member/wal"],
        };
        if !held.contains(&inside) {
            return Err(absent());
        }
        let depth = match (asked.recurse, asked.recursion_depth) {
            (false, _) => 1,
            (true, 0) => i32::MAX,
            (true, depth) => depth.max(1),
        };
        let below = held.iter().filter_map(|path| path.strip_prefix(inside));
        let wanted = below.filter(|rest| i32::try_from(rest.matches('/').count()).is_ok_and(|deep| deep <= depth));
        let is_asked = asked.types.is_empty() || asked.types().any(|kind| kind == list_request::Type::Directory);
        let modified = self.epoch().cast_signed();
        let say = |rest: &str| FileInfo {
            name: format!("{root}{rest}"),
            relative_name: if rest.is_empty() { ".".to_owned() } else { rest.trim_start_matches('/').to_owned() },
            mode: FOLDER,
            is_dir: true,
            modified,
            uid: 60,
            gid: 60,
            ..FileInfo::default()
        };
        Ok(wanted.filter(|_| is_asked).map(say).collect())
    }
}

/// A file as the only one of a tar archive.
fn archive(name: &str, content: &[u8], modified: u64) -> Vec<u8> {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000600");
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{:011o}", content.len()));
    put(136, &format!("{modified:011o}"));
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut archive = header.to_vec();
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(BLOCK) + 2 * BLOCK, 0);
    archive
}

/// Bytes as gzip, stored as they are.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let chunks: Vec<&[u8]> = bytes.chunks(usize::from(u16::MAX)).collect();
    for (index, chunk) in chunks.iter().enumerate() {
        let length = u16::try_from(chunk.len()).unwrap_or(u16::MAX);
        packed.push(u8::from(index + 1 == chunks.len()));
        packed.extend_from_slice(&length.to_le_bytes());
        packed.extend_from_slice(&(!length).to_le_bytes());
        packed.extend_from_slice(chunk);
    }
    packed.extend_from_slice(&crc32fast::hash(bytes).to_le_bytes());
    packed.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    packed
}
