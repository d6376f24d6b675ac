//! Property strings: `virtio=BC:24:11:00:00:01,bridge=vmbr0`, values with names inside of one parameter.
//!
//! Proxmox prints them back in an order of its own, with sizes shortened and truth values as `1`: two are the same if they mean the
//! same.

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;

/// Why a text is no property string.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PropertyError {
    /// A part is neither `key=value` nor the value of the default key.
    #[error("`{0}` has no key")]
    NoKey(String),
    /// A key is there twice.
    #[error("`{0}` is there twice")]
    Twice(String),
    /// A value has a comma, which would end it.
    #[error("the value of `{0}` has a comma")]
    Comma(String),
}

/// The properties of one parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// The key whose value may stand without it, if there is one.
    default_key: Option<&'static str>,
    values: BTreeMap<String, String>,
}

/// Keys of a network card that name its model and carry its hardware address. Held against the vendor's schema by a test.
pub const NETWORK_MODELS: [&str; 14] = [
    "e1000",
    "e1000-82540em",
    "e1000-82544gc",
    "e1000-82545em",
    "e1000e",
    "i82551",
    "i82557b",
    "i82559er",
    "ne2k_isa",
    "ne2k_pci",
    "pcnet",
    "rtl8139",
    "virtio",
    "vmxnet3",
];

impl Properties {
    /// No properties.
    #[must_use]
    pub fn new(default_key: Option<&'static str>) -> Self {
        Self { default_key, values: BTreeMap::new() }
    }

    /// Reads a property string.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub fn parse(default_key: Option<&'static str>, text: &str) -> Result<Self, PropertyError> {
        let mut properties = Self::new(default_key);
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (key, value) = match (part.split_once('='), default_key) {
                (Some((key, value)), _) => (key, value),
                (None, Some(key)) => (key, part),
                (None, None) => return Err(PropertyError::NoKey(part.to_owned())),
            };
            // `virtio=MAC` says two things.
            if default_key == Some("model") && NETWORK_MODELS.contains(&key) {
                properties.insert("model", key)?;
                properties.insert("macaddr", value)?;
            } else {
                properties.insert(key, value)?;
            }
        }
        Ok(properties)
    }

    fn insert(&mut self, key: &str, value: &str) -> Result<(), PropertyError> {
        match self.values.insert(key.to_owned(), value.to_owned()) {
            Some(_) => Err(PropertyError::Twice(key.to_owned())),
            None => Ok(()),
        }
    }

    /// Adds a property, or replaces it.
    ///
    /// # Errors
    ///
    /// If the value cannot stand in a property string.
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Result<Self, PropertyError> {
        let value = value.to_string();
        if value.contains(',') {
            return Err(PropertyError::Comma(key.to_owned()));
        }
        self.values.insert(key.to_owned(), value);
        Ok(self)
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Whether everything that `self` says, `other` says too: Proxmox adds what it chose itself.
    #[must_use]
    pub fn is_said_by(&self, other: &Self) -> bool {
        self.values.iter().all(|(key, value)| other.get(key).is_some_and(|theirs| means(key, value, theirs)))
    }

    /// The keys whose values differ in meaning, each with its value here and there.
    #[must_use]
    pub fn differences<'a>(&'a self, other: &'a Self) -> Vec<(&'a str, Option<&'a str>, Option<&'a str>)> {
        let keys: std::collections::BTreeSet<&str> = self.keys().chain(other.keys()).collect();
        let differs = |key: &&str| match (self.get(key), other.get(key)) {
            (Some(mine), Some(theirs)) => !means(key, mine, theirs),
            (mine, theirs) => mine != theirs,
        };
        keys.into_iter().filter(differs).map(|key| (key, self.get(key), other.get(key))).collect()
    }
}

/// Whether two values of a key mean the same.
fn means(key: &str, one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    match key {
        "macaddr" => one.eq_ignore_ascii_case(other),
        "size" => bytes(one).is_some_and(|size| Some(size) == bytes(other)),
        _ => truth(one).is_some_and(|value| Some(value) == truth(other)),
    }
}

fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "on" | "yes" | "true" => Some(true),
        "0" | "off" | "no" | "false" => Some(false),
        _ => None,
    }
}

/// A size as Proxmox writes it: a number, whole or not, and K, M, G or T, with or without `iB`.
fn bytes(text: &str) -> Option<u128> {
    let text = text.strip_suffix("iB").unwrap_or(text);
    let (number, unit) = match text.char_indices().last()? {
        (at, 'K') => (&text[..at], 10),
        (at, 'M') => (&text[..at], 20),
        (at, 'G') => (&text[..at], 30),
        (at, 'T') => (&text[..at], 40),
        _ => (text, 0),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if part.len() > 6 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole: u128 = whole.parse().ok().filter(|whole| *whole < 1 << 60)?;
    // In millionths, so that 1.5G is exact.
    let part: u128 = format!("{part:0<6}").parse().ok()?;
    Some((whole * 1_000_000 + part) << unit)
}

/// A size as Proxmox writes it, in whole MiB, rounded up: Proxmox itself rounds up to what a storage can.
pub(crate) fn mib_of(text: &str) -> Option<u64> {
    let millionths_of_a_mib = 1_000_000u128 << 20;
    u64::try_from(bytes(text)?.div_ceil(millionths_of_a_mib)).ok()
}

impl fmt::Display for Properties {
    /// As Proxmox prints it: the default key first, the others in order.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let mut rest = self.values.clone();
        let card = self.default_key.filter(|key| *key == "model").and(self.get("model").zip(self.get("macaddr")));
        if let Some((model, mac)) = card {
            parts.push(format!("{model}={mac}"));
            rest.remove("model");
            rest.remove("macaddr");
        } else if let Some((key, value)) = self.default_key.and_then(|key| rest.remove_entry(key)) {
            // A value that looks like another property keeps its key.
            parts.push(if value.contains('=') { format!("{key}={value}") } else { value });
        }
        parts.extend(rest.iter().map(|(key, value)| format!("{key}={value}")));
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    fn parse(default_key: &'static str, text: &str) -> Properties {
        Properties::parse(Some(default_key), text).unwrap()
    }

    #[test]
    fn what_proxmox_prints_back_means_what_was_said() {
        let cases = [
            ("file", "local-lvm:vm-421-disk-1,iothread=1", "local-lvm:vm-421-disk-1,iothread=on,size=32G"),
            ("file", "local-lvm:vm-421-disk-1,size=32768M", "local-lvm:vm-421-disk-1,size=32G"),
            ("model", "virtio=bc:24:11:00:00:01,bridge=vmbr0", "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=0"),
            ("model", "model=virtio,macaddr=BC:24:11:00:00:01,bridge=vmbr0", "bridge=vmbr0,virtio=BC:24:11:00:00:01"),
            ("enabled", "enabled=1", "1"),
        ];
        for (key, said, printed) in cases {
            assert!(parse(key, said).is_said_by(&parse(key, printed)), "{said} and {printed}");
        }
        for (key, said, printed) in [
            ("file", "local-lvm:vm-421-disk-1,size=32G", "local-lvm:vm-421-disk-1,size=33G"),
            ("model", "virtio=BC:24:11:00:00:01,bridge=vmbr0", "virtio=BC:24:11:00:00:01,bridge=vmbr1"),
            ("model", "virtio=BC:24:11:00:00:01,tag=7", "virtio=BC:24:11:00:00:01"),
        ] {
            assert!(!parse(key, said).is_said_by(&parse(key, printed)), "{said} and {printed}");
        }
    }

    #[test]
    fn differences_are_by_meaning() {
        let (is, wanted) = (
            parse("model", "virtio=AA:00:00:00:00:01,bridge=vmbr0,firewall=0"),
            parse("model", "virtio=aa:00:00:00:00:01,bridge=vmbr1"),
        );
        assert_eq!(is.differences(&wanted), [("bridge", Some("vmbr0"), Some("vmbr1")), ("firewall", Some("0"), None)]);
    }

    #[test]
    fn sizes_are_compared_as_amounts() {
        for (one, other) in [("32G", "32768M"), ("1.5G", "1536M"), ("1T", "1024GiB"), ("512", "0.5K")] {
            assert_eq!(bytes(one), bytes(other), "{one} and {other}");
        }
        for nonsense in ["", "G", "x", "1.2.3G", "99999999999999999999999999G", "1.1234567G"] {
            assert_eq!(bytes(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn what_is_no_property_string_is_refused() {
        assert_eq!(Properties::parse(None, "x"), Err(PropertyError::NoKey("x".into())));
        assert_eq!(Properties::parse(None, "a=1,a=2"), Err(PropertyError::Twice("a".into())));
        assert!(Properties::new(None).with("a", "1,b=2").is_err(), "a comma would smuggle in another property");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, rng_seed: RngSeed::Fixed(2026), ..ProptestConfig::default() })]

        #[test]
        fn printed_and_read_again_it_is_the_same(values in proptest::collection::btree_map("[a-z][a-z0-9_]{0,8}", "[^,]{0,12}", 0..6)) {
            let mut properties = Properties::new(Some("file"));
            for (key, value) in &values {
                properties = properties.with(key, value).unwrap();
            }
            let again = Properties::parse(Some("file"), &properties.to_string()).unwrap();
            prop_assert!(properties.values.iter().all(|(key, value)| again.get(key) == Some(value) || (key == "file" && value.is_empty())));
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            if let Ok(properties) = Properties::parse(Some("file"), &text) {
                let _ = properties.is_said_by(&properties);
                let _ = properties.to_string();
            }
        }
    }
}
