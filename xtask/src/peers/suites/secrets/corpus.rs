//! Files in clear, and the rules they are encrypted by.

/// A file and what the creation rule says of it besides recipients.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) ending: &'static str,
    pub(super) clear: Vec<u8>,
    pub(super) rule: String,
    /// Comments in lists, which sops 3.13.2 cannot read back, its own neither (getsops/sops#2243).
    pub(super) comments_in_lists: bool,
}

const YAML: [(&str, &str); 20] = [
    (
        "types",
        "s: text\ni: 42\nn: -7\nf: 1.5\nw: 1.0\nb: true\nc: false\nz: null\ne: \"\"\nt: 2024-01-02T03:04:05Z\nd: 2024-1-2\n",
    ),
    ("words", "a: yes\nb: off\nc: 'true'\nd: \"12\"\ne: ~\nf: Null\ng: 'null'\nh: y\ni: \"1.5\"\nj: '2024-01-01'\n"),
    (
        "numbers",
        "a: 0777\nb: 0o17\nc: 0x1F\nd: 0b101\ne: 12345_54321\nf: 1e3\ng: 1.5e-7\nh: 9223372036854775807\ni: -9223372036854775808\nj: 18446744073709551616\nk: 089\nl: +12\nm: -0.0\nn: .5\n",
    ),
    ("infinities", "a: .inf\nb: -.inf\nc: .nan\nd: +.INF\n"),
    (
        "moments",
        "a: 2024-01-02\nb: 2024-01-02T03:04:05.120Z\nc: 2024-01-02T03:04:05+02:00\nd: 2024-01-02 03:04:05\ne: 2024-02-30\nf: 2001-12-14t21:59:43.10-05:00\n",
    ),
    (
        "nested",
        "a:\n  b:\n    c:\n      d: deep\n  e: [1, 2, [3, 4]]\nf:\n  - g: 1\n    h: 2\n  - - i\n    - j\n  - {}\n  - []\n",
    ),
    ("comments", "# top\n\n# second\na: 1 # beside\n# above b\nb:\n  # inside\n  c: 2\n  # below\nd: 3\n# last\n"),
    ("comment-lists", "a:\n  # first\n  - x # beside x\n  # second\n  - y\n  - z: 1\n    # below z\nb: 1\n"),
    ("documents", "a: 1\n---\nb: 2\n---\n# c\nc: [x]\n"),
    ("empty-document", "a: 1\n---\n---\nb: 2\n"),
    ("anchors", "base: &base {x: 1, y: two}\ncopy: *base\nmerged:\n  <<: *base\n  z: 3\nlist: [&e e, *e]\n"),
    (
        "blocks",
        "pem: |\n  -----BEGIN X-----\n  abc\n  -----END X-----\nfolded: >\n  one\n  two\n\n  three\nkeep: |+\n  x\n\nstrip: |-\n  y\nindented: |2\n    z\n",
    ),
    (
        "hazards",
        "a: '- x'\nb: 'a: b'\nc: 'a #b'\nd: ' lead'\ne: 'trail '\nf: \"tab\\there\"\ng: \"nul\\0bell\\a\"\nh: '*x'\ni: '&x'\nj: '!x'\nk: '%x'\nl: '@x'\nm: '`x'\nn: '---'\no: '...'\np: \"\\r\\n\"\nq: '{x}'\nr: '1:20'\n",
    ),
    ("unicode", "a: grüße\nb: 日本語\nc: \"\\U0001F3F0\"\nd: \"\\u2028\\uFEFF\\x85\"\nключ: значение\n"),
    ("keys", "\"a:b\": 1\n\"c.d\": 2\n\"e f\": 3\n\"1\": 4\n\"true\": 5\n\"\": 6\n\"- g\": 7\n\"<<\": {h: 8}\n"),
    ("binary-tag", "a: !!binary aGVsbG8=\nb: !!str 12\nc: !!int \"12\"\nd: !!float 3\ne: !custom x\n"),
    ("lookalikes", "a: ENC[AES256_GCM\nb_unencrypted: ENC[x]\nc: '{\"x\": 1}'\nd: $(rm)\n"),
    ("empties", "a: {}\nb: []\nc: ''\nd: null\ne: ~\nf:\n"),
    (
        "long",
        "a: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb cccccc\nb: \"x\\ny\\n\"\n",
    ),
    ("equal-values", "a: [same, same, same]\nb: {c: same, d: same}\n"),
];

const JSON: [(&str, &str); 7] = [
    (
        "types",
        "{\"s\": \"text\", \"i\": 42, \"f\": 1.5, \"b\": true, \"z\": null, \"e\": \"\", \"l\": [1, [2], {}], \"o\": {}}",
    ),
    ("escapes", "{\"a\": \"<&>\\\"\\\\\\n\\t\\u0000\\u2028\", \"b\": \"\\ud83c\\udff0\", \"c\\u00e9\": \"x\"}"),
    ("numbers", "{\"a\": 0, \"b\": -1, \"c\": 1e3, \"d\": 1.5e-7, \"e\": 123456789012, \"f\": 0.1}"),
    ("nested", "{\"a\": {\"b\": {\"c\": [{\"d\": \"x\"}, {\"d\": \"y\"}]}}}"),
    ("empty", "{}"),
    ("keys", "{\"a:b\": \"1\", \"\": \"2\", \"c.d\": \"3\", \"x_unencrypted\": 9}"),
    ("lines", "{\r\n\t\"a\": \"x\"\r\n}\r\n"),
];

const DOTENV: [(&str, &str); 5] = [
    ("plain", "A=1\nB=two words\nC=\nD=x=y\n"),
    ("comments", "#top\nA=1\n# second\nB=2\n"),
    ("quotes", "A=\"quoted\"\nB='single'\nexport C=3\n"),
    ("newlines", "A=one\\ntwo\nB=\\n\n\nC=3\n"),
    ("clear", "A=1\nB_unencrypted=2\n"),
];

const BINARY: [(&str, &[u8]); 5] = [
    ("text", b"hunter2\n"),
    ("bytes", &[0, 1, 254, 255, 10, 13, 0xc3, 0x28]),
    ("json", b"{\"a\": 1}"),
    ("pem", b"-----BEGIN X-----\nabc\n-----END X-----\n"),
    ("yaml", b"a: 1\n---\nb: 2\n"),
];

/// What the rules have to decide about.
const MIXED_YAML: &str = "# sec\na: 1\nb_unencrypted: clear\nc_secret: {d: 2, e: [3]}\ndata:\n  f: 4\n  # sec\n  g: 5\nh: 6 # sec\n# plain\ni: 7\nj:\n  data: {k: 8}\nl: false\n";
const MIXED_JSON: &str = "{\"a\": 1, \"b_unencrypted\": \"clear\", \"c_secret\": {\"d\": 2, \"e\": [3]}, \"data\": {\"f\": 4}, \"j\": {\"data\": {\"k\": 8}}, \"l\": false}";
const MIXED_DOTENV: &str = "#sec\nA=1\nB_unencrypted=clear\nC_secret=2\ndata=3\n";

const RULES: [(&str, &str); 9] = [
    ("default", ""),
    ("unencrypted-suffix", "unencrypted_suffix: secret"),
    ("encrypted-suffix", "encrypted_suffix: _secret"),
    ("encrypted-regex", "encrypted_regex: ^(data|A)$"),
    ("unencrypted-regex", "unencrypted_regex: '[ad]'"),
    ("encrypted-classes", "encrypted_regex: '^\\w+_[[:lower:]]+$'"),
    ("encrypted-comment", "encrypted_comment_regex: sec"),
    ("unencrypted-comment", "unencrypted_comment_regex: sec"),
    ("nothing", "encrypted_regex: ^nothing$"),
];

/// Every type, rule and format.
pub(super) fn cases() -> Vec<Case> {
    let case = |name: String, ending: &'static str, clear: &[u8], rule: &str| Case {
        comments_in_lists: name == "yaml-comment-lists",
        name,
        ending,
        clear: clear.to_vec(),
        rule: rule.to_owned(),
    };
    let mut cases = Vec::new();
    cases.extend(YAML.iter().map(|(name, text)| case(format!("yaml-{name}"), "yaml", text.as_bytes(), "")));
    cases.extend(JSON.iter().map(|(name, text)| case(format!("json-{name}"), "json", text.as_bytes(), "")));
    cases.extend(DOTENV.iter().map(|(name, text)| case(format!("env-{name}"), "env", text.as_bytes(), "")));
    cases.extend(BINARY.iter().map(|(name, bytes)| case(format!("binary-{name}"), "bin", bytes, "")));
    for (name, rule) in RULES {
        for (suffix, only) in [("", ""), ("-mac-only", "mac_only_encrypted: true")] {
            let rule = [rule, only].join("\n");
            cases.push(case(format!("yaml-{name}{suffix}"), "yaml", MIXED_YAML.as_bytes(), &rule));
            if !name.contains("comment") {
                cases.push(case(format!("json-{name}{suffix}"), "json", MIXED_JSON.as_bytes(), &rule));
            }
            cases.push(case(format!("env-{name}{suffix}"), "env", MIXED_DOTENV.as_bytes(), &rule));
        }
    }
    cases
}
