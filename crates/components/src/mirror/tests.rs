use castle_seams::SystemDisk;

use super::*;

fn one(file: &str, content: &str) -> Listed {
    Listed {
        component: ComponentName::Metallb,
        version: ComponentName::Metallb.newest(),
        file: file.to_owned(),
        sha256: digest(content.as_bytes()),
        upstream: "https://h.example/a.yaml".to_owned(),
        images: vec!["h.example/a:1".to_owned()],
    }
}

fn open(place: &Path) -> Result<Mirror, MirrorError> {
    Mirror::open(Arc::new(SystemDisk), place)
}

/// An archive of these files, each below a folder.
fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, format!("mirror/{name}"), content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn a_folder_and_an_archive_of_it_are_the_same_mirror() {
    let folder = tempfile::tempdir().unwrap();
    let (listed, index) = (one("a.yaml", "whole"), write_index(&[one("a.yaml", "whole")]));
    for (name, content) in [("a.yaml", "whole"), (INDEX, &index)] {
        SystemDisk.create_new(&folder.path().join(name), content.as_bytes(), 0o600).unwrap();
    }
    let packed = folder.path().join("mirror.tar");
    SystemDisk.create_new(&packed, &archive(&[("a.yaml", "whole"), (INDEX, &index)]), 0o600).unwrap();
    for place in [folder.path(), &packed] {
        let mirror = open(place).unwrap();
        assert_eq!(mirror.listed(), std::slice::from_ref(&listed));
        assert_eq!(mirror.read("a.yaml").unwrap(), b"whole");
        assert_eq!(mirror.look(&listed).unwrap(), Found::Whole);
        assert_eq!(mirror.look(&one("a.yaml", "other")).unwrap(), Found::Differs(digest(b"whole")));
        assert_eq!(mirror.look(&one("b.yaml", "other")).unwrap(), Found::Missing);
        assert!(mirror.read("b.yaml").unwrap_err().to_string().contains("lacks b.yaml"));
        assert!(mirror.with_digest(ComponentName::Metallb, &listed.sha256).is_some());
        assert!(mirror.with_digest(ComponentName::Flux, &listed.sha256).is_none());
        assert!(mirror.with_version(ComponentName::Metallb, &"v0.15.3".parse().unwrap()).is_none());
    }
}

#[test]
fn what_is_no_mirror_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let told = |place: &Path| open(place).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(told(&folder.path().join("nowhere")).contains("nowhere"));
    assert!(told(folder.path()).contains("there is none; `castle mirror pull` writes one"));
    let index = folder.path().join(INDEX);
    for (text, why) in [
        ("schema: 2\n", "castle reads `schema: 1` alone"),
        ("schema: 1\n", "no list `manifests`"),
        ("schema: 1\nmanifests: [{component: traefik}]\n", "manifest 1: no component is called traefik"),
        ("schema: 1\nmanifests: [{component: flux, file: ../a, sha256: x}]\n", "its file is no plain name"),
        ("schema: 1\nmanifests: [{component: flux, file: a, sha256: x}]\n", "its sha256 is no digest"),
        ("schema: [\n", "this is not YAML"),
    ] {
        SystemDisk.replace(&index, text.as_bytes(), 0o600).unwrap();
        assert!(told(folder.path()).contains(why), "{why}: {}", told(folder.path()));
    }
    let packed = folder.path().join("mirror.tar");
    let whole = archive(&[("a.yaml", &"x".repeat(5000)), (INDEX, "schema: 1\nmanifests: []\n")]);
    for cut in [&whole[..3000], b"not an archive, but long enough to be the head of one".repeat(20).as_slice()] {
        SystemDisk.replace(&packed, cut, 0o600).unwrap();
        assert!(told(&packed).contains("no whole tar archive"), "{}", told(&packed));
    }
    SystemDisk.replace(&packed, &archive(&[("a.yaml", "1"), ("b/a.yaml", "2")]), 0o600).unwrap();
    assert!(told(&packed).contains("two files called a.yaml"));
}
