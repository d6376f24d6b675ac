//! Manifests from the web, from mirrors and from files, in virtual time: each is what was pinned, or is refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use castle_components::mirror::{INDEX, Listed, Mirror, write_index};
use castle_components::source::Entry;
use castle_components::source::Source;
use castle_components::supply::{Supply, SupplyError};
use castle_components::{Chosen, Fit, digest, standin};
use castle_http::Trust;
use castle_seams::{BoxFuture, ByteStream, Clock, Dial, DialError, Disk, SystemDisk, Target};
use castle_spec::model::ComponentOwner;
use castle_spec::{ComponentName, WantedComponent};
use castle_testbed::{VirtualClock, in_virtual_time};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio_rustls::TlsAcceptor;

const METALLB: ComponentName = ComponentName::Metallb;
const URL: &str = "https://h.example/a.yaml";

/// The web: what each address (`host/path`) answers. An answer that ends with `CUT` breaks off there, one that is empty never comes.
struct Web {
    tls: TlsAcceptor,
    answers: Vec<(&'static str, String)>,
    asked: Mutex<Vec<String>>,
}

struct Wire(Arc<Web>);

impl Dial for Wire {
    fn dial<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
        let (web, host) = (self.0.clone(), target.host.clone());
        Box::pin(async move {
            let (near, far) = duplex(64 << 10);
            tokio::spawn(async move {
                let mut stream = web.tls.accept(far).await?;
                web.serve(&host, &mut stream).await
            });
            Ok(Box::new(near) as Box<dyn ByteStream>)
        })
    }
}

impl Web {
    async fn serve(&self, host: &str, stream: &mut (impl ByteStream + ?Sized)) -> io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8(head).unwrap();
        let path = head.split(' ').nth(1).unwrap();
        let address = format!("{host}{path}");
        self.asked.lock().unwrap().push(address.clone());
        let known = self.answers.iter().find(|(at, _)| *at == address).map(|(_, answer)| answer.as_str());
        let answer = known.unwrap_or("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
        if answer.is_empty() {
            return std::future::pending().await;
        }
        stream.write_all(answer.trim_end_matches("CUT").as_bytes()).await?;
        stream.flush().await?;
        stream.shutdown().await
    }
}

fn whole(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn moved(to: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")
}

/// An acceptor for every host that the tests know, and the authority to believe.
fn tls() -> (TlsAcceptor, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["h.example".to_owned(), "assets.example".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), issuer.pem())
}

/// A supply with this web, and a folder for it.
struct Room {
    folder: tempfile::TempDir,
    web: Arc<Web>,
    trust: Trust,
    clock: VirtualClock,
}

impl Room {
    fn new(clock: &VirtualClock, answers: Vec<(&'static str, String)>) -> Self {
        let (tls, authority) = tls();
        let web = Arc::new(Web { tls, answers, asked: Mutex::default() });
        Self { folder: tempfile::tempdir().unwrap(), web, trust: Trust::Only(authority), clock: *clock }
    }

    fn supply(&self) -> Supply {
        let dial = Arc::new(Wire(self.web.clone()));
        Supply::new(dial, Arc::new(self.clock), Arc::new(SystemDisk), self.folder.path()).with_trust(self.trust.clone())
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        SystemDisk.create_dir_all(path.parent().unwrap(), 0o700).unwrap();
        SystemDisk.replace(&path, text.as_bytes(), 0o600).unwrap();
    }

    fn mirror(&self, files: &[(&str, &str)]) -> Mirror {
        let listed: Vec<Listed> = files
            .iter()
            .map(|(file, content)| Listed {
                component: METALLB,
                version: METALLB.newest(),
                file: (*file).to_owned(),
                sha256: digest(content.as_bytes()),
                upstream: String::new(),
                images: Vec::new(),
            })
            .collect();
        self.write(&format!("mirror/{INDEX}"), &write_index(&listed));
        for (file, content) in files {
            self.write(&format!("mirror/{file}"), content);
        }
        Mirror::open(Arc::new(SystemDisk), &self.folder.path().join("mirror")).unwrap()
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.web.asked.lock().unwrap())
    }
}

fn entry(source: Source, content: &str) -> Entry {
    Entry { version: METALLB.newest(), source, sha256: digest(content.as_bytes()) }
}

fn from_url(content: &str) -> Entry {
    entry(Source::Url(URL.to_owned()), content)
}

async fn told(supply: &Supply, entry: &Entry) -> String {
    supply.manifest(METALLB, entry).await.unwrap_err().to_string()
}

#[test]
fn a_download_is_followed_checked_and_kept() {
    in_virtual_time(async |clock| {
        let answers = vec![
            ("h.example/a.yaml", moved("https://assets.example/b?signature=planted")),
            ("assets.example/b?signature=planted", moved("/c")),
            ("assets.example/c", whole("manifest")),
        ];
        let room = Room::new(clock, answers);
        let cache = room.folder.path().join("cache");
        let supply = room.supply().with_cache(&cache);
        assert_eq!(supply.manifest(METALLB, &from_url("manifest")).await.unwrap(), "manifest");
        assert_eq!(room.asked(), ["h.example/a.yaml", "assets.example/b?signature=planted", "assets.example/c"]);
        assert_eq!(supply.manifest(METALLB, &from_url("manifest")).await.unwrap(), "manifest");
        assert_eq!(room.asked(), Vec::<String>::new(), "from the cache");
        let kept = cache.join(digest(b"manifest"));
        assert_eq!(SystemDisk.metadata(&kept).unwrap().mode & 0o777, 0o600);
        SystemDisk.replace(&kept, b"something else", 0o600).unwrap();
        assert_eq!(supply.manifest(METALLB, &from_url("manifest")).await.unwrap(), "manifest");
        assert_eq!(room.asked().len(), 3, "what the cache holds is looked at each time");
        assert_eq!(SystemDisk.read(&kept, 99).unwrap(), b"manifest", "and mended");
    });
}

#[test]
fn a_download_that_is_not_what_was_pinned_is_refused() {
    in_virtual_time(async |clock| {
        let room = Room::new(clock, vec![("h.example/a.yaml", whole("other"))]);
        let error = room.supply().manifest(METALLB, &from_url("manifest")).await.unwrap_err();
        let (expected, found) = (digest(b"manifest"), digest(b"other"));
        let text = error.to_string();
        assert!(matches!(error, SupplyError::Checksum { .. }));
        for part in ["metallb: ", URL, &expected, &found, "run `castle lock`"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    });
}

#[test]
fn a_download_that_fails_is_told() {
    for (answer, why) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly soCUT".to_owned(), "cannot be downloaded"),
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(), "https://h.example has no such file (404)"),
        ("HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n".to_owned(), "https://h.example answers 500"),
        ("HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n".to_owned(), "sends elsewhere without saying where"),
        (moved("http://assets.example/b"), "it is sent to an address without TLS"),
        (moved("//assets.example/b"), "it is sent to an address without TLS"),
        (moved("https://user:planted@assets.example/b"), "holds a user name or a password"),
        (moved("/a.yaml"), "it is sent elsewhere more than 4 times"),
        (format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 17 << 20), "the answer is too large"),
        (String::new(), "no whole answer within 60 s"),
    ] {
        in_virtual_time(async |clock| {
            let room = Room::new(clock, vec![("h.example/a.yaml", answer.clone())]);
            let begun = clock.monotonic();
            let text = told(&room.supply(), &from_url("manifest")).await;
            assert!(text.contains(why), "{why}: {text}");
            assert!(text.contains(URL) && text.contains("--mirror") && !text.contains("planted"), "{text}");
            assert!(clock.monotonic() - begun <= Duration::from_secs(60));
            assert!(room.asked().len() <= 5);
        });
    }
}

#[test]
fn a_mirror_is_asked_instead_of_the_web() {
    in_virtual_time(async |clock| {
        let room = Room::new(clock, vec![("h.example/a.yaml", whole("manifest"))]);
        let supply = room.supply().with_mirror(Some(room.mirror(&[("a.yaml", "manifest")])));
        for entry in [from_url("manifest"), entry(Source::Mirror("a.yaml".to_owned()), "manifest")] {
            assert_eq!(supply.manifest(METALLB, &entry).await.unwrap(), "manifest");
        }
        let lacking = told(&supply, &from_url("newer")).await;
        for part in ["metallb: the mirror ", "v0.16.1", &digest(b"newer"), "castle mirror pull"] {
            assert!(lacking.contains(part), "{part}: {lacking}");
        }
        room.write("mirror/a.yaml", "manif");
        let damaged = told(&supply, &from_url("manifest")).await;
        for part in ["a.yaml of the mirror", &digest(b"manif"), "castle mirror verify"] {
            assert!(damaged.contains(part), "{part}: {damaged}");
        }
        SystemDisk.remove_file(&room.folder.path().join("mirror/a.yaml")).unwrap();
        assert!(told(&supply, &from_url("manifest")).await.contains("lacks a.yaml, which its index lists"));
        assert_eq!(room.asked(), Vec::<String>::new());
        let alone = told(&room.supply(), &entry(Source::Mirror("a.yaml".to_owned()), "manifest")).await;
        assert!(alone.contains("give the mirror with --mirror") && alone.contains("run `castle lock`"), "{alone}");
    });
}

#[test]
fn a_file_beside_the_castle_is_checked_too() {
    in_virtual_time(async |clock| {
        let room = Room::new(clock, Vec::new());
        let pinned = entry(Source::File("own.yaml".to_owned()), "manifest");
        assert!(told(&room.supply(), &pinned).await.contains("own.yaml"));
        room.write("own.yaml", "manifest");
        let supply = room.supply().with_cache(&room.folder.path().join("cache"));
        assert_eq!(supply.manifest(METALLB, &pinned).await.unwrap(), "manifest");
        room.write("own.yaml", "changed");
        assert!(told(&supply, &pinned).await.contains("if that was you, run `castle lock`"));
    });
}

#[test]
fn objects_are_adapted_and_patched() {
    in_virtual_time(async |clock| {
        let room = Room::new(clock, Vec::new());
        let fit = Fit {
            replicas: 1,
            has_data_disks: false,
            is_without_workers: true,
            is_small: true,
            has_image_automation: false,
            has_source_watcher: false,
        };
        let mut chosen = Chosen {
            wanted: WantedComponent {
                name: METALLB,
                version: METALLB.newest(),
                owner: ComponentOwner::Castle,
                patches: vec!["own.yaml".to_owned()],
                source: None,
            },
            entry: entry(Source::StandIn, ""),
        };
        let missing = room.supply().objects(&chosen, &fit).await.unwrap_err().to_string();
        assert!(missing.contains("own.yaml") && missing.contains("`patches`"), "{missing}");
        room.write("own.yaml", "kind: DaemonSet\nmetadata: {name: speaker, labels: {mine: 'yes'}}\n");
        let objects = room.supply().objects(&chosen, &fit).await.unwrap();
        assert_eq!(objects.len(), standin::objects(METALLB).len());
        let speaker =
            objects.iter().find(|object| object.name() == "speaker" && object.text("/kind") == "DaemonSet").unwrap();
        assert_eq!(speaker.label("mine"), Some("yes"));
        assert!(speaker.list("/spec/template/spec/containers/0/args").iter().any(|word| word == "--ignore-exclude-lb"));
        room.write("manifest.yaml", "just words\n");
        chosen.entry = entry(Source::File("manifest.yaml".to_owned()), "just words\n");
        let odd = room.supply().objects(&chosen, &fit).await.unwrap_err().to_string();
        assert!(odd.contains("is no manifest: document 1"), "{odd}");
    });
}

#[test]
fn nothing_is_written_outside_of_the_cache() {
    in_virtual_time(async |clock| {
        let room = Room::new(clock, vec![("h.example/a.yaml", whole("manifest"))]);
        room.supply().manifest(METALLB, &from_url("manifest")).await.unwrap();
        assert_eq!(SystemDisk.list(Path::new(room.folder.path())).unwrap().len(), 0);
    });
}
