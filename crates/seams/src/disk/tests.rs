use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io};

use tempfile::TempDir;

use super::*;

const DISK: SystemDisk = SystemDisk;
/// Tells a process that it is the child in a test that needs two, and where to work.
const CHILD: &str = "CASTLE_SEAMS_TEST_CHILD";

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn mode(path: &Path) -> u32 {
    DISK.metadata(path).unwrap().mode
}

fn read(path: &Path) -> Vec<u8> {
    DISK.read(path, 1024).unwrap()
}

fn kind<T>(result: Result<T, DiskError>) -> DiskErrorKind {
    result.err().expect("an error").kind
}

/// This test binary, to run the one test `name` through a shell that runs `prepare` first.
fn child(prepare: &str, name: &str, folder: &Path) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{prepare}; exec \"$@\"")).arg("sh").arg(env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(CHILD, folder);
    command
}

#[test]
fn read_takes_up_to_the_limit() {
    let folder = folder();
    let path = folder.path().join("file");
    fs::write(&path, b"0123456789").unwrap();
    assert_eq!(DISK.read(&path, 10).unwrap(), b"0123456789");
    let error = DISK.read(&path, 9).unwrap_err();
    assert_eq!(error.kind, DiskErrorKind::TooLarge { limit: 9 });
    assert_eq!(error.to_string(), format!("cannot read {}: larger than the limit of 9 bytes", path.display()));
    assert_eq!(DISK.read(&path, u64::MAX).unwrap().len(), 10);
}

#[test]
fn read_ends_where_the_source_does_not() {
    assert_eq!(kind(DISK.read(Path::new("/dev/zero"), 1000)), DiskErrorKind::TooLarge { limit: 1000 });
}

#[test]
fn read_takes_one_byte_beyond_the_limit_and_no_more() {
    let (mut reader, mut writer) = io::pipe().unwrap();
    writer.write_all(b"0123456789abcdef").unwrap();
    drop(writer);
    let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
    assert_eq!(kind(DISK.read(&path, 9)), DiskErrorKind::TooLarge { limit: 9 });
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"abcdef");
}

#[test]
fn what_cannot_be_read_has_its_own_kind() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), b"").unwrap();
    symlink("two", path("one")).unwrap();
    symlink("one", path("two")).unwrap();
    assert_eq!(kind(DISK.read(folder.path(), 9)), DiskErrorKind::IsDirectory);
    assert_eq!(kind(DISK.read(&path("none"), 9)), DiskErrorKind::NotFound);
    assert_eq!(kind(DISK.read(&path("file/below"), 9)), DiskErrorKind::NotDirectory);
    assert_eq!(kind(DISK.read(&path("one"), 9)), DiskErrorKind::LinkLoop);
    assert_eq!(kind(DISK.real_path(&path("one"))), DiskErrorKind::LinkLoop);
    assert_eq!(kind(DISK.list(&path("file"))), DiskErrorKind::NotDirectory);
}

#[test]
fn links_are_followed_and_names_are_sorted() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    DISK.create_new(&path("b"), b"four", 0o600).unwrap();
    symlink("b", path("a")).unwrap();
    DISK.create_dir_all(&path("C"), 0o700).unwrap();
    assert_eq!(
        DISK.metadata(&path("a")).unwrap(),
        Metadata { kind: FileKind::File, len: 4, mode: 0o600, is_ours: true }
    );
    assert_eq!(DISK.metadata(&path("C")).unwrap().kind, FileKind::Directory);
    assert_eq!(DISK.metadata(Path::new("/dev/zero")).unwrap().kind, FileKind::Other);
    assert_eq!(DISK.real_path(&path("C/../a")).unwrap(), fs::canonicalize(path("b")).unwrap());
    assert_eq!(DISK.list(folder.path()).unwrap(), ["C", "a", "b"]);
}

#[test]
fn folders_are_made_with_their_parents_and_only_once() {
    let folder = folder();
    let deep = folder.path().join("one/two");
    DISK.create_dir_all(&deep, 0o700).unwrap();
    DISK.create_dir_all(&deep, 0o755).unwrap();
    assert_eq!((mode(&folder.path().join("one")), mode(&deep)), (0o700, 0o700));
    DISK.create_dir_all(&folder.path().join("three/../four"), 0o700).unwrap();
    assert_eq!(DISK.list(folder.path()).unwrap(), ["four", "one", "three"]);
    // What is above a bare file name.
    DISK.create_dir_all(Path::new(""), 0o700).unwrap();

    let file = folder.path().join("file");
    DISK.create_new(&file, b"", 0o600).unwrap();
    assert_eq!(kind(DISK.create_dir_all(&file, 0o700)), DiskErrorKind::NotDirectory);
    assert_eq!(kind(DISK.create_dir_all(&file.join("below"), 0o700)), DiskErrorKind::NotDirectory);
}

#[test]
fn create_new_never_overwrites() {
    let folder = folder();
    let path = folder.path().join("file");
    DISK.create_new(&path, b"first", 0o600).unwrap();
    let error = DISK.create_new(&path, b"second", 0o644).unwrap_err();
    assert_eq!(error.kind, DiskErrorKind::AlreadyExists);
    assert_eq!((read(&path), mode(&path)), (b"first".to_vec(), 0o600));

    let link = folder.path().join("link");
    symlink("nowhere", &link).unwrap();
    assert_eq!(kind(DISK.create_new(&link, b"", 0o600)), DiskErrorKind::AlreadyExists);
    assert_eq!(kind(DISK.create_new(&folder.path().join("none/file"), b"", 0o600)), DiskErrorKind::NotFound);
    assert_eq!(DISK.list(folder.path()).unwrap(), ["file", "link"]);
}

/// Two processes that need the same key for the first time: neither may ever find half of it.
#[test]
fn of_two_who_create_at_once_one_does_and_the_other_finds_all_of_it() {
    const ROUNDS: usize = 300;
    let folder = folder();
    let start = std::sync::Barrier::new(2);
    // Held to it only afterwards: who stopped in the middle would let the other one wait.
    let make = |content: &[u8]| -> Vec<Result<(), (DiskErrorKind, usize)>> {
        let paths = (0..ROUNDS).map(|round| folder.path().join(round.to_string()));
        let make = |path: PathBuf| {
            start.wait();
            DISK.create_new(&path, content, 0o600).map_err(|error| (error.kind, read(&path).len()))
        };
        paths.map(make).collect()
    };
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| make(&[b'a'; 100]));
        (make(&[b'b'; 100]), other.join().unwrap())
    });
    let found = Err((DiskErrorKind::AlreadyExists, 100));
    for (round, both) in one.iter().zip(&other).enumerate() {
        assert!(both == (&Ok(()), &found) || both == (&found, &Ok(())), "{round}: {both:?}");
    }
    assert_eq!(DISK.list(folder.path()).unwrap().len(), ROUNDS);
}

#[test]
fn replace_puts_the_new_in_place_of_the_old() {
    let folder = folder();
    let path = folder.path().join("file");
    DISK.replace(&path, b"first", 0o644).unwrap();
    DISK.replace(&path, b"second", 0o600).unwrap();
    assert_eq!((read(&path), mode(&path)), (b"second".to_vec(), 0o600));
    assert_eq!(DISK.list(folder.path()).unwrap(), ["file"]);
}

#[test]
fn a_failed_replace_leaves_nothing_behind() {
    let folder = folder();
    let path = folder.path().join("in-the-way");
    DISK.create_dir_all(&path, 0o700).unwrap();
    assert_eq!(kind(DISK.replace(&path, b"new", 0o600)), DiskErrorKind::IsDirectory);
    assert_eq!(DISK.list(folder.path()).unwrap(), ["in-the-way"]);
}

#[test]
fn append_adds_and_truncate_only_cuts() {
    let folder = folder();
    let path = folder.path().join("journal");
    let mut file = DISK.append(&path, 0o600).unwrap();
    file.append(b"one").unwrap();
    file.append(b"two").unwrap();
    file.sync().unwrap();
    drop(file);

    let mut file = DISK.append(&path, 0o644).unwrap();
    file.truncate(4).unwrap();
    file.append(b"!").unwrap();
    assert_eq!((read(&path), mode(&path)), (b"onet!".to_vec(), 0o600));
    let error = file.truncate(6).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot truncate {}: it has 5 bytes, fewer than 6", path.display()));
}

#[test]
fn removing_twice_is_told() {
    let folder = folder();
    let path = folder.path().join("file");
    DISK.create_new(&path, b"", 0o600).unwrap();
    DISK.remove_file(&path).unwrap();
    assert_eq!(kind(DISK.remove_file(&path)), DiskErrorKind::NotFound);
}

#[test]
fn a_lock_has_one_holder() {
    let folder = folder();
    let path = folder.path().join("lock");
    let guard = DISK.try_lock(&path, 0o600).unwrap();
    let error = DISK.try_lock(&path, 0o600).unwrap_err();
    assert_eq!(error.kind, DiskErrorKind::Locked);
    assert_eq!(error.to_string(), format!("cannot lock {}: another process holds it", path.display()));
    drop(guard);
    DISK.try_lock(&path, 0o600).unwrap();
    assert_eq!(mode(&path), 0o600);
}

/// Goal: no death of the holder leaves the lock behind. Method: a child takes it, says so, and is killed.
#[test]
fn a_lock_dies_with_its_holder() {
    if let Some(folder) = env::var_os(CHILD) {
        let _guard = DISK.try_lock(&PathBuf::from(folder).join("lock"), 0o600).unwrap();
        writeln!(io::stdout(), "\nheld").unwrap();
        // Until killed, or until the parent is gone and the other end closes.
        io::stdin().read_to_end(&mut Vec::new()).unwrap();
        return;
    }
    let folder = folder();
    let path = folder.path().join("lock");
    let mut holder = child(":", "disk::tests::a_lock_dies_with_its_holder", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap() == "held"));
    assert_eq!(kind(DISK.try_lock(&path, 0o600)), DiskErrorKind::Locked);
    holder.kill().unwrap();
    holder.wait().unwrap();
    DISK.try_lock(&path, 0o600).unwrap();
}

/// Goal: the umask takes nothing from the owner and gives nothing to others. Method: a child for each extreme, since
/// the umask belongs to the whole process.
#[test]
fn links_are_followed_to_where_a_file_would_lie_and_a_mode_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    symlink("second", path("first")).unwrap();
    symlink(path("file"), path("second")).unwrap();
    assert_eq!(DISK.target(&path("first")).unwrap(), path("file"), "also one that is not there yet");
    assert_eq!(DISK.target(&path("file")).unwrap(), path("file"));
    symlink("loop", path("loop")).unwrap();
    assert_eq!(DISK.target(&path("loop")).unwrap_err().kind, DiskErrorKind::LinkLoop);
    DISK.replace_keeping(&path("file"), b"shared", 0o666).unwrap();
    assert_eq!((read(&path("first")), mode(&path("file"))), (b"shared".to_vec(), 0o666), "whatever the umask");
}

#[test]
fn modes_hold_under_any_umask() {
    let name = "disk::tests::modes_hold_under_any_umask";
    if let Some(folder) = env::var_os(CHILD) {
        let path = |name: &str| PathBuf::from(&folder).join(name);
        DISK.create_dir_all(&path("folder/within"), 0o700).unwrap();
        DISK.create_new(&path("folder/new"), b"", 0o600).unwrap();
        DISK.replace(&path("folder/replaced"), b"", 0o600).unwrap();
        DISK.append(&path("folder/journal"), 0o600).unwrap();
        DISK.try_lock(&path("folder/lock"), 0o600).unwrap();
        DISK.create_new(&path("shared"), b"", 0o644).unwrap();
        return;
    }
    for (umask, shared) in [("000", 0o644), ("027", 0o640), ("777", 0o600)] {
        let folder = folder();
        let path = |name: &str| folder.path().join(name);
        let child = child(&format!("umask {umask}"), name, folder.path()).output().unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
        assert_eq!((mode(&path("folder")), mode(&path("folder/within"))), (0o700, 0o700), "umask {umask}");
        for file in ["folder/new", "folder/replaced", "folder/journal", "folder/lock"] {
            assert_eq!(mode(&path(file)), 0o600, "{file} under umask {umask}");
        }
        assert_eq!(mode(&path("shared")), shared, "umask {umask}");
    }
}
