//! Encrypting a tree, and wrapping the key that it is encrypted with.

use castle_seams::Entropy;
use sha2::Digest;
use zeroize::Zeroizing;

use super::cipher::{DataKey, Nonces};
use super::error::Problem;
use super::metadata::{Group, Metadata, Wrapped};
use super::rule::{Rule, Spot, walk};
use super::sealed::{mac_hash, mac_text};
use super::tree::{Item, Kind, Node, Value};
use super::{recipient, shamir};

/// Encrypts in place, by the rule; gives the MAC.
pub(super) fn encrypt(
    documents: &mut [Node],
    metadata: &Metadata,
    key: &DataKey,
    nonces: &mut Nonces,
    entropy: &dyn Entropy,
) -> Result<Vec<u8>, Problem> {
    let mut hash = mac_hash(metadata);
    let rule = metadata.rule.clone().unwrap_or_default();
    for document in documents {
        walk(document, &rule, &mut |spot| {
            if let Item::Entry { node: Node::Value(value), .. } = &*spot.item
                && (spot.is_encrypted || !metadata.mac_only_encrypted)
            {
                hash.update(&*value.bytes);
            }
            if spot.is_encrypted { encrypt_one(spot, &rule, key, nonces, entropy) } else { Ok(()) }
        })?;
    }
    Ok(mac_text(hash))
}

fn encrypt_one(
    spot: Spot<'_>,
    rule: &Rule,
    key: &DataKey,
    nonces: &mut Nonces,
    entropy: &dyn Entropy,
) -> Result<(), Problem> {
    let Spot { item, context, in_list, way, .. } = spot;
    match item {
        Item::Comment(text) if text.is_empty() => {}
        Item::Comment(text) => {
            let sealed = key.seal("comment", text.as_bytes(), context, nonces, entropy)?;
            if rule.is_misled_by(&sealed) {
                return Err(Problem::Metadata(format!(
                    "`{}` matches encrypted comments, so the file would not open again",
                    rule.name()
                )));
            }
            // In a list a comment is an item, as in the files of sops.
            *item = if in_list { Item::text("", &sealed) } else { Item::Comment(Zeroizing::new(sealed)) };
        }
        Item::Entry { node: Node::Value(value), .. } => {
            let kind = match value.kind {
                Kind::Text if value.bytes.is_empty() => return Ok(()),
                Kind::Null => return Ok(()),
                Kind::Text => "str",
                Kind::Integer => "int",
                Kind::Float => "float",
                Kind::Bool => "bool",
                Kind::Time => "time",
            };
            let sealed = key.seal(kind, &value.bytes, context, nonces, entropy)?;
            *value = Value::text(&sealed);
        }
        Item::Entry { .. } => return Err(Problem::NoPlace(way.told())),
    }
    Ok(())
}

/// The data key for each group, or a share of it if there are several.
pub(super) fn wrapped(
    groups: &[Vec<String>],
    threshold: u8,
    key: &DataKey,
    entropy: &dyn Entropy,
) -> Result<Vec<Group>, Problem> {
    if groups.is_empty() || groups.iter().any(Vec::is_empty) {
        return Err(Problem::NoRecipient);
    }
    let shares = if let [_] = groups {
        vec![Zeroizing::new(key.bytes().to_vec())]
    } else {
        let parts = u8::try_from(groups.len()).unwrap_or(u8::MAX);
        shamir::split(key.bytes(), parts, threshold, entropy)?
    };
    let group = |(names, share): (&Vec<String>, &Zeroizing<Vec<u8>>)| {
        let one = |name: &String| Ok(Wrapped { recipient: name.clone(), armored: recipient::wrap(name, share)? });
        let age = names.iter().map(one).collect::<Result<_, Problem>>()?;
        Ok(Group { age, foreign: Vec::new() })
    };
    groups.iter().zip(&shares).map(group).collect()
}
