use std::fmt::Write as _;
use std::io::Write as _;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

use super::*;

const CANARY: &str = "pl4nted/Canary+with \"quotes\" & <more>";

fn registry_of(values: &[&str]) -> Registry {
    let mut registry = Registry::new();
    values.iter().for_each(|value| registry.add(value));
    registry
}

fn masked(values: &[&str], text: &str) -> String {
    registry_of(values).redact(text).into_owned()
}

#[test]
fn every_form_is_masked() {
    let hex: String = CANARY.bytes().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    });
    let json = serde_json::to_string(CANARY).unwrap();
    let forms = [
        CANARY.to_owned(),
        STANDARD.encode(CANARY),
        URL_SAFE.encode(CANARY).trim_end_matches('=').to_owned(),
        hex.clone(),
        hex.to_uppercase(),
        json[1..json.len() - 1].to_owned(),
        format!("{CANARY:?}").trim_matches('"').to_owned(),
        "pl4nted%2FCanary%2Bwith%20%22quotes%22%20%26%20%3Cmore%3E".to_owned(),
        "pl4nted%2fCanary%2bwith%20%22quotes%22%20%26%20%3cmore%3e".to_owned(),
        "pl4nted%2FCanary%2Bwith+%22quotes%22+%26+%3Cmore%3E".to_owned(),
        "pl4nted/Canary+with \\\"quotes\\\" \\u0026 \\u003cmore\\u003e".to_owned(),
    ];
    for form in forms {
        assert_eq!(masked(&[CANARY], &format!("a {form} b")), "a [secret] b", "{form}");
    }
}

/// The alphabets differ in two letters.
#[test]
fn base64_is_masked_in_both_alphabets() {
    let value = "pl4nted~~?>>?canary";
    for encoded in [STANDARD.encode(value), URL_SAFE.encode(value)] {
        assert!(encoded.contains(['+', '/', '-', '_']), "{encoded}");
        assert_eq!(masked(&[value], &format!("a {encoded} b")), "a [secret] b");
    }
}

/// Goal: a value inside of something larger that was encoded as a whole. Method: every length before and behind it.
#[test]
fn base64_is_masked_wherever_it_begins() {
    for before in 0..7 {
        for behind in 0..7 {
            let text = format!("{}{CANARY}{}", "x".repeat(before), "y".repeat(behind));
            for encoded in [STANDARD.encode(&text), URL_SAFE.encode(&text)] {
                let shown = masked(&[CANARY], &encoded);
                assert!(shown.contains(MASK) && shown.len() < 3 + MASK.len() + 20, "{before} {behind}: {shown}");
            }
        }
    }
}

#[test]
fn lines_of_pem_and_long_runs_are_masked_alone() {
    // Joined here, so that no scanner takes this file for a leak.
    let (begin, end) = (["-----BEGIN EC ", "PRIVATE KEY-----"].concat(), ["-----END EC ", "PRIVATE KEY-----"].concat());
    let pem = format!(
        "{begin}\nMHcCAQEEIPlantedPlantedPlanted0123456789abcdefghijklmnopqrstuvwx\nlastLineOfTheKey==\n{end}\n"
    );
    let shown = masked(&[&pem], &format!("bad line `lastLineOfTheKey==` after {begin}"));
    assert_eq!(shown, format!("bad line `[secret]` after {begin}"));
    let kubeconfig = "apiVersion: v1\nserver: https://kubernetes.example.net:6443\nclient-key-data: TFMwdExTMUNSVWRKVGlCRlF5QlFVa2xXUVZSRklFdEZXUzB0TFMwdENn\n";
    let said =
        "apiVersion: v1, https://kubernetes.example.net:6443, TFMwdExTMUNSVWRKVGlCRlF5QlFVa2xXUVZSRklFdEZXUzB0TFMwdENn";
    assert_eq!(masked(&[kubeconfig], said), "apiVersion: v1, https://kubernetes.example.net:6443, [secret]");
}

#[test]
fn what_is_short_or_plain_blanks_nothing() {
    for value in ["", "admin", "true", "1234567", "00000000", "aaaaaaaabbbbbbbb"] {
        assert!(registry_of(&[value]).forms.is_empty(), "{value}");
        assert!(matches!(registry_of(&[value]).redact("admin 00000000"), Cow::Borrowed(_)));
    }
}

#[test]
fn secrets_that_overlap_leave_nothing_of_each_other() {
    assert_eq!(masked(&["abcdefgh", "ghijklmn"], "<abcdefghijklmn>"), "<[secret]>");
    assert_eq!(masked(&["abcdefgh", "abcdefghijkl"], "<abcdefghijkl>"), "<[secret]>");
    assert_eq!(masked(&["Geheimnis-äöü"], "ä Geheimnis-äöü ü"), "ä [secret] ü");
}

/// Goal: no cut lets anything through. Method: every text in all pairs of cuts, compared with the text in one piece.
#[test]
fn pieces_are_masked_as_the_whole() {
    let values = ["streamed-secret-0", "secret-0-overlaps", "streamed-secret-0-is-longer", "several\nlines-of-it"];
    values.into_iter().for_each(register);
    let texts = [
        "a streamed-secret-0 b",
        "streamed-secret-0-overlaps",
        "x streamed-secret-0-is-longer y streamed-secret-",
        "several\nlines\nseveral\nlines-of-it.",
        "streamed-secret-0streamed-secret-0",
    ];
    for text in texts {
        let whole = redact(text);
        assert!(whole.contains(MASK), "{whole}");
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let mut writer = Redacting::new(Vec::new());
                for piece in [&text[..first], &text[first..second], &text[second..]] {
                    writer.write_all(piece.as_bytes()).unwrap();
                    writer.flush().unwrap();
                }
                let written = String::from_utf8(writer.finish().unwrap()).unwrap();
                assert_eq!(written, whole, "{text} cut at {first} and {second}");
            }
        }
    }
}

#[test]
fn lines_are_not_held_back() {
    register("held-back-secret");
    let mut shown = Vec::new();
    let mut writer = Redacting::new(&mut shown);
    writer.write_all(b"a line that ends as a secret begins: h\nheld").unwrap();
    assert_eq!(format!("{writer:?}"), "Redacting { held_bytes: 4, .. }");
    writer.finish().unwrap();
    assert_eq!(shown, b"a line that ends as a secret begins: h\nheld");
}

#[test]
fn what_is_held_back_is_written_in_the_end() {
    register("dropped-writer-secret");
    let mut shown = Vec::new();
    let mut writer = Redacting::new(&mut shown);
    writer.write_all(b"dropped-writer-secret dropped-").unwrap();
    drop(writer);
    assert_eq!(String::from_utf8(shown).unwrap(), "[secret] dropped-");
}

#[test]
fn nothing_of_it_is_shown() {
    let writer = Redacting::new(Vec::new());
    let shown = format!("{:?} {writer:?}", registry_of(&[CANARY]));
    assert!(!shown.contains("Canary"), "{shown}");
}

/// Goal: a thousand secrets cost little. Method: no clock, but what the work depends on: how many places of an ordinary
/// text get past the filter.
#[test]
fn most_places_are_passed_over_however_many_secrets_there_are() {
    let values: Vec<String> = (0..1_000_u64)
        .map(|number| format!("{:x}-{number}-of-many", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    let registry = registry_of(&values.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(registry.redact(&format!("x {} y", values[999])), "x [secret] y");
    let text = include_str!("../redact.rs");
    let passed = text.as_bytes().windows(SHORTEST).filter(|window| {
        let (word, bit) = bit_of(window.first_chunk().unwrap());
        registry.filter[word] & bit != 0
    });
    assert!(passed.count() < text.len() / 8);
}

#[test]
fn what_is_very_long_is_masked_as_it_is() {
    let long = "0123456789abcdef".repeat(LONGEST_ENCODED / 16 + 1);
    assert_eq!(registry_of(&[&long]).forms.len(), 1);
    assert_eq!(masked(&[&long], &format!("<{long}>")), "<[secret]>");
}

/// Goal: an ordinary word as a secret does not blank castle's sentences. Method: one of its words, and one that is none, in both passes.
#[test]
fn words_of_ones_own_stay_in_sentences_of_ones_own() {
    let mut registry = Registry::new();
    registry.own_words = "interrupted\nplatform\n";
    for secret in ["platform", "interrup", "horsebattery"] {
        registry.add(secret);
    }
    let text = "interrupted at the platform: horsebattery cGxhdGZvcm0=";
    assert_eq!(registry.redact(text), "[secret]ted at the [secret]: [secret] [secret]");
    assert_eq!(registry.redact_but(text, true), "interrupted at the platform: [secret] [secret]");
    assert!(is_masked("platform") && !is_masked("seven77") && !is_masked("00000000"));
}
