//! The archive that a kubeconfig comes in.

use std::io::Read;

use castle_secrets::Secret;
use flate2::read::GzDecoder;
use zeroize::Zeroizing;

/// Everything in a tar is a multiple of this.
const BLOCK: usize = 512;
/// Where the name, the size and the kind of an entry are in its header.
const NAME: std::ops::Range<usize> = 0..100;
const SIZE: std::ops::Range<usize> = 124..136;
const KIND: usize = 156;

/// The text of the one file of this name in a gzipped tar that unpacks to at most `limit` octets; nothing if there is none.
pub(super) fn file(archive: &[u8], name: &str, limit: usize) -> Option<Secret> {
    let mut unpacked = Zeroizing::new(Vec::new());
    let most = u64::try_from(limit).ok()?.saturating_add(1);
    GzDecoder::new(archive).take(most).read_to_end(&mut unpacked).ok()?;
    if unpacked.len() > limit {
        return None;
    }
    let mut rest = unpacked.as_slice();
    while let Some((header, body)) = rest.split_at_checked(BLOCK) {
        let size = usize::from_str_radix(&text(&header[SIZE]), 8).ok()?;
        let content = body.get(..size)?;
        // Kind 0 is a file of archives older than POSIX.
        if text(&header[NAME]) == name && matches!(header[KIND], b'0' | 0) {
            return str::from_utf8(content).ok().map(|content| Secret::from(content.to_owned()));
        }
        rest = body.get(size.next_multiple_of(BLOCK)..)?;
    }
    None
}

/// A field of a header, up to its end.
fn text(field: &[u8]) -> String {
    let end = field.iter().position(|octet| *octet == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn entry(name: &str, kind: u8, content: &str) -> Vec<u8> {
        let mut entry = vec![0; BLOCK];
        entry[..name.len()].copy_from_slice(name.as_bytes());
        entry[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        entry[KIND] = kind;
        entry.extend_from_slice(content.as_bytes());
        entry.resize(entry.len().next_multiple_of(BLOCK), 0);
        entry
    }

    fn packed(entries: &[Vec<u8>]) -> Vec<u8> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(&entries.concat()).unwrap();
        packer.write_all(&[0; 2 * BLOCK]).unwrap();
        packer.finish().unwrap()
    }

    #[test]
    fn the_file_is_found_behind_others() {
        let archive = packed(&[entry("pax", b'x', "13 ctime=1.5\n"), entry("kubeconfig", b'0', "apiVersion: v1\n")]);
        assert_eq!(file(&archive, "kubeconfig", 1 << 20).unwrap().expose(), "apiVersion: v1\n");
        assert!(file(&archive, "other", 1 << 20).is_none());
    }

    #[test]
    fn what_is_broken_or_too_long_is_nothing() {
        let archive = packed(&[entry("kubeconfig", b'0', &"a".repeat(4000))]);
        assert!(file(&archive, "kubeconfig", 4000).is_none(), "unpacks to more");
        assert!(file(&archive[..archive.len() / 2], "kubeconfig", 1 << 20).is_none());
        assert!(file(b"no archive", "kubeconfig", 1 << 20).is_none());
        let mut lying = entry("kubeconfig", b'0', "short");
        lying[124..135].copy_from_slice(b"77777777777");
        assert!(file(&packed(&[lying]), "kubeconfig", 1 << 20).is_none());
    }
}
