//! Forms: parameters as Proxmox parses them.
//!
//! Its parser splits on `&` *and* `;`, and keeps of each pair only what stands between the first and the second `=`: everything but
//! letters, digits and a few signs is encoded. An empty value counts as no value, so options are cleared by `delete`.

use std::fmt::Write;

/// The parameters of a call, in the order given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    pairs: Vec<(String, String)>,
}

impl Form {
    /// No parameters.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter. One without a value is left out: Proxmox would take it for absent, and so does castle.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        let value = value.to_string();
        if !value.is_empty() {
            self.pairs.push((name.to_owned(), value));
        }
        self
    }

    /// Adds a truth value, as `0` or `1`.
    #[must_use]
    pub fn with_flag(self, name: &str, value: bool) -> Self {
        self.with(name, u8::from(value))
    }

    /// The parameters.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The form as a body, or behind the `?` of a call that may have no body.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.pairs {
            if !text.is_empty() {
                text.push('&');
            }
            encode(&mut text, name);
            text.push('=');
            encode(&mut text, value);
        }
        text
    }
}

pub(crate) fn encode(text: &mut String, part: &str) {
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the server reads it: split on `&` and `;`, then on `=`, keeping the second field; `+` is a space.
    fn as_proxmox_reads(body: &str) -> Vec<(String, String)> {
        let decode = |text: &str| {
            let mut bytes = Vec::new();
            let mut rest = text.bytes();
            while let Some(byte) = rest.next() {
                match byte {
                    b'%' => {
                        let hex: String = [rest.next().unwrap(), rest.next().unwrap()].map(char::from).iter().collect();
                        bytes.push(u8::from_str_radix(&hex, 16).unwrap());
                    }
                    b'+' => bytes.push(b' '),
                    other => bytes.push(other),
                }
            }
            String::from_utf8(bytes).unwrap()
        };
        let pair = |pair: &str| {
            let mut fields = pair.split('=');
            (decode(fields.next().unwrap()), decode(fields.next().unwrap_or_default()))
        };
        body.split(['&', ';']).filter(|pair| !pair.is_empty()).map(pair).collect()
    }

    #[test]
    fn what_is_sent_is_what_is_read() {
        let form = Form::new()
            .with("boot", "order=scsi0;ide0")
            .with("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0")
            .with("description", "castle: blue\nwith + and % and & and ü and 🏰")
            .with("empty", "")
            .with_flag("full", false);
        let read = as_proxmox_reads(&form.encode());
        let said: Vec<(String, String)> =
            form.pairs().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        assert_eq!(read, said);
        assert_eq!(said.len(), 4, "what is empty is not sent");
        assert_eq!(said[3], ("full".to_owned(), "0".to_owned()));
    }
}
