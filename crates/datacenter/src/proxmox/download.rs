//! Images that a host downloads by itself.

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::{Outcome, Refusal, Request};
use crate::blueprint::StorageKind;
use crate::world::World;
use crate::world::guest::hex;
use crate::world::stores::Volume;
use crate::world::stores::name::VolumeName;
use crate::world::tasks::Script;

/// A file somewhere in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Remote {
    /// What is transferred.
    bytes: u64,
    /// What a guest sees if it is a disk.
    size: u64,
}

/// The files that can be had: every image of the Talos Image Factory, and the releases of some distributions.
fn remote(url: &str) -> Option<Remote> {
    let disk = Remote { bytes: 212 << 20, size: 1246 << 20 };
    let iso = Remote { bytes: 304 << 20, size: 304 << 20 };
    let of_file = |file: &str| {
        let file = file.split('?').next().unwrap_or(file);
        match file.rsplit('.').next() {
            Some("qcow2") => Some(disk),
            Some("raw") => Some(Remote { bytes: disk.size, ..disk }),
            Some("iso" | "img") => Some(iso),
            Some("xz" | "zst" | "gz") => Some(Remote { bytes: 96 << 20, size: disk.size }),
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

/// What becomes of letters that a file's name may not have.
fn normalised(name: &str) -> String {
    let is_fit = |letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter);
    name.chars().map(|letter| if is_fit(letter) { letter } else { '_' }).collect()
}

pub(super) fn download(world: &mut World, request: &Request) -> Outcome {
    let text = |name: &str| request.text(name).unwrap_or_default().to_owned();
    let (host, storage, content, url) = (request.host.clone(), text("storage"), text("content"), text("url"));
    let spec = world.stores.spec(&storage)?;
    world.stores.place(&host, &storage)?;
    let kind = spec.kind;
    if kind != StorageKind::Dir {
        return Err(format!("can't upload to storage type '{}'", kind.word()).into());
    }
    if !spec.content.contains(&content) {
        return Err(format!("storage '{storage}' is not configured for content-type '{content}'").into());
    }
    let name = normalised(&text("filename"));
    if !endings(&content).iter().any(|ending| name.ends_with(ending)) {
        return Err(Refusal::parameter("filename", "wrong file extension"));
    }
    let is_packed = request.text("compression").is_some();
    if is_packed && content != "iso" {
        return Err(Refusal::parameter("compression", "decompression not supported for this content type"));
    }
    let expected = match (request.text("checksum"), request.text("checksum-algorithm")) {
        (Some(sum), Some(algorithm)) => Some((algorithm.to_owned(), sum.to_lowercase())),
        (Some(_), None) => return Err(Refusal::parameter("checksum-algorithm", "checksum needs an algorithm")),
        _ => None,
    };
    let volid = format!("{storage}:{content}/{name}");
    let path = VolumeName::parse(kind, &format!("{content}/{name}"))?.path(kind, &storage);
    let span = world.latencies.download;
    let script = Script::new().then(move |world, task| {
        world.say(task, format!("downloading {url} to {path}"));
        if let Some(existing) = world.stores.get(&host, &volid) {
            let Some((algorithm, sum)) = &expected else {
                return Err(format!("refusing to override existing file '{path}'"));
            };
            let origin = existing.image.clone().unwrap_or_default();
            // What was unpacked is never what was published.
            let has = if is_packed { checksum(&volid, algorithm) } else { checksum(&origin, algorithm) };
            let has = has.unwrap_or_default();
            if has == *sum {
                world.say(task, "OK, got correct file already, no need to download");
                return Ok(Script::new());
            }
            return Err(format!("checksum mismatch: got '{has}' != expect '{sum}', aborting"));
        }
        Ok(Script::new().takes(format!("download {volid}"), span).act(move |world| {
            world.stores.fault(&volid)?;
            let place = world.stores.place(&host, &storage)?;
            let failed =
                |code: u8| format!("download failed: command 'wget -O {path}.tmp {url}' failed: exit code {code}");
            let Some(file) = remote(&url) else { return Err(failed(8)) };
            if file.bytes > world.stores.free_bytes(&place) {
                return Err(failed(3));
            }
            if let Some((algorithm, sum)) = &expected {
                let has = checksum(&url, algorithm).unwrap_or_default();
                if has != *sum {
                    return Err(format!("checksum mismatch: got '{has}' != expect '{sum}'"));
                }
            }
            let format = if content == "import" { name.rsplit('.').next().unwrap_or("raw") } else { &content };
            let volume = Volume {
                size: file.size,
                written: if is_packed { file.size } else { file.bytes },
                format: format.to_owned(),
                content: content.clone(),
                vmid: None,
                created: world.epoch(),
                parent: None,
                image: Some(url.clone()),
            };
            world.stores.put(&host, &volid, volume)?;
            world.effect("download", &volid);
            Ok(())
        }))
    });
    let id = normalised(request.text("filename").unwrap_or_default());
    Ok(world.begin(&request.host, "download", &id, &request.who.name(), script).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_image_of_the_factory_can_be_had() {
        let schematic = "ab".repeat(32);
        let url = format!("https://factory.talos.dev/image/{schematic}/v1.13.9/nocloud-amd64.qcow2");
        assert_eq!(remote(&url).map(|file| file.size), Some(1246 << 20));
        assert_eq!(remote("https://factory.talos.dev/image/abc/v1.13.9/nocloud-amd64.qcow2"), None);
        assert_eq!(remote("https://example.com/x.qcow2"), None);
    }

    #[test]
    fn names_and_checksums_have_their_shape() {
        assert_eq!(normalised("a b/ç.iso"), "a_b__.iso");
        let lengths: Vec<usize> = ["md5", "sha1", "sha224", "sha256", "sha384", "sha512"]
            .iter()
            .map(|algorithm| checksum("x", algorithm).unwrap().len())
            .collect();
        assert_eq!(lengths, [32, 40, 56, 64, 96, 128]);
        assert_eq!(checksum("x", "crc"), None);
    }
}
