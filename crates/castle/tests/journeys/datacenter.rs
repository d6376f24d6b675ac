//! The embedded datacenter as a process of its own, started by whoever needs it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use castle_datacenter::{EMBEDDED_CLIENT_ID, EMBEDDED_CLIENT_SECRET, EMBEDDED_PASSWORD};
use castle_http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderName, HeaderValue};
use castle_http::{Ask, Client, Endpoint, Method, Trust};
use castle_seams::{SystemClock, TcpDial};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::room::{BLUE, Room, own_network};
use crate::side_by_side::on_proxmox;
use crate::world::World;

#[test]
fn the_datacenter_is_found_started_and_stopped() {
    // Whoever plans looks whether the addresses are free, and others may have castles on this machine.
    let world = World::with_castle(&BLUE.replace("127.42.0", &own_network()));
    assert!(world.castle(&["datacenter", "status"]).stdout.contains("does not run"));
    // Whoever only looks starts nothing, and leaves nothing behind.
    for (verb, code) in [("status", 1), ("drift", 1), ("doctor", 0)] {
        let looked = world.castle(&[verb]);
        assert_eq!(looked.code, Some(code), "{}", looked.transcript());
        let told = looked.transcript();
        assert!(told.contains("no embedded datacenter runs") && told.contains("next: castle up"), "{told}");
    }
    let plan = world.castle(&["plan"]);
    assert!(plan.code == Some(0) && plan.stdout.contains("platform/vm/blue-cp-1"), "{}", plan.transcript());
    assert!(plan.stdout.contains("No embedded datacenter runs"), "{}", plan.transcript());
    assert!(!world.path(".local/state/castle").exists(), "something was left behind");
    let down = world.castle(&["down", "--yes"]);
    assert!(down.stdout.contains("Started the embedded datacenter"), "{}", down.transcript());
    assert!(world.castle(&["datacenter", "status"]).stdout.contains("serves Proxmox VE 9.2"));
    let second = world.castle(&["datacenter"]);
    assert_eq!(second.code, Some(3), "{}", second.transcript());
    assert!(world.castle(&["datacenter", "stop"]).stdout.contains("has ended"));
    assert!(world.castle(&["datacenter", "stop"]).stdout.contains("does not run"));
    let outside = world.castle(&["datacenter", "--listen", "0.0.0.0:0"]);
    assert_eq!(outside.code, Some(4), "{}", outside.transcript());
}

/// Goal: a datacenter is for its owner alone. Method: two of them, whose keys differ; what everybody knows opens neither; its repository is not cloned
/// without them, and what castle prints holds none of them.
#[test]
fn the_datacenter_opens_for_its_owner_alone() {
    let (room, other) = (Room::new(400), Room::new(400));
    let gitops = format!("{BLUE}gitops: {{repository: embedded}}\n");
    room.write("castle.yaml", &gitops);
    room.world.write(
        "gitops/clusters/blue/config.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mine, namespace: default}\n",
    );
    let up = room.castle(&["up"]);
    assert_eq!(up.code, Some(0), "{}", up.transcript());
    assert_ne!(room.token(), other.token());
    let folder = ".local/state/castle/datacenter";
    let status = room.castle(&["datacenter", "status"]);
    for name in ["token", "password", "vault.json", "git-credentials"] {
        let file = room.world.path(&format!("{folder}/{name}"));
        assert!(status.stdout.contains(&file.display().to_string()), "{}", status.transcript());
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    let told = room.castle(&["datacenter", "status", "--json"]);
    for said in [&up, &status, &told] {
        assert!(!said.transcript().contains(room.token().split_once('=').unwrap().1), "{}", said.transcript());
    }

    // What everybody knows, and what opens another one.
    let real = on_proxmox(&room).replace("127.42.0", &room.network);
    room.world.write("real/castle.yaml", real);
    for token in ["castle@pve!embedded=ca571e00-0000-4000-8000-000000000000", &other.token()] {
        room.world.write("real/token", token);
        let plan = room.castle(&["plan", "real"]);
        assert!(plan.code == Some(1) && plan.stderr.contains("Authentication failed!"), "{}", plan.transcript());
    }
    let url = format!("{}/blue-embedded.git", told.result()["git"]["address"].as_str().unwrap());
    let store =
        format!("credential.helper=store --file {}", room.world.path(&format!("{folder}/git-credentials")).display());
    for (login, expected) in [(None, false), (Some(store.as_str()), true)] {
        let mut git = Command::new("git");
        git.args(["-c", "http.sslVerify=false"]).args(login.iter().flat_map(|login| ["-c", *login]));
        git.args(["ls-remote", &url]).env("GIT_TERMINAL_PROMPT", "0");
        let ran = room.world.run(&mut git);
        assert_eq!(ran.code == Some(0), expected, "{}", ran.transcript());
    }
    hold_against_forgers(&other);
}

/// Holds that no known word opens a datacenter, and nothing that its source lets one compute.
fn hold_against_forgers(room: &Room) {
    let told = room.castle(&["datacenter", "status", "--json"]).result();
    let hypervisor = Door::at(&room.address, &room.fingerprint);
    let login = |password: &str| format!("username=root@pam&password={password}");
    let password = room.world.read(".local/state/castle/datacenter/password").trim().to_owned();
    for (password, expected) in [(EMBEDDED_PASSWORD, 401), (&password, 200)] {
        let (status, _) = hypervisor.ask("POST", "/api2/json/access/ticket", &login(password), &[]);
        assert_eq!(status, expected);
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let made_up = |purpose: &str| {
        let digest = Sha256::digest(format!("castle embedded {purpose} root@pam {now}"));
        digest[..20].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let cookie = (COOKIE, format!("PVEAuthCookie=PVE:root@pam:{now:08X}::{}", made_up("ticket")));
    let header = (HeaderName::from_static("csrfpreventiontoken"), format!("{now:08X}:{}", made_up("csrf")));
    let stop = "/api2/json/nodes/pve/qemu/100/status/stop";
    for (method, path) in [("GET", "/api2/json/access/users"), ("POST", stop)] {
        let (status, body) = hypervisor.ask(method, path, "", &[cookie.clone(), header.clone()]);
        assert_eq!((status, &body), (401, &Value::Null), "a ticket that anybody can compute opens it");
    }

    let vault = Door::at(told["vault"]["address"].as_str().unwrap(), told["vault"]["fingerprint"].as_str().unwrap());
    let secret: Value = serde_json::from_str(&room.world.read(".local/state/castle/datacenter/vault.json")).unwrap();
    let login = "/api/v1/auth/universal-auth/login";
    let known = json!({"clientId": EMBEDDED_CLIENT_ID, "clientSecret": EMBEDDED_CLIENT_SECRET});
    assert_eq!(vault.ask("POST", login, &known.to_string(), &[]).0, 401);
    let (_, given) = vault.ask("POST", login, &secret.to_string(), &[]);
    let token = given["accessToken"].as_str().unwrap();
    // The first draw of a datacenter whose seed is known. What stands before it can be guessed.
    let draw = Sha256::new().chain_update([0_u8; 16]).chain_update("infisical token").finalize();
    let forged = format!("{}.{}", token.rsplit_once('.').unwrap().0, URL_SAFE_NO_PAD.encode(draw));
    for (token, expected) in [(token, 200), (forged.as_str(), 403)] {
        let shown = (AUTHORIZATION, format!("Bearer {token}"));
        let (status, body) = vault.ask("GET", "/api/v1/projects/slug/castle", "", &[shown]);
        assert_eq!(status, expected, "{body}");
    }
}

/// A way into a datacenter for whoever speaks HTTP.
struct Door {
    client: Client,
    runtime: tokio::runtime::Runtime,
}

impl Door {
    fn at(address: &str, fingerprint: &str) -> Self {
        let (endpoint, trust) = (Endpoint::parse(address).unwrap(), Trust::fingerprint(fingerprint).unwrap());
        let dial = Arc::new(TcpDial { timeout: Duration::from_secs(5) });
        let client = Client::new(endpoint, &trust, dial, Arc::new(SystemClock::new())).unwrap();
        Self { client, runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap() }
    }

    /// The status and what was answered, if it is JSON.
    fn ask(&self, method: &str, path: &str, body: &str, headers: &[(HeaderName, String)]) -> (u16, Value) {
        let mut ask = Ask::new(Method::from_bytes(method.as_bytes()).unwrap(), path);
        let kind = if body.starts_with('{') { "application/json" } else { "application/x-www-form-urlencoded" };
        if !body.is_empty() {
            ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        for (name, value) in headers {
            ask.headers.insert(name, HeaderValue::from_str(value).unwrap());
        }
        ask.body = body.to_owned().into();
        let answer = self.runtime.block_on(self.client.ask(&ask)).unwrap();
        (answer.status.as_u16(), serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    }
}

#[test]
fn an_instant_datacenter_claims_no_speed() {
    let world = World::new();
    let mut datacenter = Command::new(env!("CARGO_BIN_EXE_castle"))
        .args(["datacenter", "--instant", "--listen", "127.0.0.1:0"])
        .env_clear()
        .env("HOME", world.path(""))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(datacenter.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told = world.castle(&["datacenter", "status", "--json"]).result();
    datacenter.kill().unwrap();
    datacenter.wait().unwrap();
    assert!(line.ends_with(", and nothing in it takes any time.\n"), "{line}");
    assert_eq!((&told["instant"], &told["speed"]), (&true.into(), &Value::Null), "{told}");
}

/// Who removes all that castle keeps begins anew: nothing that is left of the old one is in the way.
#[test]
fn it_ends_when_what_it_keeps_is_removed() {
    let fast = BLUE.replace("platform: embedded", "platform: {embedded: {speed: 400}}");
    let world = World::with_castle(&fast.replace("127.42.0", &own_network()));
    for _ in 0..2 {
        let up = world.castle(&["up"]);
        assert!(up.code == Some(0) && up.stdout.contains("Started the embedded datacenter"), "{}", up.transcript());
        std::fs::remove_dir_all(world.path(".local/state/castle")).unwrap();
    }
    let left = world.castle(&["down", "--yes"]);
    assert!(left.stdout.contains("Started the embedded datacenter"), "{}", left.transcript());
    assert!(world.castle(&["datacenter", "stop"]).stdout.contains("has ended"));
}

/// Goal: castles stand as long as nobody removes what tells of their datacenter, and what is damaged of what opens it is named. Method: from the binary, one damage after
/// the other.
#[test]
fn damage_ends_no_datacenter_and_is_named() {
    let room = Room::new(400);
    let file = |name: &str| room.world.path(&format!(".local/state/castle/datacenter/{name}"));
    let (whole, mut seen) = (std::fs::read(file("serving.json")).unwrap(), String::new());
    std::fs::write(file("serving.json"), &whole[..whole.len() / 2]).unwrap();
    // Whoever comes at once may still be told of it.
    let is_back = (0..600).any(|_| {
        seen = room.castle(&["datacenter", "status"]).transcript();
        seen.contains("serves Proxmox VE")
    });
    assert!(is_back, "{seen}");
    assert_eq!(std::fs::read(file("serving.json")).unwrap(), whole);
    std::fs::remove_file(file("password")).unwrap();
    assert_eq!(room.castle(&["plan"]).code, Some(0), "castle has no use for it");
    std::fs::remove_file(file("token")).unwrap();
    let plan = room.castle(&["plan"]).transcript();
    let words =
        ["datacenter/token is lost", "next: castle datacenter stop", "all castles that stand in the datacenter"];
    assert!(words.iter().all(|words| plan.contains(words)), "{plan}");
    assert!(!plan.contains("Authentication failed"), "{plan}");
    let stop = room.castle(&["datacenter", "stop"]);
    assert!(stop.stdout.contains("has ended"), "{}", stop.transcript());
}
