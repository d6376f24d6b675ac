//! What is wrong with a configuration, in the vendor's words and in words that quote nothing of it.

use super::decode;
use super::rules;
use super::shapes::Minor;

/// Something for which a node refuses a whole configuration. Tells places, and never values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Objection {
    /// The place: a path of the main document, or the kind of another; empty for the main document as a whole.
    pub place: String,
    /// What is wrong there.
    pub why: &'static str,
    /// The kind of the document that says it already, if it is said twice.
    pub beside: Option<&'static str>,
}

/// Something that is wrong.
pub(super) struct Wrong {
    /// As the vendor says it, with the values that it quotes.
    text: String,
    /// The same without any; nothing where castle's model is not certain of it. What is written in the source holds no value.
    bare: Option<&'static str>,
    /// The place, if it is not the document that was looked at.
    place: Option<&'static str>,
    beside: Option<&'static str>,
}

impl Wrong {
    /// Something that is said by an old key and by the kind of document that took its place.
    pub(super) fn twice(old: &'static str, kind: &'static str, text: &'static str) -> Self {
        Self { text: text.to_owned(), bare: Some(text), place: Some(old), beside: Some(kind) }
    }

    /// The same for whoever must not see values, found in a document of this kind.
    pub(super) fn objection(self, kind: Option<&str>) -> Option<Objection> {
        let place = self.place.or(kind).unwrap_or_default().to_owned();
        Some(Objection { place, why: self.bare?, beside: self.beside })
    }
}

/// What is wrong, as it is found.
#[derive(Default)]
pub(super) struct Wrongs(Vec<Wrong>);

impl Wrongs {
    /// Something in whose words there is no value.
    pub(super) fn say(&mut self, is_wrong: bool, text: &'static str) {
        self.quote(is_wrong, text, Some(text));
    }

    /// Something in whose words there may be values, and the same without them.
    pub(super) fn quote(&mut self, is_wrong: bool, text: impl Into<String>, bare: Option<&'static str>) {
        if is_wrong {
            self.0.push(Wrong { text: text.into(), bare, place: None, beside: None });
        }
    }

    /// Kinds of documents that only control planes may have: one sentence of the vendor's, and each for itself.
    pub(super) fn misplaced(&mut self, text: String, kinds: &[&'static str]) {
        let mut texts = std::iter::once(text);
        self.0.extend(kinds.iter().map(|kind| Wrong {
            text: texts.next().unwrap_or_default(),
            bare: Some("only control planes may have such a document"),
            place: Some(kind),
            beside: None,
        }));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the vendor's words.
    pub(super) fn texts(&self) -> Vec<String> {
        self.0.iter().map(|wrong| wrong.text.clone()).filter(|text| !text.is_empty()).collect()
    }
}

impl Extend<Wrong> for Wrongs {
    fn extend<T: IntoIterator<Item = Wrong>>(&mut self, more: T) {
        self.0.extend(more);
    }
}

impl IntoIterator for Wrongs {
    type Item = Wrong;
    type IntoIter = std::vec::IntoIter<Wrong>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// All for which a node of this minor version of Talos refuses a whole configuration, as far as that is certain. What it cannot read at all is
/// not judged.
pub(crate) fn objections(minor: Minor, text: &str) -> Vec<Objection> {
    decode::decode(minor, text).map(|documents| rules::objections(minor, &documents)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(minor: Minor, text: &str) -> Vec<String> {
        objections(minor, text).into_iter().map(|it| format!("{}: {}", it.place, it.why)).collect()
    }

    /// Goal: what is told of a configuration is the same as a node says, without anything of it. Method: one with a value in each rule.
    #[test]
    fn places_are_told_and_values_are_not() {
        let text = "machine: {type: worker, token: a, ca: {crt: ''}, nodeLabels: {'secret 1': a}, network: {hostname: secret-2}}\n\
                    cluster: {controlPlane: {endpoint: 'https://10.0.0.1:6443'}}\n\
                    ---\napiVersion: v1alpha1\nkind: HostnameConfig\nauto: 'off'\nhostname: a\n\
                    ---\napiVersion: v1alpha1\nkind: Layer2VIPConfig\nname: secret-3\nlink: a\n";
        let found = told(13, text);
        assert!(!format!("{found:?}").contains("secret"), "{found:?}");
        for expected in [
            ": invalid machine node labels",
            "Layer2VIPConfig: name must be a valid IP address",
            "machine.network.hostname: static hostname is already set in v1alpha1 config",
        ] {
            assert!(found.iter().any(|it| it == expected), "{expected}: {found:?}");
        }
    }

    /// Goal: what is nothing is not said twice. Method: old keys that say nothing, beside the documents that took their place.
    #[test]
    fn what_says_nothing_is_in_nobodys_way() {
        let documents = "---\napiVersion: v1alpha1\nkind: HostnameConfig\nauto: 'off'\nhostname: a\n\
                         ---\napiVersion: v1alpha1\nkind: TimeSyncConfig\nntp: {servers: [a]}\n\
                         ---\napiVersion: v1alpha1\nkind: ResolverConfig\nnameservers: [{address: 10.0.0.1}]\n";
        let machine = |more: &str| {
            let said = format!(
                "machine: {{type: worker, token: a, acceptedCAs: [{{crt: ''}}], {more}}}\n\
                                cluster: {{controlPlane: {{endpoint: 'https://10.0.0.1:6443'}}}}\n{documents}"
            );
            told(13, &said)
        };
        for nothing in [
            "network: {hostname: ''}",
            "network: {nameservers: []}",
            "time: {}",
            "time: {disabled: false, servers: []}",
            "features: {stableHostname: false, hostDNS: {enabled: true}}",
        ] {
            assert_eq!(machine(nothing), Vec::<String>::new(), "{nothing}");
        }
        for something in [
            "network: {hostname: b}",
            "network: {nameservers: [10.0.0.1]}",
            "time: {disabled: true}",
            "time: {servers: [b]}",
            "features: {stableHostname: true}",
        ] {
            assert_eq!(machine(something).len(), 1, "{something}");
        }
    }
}
