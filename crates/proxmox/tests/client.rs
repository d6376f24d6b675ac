//! The client against the embedded Proxmox, in virtual time: answers, refusals, tasks, and answers that are lost.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Arc;

use castle_datacenter::{
    Asked, Blueprint, Datacenter, EMBEDDED_TOKEN, EMBEDDED_TOKEN_ID, Ending, Latencies, Reply, Version, Witness,
};
use castle_engine::{Class, Fault};
use castle_http::{Endpoint, Method, Trust};
use castle_proxmox::client::{Access, Bound, Client, Token};
use castle_proxmox::model::{ErrorClass, Form, Refusal};
use castle_testbed::vendor::Vendor;
use castle_testbed::{VirtualClock, in_virtual_time};
use serde_json::json;

fn datacenter(hosts: &[&str], clock: &VirtualClock) -> Datacenter {
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    judged(Datacenter::new(Blueprint::embedded(&hosts).with_latencies(Latencies::none()), Arc::new(*clock)))
}

fn client(datacenter: &Datacenter, host: &str, clock: &VirtualClock) -> Client {
    let access = Access {
        endpoint: Endpoint::parse(&format!("http://{host}:8006")).unwrap(),
        trust: Trust::PublicRoots,
        token: Token::parse(&format!("{EMBEDDED_TOKEN_ID}={EMBEDDED_TOKEN}")).unwrap(),
    };
    Client::new(access, datacenter.dial(), Arc::new(*clock)).unwrap()
}

/// Holds every request against the vendor's description.
struct Judge(Vendor);

impl Witness for Judge {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        // One test asks for what is refused, and says so by this.
        let is_wrong_on_purpose = asked.parameters.iter().any(|(name, _)| name == "no-such");
        let verdict = self.0.check(&asked.method, &asked.path, &asked.parameters);
        assert_eq!(verdict.is_err(), is_wrong_on_purpose, "{} {} {verdict:?}", asked.method, asked.path);
        Some(handle())
    }
}

fn judged(datacenter: Datacenter) -> Datacenter {
    if let Some(vendor) = Vendor::load(9) {
        datacenter.watch(Arc::new(Judge(vendor)));
    }
    datacenter
}

/// What answers requests to paths that end like this, instead of Proxmox.
struct Instead(&'static str, Answering);

/// What is answered instead; nothing for no answer at all.
type Answering = fn(Reply) -> Option<Reply>;

impl Witness for Instead {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        let reply = handle();
        if asked.path.ends_with(self.0) { (self.1)(reply) } else { Some(reply) }
    }
}

async fn start(client: &Client, host: &str) -> Result<u32, Refusal> {
    let path = format!("/nodes/{host}/qemu/101/status/start");
    client.run("VM 101", Method::POST, &path, &Form::new(), Bound::SHORT).await
}

#[test]
fn tasks_are_followed_where_they_run() {
    in_virtual_time(async |clock| {
        let datacenter = datacenter(&["pve", "pve2"], clock);
        // Asked of one host, done on the other.
        let client = client(&datacenter, "pve2", clock);
        assert_eq!(start(&client, "pve").await, Ok(0));
        assert_eq!(client.is_running("pve", 101).await, Ok(Some(true)));
    });
}

#[test]
fn tasks_end_in_every_way() {
    let end = |ending: Option<Ending>, told: Option<Answering>| {
        in_virtual_time(async |clock| {
            let datacenter = datacenter(&["pve"], clock);
            if let Some(ending) = ending {
                datacenter.end_next_task("qmstart", ending);
            }
            if let Some(told) = told {
                datacenter.watch(Arc::new(Instead("/status", told)));
            }
            start(&client(&datacenter, "pve", clock), "pve").await
        })
    };
    assert_eq!(end(None, None), Ok(0));
    let warned = |reply: Reply| {
        let mut body = reply.body.clone()?;
        body["data"]["exitstatus"] = json!("WARNINGS: 2");
        Some(Reply { body: Some(body), ..reply })
    };
    assert_eq!(end(None, Some(warned)), Ok(2), "warnings are a success that is counted");
    let failed = end(Some(Ending::Fails("can't lock file '/x' - got timeout".into())), None).unwrap_err();
    assert_eq!((failed.class, failed.changes), (ErrorClass::LockTimeout, true));
    assert!(Fault::from(failed).contention, "tried again, with fewer at once");
    let killed = end(Some(Ending::Vanishes), None).unwrap_err();
    assert_eq!(Fault::from(killed).class, Class::EffectUnknown, "nobody knows what it left behind");
    let forgotten = end(None, Some(|_| Some(Reply::failure(400, "upid: no such task")))).unwrap_err();
    assert_eq!(Fault::from(forgotten).class, Class::EffectUnknown);
    let unheard = end(None, Some(|_| None)).unwrap_err();
    assert_eq!(Fault::from(unheard).class, Class::EffectUnknown);
    let endless = end(None, Some(|_| Some(Reply::data(&json!({"status": "running"}))))).unwrap_err();
    assert!(endless.sentence.contains("still runs after"), "{endless:?}");
}

#[test]
fn what_a_log_alone_tells_is_read_from_it() {
    in_virtual_time(async |clock| {
        let datacenter = datacenter(&["pve"], clock);
        datacenter.end_next_task("qmstart", Ending::Fails("copy failed: exit code 1".into()));
        let told = |_| {
            Some(Reply::data(
                &json!([{"n": 1, "t": "qemu-img: No space left on device"}, {"n": 2, "t": "TASK ERROR: x"}]),
            ))
        };
        datacenter.watch(Arc::new(Instead("/log", told)));
        let refusal = start(&client(&datacenter, "pve", clock), "pve").await.unwrap_err();
        assert_eq!(refusal.class, ErrorClass::NoSpace);
        assert_eq!(refusal.sentence, "copy failed: exit code 1 (qemu-img: No space left on device)");
    });
}

/// A log that is given as Proxmox gives it: so many lines from one on, and how many there are.
struct Logged(Vec<String>);

impl Witness for Logged {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        let reply = handle();
        if !asked.path.ends_with("/log") {
            return Some(reply);
        }
        let number = |name: &str, default: usize| {
            let told = asked.parameters.iter().find(|(key, _)| key == name);
            told.map_or(default, |(_, value)| value.parse().unwrap())
        };
        let lines = self.0.iter().enumerate().skip(number("start", 0)).take(number("limit", 50));
        let lines: Vec<_> = lines.map(|(at, line)| json!({"n": at + 1, "t": line})).collect();
        Some(Reply { body: Some(json!({"data": lines, "total": self.0.len()})), ..reply })
    }
}

/// What is told of a task that ends with this sentence and has this log.
fn told_of(sentence: &str, log: &[String]) -> Refusal {
    in_virtual_time(async |clock| {
        let datacenter = datacenter(&["pve"], clock);
        datacenter.end_next_task("qmstart", Ending::Fails(sentence.to_owned()));
        let end = format!("TASK ERROR: {sentence}");
        datacenter.watch(Arc::new(Logged(log.iter().cloned().chain([end]).collect())));
        start(&client(&datacenter, "pve", clock), "pve").await.unwrap_err()
    })
}

#[test]
fn of_a_long_log_the_end_is_read() {
    let progress = (0..12_000).map(|at| format!("transferred {at} MiB"));
    let log: Vec<String> = progress.chain(["qemu-img: No space left on device".to_owned()]).collect();
    let refusal = told_of("copy failed: exit code 1", &log);
    assert_eq!(refusal.class, ErrorClass::NoSpace);
    assert_eq!(refusal.sentence, "copy failed: exit code 1 (qemu-img: No space left on device)");
}

#[test]
fn lines_that_only_repeat_are_looked_behind() {
    let said = "lvcreate: cannot process volume group";
    let echoes = ["Formatting '/x'", "lvcreate 'pve/x' error", "transferred 1 MiB"];
    for echo in echoes {
        let refusal = told_of("lvcreate 'pve/x' error", &[said.to_owned(), echo.to_owned()]);
        assert_eq!(refusal.sentence, format!("lvcreate 'pve/x' error ({said})"), "{echo}");
    }
    assert_eq!(told_of("start failed", &["update VM 101".to_owned()]).sentence, "start failed");
}

/// Who holds a lock, or why no worker came, may stand in the log alone.
#[test]
fn what_passes_is_told_with_its_log_too() {
    let cases = [
        ("can't lock file '/x' - got timeout", ErrorClass::LockTimeout),
        ("VM is locked (backup)", ErrorClass::Locked),
        ("got no worker upid - start worker failed", ErrorClass::NoWorker),
    ];
    for (sentence, class) in cases {
        let log = ["the lock is held by vzdump".to_owned(), format!("trying to acquire lock... {sentence}")];
        let refusal = told_of(sentence, &log);
        assert_eq!(refusal.class, class);
        assert_eq!(refusal.sentence, format!("{sentence} (the lock is held by vzdump)"));
    }
}

#[test]
fn answers_are_classed_by_status_and_sentence() {
    let ask = |reply: Answering, method: Method| {
        in_virtual_time(async |clock| {
            let datacenter = datacenter(&["pve"], clock);
            datacenter.watch(Arc::new(Instead("/config", reply)));
            let (client, path) = (client(&datacenter, "pve", clock), "/nodes/pve/qemu/101/config");
            match method {
                Method::GET => client.get("VM 101", path, &Form::new()).await,
                method => client.change("VM 101", method, path, &Form::new().with("cores", 2)).await,
            }
            .map_err(|refusal| (refusal.class, Fault::from(refusal).class))
            .unwrap_err()
        })
    };
    let cases: [(Answering, ErrorClass, Class, Class); 6] = [
        (|_| None, ErrorClass::Unknown, Class::RetryableAfter(None), Class::EffectUnknown),
        (
            |_| Some(Reply::failure(596, "Connection timed out")),
            ErrorClass::Unknown,
            Class::RetryableAfter(None),
            Class::EffectUnknown,
        ),
        (
            |_| Some(Reply::failure(595, "Connection refused")),
            ErrorClass::Unreached,
            Class::RefusedBeforeEffect,
            Class::RefusedBeforeEffect,
        ),
        // Older releases tell the reason in the first line alone.
        (
            |_| Some(Reply { body: None, ..Reply::failure(500, "VM is locked (backup)") }),
            ErrorClass::Locked,
            Class::RetryableAfter(None),
            Class::RetryableAfter(None),
        ),
        (
            |_| Some(Reply::failure(403, "Permission check failed (/vms/101, VM.Audit)")),
            ErrorClass::Forbidden,
            Class::Final,
            Class::Final,
        ),
        (
            |_| Some(Reply { body: Some(json!("<html>")), ..Reply::data(&json!(null)) }),
            ErrorClass::Unreadable,
            Class::Final,
            Class::EffectUnknown,
        ),
    ];
    for (reply, class, looking, changing) in cases {
        assert_eq!(ask(reply, Method::GET), (class, looking));
        assert_eq!(ask(reply, Method::PUT), (class, changing));
    }
}

#[test]
fn refused_parameters_are_named() {
    in_virtual_time(async |clock| {
        let datacenter = datacenter(&["pve"], clock);
        let client = client(&datacenter, "pve", clock);
        let form = Form::new().with("cores", "many").with("no-such", 1);
        let refusal = client.change("VM 101", Method::PUT, "/nodes/pve/qemu/101/config", &form).await.unwrap_err();
        assert_eq!(refusal.class, ErrorClass::Invalid);
        assert!(refusal.sentence.contains("cores: ") && refusal.sentence.contains("no-such: "), "{refusal}");
        assert!(!format!("{refusal:?} {client:?}").contains(EMBEDDED_TOKEN));
    });
}

#[test]
fn what_is_not_there_is_nothing_and_no_failure() {
    in_virtual_time(async |clock| {
        let datacenter = datacenter(&["pve"], clock);
        let client = client(&datacenter, "pve", clock);
        assert_eq!(client.config("pve", 4242).await, Ok(None));
        assert_eq!(client.is_running("pve", 4242).await, Ok(None));
        let nobody = client.hosts().await.unwrap();
        assert_eq!(nobody.len(), 1);
    });
}

#[test]
fn both_releases_tell_what_they_are() {
    for (version, told) in [(Version::Eight, "8.4"), (Version::Nine, "9.2")] {
        in_virtual_time(async |clock| {
            let blueprint = Blueprint::embedded(&["pve".to_owned()]).on(version).with_latencies(Latencies::none());
            let datacenter = Datacenter::new(blueprint, Arc::new(*clock));
            let release = client(&datacenter, "pve", clock).release().await.unwrap();
            assert_eq!(release.to_string(), told);
        });
    }
}
