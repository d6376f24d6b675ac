//! Goal: the disk in memory answers as a real one does, also where a folder is in the place of a file, or a file in that of a folder. Method: the same
//! operations on both, and what they say of them.

use castle_seams::SystemDisk;

use super::*;

/// What each operation says of a path, and what is there in the end.
fn answers(disk: &dyn Disk, path: &Path) -> Vec<(&'static str, Result<String, DiskErrorKind>)> {
    fn said<T>(result: Result<T, DiskError>, told: impl FnOnce(T) -> String) -> Result<String, DiskErrorKind> {
        result.map(told).map_err(|error| error.kind)
    }
    let nothing = |()| String::new();
    vec![
        ("read", said(disk.read(path, 100), |bytes| String::from_utf8_lossy(&bytes).into_owned())),
        ("metadata", said(disk.metadata(path), |found| format!("{:?}", found.kind))),
        ("create_new", said(disk.create_new(path, b"new", 0o600), nothing)),
        ("replace", said(disk.replace(path, b"other", 0o600), nothing)),
        ("replace_keeping", said(disk.replace_keeping(path, b"kept", 0o600), nothing)),
        ("append", said(disk.append(path, 0o600).and_then(|mut file| file.append(b"more")), nothing)),
        ("try_lock", said(disk.try_lock(path, 0o600), |_| String::new())),
        ("create_dir_all below", said(disk.create_dir_all(&path.join("below"), 0o700), nothing)),
        ("read below", said(disk.read(&path.join("file"), 100), |_| String::new())),
        ("remove_file", said(disk.remove_file(path), nothing)),
        ("read again", said(disk.read(path, 100), |bytes| String::from_utf8_lossy(&bytes).into_owned())),
    ]
}

#[test]
fn a_folder_in_the_place_of_a_file_and_a_file_in_that_of_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let model = ModelDisk::default();
    let place = |name: &str| folder.path().join(name);
    // A folder that is empty, one that has something in it, a file, and nothing.
    SystemDisk.create_dir_all(&place("folder"), 0o700).unwrap();
    model.supplant(&place("folder"));
    SystemDisk.create_dir_all(&place("full"), 0o700).unwrap();
    for disk in [&SystemDisk as &dyn Disk, &model] {
        disk.replace(&place("full/inner"), b"inner", 0o600).unwrap();
        disk.replace(&place("file"), b"old", 0o600).unwrap();
        disk.replace(&place("blocked"), b"old", 0o600).unwrap();
    }
    for name in ["folder", "full", "file", "nothing", "blocked/below"] {
        assert_eq!(answers(&model, &place(name)), answers(&SystemDisk, &place(name)), "{name}");
    }
    for disk in [&SystemDisk as &dyn Disk, &model] {
        drop(disk.try_lock(&place("lock"), 0o600).unwrap());
        assert_eq!(disk.read(&place("lock"), 9).unwrap(), b"", "the file of a lock remains");
    }
    let names = |disk: &dyn Disk| disk.list(folder.path()).unwrap();
    assert_eq!(names(&model), names(&SystemDisk));
    for disk in [&SystemDisk as &dyn Disk, &model] {
        disk.replace(&place("file"), b"old", 0o600).unwrap();
        assert_eq!(disk.list(&place("file")).unwrap_err().kind, DiskErrorKind::NotDirectory);
    }
}

#[test]
fn what_was_supplanted_can_be_put_back_and_lost() {
    let (disk, file) = (ModelDisk::default(), Path::new("/state/file"));
    disk.tamper(file, b"whole".to_vec());
    disk.supplant(file);
    assert_eq!((disk.contents().len(), disk.read(file, 9).unwrap_err().kind), (0, DiskErrorKind::IsDirectory));
    let after = disk.after_crash(Loss::PowerCut(1), &Pulse::new());
    assert_eq!(after.read(file, 9).unwrap_err().kind, DiskErrorKind::IsDirectory);
    disk.tamper(file, b"whole".to_vec());
    assert_eq!(disk.read(file, 9).unwrap(), b"whole");
    disk.supplant(file);
    disk.lose(Path::new("/state"));
    assert_eq!(disk.read(file, 9).unwrap_err().kind, DiskErrorKind::NotFound);
}
