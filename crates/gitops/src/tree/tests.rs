use std::ffi::OsString;
use std::path::PathBuf;

use castle_seams::{AppendFile, DiskOperation, LockGuard, Metadata, SystemDisk};

use super::*;

#[test]
fn paths_stay_in_the_tree() {
    assert_eq!(joined("a/b", "../c/./d").as_deref(), Some("a/c/d"));
    assert_eq!(joined("", "./").as_deref(), Some(""));
    assert_eq!(joined("a", "../../etc"), None);
}

#[test]
fn what_flux_does_not_fetch_is_left_out() {
    let files = [
        (".sourceignore", "/docs\n*.tmp\n!keep.tmp\n"),
        ("a/.sops.yaml", ""),
        ("a/.sourceignore", "b/\n!picture.png\n"),
        ("a/all.yaml", ""),
        ("a/b/all.yaml", ""),
        ("a/picture.png", ""),
        ("a/x.tmp", ""),
        ("b/all.yaml", ""),
        ("b/docs/all.yaml", ""),
        ("b/picture.png", ""),
        ("docs/all.yaml", ""),
        ("keep.tmp", ""),
        (".github/workflows/ci.yaml", ""),
    ];
    let tree = Tree::new(files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()))).as_fetched();
    let left: Vec<&str> = tree.below("").map(|(path, _)| path).collect();
    assert_eq!(
        left,
        [
            ".sourceignore",
            "a/.sourceignore",
            "a/all.yaml",
            "a/picture.png",
            "b/all.yaml",
            "b/docs/all.yaml",
            "keep.tmp"
        ]
    );
}

#[test]
fn a_folder_is_read_without_what_git_keeps() {
    let folder = tempfile::tempdir().unwrap();
    let disk = SystemDisk;
    for (path, text) in [("a.yaml", "1"), ("b/c.yaml", "2"), (".git/HEAD", "ref"), ("b-d.yaml", "3")] {
        let path = folder.path().join(path);
        disk.create_dir_all(path.parent().unwrap(), 0o755).unwrap();
        disk.create_new(&path, text.as_bytes(), 0o644).unwrap();
    }
    let tree = Tree::of_folder(&disk, folder.path()).unwrap();
    assert_eq!(tree.below("").map(|(path, _)| path).collect::<Vec<_>>(), ["a.yaml", "b-d.yaml", "b/c.yaml"]);
    assert_eq!(tree.below("b").map(|(path, _)| path).collect::<Vec<_>>(), ["b/c.yaml"]);
    assert!(tree.is_folder("b") && tree.is_folder("") && !tree.is_folder("a.yaml") && !tree.is_folder("c"));
    assert!(matches!(Tree::of_folder(&disk, &folder.path().join("x")), Err(TreeError::Unreadable(_))));
}

/// Goal: what Flux leaves out is not too much. Method: more of it than castle reads of all together, and a file that cannot be read.
#[test]
fn what_flux_does_not_fetch_does_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let disk = SystemDisk;
    let at = |path: &str| folder.path().join(path);
    disk.create_dir_all(&at("videos"), 0o755).unwrap();
    disk.create_new(&at(".sourceignore"), b"/videos\n", 0o644).unwrap();
    disk.create_new(&at("a.yaml"), b"1", 0o644).unwrap();
    let much = vec![b'#'; usize::try_from(MAX_FILE_BYTES).unwrap()];
    for count in 0..=MAX_TREE_BYTES / MAX_FILE_BYTES {
        disk.create_new(&at(&format!("videos/{count}")), &much, 0o644).unwrap();
    }
    let tree = Tree::of_folder(&disk, folder.path()).unwrap();
    assert_eq!(tree.below("").map(|(path, _)| path).collect::<Vec<_>>(), [".sourceignore", "a.yaml"]);
    disk.remove_file(&at(".sourceignore")).unwrap();
    assert!(matches!(Tree::of_folder(&disk, folder.path()), Err(TreeError::TooLarge(_))));
}

/// source-controller packs regular files and folders alone: a link of any kind is not in what Flux builds.
#[test]
fn links_and_files_that_are_too_large_are_known_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let disk = SystemDisk;
    let at = |path: &str| folder.path().join(path);
    disk.create_dir_all(&at("b"), 0o755).unwrap();
    disk.create_new(&at("b/c.yaml"), b"1", 0o644).unwrap();
    for (to, link) in [("b/c.yaml", "file"), ("b", "folder"), ("nowhere", "dangling"), ("loop", "loop")] {
        std::os::unix::fs::symlink(to, at(link)).unwrap();
    }
    for large in ["video.wmv", "large.yaml"] {
        disk.create_new(&at(large), &vec![b'#'; usize::try_from(MAX_FILE_BYTES).unwrap() + 1], 0o644).unwrap();
    }
    let tree = Tree::of_folder(&disk, folder.path()).unwrap();
    assert_eq!(tree.below("").map(|(path, _)| path).collect::<Vec<_>>(), ["b/c.yaml"]);
    assert_eq!(tree.links_below("").collect::<Vec<_>>(), ["dangling", "file", "folder", "loop"]);
    assert_eq!(tree.link("folder/c.yaml"), Some("folder"));
    assert_eq!(tree.link("b/c.yaml"), None);
    assert_eq!(tree.oversized_below("").collect::<Vec<_>>(), ["large.yaml"], "Flux leaves the other out");
    // The folder itself may be reached by a link.
    std::os::unix::fs::symlink(folder.path(), at("b/up")).unwrap();
    assert!(Tree::of_folder(&disk, &at("folder")).unwrap().file("c.yaml").is_some());
}

/// A disk that shows nobody what is in some folders, and nobody what lies in others.
struct Closed {
    unlisted: &'static str,
    sealed: &'static str,
}

impl Closed {
    fn open(&self, operation: DiskOperation, path: &Path) -> Result<(), DiskError> {
        let is_closed = match operation {
            DiskOperation::List => path.ends_with(self.unlisted),
            _ => path.parent().is_some_and(|folder| folder.ends_with(self.sealed)),
        };
        let refusal = || DiskError::new(operation, path, std::io::ErrorKind::PermissionDenied.into());
        if is_closed { Err(refusal()) } else { Ok(()) }
    }
}

impl Disk for Closed {
    fn read(&self, path: &Path, limit_bytes: u64) -> Result<Vec<u8>, DiskError> {
        self.open(DiskOperation::Read, path).and_then(|()| SystemDisk.read(path, limit_bytes))
    }

    fn metadata(&self, path: &Path) -> Result<Metadata, DiskError> {
        self.open(DiskOperation::Metadata, path).and_then(|()| SystemDisk.metadata(path))
    }

    fn list(&self, path: &Path) -> Result<Vec<OsString>, DiskError> {
        self.open(DiskOperation::List, path).and_then(|()| SystemDisk.list(path))
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf, DiskError> {
        self.open(DiskOperation::RealPath, path).and_then(|()| SystemDisk.real_path(path))
    }

    fn target(&self, _: &Path) -> Result<PathBuf, DiskError> {
        unreachable!("a tree is only read")
    }

    fn create_dir_all(&self, _: &Path, _: u32) -> Result<(), DiskError> {
        unreachable!("a tree is only read")
    }

    fn create_new(&self, _: &Path, _: &[u8], _: u32) -> Result<(), DiskError> {
        unreachable!("a tree is only read")
    }

    fn replace(&self, _: &Path, _: &[u8], _: u32) -> Result<(), DiskError> {
        unreachable!("a tree is only read")
    }

    fn replace_keeping(&self, _: &Path, _: &[u8], _: u32) -> Result<(), DiskError> {
        unreachable!("a tree is only read")
    }

    fn append(&self, _: &Path, _: u32) -> Result<Box<dyn AppendFile>, DiskError> {
        unreachable!("a tree is only read")
    }

    fn remove_file(&self, _: &Path) -> Result<(), DiskError> {
        unreachable!("a tree is only read")
    }

    fn try_lock(&self, _: &Path, _: u32) -> Result<Box<dyn LockGuard>, DiskError> {
        unreachable!("a tree is only read")
    }
}

/// Goal: what Flux leaves out need not be readable, and all else must be. Method: a folder without the right to list it and one without the right to
/// enter it, ignored and not.
#[test]
fn what_flux_does_not_fetch_need_not_be_readable() {
    for (rules, is_ignored) in [
        ("/data/\n/sealed\n", true),
        ("data/**\nsealed/*\n", true),
        ("/data\n", false),
        ("/sealed\n", false),
        ("", false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for (path, text) in [(".sourceignore", rules), ("a.yaml", "1"), ("data/b", "2"), ("sealed/deep/c", "3")] {
            SystemDisk.create_dir_all(at(path).parent().unwrap(), 0o755).unwrap();
            SystemDisk.create_new(&at(path), text.as_bytes(), 0o644).unwrap();
        }
        let read = Tree::of_folder(&Closed { unlisted: "data", sealed: "sealed" }, folder.path());
        if is_ignored {
            let tree = read.unwrap();
            assert_eq!(
                tree.below("").map(|(path, _)| path).collect::<Vec<_>>(),
                [".sourceignore", "a.yaml"],
                "{rules}"
            );
        } else {
            assert!(matches!(read, Err(TreeError::Unreadable(_))), "{rules}");
        }
    }
    let root = Closed { unlisted: "data", sealed: "none" };
    let folder = tempfile::tempdir().unwrap();
    SystemDisk.create_dir_all(&folder.path().join("data"), 0o755).unwrap();
    assert!(matches!(Tree::of_folder(&root, &folder.path().join("data")), Err(TreeError::Unreadable(_))));
}
