//! A bucket on loopback that keeps the rules of conditional writes, for machines that share a state.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The name of the bucket.
pub(crate) const NAME: &str = "castles";

/// Objects by key, each with the number of the write that made it.
#[derive(Default)]
struct Objects {
    all: BTreeMap<String, (Vec<u8>, u64)>,
    writes: u64,
}

/// A bucket that lives as long as the process.
pub(crate) struct Bucket {
    pub(crate) endpoint: String,
    objects: Arc<Mutex<Objects>>,
}

/// What is asked of it.
struct Asked {
    method: String,
    path: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Bucket {
    pub(crate) fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let objects = Arc::<Mutex<Objects>>::default();
        let shared = objects.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let objects = shared.clone();
                std::thread::spawn(move || serve(&stream, &objects));
            }
        });
        Self { endpoint, objects }
    }

    /// All keys, in order.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.objects.lock().unwrap().all.keys().cloned().collect()
    }

    /// Everything that is kept, as text.
    pub(crate) fn texts(&self) -> Vec<String> {
        let objects = self.objects.lock().unwrap();
        objects.all.values().map(|(bytes, _)| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    /// Changes what is kept under the key that ends like this, as only time does otherwise.
    pub(crate) fn amend(&self, ending: &str, change: impl FnOnce(&[u8]) -> Vec<u8>) {
        let mut objects = self.objects.lock().unwrap();
        objects.writes += 1;
        let number = objects.writes;
        let (_, object) = objects.all.iter_mut().find(|(key, _)| key.ends_with(ending)).unwrap();
        *object = (change(&object.0), number);
    }
}

fn serve(stream: &TcpStream, objects: &Mutex<Objects>) {
    if let Ok(asked) = receive(stream) {
        let (status, tag, body) = objects.lock().unwrap().answer(&asked);
        let tag = tag.map_or_else(String::new, |tag| format!("etag: {tag}\r\n"));
        let head =
            format!("HTTP/1.1 {status} Said\r\n{tag}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
        let mut stream = stream;
        // Whoever was killed meanwhile hears nothing.
        let _ = stream.write_all(&[head.as_bytes(), &body].concat());
    }
}

fn receive(stream: &TcpStream) -> io::Result<Asked> {
    let mut reader = BufReader::new(stream);
    let mut line = || -> io::Result<String> {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    };
    let first = line()?;
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut headers = BTreeMap::new();
    loop {
        let header = line()?;
        let Some((name, value)) = header.split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Asked { method: method.to_owned(), path: path.to_owned(), query: query.to_owned(), headers, body })
}

type Answer = (u16, Option<String>, Vec<u8>);

fn complaint(status: u16, code: &str) -> Answer {
    (status, None, format!("<Error><Code>{code}</Code><Message>No.</Message></Error>").into_bytes())
}

impl Objects {
    fn answer(&mut self, asked: &Asked) -> Answer {
        if !asked.headers.get("authorization").is_some_and(|header| header.starts_with("AWS4-HMAC-SHA256 ")) {
            return complaint(403, "AccessDenied");
        }
        let Some(key) = asked.path.strip_prefix(&format!("/{NAME}/")).filter(|key| !key.is_empty()) else {
            return self.list(asked);
        };
        let found = self.all.get(key);
        let tag = |number: u64| format!("\"{number}\"");
        match asked.method.as_str() {
            "GET" => match found {
                Some((bytes, number)) => (200, Some(tag(*number)), bytes.clone()),
                None => complaint(404, "NoSuchKey"),
            },
            "PUT" => {
                let header = |name: &str| asked.headers.get(name);
                let is_expected = match (header("if-match"), header("if-none-match"), found) {
                    (Some(_), _, None) => return complaint(404, "NoSuchKey"),
                    (Some(wanted), _, Some((_, number))) => *wanted == tag(*number),
                    (None, Some(_), found) => found.is_none(),
                    (None, None, _) => true,
                };
                if !is_expected {
                    return complaint(412, "PreconditionFailed");
                }
                self.writes += 1;
                self.all.insert(key.to_owned(), (asked.body.clone(), self.writes));
                (200, Some(tag(self.writes)), Vec::new())
            }
            _ => {
                self.all.remove(key);
                (204, None, Vec::new())
            }
        }
    }

    fn list(&self, asked: &Asked) -> Answer {
        let prefix = asked.query.split('&').find_map(|pair| pair.strip_prefix("prefix=")).unwrap_or_default();
        let prefix = prefix.replace("%2F", "/");
        let keys = self.all.keys().filter(|key| key.starts_with(&prefix));
        let contents: String = keys.map(|key| format!("<Contents><Key>{key}</Key></Contents>")).collect();
        let text = format!("<ListBucketResult>{contents}<IsTruncated>false</IsTruncated></ListBucketResult>");
        (200, None, text.into_bytes())
    }
}
