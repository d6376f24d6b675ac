//! Names and numbers by which things are called.

use std::fmt;

use serde_json::{Value, json};

use crate::shape::{Scalar, Unfit};

macro_rules! text {
    ($(#[doc = $doc:literal])* $name:ident, $noun:literal, $example:literal, $schema:tt, |$text:ident| $check:expr) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Scalar for $name {
            const NOUN: &'static str = $noun;
            const EXAMPLE: &'static str = $example;

            fn parse($text: &str) -> Result<Self, Unfit> {
                $check.map(Self)
            }

            fn placeholder() -> Self {
                Self(String::new())
            }

            fn schema() -> Value {
                json!($schema)
            }

            fn show(&self) -> Value {
                self.0.clone().into()
            }
        }
    };
}
pub(super) use text;

text! {
    /// A DNS label as RFC 1123 has it: what Kubernetes and Talos accept as a name.
    Name, "a name of lower-case letters, digits and `-`", "blue",
    {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"},
    |text| dns_label(text)
}

impl Name {
    /// Why `text` cannot be a name, if it cannot.
    #[must_use]
    pub fn refuses(text: &str) -> Option<Unfit> {
        dns_label(text).err()
    }
}

text! {
    /// The name of a host, storage, bridge or pool, as Proxmox has them.
    Word, "a name of letters, digits, `.`, `-` and `_`", "local-lvm",
    {"type": "string", "pattern": "^[A-Za-z0-9][-A-Za-z0-9._]*$"},
    |text| match text.bytes().next() {
        Some(first) if !first.is_ascii_alphanumeric() => Err("it must begin with a letter or digit".into()),
        Some(_) if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)) => Ok(text.to_owned()),
        Some(_) => Err("only letters, digits, `.`, `-` and `_`".into()),
        None => Err("it is empty".into()),
    }
}

text! {
    /// Where a node takes its time from: a server by name or address, or a clock of the host, `/dev/ptp0`.
    TimeServer, "a time server by name or address, or a device such as `/dev/ptp0`", "time.lan",
    {"type": "string", "pattern": "^(/dev/[A-Za-z0-9_]+|[A-Za-z0-9:][-A-Za-z0-9.:]*)$"},
    |text| match text.strip_prefix("/dev/") {
        Some("") => Err("it names no device".into()),
        Some(device) if device.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') => Ok(text.to_owned()),
        Some(_) => Err("a device has only letters, digits and `_` behind `/dev/`".into()),
        None if text.contains(':') && text.parse::<std::net::Ipv6Addr>().is_err() => Err("it is no address".into()),
        None if text.is_empty() => Err("it is empty".into()),
        None if text.starts_with(['-', '.']) => Err("it must begin with a letter or digit".into()),
        None if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte)) => Ok(text.to_owned()),
        None => Err("only letters, digits, `.`, `-` and `:`".into()),
    }
}

impl TimeServer {
    /// Whether it is a clock of the host.
    #[must_use]
    pub fn is_device(&self) -> bool {
        self.0.starts_with('/')
    }
}

text! {
    /// Some text on one line.
    Line, "text on one line", "text",
    {"type": "string", "pattern": "^[^\\x00-\\x1f\\x7f]+$"},
    |text| match text {
        "" => Err("it is empty".into()),
        _ if text.chars().any(char::is_control) => Err("it has a line break or control character".into()),
        _ => Ok(text.to_owned()),
    }
}

text! {
    /// The key of a label, as Kubernetes has it: a name, with or without a domain and `/` in front.
    LabelKey, "the key of a label", "topology.kubernetes.io/zone",
    {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"},
    |text| label_key(text)
}

text! {
    /// The value of a label; may be empty.
    LabelValue, "the value of a label", "rack-1",
    {"type": "string", "pattern": "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"},
    |text| if text.is_empty() { Ok(String::new()) } else { label_name(text) }
}

text! {
    /// A taint: `KEY=VALUE:EFFECT`, or `KEY:EFFECT`.
    Taint, "a taint, as `KEY=VALUE:EFFECT`", "dedicated=storage:NoSchedule",
    {"type": "string", "pattern": "^[^=:]+(=[^=:]*)?:(NoSchedule|PreferNoSchedule|NoExecute)$"},
    |text| {
        let (subject, effect) = text.rsplit_once(':').ok_or("its effect is missing: `:NoSchedule`, `:PreferNoSchedule` or `:NoExecute`")?;
        if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            return Err("its effect is `NoSchedule`, `PreferNoSchedule` or `NoExecute`".into());
        }
        let (key, value) = subject.split_once('=').unwrap_or((subject, ""));
        label_key(key)?;
        if !value.is_empty() {
            label_name(value)?;
        }
        Ok(text.to_owned())
    }
}

impl Taint {
    /// Its key, value (may be empty) and effect.
    #[must_use]
    pub fn parts(&self) -> (&str, &str, &str) {
        let (subject, effect) = self.0.rsplit_once(':').unwrap_or((&self.0, ""));
        let (key, value) = subject.split_once('=').unwrap_or((subject, ""));
        (key, value, effect)
    }
}

text! {
    /// The name of a container registry, with a port if it has one; `*` for all others.
    RegistryName, "the name of a registry", "docker.io",
    {"type": "string", "pattern": "^(\\*|[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?)$"},
    |text| {
        let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
        match text {
            "*" => Ok(text.to_owned()),
            _ if host.is_empty() || !host.bytes().all(fits) => Err("a host name, as in image names: `docker.io`".into()),
            _ if port.is_some_and(|port| port.parse::<u16>().is_err()) => Err("its port is not a number".into()),
            _ => Ok(text.to_owned()),
        }
    }
}

/// A name with or without a domain in front.
fn label_key(text: &str) -> Result<String, Unfit> {
    let (domain, name) = text.rsplit_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    label_name(name)?;
    match domain {
        Some(domain) if domain.is_empty() || domain.split('.').any(|label| dns_label(label).is_err()) => {
            Err("before the `/` stands a domain".into())
        }
        _ => Ok(text.to_owned()),
    }
}

fn label_name(text: &str) -> Result<String, Unfit> {
    let bytes = text.as_bytes();
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) if !first.is_ascii_alphanumeric() || !last.is_ascii_alphanumeric() => {
            Err("it must begin and end with a letter or digit".into())
        }
        (None, _) => Err("it is empty".into()),
        _ if bytes.len() > 63 => Err("at most 63 characters".into()),
        _ if !bytes.iter().all(fits) => Err("only letters, digits, `-`, `_` and `.`".into()),
        _ => Ok(text.to_owned()),
    }
}

text! {
    /// An official system extension, with or without the `siderolabs/` in front.
    ExtensionName, "a Talos system extension", "iscsi-tools",
    {"type": "string", "pattern": "^(siderolabs/)?[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
    |text| dns_label(text.strip_prefix("siderolabs/").unwrap_or(text))
}

text! {
    /// A loadable kernel module.
    ModuleName, "a kernel module", "nbd",
    {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"},
    |text| {
        let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        // The kernel takes `-` and `_` for the same character.
        if fits { Ok(text.replace('-', "_")) } else { Err("only letters, digits, `-` and `_`".into()) }
    }
}

text! {
    /// A kernel argument, or with a `-` in front one that Talos sets and that is to be dropped.
    KernelArg, "a kernel argument", "net.ifnames=0",
    {"type": "string", "pattern": "^-?[A-Za-z_][ -~]*$"},
    |text| kernel_arg(text)
}

/// Only what every YAML library writes the same way: the image's schematic id is a digest of its YAML.
fn kernel_arg(text: &str) -> Result<String, Unfit> {
    const YAML_WORDS: [&str; 10] = ["null", "true", "false", "y", "n", "yes", "no", "on", "off", ""];
    let name = text.strip_prefix('-').unwrap_or(text);
    if !name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
        Err("it must begin with a letter".into())
    } else if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) || text.ends_with(' ') {
        Err("only printable ASCII, and no space at the end".into())
    } else if YAML_WORDS.contains(&text.to_lowercase().as_str()) {
        Err("YAML takes this word for something else".into())
    } else {
        Ok(text.to_owned())
    }
}

fn dns_label(text: &str) -> Result<String, Unfit> {
    let bytes = text.as_bytes();
    let fits = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    match (bytes.first(), bytes.last()) {
        (Some(b'-'), _) | (_, Some(b'-')) => Err("it may not begin or end with `-`".into()),
        (None, _) => Err("it is empty".into()),
        _ if bytes.len() > 63 => Err("at most 63 characters".into()),
        _ if !bytes.iter().all(fits) => Err("only lower-case letters, digits and `-`".into()),
        _ => Ok(text.to_owned()),
    }
}

/// The number of a Proxmox guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vmid(pub u32);

impl Vmid {
    const MIN: u32 = 100;
    const MAX: u32 = 999_999_999;
}

impl fmt::Display for Vmid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Scalar for Vmid {
    const NOUN: &'static str = "a VMID";
    const EXAMPLE: &'static str = "421";

    fn parse(text: &str) -> Result<Self, Unfit> {
        let number = text.parse().map_err(|_| Unfit::from("not a whole number"))?;
        if (Self::MIN..=Self::MAX).contains(&number) {
            Ok(Self(number))
        } else {
            Err(format!("Proxmox gives out {} to {}", Self::MIN, Self::MAX).into())
        }
    }

    fn placeholder() -> Self {
        Self(Self::MIN)
    }

    fn schema() -> Value {
        json!({"type": "integer", "minimum": Self::MIN, "maximum": Self::MAX})
    }

    fn show(&self) -> Value {
        self.0.into()
    }
}

/// Consecutive VMIDs, both ends included: castle makes and changes no guest outside of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmidRange {
    /// The first.
    pub first: Vmid,
    /// The last.
    pub last: Vmid,
}

impl VmidRange {
    /// Whether `vmid` is one of them.
    #[must_use]
    pub fn contains(&self, vmid: Vmid) -> bool {
        (self.first..=self.last).contains(&vmid)
    }
}

impl fmt::Display for VmidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl Scalar for VmidRange {
    const NOUN: &'static str = "a range of VMIDs";
    const EXAMPLE: &'static str = "421-432";

    fn parse(text: &str) -> Result<Self, Unfit> {
        let (first, last) = text.split_once('-').ok_or("write the first and the last number with `-` between")?;
        let (first, last) = (Vmid::parse(first.trim())?, Vmid::parse(last.trim())?);
        if last < first { Err("it ends before it begins".into()) } else { Ok(Self { first, last }) }
    }

    fn placeholder() -> Self {
        Self { first: Vmid::placeholder(), last: Vmid::placeholder() }
    }

    fn schema() -> Value {
        json!({"type": "string", "pattern": "^[0-9]{3,9} ?- ?[0-9]{3,9}$"})
    }

    fn show(&self) -> Value {
        self.to_string().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::tests::read_all;

    #[test]
    fn names_are_dns_labels() {
        insta::assert_snapshot!(read_all::<Name>(&["blue", "blue-2", "Blue", "blue_2", "-blue", "blue-", "", &"a".repeat(64)]), @r#"
        "blue" is "blue"
        "blue-2" is "blue-2"
        "Blue": only lower-case letters, digits and `-`
        "blue_2": only lower-case letters, digits and `-`
        "-blue": it may not begin or end with `-`
        "blue-": it may not begin or end with `-`
        "": it is empty
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": at most 63 characters
        "#);
    }

    #[test]
    fn time_servers_are_names_addresses_or_devices() {
        insta::assert_snapshot!(read_all::<TimeServer>(&["time.lan", "192.168.1.1", "fd00::1", "/dev/ptp0", "/dev/", "/dev/../x", "a:b", "-x", "/x", ""]), @r#"
        "time.lan" is "time.lan"
        "192.168.1.1" is "192.168.1.1"
        "fd00::1" is "fd00::1"
        "/dev/ptp0" is "/dev/ptp0"
        "/dev/": it names no device
        "/dev/../x": a device has only letters, digits and `_` behind `/dev/`
        "a:b": it is no address
        "-x": it must begin with a letter or digit
        "/x": only letters, digits, `.`, `-` and `:`
        "": it is empty
        "#);
    }

    #[test]
    fn vmids_are_what_proxmox_gives_out() {
        insta::assert_snapshot!(read_all::<VmidRange>(&["421-432", "421 - 432", "100-999999999", "99-200", "100-1000000000", "432-421", "421", "a-b"]), @r#"
        "421-432" is "421-432"
        "421 - 432" is "421-432"
        "100-999999999" is "100-999999999"
        "99-200": Proxmox gives out 100 to 999999999
        "100-1000000000": Proxmox gives out 100 to 999999999
        "432-421": it ends before it begins
        "421": write the first and the last number with `-` between
        "a-b": not a whole number
        "#);
    }

    #[test]
    fn extensions_lose_their_prefix_and_modules_their_dashes() {
        insta::assert_snapshot!(read_all::<ExtensionName>(&["iscsi-tools", "siderolabs/iscsi-tools", "acme/tools"]), @r#"
        "iscsi-tools" is "iscsi-tools"
        "siderolabs/iscsi-tools" is "iscsi-tools"
        "acme/tools": only lower-case letters, digits and `-`
        "#);
        insta::assert_snapshot!(read_all::<ModuleName>(&["vfio-pci", "a b"]), @r#"
        "vfio-pci" is "vfio_pci"
        "a b": only letters, digits, `-` and `_`
        "#);
    }

    /// Which of these can be read.
    fn good<S: Scalar>(texts: &[&'static str]) -> Vec<&'static str> {
        texts.iter().copied().filter(|text| S::parse(text).is_ok()).collect()
    }

    #[test]
    fn labels_and_taints_are_those_of_kubernetes() {
        let keys = good::<LabelKey>(&["zone", "topology.kubernetes.io/zone", "a/b/c", "/x", "-x", "x y", ""]);
        assert_eq!(keys, ["zone", "topology.kubernetes.io/zone"]);
        assert_eq!(good::<LabelValue>(&["", "rack-1", "rack_1.", "a b"]), ["", "rack-1"]);
        let taints = ["dedicated=storage:NoSchedule", "dedicated:NoExecute", "dedicated", "a=b:Never", "=b:NoSchedule"];
        assert_eq!(good::<Taint>(&taints), taints[..2]);
        assert_eq!(Taint::parse(taints[0]).unwrap().parts(), ("dedicated", "storage", "NoSchedule"));
        assert_eq!(Taint::parse(taints[1]).unwrap().parts(), ("dedicated", "", "NoExecute"));
    }

    #[test]
    fn registries_are_named_as_in_images() {
        let names = ["docker.io", "registry.lan:5000", "*", "https://docker.io", "docker.io/library", "x:y", ""];
        assert_eq!(good::<RegistryName>(&names), names[..3]);
    }
}
