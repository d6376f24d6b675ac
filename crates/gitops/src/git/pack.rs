//! A pack: objects, each deflated, some as the difference to another.

use std::collections::{BTreeMap, BTreeSet};

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, digest};
use flate2::{Decompress, FlushDecompress, Status};

use super::GitError;
use crate::tree::{MAX_FILE_BYTES, MAX_FILES, MAX_TREE_BYTES, Tree};

/// How many objects there may be: every file and folder is one.
const MAX_OBJECTS: usize = 4 * MAX_FILES;
/// How deep folders may nest.
const MAX_DEPTH: usize = 64;
const ID: usize = 20;

type Id = [u8; ID];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Commit,
    Tree,
    Blob,
    Tag,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Tree => "tree",
            Self::Blob => "blob",
            Self::Tag => "tag",
        }
    }
}

/// How much may be unpacked of files that are too large to be kept, only to get past them.
const MAX_SKIPPED_BYTES: u64 = 1 << 30;

/// What is kept of an object.
#[derive(Clone, Debug)]
enum Content {
    Whole(Vec<u8>),
    /// It was too large.
    Oversized,
}

/// The objects of a pack by their ids.
pub(super) struct Objects {
    known: BTreeMap<Id, (Kind, Content)>,
    /// Whether there are more, whose ids nobody knows: differences that make files which are too large, or differ from those.
    has_nameless: bool,
}

const fn damaged<T>(what: &'static str) -> Result<T, GitError> {
    Err(GitError::Damaged(what))
}

/// Reads all objects of a pack.
pub(super) fn read(pack: &[u8]) -> Result<Objects, GitError> {
    let Some(end) = pack.len().checked_sub(ID).filter(|end| *end >= 12) else {
        return damaged("a pack without an end");
    };
    let (content, checksum) = pack.split_at(end);
    if digest(&SHA1_FOR_LEGACY_USE_ONLY, content).as_ref() != checksum {
        return damaged("its checksum does not hold");
    }
    let number =
        |at: usize| content.get(at..at + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()).map(u32::from_be_bytes);
    if content.get(..4) != Some(b"PACK") || number(4) != Some(2) {
        return damaged("no pack of version 2");
    }
    let count = number(8).and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    if count > MAX_OBJECTS {
        return Err(GitError::TooLarge("the number of its files"));
    }
    let mut reader = Reader {
        content,
        at: 12,
        places: BTreeMap::new(),
        objects: BTreeMap::new(),
        nameless: BTreeSet::new(),
        bytes_left: 2 * MAX_TREE_BYTES,
        skipped_left: MAX_SKIPPED_BYTES,
    };
    for _ in 0..count {
        reader.object()?;
    }
    Ok(Objects { known: reader.objects, has_nameless: !reader.nameless.is_empty() })
}

struct Reader<'p> {
    content: &'p [u8],
    at: usize,
    /// Which object begins where.
    places: BTreeMap<usize, Id>,
    objects: BTreeMap<Id, (Kind, Content)>,
    /// Where those begin whose ids cannot be told without unpacking what is too large.
    nameless: BTreeSet<usize>,
    bytes_left: u64,
    skipped_left: u64,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, GitError> {
        let byte = self.content.get(self.at).copied().ok_or(GitError::Damaged("a pack that ends early"))?;
        self.at += 1;
        Ok(byte)
    }

    fn object(&mut self) -> Result<(), GitError> {
        let start = self.at;
        let first = self.byte()?;
        let mut size = u64::from(first & 15);
        let (mut shift, mut more) = (4, first & 128 != 0);
        while more {
            let byte = self.byte()?;
            size |= u64::from(byte & 127).checked_shl(shift).unwrap_or(u64::MAX);
            shift += 7;
            more = byte & 128 != 0 && shift < 64;
        }
        let read = match (first >> 4) & 7 {
            3 if size > MAX_FILE_BYTES => {
                let id = self.skipped(size, &format!("{} {size}\0", Kind::Blob.word()))?;
                self.places.insert(start, id);
                self.objects.insert(id, (Kind::Blob, Content::Oversized));
                return Ok(());
            }
            1 => Some((Kind::Commit, self.inflated(size)?)),
            2 => Some((Kind::Tree, self.inflated(size)?)),
            3 => Some((Kind::Blob, self.inflated(size)?)),
            4 => Some((Kind::Tag, self.inflated(size)?)),
            6 => {
                let back = self.offset()?;
                let place = start.checked_sub(back).ok_or(GitError::Damaged("an offset before the pack"))?;
                let is_nameless = self.nameless.contains(&place);
                self.difference(self.places.get(&place).copied(), is_nameless, size)?
            }
            7 => {
                let base = self.content.get(self.at..self.at + ID).and_then(|id| Id::try_from(id).ok());
                self.at += ID;
                // What is not there by its id may be one whose id nobody knows.
                let is_nameless =
                    !self.nameless.is_empty() && base.is_some_and(|base| !self.objects.contains_key(&base));
                self.difference(base, is_nameless, size)?
            }
            _ => return damaged("an object of no known kind"),
        };
        let Some((kind, data)) = read else {
            self.nameless.insert(start);
            return Ok(());
        };
        let header = format!("{} {}\0", kind.word(), data.len());
        let id = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[header.as_bytes(), &data].concat());
        let id = Id::try_from(id.as_ref()).map_err(|_| GitError::Damaged("an object without an id"))?;
        self.places.insert(start, id);
        self.objects.insert(id, (kind, Content::Whole(data)));
        Ok(())
    }

    /// Gets past something that is too large to be kept, and tells its id by how its kind and size are written.
    fn skipped(&mut self, size: u64, header: &str) -> Result<Id, GitError> {
        const TOO_LARGE: GitError = GitError::TooLarge("one of its files");
        self.skipped_left = self.skipped_left.checked_sub(size).ok_or(TOO_LARGE)?;
        let mut hash = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        hash.update(header.as_bytes());
        let mut inflater = Decompress::new(true);
        let mut buffer = vec![0; 1 << 16];
        let rest = self.content.get(self.at..).unwrap_or_default();
        loop {
            let (read, written) = (inflater.total_in(), inflater.total_out());
            let from = usize::try_from(read).ok().and_then(|read| rest.get(read..)).unwrap_or_default();
            let status = inflater.decompress(from, &mut buffer, FlushDecompress::None);
            let made = usize::try_from(inflater.total_out() - written).unwrap_or(0);
            hash.update(buffer.get(..made).unwrap_or_default());
            match status {
                Ok(Status::StreamEnd) if inflater.total_out() == size => break,
                Ok(Status::Ok) if (made > 0 || inflater.total_in() > read) && inflater.total_out() <= size => {}
                _ => return damaged("an object that cannot be unpacked"),
            }
        }
        self.at += usize::try_from(inflater.total_in()).unwrap_or(usize::MAX);
        Id::try_from(hash.finish().as_ref()).map_err(|_| GitError::Damaged("an object without an id"))
    }

    /// How far back the base of a difference begins.
    fn offset(&mut self) -> Result<usize, GitError> {
        let mut byte = self.byte()?;
        let mut offset = usize::from(byte & 127);
        while byte & 128 != 0 {
            byte = self.byte()?;
            offset = offset
                .checked_add(1)
                .and_then(|it| it.checked_mul(128))
                .ok_or(GitError::Damaged("an offset beyond the pack"))?
                | usize::from(byte & 127);
        }
        Ok(offset)
    }

    /// What a difference makes of its base; nothing if one of them is too large to be kept.
    fn difference(
        &mut self,
        base: Option<Id>,
        is_nameless: bool,
        size: u64,
    ) -> Result<Option<(Kind, Vec<u8>)>, GitError> {
        if size > MAX_FILE_BYTES {
            self.skipped(size, "")?;
            return Ok(None);
        }
        let delta = self.inflated(size)?;
        let (kind, base) = match base.and_then(|base| self.objects.get(&base)) {
            Some((kind, Content::Whole(base))) => (kind, base),
            Some((_, Content::Oversized)) => return Ok(None),
            None if is_nameless => return Ok(None),
            None => return damaged("a difference to an object that is not there"),
        };
        if *kind == Kind::Blob && makes(&delta) > MAX_FILE_BYTES {
            return Ok(None);
        }
        let (kind, made) = (*kind, applied(base, &delta)?);
        self.count(made.len() as u64)?;
        Ok(Some((kind, made)))
    }

    fn count(&mut self, bytes: u64) -> Result<(), GitError> {
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or(GitError::TooLarge("all its files together"))?;
        Ok(())
    }

    fn inflated(&mut self, size: u64) -> Result<Vec<u8>, GitError> {
        if size > MAX_FILE_BYTES {
            return Err(GitError::TooLarge("one of its files"));
        }
        self.count(size)?;
        let mut data = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
        let mut inflater = Decompress::new(true);
        let rest = self.content.get(self.at..).unwrap_or_default();
        let status = inflater.decompress_vec(rest, &mut data, FlushDecompress::Finish);
        if !matches!(status, Ok(Status::StreamEnd)) || data.len() as u64 != size {
            return damaged("an object that cannot be unpacked");
        }
        self.at += usize::try_from(inflater.total_in()).unwrap_or(usize::MAX);
        Ok(data)
    }
}

const WRONG: GitError = GitError::Damaged("a difference that does not fit");

/// The next number of a difference: seven bits in each byte, the lowest first.
fn number(bytes: &mut impl Iterator<Item = u8>) -> Result<usize, GitError> {
    let (mut number, mut shift) = (0_usize, 0_u32);
    loop {
        let byte = bytes.next().ok_or(WRONG)?;
        number |= usize::from(byte & 127).checked_shl(shift).ok_or(WRONG)?;
        shift += 7;
        if byte & 128 == 0 {
            return Ok(number);
        }
    }
}

/// How much a difference says that it makes; nothing if it cannot be read.
fn makes(delta: &[u8]) -> u64 {
    let mut bytes = delta.iter().copied();
    let sizes = number(&mut bytes).and_then(|_| number(&mut bytes));
    sizes.map_or(0, |to| to as u64)
}

/// A base with a difference applied: pieces of it, and new bytes between.
fn applied(base: &[u8], delta: &[u8]) -> Result<Vec<u8>, GitError> {
    let mut bytes = delta.iter().copied();
    let (from, to) = (number(&mut bytes)?, number(&mut bytes)?);
    if from != base.len() || to as u64 > MAX_FILE_BYTES {
        return Err(WRONG);
    }
    let mut made = Vec::with_capacity(to);
    let mut rest: Vec<u8> = bytes.collect();
    rest.reverse();
    while let Some(operation) = rest.pop() {
        if operation == 0 {
            return Err(WRONG);
        }
        if operation & 128 == 0 {
            for _ in 0..operation {
                made.push(rest.pop().ok_or(WRONG)?);
            }
            continue;
        }
        let (mut offset, mut size) = (0_usize, 0_usize);
        for bit in 0..7 {
            if operation & (1 << bit) != 0 {
                let byte = usize::from(rest.pop().ok_or(WRONG)?);
                if bit < 4 {
                    offset |= byte << (8 * bit);
                } else {
                    size |= byte << (8 * (bit - 4));
                }
            }
        }
        let size = if size == 0 { 0x10000 } else { size };
        made.extend_from_slice(offset.checked_add(size).and_then(|end| base.get(offset..end)).ok_or(WRONG)?);
        if made.len() > to {
            return Err(WRONG);
        }
    }
    if made.len() == to { Ok(made) } else { Err(WRONG) }
}

/// The files of a commit.
pub(super) fn tree(objects: &Objects, commit: &str) -> Result<Tree, GitError> {
    let (Kind::Commit, text) = objects.get(parsed(commit)?)? else { return damaged("the branch leads to no commit") };
    let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let id = std::str::from_utf8(first).ok().and_then(|line| line.strip_prefix("tree "));
    let root = parsed(id.ok_or(GitError::Damaged("a commit without files"))?)?;
    let (mut files, mut links, mut oversized) = (Vec::new(), Vec::new(), Vec::new());
    let mut open = vec![(root, String::new(), 0)];
    while let Some((id, prefix, depth)) = open.pop() {
        let (Kind::Tree, mut rest) = objects.get(id)? else { return damaged("a folder that is none") };
        while !rest.is_empty() {
            let entry = entry(rest)?;
            rest = entry.rest;
            let path = format!("{prefix}{}", entry.name);
            match entry.mode {
                "40000" if depth < MAX_DEPTH => open.push((entry.id, format!("{path}/"), depth + 1)),
                "40000" => return Err(GitError::TooLarge("how deep its folders nest")),
                "100644" | "100755" | "100664" => match objects.known.get(&entry.id) {
                    Some((Kind::Blob, Content::Whole(content))) => files.push((path, content.clone())),
                    Some((Kind::Blob, Content::Oversized)) => oversized.push(path),
                    Some(_) => return damaged("a file that is none"),
                    None if objects.has_nameless => oversized.push(path),
                    None => return damaged("an object is missing"),
                },
                "120000" => links.push(path),
                // Submodules hold no manifests of this repository.
                _ => {}
            }
            if files.len() + links.len() + oversized.len() > MAX_FILES || open.len() > MAX_FILES {
                return Err(GitError::TooLarge("the number of its files"));
            }
        }
    }
    Ok(Tree::new(files).with_links(links).with_oversized(oversized))
}

struct Entry<'e> {
    mode: &'e str,
    name: &'e str,
    id: Id,
    rest: &'e [u8],
}

fn entry(bytes: &[u8]) -> Result<Entry<'_>, GitError> {
    let parse = || {
        let end = bytes.iter().position(|byte| *byte == 0)?;
        let (mode, name) = std::str::from_utf8(&bytes[..end]).ok()?.split_once(' ')?;
        let id = Id::try_from(bytes.get(end + 1..end + 1 + ID)?).ok()?;
        Some(Entry { mode, name, id, rest: &bytes[end + 1 + ID..] })
    };
    parse().ok_or(GitError::Damaged("a folder that cannot be read"))
}

impl Objects {
    fn get(&self, id: Id) -> Result<(Kind, &[u8]), GitError> {
        match self.known.get(&id) {
            Some((kind, Content::Whole(data))) => Ok((*kind, data.as_slice())),
            Some((_, Content::Oversized)) => Err(GitError::TooLarge("one of its files")),
            None => damaged("an object is missing"),
        }
    }
}

fn parsed(hex: &str) -> Result<Id, GitError> {
    let digits = (0..ID).map(|at| hex.get(2 * at..2 * at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()));
    let bytes: Option<Vec<u8>> = digits.collect();
    bytes
        .filter(|_| hex.len() == 2 * ID)
        .and_then(|bytes| Id::try_from(bytes).ok())
        .ok_or(GitError::Damaged("an id that is none"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, rng_seed: RngSeed::Fixed(2026), ..ProptestConfig::default() })]

        /// Whoever made a pack: it is read or refused. The checksum is right, so that what follows is looked at.
        #[test]
        fn any_pack_is_read_or_refused(count in 0_u8..4, bytes in prop::collection::vec(any::<u8>(), 0..64), delta in prop::collection::vec(any::<u8>(), 0..32)) {
            let content = [&b"PACK\0\0\0\x02\0\0\0"[..], &[count], &bytes].concat();
            let pack = [&content[..], digest(&SHA1_FOR_LEGACY_USE_ONLY, &content).as_ref()].concat();
            if let Ok(objects) = read(&pack) {
                prop_assert!(objects.known.len() <= usize::from(count));
            }
            if let Ok(made) = applied(&bytes, &delta) {
                prop_assert!(made.len() as u64 <= MAX_FILE_BYTES);
            }
        }
    }

    #[test]
    fn a_pack_that_was_cut_or_changed_is_refused() {
        assert_eq!(read(b"PACK").err(), Some(GitError::Damaged("a pack without an end")));
        let sealed = |content: &[u8]| [content, digest(&SHA1_FOR_LEGACY_USE_ONLY, content).as_ref()].concat();
        let mut pack = sealed(b"PACK\0\0\0\x02\0\0\0\0");
        assert!(read(&pack).is_ok_and(|objects| objects.known.is_empty()));
        pack[4] ^= 1;
        assert_eq!(read(&pack).err(), Some(GitError::Damaged("its checksum does not hold")));
        let many = read(&sealed(b"PACK\0\0\0\x02\xff\xff\xff\xff")).err();
        assert_eq!(many, Some(GitError::TooLarge("the number of its files")));
        // A blob that says it is far larger than any, and one that is not what it says.
        let large = read(&sealed(b"PACK\0\0\0\x02\0\0\0\x01\xbf\xff\xff\xff\x7f")).err();
        assert_eq!(large, Some(GitError::TooLarge("one of its files")));
        let large = read(&sealed(b"PACK\0\0\0\x02\0\0\0\x01\xbf\xff\xff\x0f")).err();
        assert_eq!(large, Some(GitError::Damaged("an object that cannot be unpacked")));
        let absent = read(&sealed(b"PACK\0\0\0\x02\0\0\0\x01\x60\x05")).err();
        assert_eq!(absent, Some(GitError::Damaged("an object that cannot be unpacked")));
    }

    #[test]
    fn differences_copy_and_add() {
        // From 6 bytes to 7: copy 3 from offset 1, then add "xyz!".
        assert_eq!(applied(b"abcdef", b"\x06\x07\x91\x01\x03\x04xyz!").unwrap(), b"bcdxyz!");
        for wrong in [
            &b"\x05\x07\x91\x01\x03\x04xyz!"[..],
            b"\x06\x07\x91\x05\x03",
            b"\x06\x02\x91\x01\x03",
            b"\x06\x01\x00",
            b"\x06",
            b"\x06\xff\xff\xff\xff\x0f",
        ] {
            assert!(applied(b"abcdef", wrong).is_err(), "{wrong:?}");
        }
    }
}
