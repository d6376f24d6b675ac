//! Parameters as the vendor reads them.

use serde_json::Value;

/// Undoes percent signs; what is no code stays.
pub(crate) fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        let code = code.filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// A form. Splits at `&` and at `;`, and keeps of each part only what stands between the first and the second `=`: a value
/// with any of them unencoded is cut, as it is at the vendor's.
pub(crate) fn form(text: &str) -> Vec<(String, String)> {
    let plain = |text: &str| percent_decoded(&text.replace('+', " "));
    let parts = text.split(['&', ';']).filter_map(|part| {
        let mut fields = part.split('=');
        Some((plain(fields.next()?), plain(fields.next()?)))
    });
    parts.collect()
}

/// The members of a JSON object; nothing if it is none.
pub(crate) fn json(text: &[u8]) -> Option<Vec<(String, String)>> {
    let Value::Object(members) = serde_json::from_slice(text).ok()? else { return None };
    let plain = |value: &Value| match value {
        Value::Null => String::new(),
        Value::Bool(flag) => u8::from(*flag).to_string(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let all = members.iter().flat_map(|(name, value)| match value {
        Value::Array(items) => items.iter().map(|item| (name.clone(), plain(item))).collect(),
        value => vec![(name.clone(), plain(value))],
    });
    Some(all.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let expected: Vec<_> = expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        assert_eq!(form(text), expected, "{text}");
    }

    #[test]
    fn forms_are_read_with_the_quirks_of_the_vendor() {
        check("vmid=421&name=a%20b+c", &[("vmid", "421"), ("name", "a b c")]);
        check("boot=order=scsi0", &[("boot", "order")]);
        check("tags=a;b", &[("tags", "a")]);
        check("tags=a%3Bb&x=%zz", &[("tags", "a;b"), ("x", "%zz")]);
        check("empty=&bare", &[("empty", "")]);
    }

    #[test]
    fn json_becomes_text() {
        let read = json(br#"{"a":true,"b":3,"c":["x","y"],"d":null}"#).unwrap();
        let read: Vec<String> = read.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(read, ["a=1", "b=3", "c=x", "c=y", "d="]);
        assert_eq!(json(b"[]"), None);
    }
}
