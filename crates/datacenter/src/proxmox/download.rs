//! Images that a host downloads by itself.

use serde_json::json;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::{Outcome, Refusal, Request};
use crate::blueprint::StorageKind;
use crate::world::World;
use crate::world::guest::hex;
use crate::world::stores::Volume;
use crate::world::stores::name::VolumeName;
use crate::world::tasks::{Script, TaskId};

/// What is found at an address outside of the datacenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Download {
    /// A file.
    File {
        /// What is transferred.
        bytes: u64,
        /// What a guest sees if it is a disk.
        size: u64,
        /// Whether a guest with this disk ever comes up.
        boots: bool,
    },
    /// A server that has no such file.
    NotFound,
    /// Nobody listens there.
    Refused,
    /// There is no host of this name.
    Unresolved,
    /// A server whose certificate nobody here trusts.
    Untrusted,
}

/// The files that can always be had: every image of the Talos Image Factory, and the releases of some distributions.
fn remote(url: &str) -> Option<Download> {
    let file = |bytes: u64, size: u64| Some(Download::File { bytes: bytes << 20, size: size << 20, boots: true });
    let of_file = |name: &str| {
        let name = name.split('?').next().unwrap_or(name);
        match name.rsplit('.').next() {
            Some("qcow2") => file(212, 1246),
            Some("raw") => file(1246, 1246),
            Some("iso" | "img") => file(304, 304),
            Some("xz" | "zst" | "gz") => file(96, 1246),
            _ => None,
        }
    };
    if let Some(rest) = url.strip_prefix("https://factory.talos.dev/image/") {
        let [schematic, version, file] = rest.split('/').collect::<Vec<_>>().try_into().ok()?;
        let is_schematic = schematic.len() == 64 && schematic.bytes().all(|byte| byte.is_ascii_hexdigit());
        return of_file(file).filter(|_| is_schematic && version.starts_with('v'));
    }
    let known = [
        "https://github.com/siderolabs/talos/releases/",
        "https://cloud-images.ubuntu.com/",
        "https://cloud.debian.org/",
    ];
    known.iter().any(|prefix| url.starts_with(prefix)).then(|| of_file(url)).flatten()
}

/// Host and port of an address.
fn server(url: &str) -> (&str, &str) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    host.rsplit_once(':').unwrap_or((host, if scheme == "https" { "443" } else { "80" }))
}

impl World {
    /// What is found at an address. Names lead to servers that have nothing, unless they are known to lead nowhere.
    pub(crate) fn found_at(&self, url: &str) -> Download {
        let is_below = |place: &str| url == place || (place.ends_with('/') && url.starts_with(place));
        if let Some(published) = self.published.iter().rev().find(|(place, _)| is_below(place)) {
            return *published.1;
        }
        let (host, _) = server(url);
        let is_address = host.parse::<std::net::Ipv4Addr>().is_ok() || host.starts_with('[');
        match remote(url) {
            Some(file) => file,
            None if is_address => Download::Refused,
            None if host.ends_with(".invalid") || !host.contains('.') => Download::Unresolved,
            None => Download::NotFound,
        }
    }
}

/// The time as `wget` prints it.
fn stamp(world: &World) -> String {
    let [year, month, day, hour, minute, second] = castle_seams::calendar(world.epoch());
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// A size as `wget` rounds it.
fn rounded(bytes: u64) -> String {
    let mut size = bytes as f64;
    let mut unit = "";
    for next in ["K", "M", "G"] {
        if size < 1024.0 {
            break;
        }
        size /= 1024.0;
        unit = next;
    }
    if size < 10.0 { format!("{size:.1}{unit}") } else { format!("{size:.0}{unit}") }
}

/// What `wget` says until it knows whether it gets the file. Its last line, if it fails, is the sentence of the failure.
fn connect(world: &mut World, task: TaskId, url: &str, found: Download) -> Result<(), String> {
    let (host, port) = server(url);
    let is_address = host.parse::<std::net::Ipv4Addr>().is_ok();
    let now = stamp(world);
    world.say(task, format!("--{now}--  {url}"));
    let there = if is_address { format!("{host}:{port}") } else { format!("{host} ({host})|192.0.2.80|:{port}") };
    if !is_address {
        if found == Download::Unresolved {
            world.say(task, format!("Resolving {host} ({host})... failed: Name or service not known."));
            return Err(format!("wget: unable to resolve host address '{host}'"));
        }
        world.say(task, format!("Resolving {host} ({host})... 192.0.2.80"));
    }
    if found == Download::Refused {
        return Err(format!("Connecting to {there}... failed: Connection refused."));
    }
    world.say(task, format!("Connecting to {there}... connected."));
    if found == Download::Untrusted {
        world.say(task, format!("ERROR: cannot verify {host}'s certificate, issued by 'CN={host}':"));
        world.say(task, "  Self-signed certificate encountered.");
        return Err(format!("To connect to {host} insecurely, use `--no-check-certificate'."));
    }
    if found == Download::NotFound {
        world.say(task, "HTTP request sent, awaiting response... 404 Not Found");
        world.say(task, format!("{now} ERROR 404: Not Found."));
        // An empty line comes last, so that nothing but the number is left.
        return Err("exit code 8".to_owned());
    }
    world.say(task, "HTTP request sent, awaiting response... 200 OK");
    Ok(())
}

/// The checksum that the file at this address has in every embedded datacenter, as small hexadecimal digits; nothing if
/// there is no such algorithm.
#[must_use]
pub fn checksum(url: &str, algorithm: &str) -> Option<String> {
    let content = format!("content of {url}");
    Some(match algorithm {
        "sha224" => hex(&Sha224::digest(content)),
        "sha256" => hex(&Sha256::digest(content)),
        "sha384" => hex(&Sha384::digest(content)),
        "sha512" => hex(&Sha512::digest(content)),
        // The length is right; nobody could recompute it anyway, as there is no content.
        "sha1" => hex(&Sha256::digest(content)[..20]),
        "md5" => hex(&Sha256::digest(content)[..16]),
        _ => return None,
    })
}

/// The endings that a kind of content may have.
fn endings(content: &str) -> &'static [&'static str] {
    match content {
        "iso" => &[".iso", ".img"],
        "vztmpl" => &[".tar.gz", ".tar.xz", ".tar.zst", ".tar.bz2"],
        "import" => &[".ova", ".qcow2", ".raw", ".vmdk"],
        _ => &[],
    }
}

/// A file's name without its folder, and what becomes of letters that it may not have.
fn normalised(name: &str) -> String {
    let is_fit = |letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter);
    let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
    name.chars().map(|letter| if is_fit(letter) { letter } else { '_' }).collect()
}

/// A download that may be tried.
struct Errand {
    host: String,
    storage: String,
    content: String,
    url: String,
    name: String,
    path: String,
    is_packed: bool,
    is_checked: bool,
    expected: Option<(String, String)>,
}

impl Errand {
    fn volid(&self) -> String {
        format!("{}:{}/{}", self.storage, self.content, self.name)
    }

    /// Looks at what is there already. Says whether there is something to do.
    fn begin(&self, world: &mut World, task: TaskId) -> Result<bool, String> {
        let (path, volid) = (&self.path, self.volid());
        if self.is_packed && self.content != "iso" {
            return Err(format!("decompression not supported for {}", self.content));
        }
        world.say(task, format!("downloading {} to {path}", self.url));
        let Some(existing) = world.stores.get(&self.host, &volid) else { return Ok(true) };
        let Some((algorithm, sum)) = &self.expected else {
            return Err(format!("refusing to override existing file '{path}'"));
        };
        let origin = existing.image.clone().unwrap_or_default();
        // What was unpacked is never what was published.
        let has = if self.is_packed { checksum(&volid, algorithm) } else { checksum(&origin, algorithm) };
        let has = has.unwrap_or_default();
        let line = "calculating checksum of existing file...";
        if has == *sum {
            world.say(task, format!("{line}OK, got correct file already, no need to download"));
            return Ok(false);
        }
        world.say(task, line);
        Err(format!("checksum mismatch: got '{has}' != expect '{sum}', aborting"))
    }

    /// Fetches the file, in whatever time has gone by.
    fn fetch(&self, world: &mut World, task: TaskId) -> Result<(), String> {
        let (path, volid) = (&self.path, self.volid());
        world.stores.fault(&volid)?;
        let place = world.stores.place(&self.host, &self.storage)?;
        let found = match world.found_at(&self.url) {
            Download::Untrusted if !self.is_checked => Download::NotFound,
            found => found,
        };
        let failed = |why: String| format!("download failed: {why}");
        connect(world, task, &self.url, found).map_err(failed)?;
        let Download::File { bytes, size, .. } = found else { return Err(failed("exit code 1".to_owned())) };
        let partial = format!("{path}.tmp_dwnl.{}", 0x1000 + task);
        world.say(task, format!("Length: {bytes} ({}) [application/octet-stream]", rounded(bytes)));
        world.say(task, format!("Saving to: '{partial}'"));
        if bytes > world.stores.free_bytes(&place) {
            return Err(failed(format!("Cannot write to '{partial}' (No space left on device).")));
        }
        world.say(task, "     0K ....                               100%  112M=1.9s");
        let now = stamp(world);
        world.say(task, format!("{now} (112 MB/s) - '{partial}' saved [{bytes}/{bytes}]"));
        if let Some((algorithm, sum)) = &self.expected {
            let has = checksum(&self.url, algorithm).unwrap_or_default();
            let line = "calculating checksum...";
            if has != *sum {
                world.say(task, line);
                return Err(format!("checksum mismatch: got '{has}' != expect '{sum}'"));
            }
            world.say(task, format!("{line}OK, checksum verified"));
        }
        let format =
            if self.content == "import" { self.name.rsplit('.').next().unwrap_or("raw") } else { &self.content };
        let volume = Volume {
            size,
            written: if self.is_packed { size } else { bytes },
            format: format.to_owned(),
            content: self.content.clone(),
            vmid: None,
            created: world.epoch(),
            parent: None,
            image: Some(self.url.clone()),
        };
        world.stores.put(&self.host, &volid, volume)?;
        world.say(task, format!("download of '{}' to '{path}' finished", self.url));
        world.effect("download", &volid);
        Ok(())
    }
}

pub(super) fn download(world: &mut World, request: &Request) -> Outcome {
    let text = |name: &str| request.text(name).unwrap_or_default().to_owned();
    let (host, storage, content) = (request.host.clone(), text("storage"), text("content"));
    let spec = world.stores.spec(&storage)?;
    world.stores.place(&host, &storage)?;
    let kind = spec.kind;
    if kind != StorageKind::Dir {
        return Err(format!("can't upload to storage type '{}', not a file based storage!", kind.word()).into());
    }
    if !spec.content.contains(&content) {
        return Err(format!("storage '{storage}' is not configured for content-type '{content}'").into());
    }
    let name = normalised(&text("filename"));
    if !endings(&content).iter().any(|ending| name.len() > ending.len() && name.ends_with(ending)) {
        let is_import = content == "import";
        let why = if is_import { "invalid filename or wrong extension" } else { "wrong file extension" };
        return Err(Refusal::parameter("filename", why));
    }
    let expected = match (request.text("checksum"), request.text("checksum-algorithm")) {
        (Some(sum), Some(algorithm)) => Some((algorithm.to_owned(), sum.to_lowercase())),
        _ => None,
    };
    let path = VolumeName::parse(kind, &format!("{content}/{name}"))?.path(kind, &storage);
    let id = name.clone();
    let errand = Errand {
        host,
        storage,
        content,
        url: text("url"),
        name,
        path,
        is_packed: request.text("compression").is_some(),
        is_checked: request.params.flag("verify-certificates").unwrap_or(true),
        expected,
    };
    let (span, purpose) = (world.latencies.download, format!("download {}", errand.volid()));
    let script = Script::new().then(move |world, task| {
        if !errand.begin(world, task)? {
            return Ok(Script::new());
        }
        Ok(Script::new().takes(purpose, span).then(move |world, task| {
            errand.fetch(world, task)?;
            Ok(Script::new())
        }))
    });
    Ok(world.begin(&request.host, "download", &id, &request.who.name(), script).into())
}

/// What a server says of a file, without the file.
pub(super) fn metadata(world: &World, request: &Request) -> Outcome {
    let url = request.text("url").unwrap_or_default();
    let (host, port) = server(url);
    let is_checked = request.params.flag("verify-certificates").unwrap_or(true);
    let line = match world.found_at(url) {
        Download::File { bytes, .. } => {
            let file = url.split('?').next().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
            return Ok(json!({ "filename": file, "size": bytes, "mimetype": "application/octet-stream" }).into());
        }
        Download::Untrusted if is_checked => {
            format!("500 Can't connect to {host}:{port} (certificate verify failed)")
        }
        Download::NotFound | Download::Untrusted => "404 Not Found".to_owned(),
        Download::Refused => format!("500 Can't connect to {host}:{port} (Connection refused)"),
        Download::Unresolved => format!("500 Can't connect to {host}:{port} (Name or service not known)"),
    };
    Err(format!("invalid server response: '{line}'").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_image_of_the_factory_can_be_had() {
        let schematic = "ab".repeat(32);
        let url = format!("https://factory.talos.dev/image/{schematic}/v1.13.9/nocloud-amd64.qcow2");
        assert_eq!(remote(&url), Some(Download::File { bytes: 212 << 20, size: 1246 << 20, boots: true }));
        assert_eq!(remote("https://factory.talos.dev/image/abc/v1.13.9/nocloud-amd64.qcow2"), None);
        assert_eq!(remote("https://example.com/x.qcow2"), None);
    }

    #[test]
    fn names_and_checksums_have_their_shape() {
        assert_eq!((normalised("a b ç.iso").as_str(), normalised("../x.qcow2").as_str()), ("a_b__.iso", "x.qcow2"));
        assert_eq!((server("https://a.b/c"), server("http://a:8090/c")), (("a.b", "443"), ("a", "8090")));
        let lengths: Vec<usize> = ["md5", "sha1", "sha224", "sha256", "sha384", "sha512"]
            .iter()
            .map(|algorithm| checksum("x", algorithm).unwrap().len())
            .collect();
        assert_eq!(lengths, [32, 40, 56, 64, 96, 128]);
        assert_eq!(checksum("x", "crc"), None);
    }
}
