//! DER: as much of it as certificates need.

/// The tags that are read and written.
pub(super) mod tag {
    pub(in super::super) const BOOLEAN: u8 = 0x01;
    pub(in super::super) const INTEGER: u8 = 0x02;
    pub(in super::super) const BITS: u8 = 0x03;
    pub(in super::super) const OCTETS: u8 = 0x04;
    pub(in super::super) const OBJECT: u8 = 0x06;
    pub(in super::super) const PRINTABLE: u8 = 0x13;
    pub(in super::super) const UTC_TIME: u8 = 0x17;
    pub(in super::super) const GENERALIZED_TIME: u8 = 0x18;
    pub(in super::super) const SEQUENCE: u8 = 0x30;
    pub(in super::super) const SET: u8 = 0x31;
    /// What is explicitly tagged `[0]`.
    pub(in super::super) const EXPLICIT_0: u8 = 0xa0;
    /// What is explicitly tagged `[3]`.
    pub(in super::super) const EXPLICIT_3: u8 = 0xa3;
    /// A text implicitly tagged `[0]`.
    pub(in super::super) const IMPLICIT_0: u8 = 0x80;
}

/// An element of its parts.
pub(super) fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut element = vec![tag];
    let bytes = length.to_be_bytes();
    let significant = &bytes[bytes.iter().take_while(|&&byte| byte == 0).count()..];
    match u8::try_from(length) {
        Ok(short @ ..=0x7f) => element.push(short),
        _ => {
            // At most the eight bytes of a usize.
            element.push(0x80 | significant.len() as u8);
            element.extend_from_slice(significant);
        }
    }
    element.extend(parts.iter().copied().flatten());
    element
}

/// A whole number from its big-endian bytes, never negative.
pub(super) fn integer(bytes: &[u8]) -> Vec<u8> {
    let significant = &bytes[bytes.iter().take_while(|&&byte| byte == 0).count()..];
    match significant.first() {
        Some(0x80..) => element(tag::INTEGER, &[&[0], significant]),
        Some(_) => element(tag::INTEGER, &[significant]),
        None => element(tag::INTEGER, &[&[0]]),
    }
}

/// A string of whole bytes as bits.
pub(super) fn bits(bytes: &[u8]) -> Vec<u8> {
    element(tag::BITS, &[&[0], bytes])
}

/// One element of a text.
pub(super) struct Element<'d> {
    pub(super) tag: u8,
    pub(super) content: &'d [u8],
    /// With tag and length.
    pub(super) whole: &'d [u8],
}

/// Reads one element after another.
#[derive(Clone, Copy)]
pub(super) struct Reader<'d>(&'d [u8]);

impl<'d> Reader<'d> {
    pub(super) fn new(bytes: &'d [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The next element. None at the end, and if it is not DER.
    pub(super) fn next(&mut self) -> Option<Element<'d>> {
        let [tag, first, rest @ ..] = self.0 else { return None };
        let (length, rest) = match first {
            ..=0x7f => (usize::from(*first), rest),
            // Lengths of up to three bytes; a certificate needs two.
            0x81..=0x83 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let length = digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit));
                let shortest = length > 0x7f && digits.first() != Some(&0);
                (shortest.then_some(length)?, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        let whole = &self.0[..self.0.len() - rest.len()];
        self.0 = rest;
        Some(Element { tag: *tag, content, whole })
    }

    /// The next element if it has the tag.
    pub(super) fn expect(&mut self, tag: u8) -> Option<Element<'d>> {
        self.next().filter(|element| element.tag == tag)
    }

    /// The next element if it has the tag, and nothing read if it has not.
    pub(super) fn optional(&mut self, tag: u8) -> Option<Element<'d>> {
        let mut ahead = *self;
        let element = ahead.expect(tag)?;
        *self = ahead;
        Some(element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_the_shortest() {
        for (length, header) in [
            (0, vec![4, 0]),
            (0x7f, vec![4, 0x7f]),
            (0x80, vec![4, 0x81, 0x80]),
            (0xff, vec![4, 0x81, 0xff]),
            (0x100, vec![4, 0x82, 1, 0]),
            (0x1_0000, vec![4, 0x83, 1, 0, 0]),
        ] {
            let content = vec![7; length];
            let written = element(tag::OCTETS, &[&content]);
            assert_eq!(written, [header, content.clone()].concat());
            let mut reader = Reader::new(&written);
            let read = reader.expect(tag::OCTETS).unwrap();
            assert_eq!((read.content, read.whole), (content.as_slice(), written.as_slice()));
            assert!(reader.is_empty() && reader.next().is_none());
        }
    }

    #[test]
    fn integers_are_never_negative() {
        assert_eq!(integer(&[0, 0]), [2, 1, 0]);
        assert_eq!(integer(&[0, 0x7f]), [2, 1, 0x7f]);
        assert_eq!(integer(&[0x80, 1]), [2, 3, 0, 0x80, 1]);
    }

    #[test]
    fn what_is_cut_short_or_not_the_shortest_is_refused() {
        for bytes in
            [&[4][..], &[4, 2, 1], &[4, 0x81], &[4, 0x81, 5], &[4, 0x81, 0x7f], &[4, 0x82, 0, 0x80], &[4, 0x80]]
        {
            assert!(Reader::new(bytes).next().is_none(), "{bytes:?}");
        }
    }
}
