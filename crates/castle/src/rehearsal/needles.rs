//! Secrets to be looked for, and in what they show: as they are, in Base64, in PEM, and in PEM inside of Base64.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use castle_rehearsal::KeyStock;
use castle_seams::KeyKind;

/// As many bytes of a needle are looked up at once; none is shorter.
const START: usize = 8;
/// PEM inside of Base64 is two deep.
const DEEP: usize = 2;
/// What is shorter than a needle in Base64 holds none.
const SHORTEST: usize = 11;
/// Base64 with or without its padding, and with whatever is left at its end.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Secrets, each by what it is.
#[derive(Clone, Default)]
pub(crate) struct Needles(BTreeMap<[u8; START], Vec<(Vec<u8>, String)>>);

impl Needles {
    /// Every key in stock, by that part of it which is nowhere else: certificates have the rest.
    pub(crate) fn of_stock(stock: &KeyStock) -> Self {
        let mut needles = Self::default();
        for (kind, der) in stock.keys() {
            let secret = match kind {
                KeyKind::Rsa4096 => der.get(der.len().saturating_sub(32)..),
                KeyKind::Ed25519 | KeyKind::EcdsaP256 => {
                    // An octet string of 32 bytes.
                    let begin = der.windows(2).position(|two| two == [0x04, 0x20]);
                    begin.and_then(|begin| der.get(begin + 2..begin + 34))
                }
            };
            needles.add("a private key", secret.unwrap_or(der));
        }
        needles
    }

    /// One more. What is too short to be known again is left out.
    pub(crate) fn add(&mut self, what: &str, secret: impl AsRef<[u8]>) {
        let secret = secret.as_ref();
        if let Some(start) = secret.first_chunk() {
            self.0.entry(*start).or_default().push((secret.to_vec(), what.to_owned()));
        }
    }

    /// Which of them are in these bytes.
    pub(crate) fn within(&self, bytes: &[u8]) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        self.search(bytes, DEEP, &mut found);
        // In JSON the ends of lines are written out.
        let text = String::from_utf8_lossy(bytes);
        if text.contains("\\n") {
            self.search(text.replace("\\n", "\n").as_bytes(), DEEP, &mut found);
        }
        found
    }

    fn search<'n>(&'n self, bytes: &[u8], deep: usize, found: &mut BTreeSet<&'n str>) {
        for at in 0..bytes.len() {
            let Some(start) = bytes[at..].first_chunk::<START>() else { break };
            let known = self.0.get(start).into_iter().flatten();
            found.extend(known.filter(|(secret, _)| bytes[at..].starts_with(secret)).map(|(_, what)| what.as_str()));
        }
        if deep == 0 {
            return;
        }
        // A word may be Base64, and so may be all lines together.
        let lines: Vec<u8> = bytes.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let is_other = |byte: &u8| !(byte.is_ascii_alphanumeric() || b"+/".contains(byte));
        for run in bytes.split(is_other).chain(lines.split(is_other)).filter(|run| run.len() >= SHORTEST) {
            // One letter more than whole groups of four is no Base64.
            let whole = if run.len() % 4 == 1 { &run[..run.len() - 1] } else { run };
            if let Ok(decoded) = LENIENT.decode(whole) {
                self.search(&decoded, deep - 1, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use castle_seams::SystemKeyMint;

    use super::*;

    fn count(needles: &Needles) -> usize {
        needles.0.values().map(Vec::len).sum()
    }

    fn needles() -> Needles {
        let mut needles = Needles::default();
        needles.add("the token", "not-to-be-seen");
        needles.add("too short", "short");
        needles
    }

    #[test]
    fn a_secret_is_found_in_whatever_it_is_wrapped() {
        let needles = needles();
        assert_eq!(count(&needles), 1);
        let plain = "user@pve!name=not-to-be-seen";
        let pem = format!("-----BEGIN THING-----\n{}\n-----END THING-----\n", lines(&STANDARD.encode(plain)));
        let twice = format!("key: {}\nname: x\n", STANDARD.encode(&pem));
        let json = serde_json::json!({"said": pem}).to_string();
        for text in [plain, &STANDARD.encode(plain), &pem, &twice, &json] {
            assert_eq!(needles.within(text.as_bytes()), ["the token"].into(), "{text}");
        }
        for text in ["", "not-to-be-see", "Not-to-be-seen", "short"] {
            assert_eq!(needles.within(text.as_bytes()), BTreeSet::new(), "{text}");
        }
    }

    /// In lines as PEM has them, though shorter.
    fn lines(text: &str) -> String {
        text.as_bytes()
            .chunks(8)
            .map(|line| format!("  {}", String::from_utf8_lossy(line)))
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[tokio::test]
    async fn a_key_is_found_by_what_is_secret_of_it() {
        let kinds = [KeyKind::Ed25519, KeyKind::EcdsaP256, KeyKind::Rsa4096];
        let stock = KeyStock::lay_in(&SystemKeyMint, &kinds.map(|kind| (kind, 1))).await.unwrap();
        let needles = Needles::of_stock(&stock);
        assert_eq!(count(&needles), 3);
        for (kind, der) in stock.keys() {
            assert_eq!(needles.within(der), ["a private key"].into(), "{kind:?}");
        }
    }
}
