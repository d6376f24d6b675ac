use proptest::prelude::*;
use serde_json::json;

use super::*;

fn kind(text: &str) -> YamlErrorKind {
    parse(text).unwrap_err().kind
}

/// What Talos' own library prints for the same values.
#[test]
fn texts_are_quoted_as_go_quotes_them() {
    for (value, text) in [
        ("", r#""""#),
        ("plain", "plain"),
        ("https://base:6443", "https://base:6443"),
        ("10.96.0.0/12", "10.96.0.0/12"),
        ("pofHbABZq7VXuObsdLdy/bHmz6hlMHZ3p8+6WKrv1ic=", "pofHbABZq7VXuObsdLdy/bHmz6hlMHZ3p8+6WKrv1ic="),
        ("168h0m0s", "168h0m0s"),
        ("null", r#""null""#),
        ("~", r#""~""#),
        ("true", r#""true""#),
        ("no", r#""no""#),
        ("y", r#""y""#),
        ("nO", "nO"),
        ("<<", r#""<<""#),
        ("0", r#""0""#),
        ("08", r#""08""#),
        ("0x1F", r#""0x1F""#),
        ("0b2", "0b2"),
        ("1_000", r#""1_000""#),
        ("1.5", r#""1.5""#),
        ("1e3", r#""1e3""#),
        ("1e400", "1e400"),
        (".inf", r#"".inf""#),
        ("123456.1234567890123456", r#""123456.1234567890123456""#),
        ("18446744073709551616", r#""18446744073709551616""#),
        ("0x1FFFFFFFFFFFFFFFF", "0x1FFFFFFFFFFFFFFFF"),
        ("12:30", r#""12:30""#),
        ("12:60", "12:60"),
        ("190:20:30.15", r#""190:20:30.15""#),
        ("2020-01-01", r#""2020-01-01""#),
        ("2020-02-29T1:2:3+05:00", r#""2020-02-29T1:2:3+05:00""#),
        ("2020-02-29 10:20:30.5", r#""2020-02-29 10:20:30.5""#),
        ("2020-02-30", "2020-02-30"),
        ("2020-01-01T24:00:00Z", "2020-01-01T24:00:00Z"),
        ("a: b", "'a: b'"),
        ("a:", "'a:'"),
        ("a:b", "a:b"),
        ("a #b", "'a #b'"),
        ("a#b", "a#b"),
        ("- a", "'- a'"),
        ("-a", "-a"),
        ("?", "'?'"),
        ("?a", "?a"),
        ("@a", "'@a'"),
        ("it's", "it's"),
        ("'a'", "'''a'''"),
        (" a", "' a'"),
        ("a ", "'a '"),
        ("-----BEGIN X-----", "'-----BEGIN X-----'"),
        ("...", "'...'"),
        ("a\tb", r#""a\tb""#),
        ("a\rb", r#""a\rb""#),
        ("a\u{7}\u{7f}", r#""a\a\x7F""#),
        ("é☃", "é☃"),
        ("\u{1f600}", r#""\U0001F600""#),
        ("\n", r#""\n""#),
        ("a \nb", r#""a \nb""#),
        ("a\nb", "|-\n    a\n    b"),
        ("a\n\n b\n", "|\n    a\n\n     b"),
        ("a\n\n", "|+\n    a\n"),
        (" a\nb\n", "|4\n     a\n    b"),
    ] {
        assert_eq!(emit(&json!({"k": value})), format!("k: {text}\n"));
        assert_eq!(parse(&format!("k: {text}\n")).unwrap(), [json!({"k": value})], "{text}");
    }
}

#[test]
fn structure_is_indented_as_go_indents_it() {
    let value = json!({
        "a": {"b": [1, {"c": {"d": "x\ny\n"}, "e": []}, ["f", ["g"]]], "h": {}},
        "true": null,
        "x: y": [" a\nb", {"i": " a\nb"}],
        "z": [1.5, 1e30, 123456.5, 1234567.5, 0.0001, 0.00001, -0.0, u64::MAX, i64::MIN],
    });
    let text = "\
a:
    b:
        - 1
        - c:
            d: |
                x
                y
          e: []
        - - f
          - - g
    h: {}
\"true\": null
'x: y':
    - |2-
       a
      b
    - i: |2-
         a
        b
z:
    - 1.5
    - 1e+30
    - 123456.5
    - 1.2345675e+06
    - 0.0001
    - 1e-05
    - -0
    - 18446744073709551615
    - -9223372036854775808
";
    assert_eq!(emit(&value), text);
    assert_eq!(parse(text).unwrap(), [value]);
}

#[test]
fn kubernetes_indents_less() {
    let value = json!({"clusters": [{"cluster": {"server": "x", "a": "b\nc"}, "name": "m"}, ["x"]], "z": {"l": [1]}});
    let text = "\
clusters:
- cluster:
    server: x
    a: |-
      b
      c
  name: m
- - x
z:
  l:
  - 1
";
    assert_eq!(emit_for_kubernetes(&value), text);
    assert_eq!(parse(text).unwrap(), [value]);
}

#[test]
fn plain_words_mean_what_they_mean_to_go() {
    for (text, value) in [
        ("yes", json!("yes")),
        ("0o17", json!(15)),
        ("017", json!(15)),
        ("08", json!(8.0)),
        ("-0x10", json!(-16)),
        ("0b101", json!(5)),
        ("+1_000", json!(1000)),
        ("1.", json!(1.0)),
        ("+.5e1", json!(5.0)),
        ("2020-01-01", json!("2020-01-01")),
        ("<<", json!("<<")),
        ("~", json!(null)),
        ("", json!(null)),
        ("!!str 1", json!("1")),
        ("'1'", json!("1")),
        ("\"1\"", json!("1")),
    ] {
        assert_eq!(parse(&format!("k: {text}\n")).unwrap(), [json!({"k": value})], "{text}");
    }
}

#[test]
fn documents_are_split_by_grammar_and_empty_ones_left_out() {
    let text = "---\n---\nk: |\n    ---\n    -----BEGIN X-----\n---\n# nothing\n---\n- 1\n";
    assert_eq!(parse(text).unwrap(), [json!({"k": "---\n-----BEGIN X-----\n"}), json!([1])]);
    assert!(parse("").unwrap().is_empty());
    assert_eq!(emit_all(&[json!({"a": 1}), json!({"b": 2})]), "a: 1\n---\nb: 2\n");
    assert_eq!(emit(&json!({})), "{}\n");
}

#[test]
fn order_is_kept() {
    let text = "b: 1\na: 2\nc: 0\n";
    assert_eq!(emit_all(&parse(text).unwrap()), text);
}

#[test]
fn what_is_ambiguous_or_beyond_the_limits_is_refused() {
    assert_eq!(kind("a: 1\nb:\n  c: 1\n  c: 2\n"), YamlErrorKind::DuplicateKey);
    for key in ["1", "true", "~", "1.5", ".inf", "[a]", "{a: 1}", "? [a]\n", &format!("? {}\n", "k".repeat(1001))] {
        assert_eq!(kind(&format!("{key}: x\n")), YamlErrorKind::Key, "{key}");
    }
    assert_eq!(kind("a: &a {b: 1}\nc:\n  <<: *a\n"), YamlErrorKind::MergeKey);
    assert_eq!(kind("a: [1\nb: 2\n"), YamlErrorKind::Syntax);
    assert_eq!(kind("%YAML 1.2\n---\na: 1\n"), YamlErrorKind::Syntax);
    assert_eq!(kind("a: *b\n"), YamlErrorKind::Syntax);
    assert_eq!(kind("a: !!binary aGk=\n"), YamlErrorKind::Tag);
    assert_eq!(kind("a: !Ref b\n"), YamlErrorKind::Tag);
    for number in ["18446744073709551616", "-9223372036854775809", ".inf", ".NaN"] {
        assert_eq!(kind(&format!("a: {number}\n")), YamlErrorKind::Number, "{number}");
    }
    assert_eq!(kind(&"[".repeat(10_000)), YamlErrorKind::Depth);
    let block: String = (0..10_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert_eq!(kind(&block), YamlErrorKind::Depth);
}

#[test]
fn aliases_are_values_unless_they_are_a_bomb() {
    assert_eq!(parse("a: &x [7]\nb: *x\n").unwrap(), [json!({"a": [7], "b": [7]})]);
    assert_eq!(kind("&a [*a]"), YamlErrorKind::Aliases);
    let level = |level: usize| format!("l{level}: &l{level} [{}]\n", vec![format!("*l{}", level - 1); 10].join(", "));
    let bomb: String = std::iter::once("l0: &l0 [x]\n".to_owned()).chain((1..20).map(level)).collect();
    assert_eq!(kind(&bomb), YamlErrorKind::Aliases);
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), vec!["*a"; 100].join(", "));
    assert_eq!(kind(&long), YamlErrorKind::Aliases);
}

#[test]
fn errors_tell_the_place_and_nothing_else() {
    let error = parse("a: 1\nb:\n    planted: x\n    planted: y\n").unwrap_err();
    assert_eq!(error.to_string(), "line 4, column 5: the same key is written twice");
    for text in ["planted: [1", "a: 'planted", "\tplanted: 1\n- planted", "planted: !planted x", "*planted"] {
        let error = parse(text).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("planted"), "{error:?}");
    }
}

#[test]
fn wiping_reaches_every_text() {
    let mut value = json!({"a": ["x", {"b": "y"}], "c": 1});
    wipe(&mut value);
    assert_eq!(value, json!({"a": ["", {"b": ""}], "c": 1}));
}

/// Texts of the characters that mean something to YAML.
fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop::sample::select(
            "ab01 :#-?'\"\n\t.,[]{}!&*%@`|>~_+exTZ/=é\r\u{85}\u{2028}\u{feff}😀".chars().collect::<Vec<_>>(),
        ),
        0..12,
    )
    .prop_map(String::from_iter)
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        text().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(5, 60, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((text(), inner), 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_reads_back(value in value()) {
        let value = json!({"k": value});
        for text in [emit(&value), emit_for_kubernetes(&value)] {
            prop_assert_eq!(parse(&text).unwrap(), [value.clone()], "{}", text);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in text()) {
        if let Ok(documents) = parse(&text) {
            prop_assert_eq!(parse(&emit_all(&documents)).map(|documents| documents.len()), Ok(documents.len()));
        }
    }
}
