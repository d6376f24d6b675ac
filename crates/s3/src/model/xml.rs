//! What object stores write: pages of keys, and complaints.
//!
//! Both are trees whose leaves are read by their path. Nothing is fetched, no entities are defined, and the depth is bounded.

use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesRef, Event};
use thiserror::Error;

/// Pages and complaints have three levels.
const MOST_LEVELS: usize = 8;

/// Why a text is not what was expected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum XmlError {
    /// It ends too early, or never was XML.
    #[error("the answer is not well-formed XML")]
    Malformed,
    /// It is XML about something else.
    #[error("the answer is no list of objects")]
    Foreign,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// The keys on it.
    pub keys: Vec<String>,
    /// Whether there is another.
    pub is_truncated: bool,
    /// What to ask the next one with.
    pub next: Option<String>,
}

/// What an object store says when it does not do something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Complaint {
    /// The word for programs. Empty if there is none.
    pub code: String,
    /// The words for people. Empty if there are none.
    pub message: String,
    /// Where the bucket is, if it is elsewhere.
    pub region: Option<String>,
}

/// Reads a page of `ListObjectsV2`.
pub(crate) fn page(text: &[u8]) -> Result<Page, XmlError> {
    let mut page = Page { keys: Vec::new(), is_truncated: false, next: None };
    let root = leaves(text, |path, value| match path {
        ["ListBucketResult", "Contents", "Key"] => page.keys.push(value.to_owned()),
        ["ListBucketResult", "IsTruncated"] => page.is_truncated = value.trim() == "true",
        ["ListBucketResult", "NextContinuationToken"] => page.next = Some(value.to_owned()),
        _ => {}
    })?;
    if root == "ListBucketResult" { Ok(page) } else { Err(XmlError::Foreign) }
}

/// Reads a complaint. What is none says nothing.
pub(crate) fn complaint(text: &[u8]) -> Complaint {
    let mut complaint = Complaint::default();
    let read = leaves(text, |path, value| match path {
        ["Error", "Code"] => value.trim().clone_into(&mut complaint.code),
        ["Error", "Message"] => value.trim().clone_into(&mut complaint.message),
        ["Error", "Region"] => complaint.region = Some(value.trim().to_owned()),
        _ => {}
    });
    if read.is_ok() { complaint } else { Complaint::default() }
}

/// Hands over every element's path and text, and returns the name of the outermost. The text is whole for elements that
/// hold nothing but text.
fn leaves(text: &[u8], mut visit: impl FnMut(&[&str], &str)) -> Result<String, XmlError> {
    let text = str::from_utf8(text).map_err(|_| XmlError::Malformed)?;
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut path: Vec<String> = Vec::new();
    let mut value = String::new();
    let mut root = None;
    loop {
        match reader.read_event().map_err(|_| XmlError::Malformed)? {
            Event::Start(start) => {
                let name = start.local_name().into_inner().to_owned();
                if path.is_empty() && root.replace(name.clone()).is_some() || path.len() == MOST_LEVELS {
                    return Err(XmlError::Malformed);
                }
                path.push(name);
                value.clear();
            }
            Event::End(_) => {
                let names: Vec<&str> = path.iter().map(String::as_str).collect();
                visit(&names, &value);
                path.pop();
                value.clear();
            }
            Event::Text(part) => value.push_str(&part.xml10_content()),
            Event::CData(part) => value.push_str(&part.xml10_content()),
            Event::GeneralRef(reference) => value.push_str(&resolve(&reference)?),
            Event::DocType(_) => return Err(XmlError::Malformed),
            Event::Eof => break,
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
    if path.is_empty() { root.ok_or(XmlError::Malformed) } else { Err(XmlError::Malformed) }
}

fn resolve(reference: &BytesRef<'_>) -> Result<String, XmlError> {
    match reference.resolve_char_ref() {
        Ok(Some(letter)) => Ok(letter.to_string()),
        Ok(None) => resolve_xml_entity(reference).map(str::to_owned).ok_or(XmlError::Malformed),
        Err(_) => Err(XmlError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_as_aws_writes_it() {
        let text = r#"<?xml version="1.0" encoding="UTF-8"?>
            <ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
              <Name>castles</Name><Prefix>a/</Prefix>
              <NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=</NextContinuationToken>
              <KeyCount>2</KeyCount><MaxKeys>2</MaxKeys><IsTruncated>true</IsTruncated>
              <Contents><Key>a/lease</Key><ETag>"fba9dede5f27731c9771645a39863328"</ETag></Contents>
              <Contents><Key>a/&lt;b&gt; &amp;&#x20;&#246;</Key><Size>1</Size></Contents>
              <CommonPrefixes><Prefix>a/c/</Prefix></CommonPrefixes>
            </ListBucketResult>"#;
        let page = page(text.as_bytes()).unwrap();
        assert_eq!(page.keys, ["a/lease", "a/<b> & ö"]);
        assert!(page.is_truncated);
        assert_eq!(page.next.as_deref(), Some("1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM="));
    }

    #[test]
    fn a_page_that_was_cut_is_no_shorter_page() {
        let text =
            "<ListBucketResult><Contents><Key>a</Key></Contents><Contents><Key>b</Key></Contents></ListBucketResult>";
        for end in 0..text.len() {
            assert_eq!(page(&text.as_bytes()[..end]), Err(XmlError::Malformed), "{}", &text[..end]);
        }
        assert_eq!(page(text.as_bytes()).unwrap().keys, ["a", "b"]);
    }

    #[test]
    fn what_is_no_list_is_not_an_empty_list() {
        assert_eq!(page(b"<html><body>Sign in</body></html>"), Err(XmlError::Foreign));
        assert_eq!(page(b"Sign in"), Err(XmlError::Malformed));
        assert_eq!(page(b""), Err(XmlError::Malformed));
        assert_eq!(page(b"\xff\xfe"), Err(XmlError::Malformed));
        assert_eq!(page(b"<ListBucketResult/><ListBucketResult/>"), Err(XmlError::Malformed));
    }

    #[test]
    fn entities_are_not_defined_and_depth_is_bounded() {
        let bomb = br#"<!DOCTYPE x [<!ENTITY a "aaaaaaaa">]><ListBucketResult>&a;</ListBucketResult>"#;
        assert_eq!(page(bomb), Err(XmlError::Malformed));
        assert_eq!(page(b"<ListBucketResult>&a;</ListBucketResult>"), Err(XmlError::Malformed));
        let deep = format!("<ListBucketResult>{}{}</ListBucketResult>", "<a>".repeat(9), "</a>".repeat(9));
        assert_eq!(page(deep.as_bytes()), Err(XmlError::Malformed));
    }

    #[test]
    fn complaints_are_read_and_others_are_silent() {
        let text = "<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region is wrong</Message>\
                    <Region>eu-west-1</Region><StringToSign>AWS4</StringToSign></Error>";
        let told = complaint(text.as_bytes());
        assert_eq!(
            (told.code.as_str(), told.message.as_str()),
            ("AuthorizationHeaderMalformed", "the region is wrong")
        );
        assert_eq!(told.region.as_deref(), Some("eu-west-1"));
        assert_eq!(complaint(b"<html>404</html>"), Complaint::default());
        assert_eq!(complaint(b"<Error><Code>NoSuchKey</Code>"), Complaint::default());
        assert_eq!(complaint(b""), Complaint::default());
    }
}
