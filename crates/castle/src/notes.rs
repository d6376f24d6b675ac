//! Small files that castle keeps for itself beside the state: of what earlier runs tell. Each has a format: one of a newer castle is known as such, and left
//! as it is; one that nobody can read is kept aside before another takes its place.

use std::path::{Path, PathBuf};

use castle_engine::note::{self, Unreadable};
use castle_seams::Disk;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The format of all of them.
const FORMAT: u64 = 1;

/// What a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Note<T> {
    /// There is none, or it cannot be read now.
    None,
    /// This.
    Read(T),
    /// Nothing that anybody could use.
    Damaged(Vec<u8>),
    /// Something that only a newer castle knows: this is its format.
    Newer(u64),
}

impl<T> Note<T> {
    /// What it says, if this castle can tell.
    pub(crate) fn told(self) -> Option<T> {
        match self {
            Self::Read(content) => Some(content),
            Self::None | Self::Damaged(_) | Self::Newer(_) => None,
        }
    }
}

/// Why a file that castle announces something in, or remembers something by, is not for this one.
pub(crate) fn newer(file: &Path, format: u64) -> String {
    format!("{} is a newer castle's (it has format {format}, this one knows {FORMAT}): use that one", file.display())
}

/// What a file of at most so many bytes says.
pub(crate) fn read<T: DeserializeOwned>(disk: &dyn Disk, file: &Path, limit: u64) -> Note<T> {
    match disk.read(file, limit) {
        Ok(bytes) => of(bytes),
        Err(_) => Note::None,
    }
}

/// What these bytes say.
pub(crate) fn of<T: DeserializeOwned>(bytes: Vec<u8>) -> Note<T> {
    match note::read(FORMAT, &bytes) {
        Ok(content) => Note::Read(content),
        Err(Unreadable::Newer(format)) => Note::Newer(format),
        Err(Unreadable::Damaged(_)) => Note::Damaged(bytes),
    }
}

/// The bytes of a file that says this.
pub(crate) fn bytes<T: Serialize>(content: &T) -> Vec<u8> {
    note::bytes(FORMAT, content)
}

/// Keeps this in a file, unless what is there is a newer castle's. That it cannot be kept is no failure: it is for people and for predictions.
pub(crate) fn keep<T: Serialize + DeserializeOwned>(disk: &dyn Disk, file: &Path, limit: u64, content: &T) {
    match read::<T>(disk, file, limit) {
        Note::Newer(_) => return,
        Note::Damaged(bytes) if disk.replace(&aside(file), &bytes, 0o600).is_err() => return,
        Note::None | Note::Read(_) | Note::Damaged(_) => {}
    }
    let _ = disk.replace(file, &bytes(content), 0o600);
}

/// Where what nobody can read is kept.
fn aside(file: &Path) -> PathBuf {
    file.with_extension("json.damaged")
}

#[cfg(test)]
mod tests {
    use castle_engine::{Predictions, Timeline};
    use castle_rehearsal::ModelDisk;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::embedded::Serving;

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Times {
        times: Vec<u32>,
    }

    const LIMIT: u64 = 1 << 10;

    fn kept(found: Option<&str>) -> (Note<Times>, Vec<(String, String)>) {
        let (disk, file) = (ModelDisk::default(), Path::new("/own/times.json"));
        if let Some(found) = found {
            disk.tamper(file, found.as_bytes().to_vec());
        }
        let told = read(&disk, file, LIMIT);
        disk.create_dir_all(Path::new("/own"), 0o700).unwrap();
        keep(&disk, file, LIMIT, &Times { times: vec![1, 2] });
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let files = disk.contents().into_iter().map(|(path, bytes)| (path.display().to_string(), text(bytes)));
        (told, files.collect())
    }

    /// What stands in files of others is read by every castle from here on.
    #[test]
    fn the_recorded_notes_are_written_and_read() {
        fn same<T: Serialize + DeserializeOwned>(recorded: &str) {
            let Note::Read(content) = of::<T>(recorded.as_bytes().to_vec()) else { panic!("{recorded}") };
            assert_eq!(String::from_utf8(bytes(&content)).unwrap(), recorded);
        }
        same::<Timeline>(
            r#"{"format":1,"spans":[{"step":{"layer":"platform","kind":"vm","name":"blue-cp-1"},"ready":{"secs":1,"nanos":0},"waited":{"secs":0,"nanos":5},"worked":{"secs":3,"nanos":0}}],"critical_path":[],"digest":"f86c1edac37f0e2ca9c47f7677b211d8"}"#,
        );
        same::<Predictions>(
            r#"{"format":1,"kinds":{"platform/vm":[{"secs":3,"nanos":0}]},"digest":"3bd957a1685947623a8e67efe2bd1992"}"#,
        );
        same::<Serving>(
            r#"{"format":1,"address":"127.0.0.1:8006","fingerprint":"AA:BB","process":7,"hosts":["pve"],"speed":1,"is_instant":false,"vault":"127.0.0.1:8443","vault_fingerprint":"CC:DD","git":"127.0.0.1:9418","git_fingerprint":"EE:FF","key_digests":{"token":"ab12"},"digest":"8e9a44e3139a9e3f0c4f6d7ae36edd8c"}"#,
        );
        same::<Serving>(
            r#"{"format":1,"address":"127.0.0.1:8006","fingerprint":"AA:BB","process":7,"hosts":["pve"],"speed":1,"is_instant":false,"vault":"127.0.0.1:8443","vault_fingerprint":"CC:DD","git":"127.0.0.1:9418","git_fingerprint":"EE:FF","digest":"9b540954ca532724d5bc8f78c84c4da0"}"#,
        );
    }

    #[test]
    fn a_note_has_a_format_and_what_is_not_ours_stays() {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let written = text(bytes(&Times { times: vec![1, 2] }));
        let file = |name: &str, text: &str| (format!("/own/{name}"), text.to_owned());
        assert_eq!(kept(None), (Note::None, vec![file("times.json", &written)]));
        let more = text(note::bytes(FORMAT, &json!({"times": [7], "more": true})));
        assert_eq!(kept(Some(&more)), (Note::Read(Times { times: vec![7] }), vec![file("times.json", &written)]));
        let newer = text(note::bytes(2, &json!({"times": "elsewhere"})));
        assert_eq!(kept(Some(&newer)), (Note::Newer(2), vec![file("times.json", &newer)]));
        for damaged in ["{\"format\":1,\"tim", "[7]", r#"{"format":1,"times":[7]}"#, &written.replace('2', "3")] {
            let files = vec![file("times.json", &written), file("times.json.damaged", damaged)];
            assert_eq!(kept(Some(damaged)), (Note::Damaged(damaged.as_bytes().to_vec()), files));
        }
    }
}
