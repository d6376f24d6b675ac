//! Property strings: comma lists of keys and values, one of which may stand without its key.

use std::collections::{BTreeMap, BTreeSet};

use super::field::{self, Field, Format};
use super::verify::{self, Errors};
use super::{Version, options};

/// The parsed properties of an option of a guest, as `net0`: the default key named, aliases resolved, flags 0 or 1.
///
/// # Errors
/// The vendor's complaint, if it is no such property string.
pub fn properties(version: Version, key: &str, value: &str) -> Result<BTreeMap<String, String>, String> {
    let keys = keys_of(version, key).ok_or_else(|| format!("unknown setting '{key}'"))?;
    parse(version, keys, key, value)
}

/// The property string of an option of a guest, as the vendor prints it: the default key first, then what must be there, then the
/// rest by name; sizes in the greatest unit that keeps them whole.
///
/// # Errors
/// The vendor's complaint, if the option has no such properties.
pub fn print(version: Version, key: &str, properties: &BTreeMap<String, String>) -> Result<String, String> {
    let keys = keys_of(version, key).ok_or_else(|| format!("unknown setting '{key}'"))?;
    let mut errors = Errors::default();
    verify::check_object(version, keys, key, properties, &mut errors);
    if !errors.is_empty() {
        return Err(errors.in_one());
    }
    let fields = || field::of(keys, version);
    let default = fields().filter(|field| field.is_default_key);
    let required = fields().filter(|field| !field.optional);
    let mut order: Vec<&str> = default.chain(required).map(|field| field.name).collect();
    let first = order.len().min(1);
    order[first..].sort_unstable();
    order.extend(properties.keys().map(String::as_str));

    let mut printed = BTreeSet::new();
    let mut parts = Vec::new();
    for name in order {
        let (Some(value), Some(field)) = (properties.get(name), fields().find(|field| field.name == name)) else {
            continue;
        };
        if !printed.insert(field.name) {
            continue;
        }
        let value = shown(field, value);
        let partner = fields().find(|alias| alias.names == Some(name)).and_then(|alias| alias.alias);
        if let Some((partner, joined)) = partner.and_then(|partner| Some((partner, properties.get(partner)?))) {
            printed.insert(partner);
            parts.push(format!("{value}={joined}"));
        } else if field.is_default_key {
            parts.push(value);
        } else {
            parts.push(format!("{name}={value}"));
        }
    }
    Ok(parts.join(","))
}

/// An option of a guest as the vendor prints it when it prints it anew, which it does with drives and network devices;
/// what is no property string stays as it is.
///
/// # Errors
/// The vendor's complaint, if the value is not acceptable.
pub fn canonical(version: Version, key: &str, value: &str) -> Result<String, String> {
    match keys_of(version, key) {
        Some(keys) => print(version, key, &parse(version, keys, key, value)?),
        None => Ok(value.to_owned()),
    }
}

fn keys_of(version: Version, key: &str) -> Option<&'static [&'static [Field]]> {
    field::of(options::ALL, version).find(|field| field.is_called(key)).and_then(|field| match field.format {
        Format::Keys(keys) => Some(keys),
        Format::Free | Format::Named(_) => None,
    })
}

/// Reads a property string and checks every property. `path` is what the complaint calls it.
pub(super) fn parse(
    version: Version,
    keys: &'static [&'static [Field]],
    path: &str,
    text: &str,
) -> Result<BTreeMap<String, String>, String> {
    let find = |name: &str| field::of(keys, version).find(|field| field.name == name);
    let mut read: BTreeMap<String, String> = BTreeMap::new();
    let mut unnamed = None;
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let (field, value) = match part.split_once('=') {
            Some((name, value)) if !name.is_empty() && !value.is_empty() => {
                if read.contains_key(name) {
                    return Err(format!("duplicate key in comma-separated list property: {name}\n"));
                }
                let field = find(name);
                if let Some(named) = field.and_then(|field| field.names)
                    && read.insert(named.to_owned(), name.to_owned()).is_some()
                {
                    return Err(format!("key alias '{named}' is already defined\n"));
                }
                let field = match field.and_then(|field| field.alias) {
                    Some(real) if read.contains_key(real) => {
                        return Err(format!("key '{real}' is already defined (via alias)\n"));
                    }
                    Some(real) => find(real),
                    None => field,
                };
                let Some(field) = field else {
                    // The vendor means to refuse it here, but finds it unknown only afterwards.
                    read.insert(name.to_owned(), value.to_owned());
                    continue;
                };
                (field, value)
            }
            Some(_) => return Err("missing key in comma-separated list property\n".to_owned()),
            None => {
                let field = field::of(keys, version)
                    .find(|field| field.is_default_key)
                    .ok_or("value without key, but schema does not define a default key\n")?;
                if unnamed.replace(field.name).is_some() || read.contains_key(field.name) {
                    return Err(format!("duplicate key in comma-separated list property: {}\n", field.name));
                }
                (field, part)
            }
        };
        read.insert(field.name.to_owned(), plain(field, value));
    }
    let mut errors = Errors::default();
    verify::check_object(version, keys, path, &read, &mut errors);
    if errors.is_empty() { Ok(read) } else { Err(errors.in_one()) }
}

/// Flags have many words in property strings.
fn plain(field: &Field, value: &str) -> String {
    let value = match value.to_lowercase().as_str() {
        "1" | "on" | "yes" | "true" if field.kind == field::Kind::Flag => "1",
        "0" | "off" | "no" | "false" if field.kind == field::Kind::Flag => "0",
        _ => value,
    };
    value.to_owned()
}

fn shown(field: &Field, value: &str) -> String {
    match field.format {
        Format::Named("disk-size") => bytes(value).map_or_else(|| value.to_owned(), size),
        _ => value.to_owned(),
    }
}

const UNITS: &str = "KMGT";

/// The bytes of a size as `32G`.
fn bytes(size: &str) -> Option<u128> {
    let number_end = size.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(size.len());
    let (number, unit) = size.split_at(number_end);
    let power = match unit.chars().next() {
        Some(letter) => UNITS.find(letter)? + 1,
        None => 0,
    };
    let unit = 1_u128 << (10 * power);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.parse::<u64>().ok()?;
    let fraction: String = fraction.chars().take(18).collect();
    let part = if fraction.is_empty() { 0 } else { fraction.parse::<u128>().ok()? };
    let parts = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    Some(u128::from(whole) * unit + part * unit / parts)
}

/// A size in the greatest unit that keeps it whole.
fn size(bytes: u128) -> String {
    let mut left = bytes;
    let mut shown = left.to_string();
    for unit in UNITS.chars() {
        if !left.is_multiple_of(1024) {
            break;
        }
        left /= 1024;
        shown = format!("{left}{unit}");
    }
    shown
}
