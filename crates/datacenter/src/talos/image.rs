//! Which Talos an image is.

use super::config::shapes::Minor;

/// What the address of an image tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// The address that the disk came from, whatever somebody has installed since.
    pub(crate) origin: String,
    /// `v1.13.9`.
    pub(crate) version: String,
    /// The schematic, where the Image Factory made it: whoever else did writes down none.
    pub(crate) schematic: Option<String>,
    /// The extensions that somebody else put into it. Those of the factory are only known by its schematic.
    pub(crate) extensions: Vec<String>,
    /// The kernel arguments that somebody else gave it.
    pub(crate) kernel_args: Vec<String>,
    /// `nocloud`.
    pub(crate) platform: String,
    /// `amd64`.
    pub(crate) arch: String,
}

/// The schematic of an image without extensions.
const PLAIN: &str = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba";

impl Image {
    /// Reads the address that a disk image came from; nothing if it is no disk with Talos on it.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let (schematic, version, file) = if let Some(rest) = url.strip_prefix("https://factory.talos.dev/image/") {
            let [schematic, version, file] = rest.split('/').collect::<Vec<_>>().try_into().ok()?;
            (Some(schematic), version, file)
        } else {
            let rest = url.strip_prefix("https://github.com/siderolabs/talos/releases/download/")?;
            let (version, file) = rest.split_once('/')?;
            (None, version, file)
        };
        let (name, ending) = file.split_once('.')?;
        let is_disk = ["qcow2", "raw", "raw.xz", "raw.zst", "raw.gz"].contains(&ending);
        let (platform, arch) = name.trim_end_matches("-secureboot").rsplit_once('-')?;
        let text = |text: &str| text.to_owned();
        (is_disk && version.starts_with('v')).then(|| Self {
            origin: text(url),
            version: text(version),
            schematic: schematic.map(text),
            extensions: Vec::new(),
            kernel_args: Vec::new(),
            platform: text(platform),
            arch: text(arch),
        })
    }

    /// Whether it may have extensions: which, only its schematic tells.
    pub(crate) fn has_extensions(&self) -> bool {
        self.schematic.as_ref().map_or(!self.extensions.is_empty(), |schematic| schematic != PLAIN)
    }

    /// What its kernel is started with. Which arguments a schematic adds, only the factory knows.
    pub(crate) fn command_line(&self) -> String {
        let usual = [format!("talos.platform={}", self.platform), "net.ifnames=0".to_owned()];
        usual.iter().chain(&self.kernel_args).map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    /// The minor version, which decides what a configuration may say.
    pub(crate) fn minor(&self) -> Minor {
        let minor = self.version.strip_prefix("v1.").and_then(|rest| rest.split(['.', '-']).next()?.parse().ok());
        minor.unwrap_or(14).max(12)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_tell_version_and_schematic() {
        let schematic = "ab".repeat(32);
        let url = format!("https://factory.talos.dev/image/{schematic}/v1.13.9/nocloud-amd64.qcow2");
        let image = Image::parse(&url).unwrap();
        assert_eq!((image.version.as_str(), image.minor()), ("v1.13.9", 13));
        assert_eq!(
            (image.platform.as_str(), image.arch.as_str(), image.schematic),
            ("nocloud", "amd64", Some(schematic))
        );
        let released = "https://github.com/siderolabs/talos/releases/download/v1.14.0-rc.1/metal-arm64.raw.zst";
        let image = Image::parse(released).unwrap();
        assert_eq!((image.minor(), image.schematic.as_deref(), image.platform.as_str()), (14, None, "metal"));
    }

    #[test]
    fn other_images_are_no_talos() {
        for url in [
            "https://cloud-images.ubuntu.com/x/nocloud-amd64.qcow2",
            "https://factory.talos.dev/image/ab/v1.13.9/metal-amd64.iso",
            "local:iso/talos.iso",
        ] {
            assert_eq!(Image::parse(url), None, "{url}");
        }
    }
}
