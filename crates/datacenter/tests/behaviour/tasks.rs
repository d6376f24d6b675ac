//! Tasks as clients watch them.

use castle_datacenter::blueprint::{AclEntry, Token, User};
use castle_datacenter::{Blueprint, Ending, Latencies};
use serde_json::{Value, json};

use crate::site::{both, quick, within};

#[test]
fn a_task_has_a_name_that_can_be_read() {
    both(async |site| {
        let upid = site.post("/nodes/pve/qemu/101/status/start", &[]).await;
        let upid = upid.as_str().unwrap();
        let parts: Vec<&str> = upid.split(':').collect();
        assert_eq!(
            (parts[0], parts[1], parts[5], parts[6], parts[7], parts[8]),
            ("UPID", "pve", "qmstart", "101", "castle@pve!embedded", "")
        );
        let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte));
        assert!(parts[2].len() == 8 && parts[4].len() == 8 && (8..=9).contains(&parts[3].len()));
        assert!(parts[2..5].iter().all(|part| is_hex(part)), "{upid}");
        let status = site.get(&format!("/nodes/pve/tasks/{upid}/status")).await;
        assert_eq!(
            (&status["user"], &status["tokenid"], &status["type"]),
            (&json!("castle@pve"), &json!("embedded"), &json!("qmstart"))
        );
        assert_eq!(u64::from_str_radix(parts[4], 16).unwrap(), status["starttime"].as_u64().unwrap());
    });
}

#[test]
fn an_unknown_task_is_no_task() {
    both(async |site| {
        let upid = "UPID:pve:00001000:00100000:6AB13B80:qmstart:101:castle@pve!embedded:";
        let said = site.ask("GET", &format!("/nodes/pve/tasks/{upid}/status"), &[]).await;
        assert_eq!((said.status, &said.body["errors"]["upid"]), (400, &json!("no such task")));
        assert_eq!(site.ask("GET", "/nodes/pve/tasks/nonsense/status", &[]).await.status, 400);
    });
}

#[test]
fn the_log_comes_in_pages() {
    both(async |site| {
        assert_eq!(
            site.run("POST", "/nodes/pve/qemu", &[("vmid", "421"), ("scsi0", "local-lvm:1"), ("scsi1", "local-lvm:1")])
                .await,
            "OK"
        );
        let upid = site.datacenter.look().tasks[0].upid.clone();
        let said = site.ask("GET", &format!("/nodes/pve/tasks/{upid}/log"), &[("start", "1"), ("limit", "1")]).await;
        assert_eq!(said.body["total"], 3);
        assert_eq!(
            said.body["data"],
            json!([{ "n": 2, "t": "scsi1: successfully created disk 'local-lvm:vm-421-disk-1,size=1G'" }])
        );
        let all = site.ask("GET", &format!("/nodes/pve/tasks/{upid}/log"), &[("limit", "0")]).await;
        assert_eq!(all.body["data"][2]["t"], "TASK OK");
    });
}

#[test]
fn tasks_are_listed_by_what_they_are_about() {
    both(async |site| {
        site.make_template("9000").await;
        assert_eq!(site.run("POST", "/nodes/pve/qemu/9000/clone", &[("newid", "421")]).await, "OK");
        let kinds = async |query: &str| {
            let rows = site.get(&format!("/nodes/pve/tasks?source=all&{query}")).await;
            rows.as_array().unwrap().iter().map(|row| row["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        // A clone is told with its source.
        assert_eq!(kinds("vmid=421").await, [""; 0]);
        assert_eq!(kinds("vmid=9000").await, ["qmclone", "qmtemplate", "qmcreate"]);
        assert_eq!(kinds("typefilter=download").await, ["download"]);
        assert_eq!(kinds("typefilter=qmclone,download").await, [""; 0], "it is one type");
        assert_eq!(kinds("limit=1&start=1").await, ["qmtemplate"]);
        // By how they have ended.
        site.datacenter.end_next_task("qmstart", Ending::Fails("oops".to_owned()));
        assert_eq!(site.run("POST", "/nodes/pve/qemu/421/status/start", &[]).await, "oops");
        site.datacenter.end_next_task("qmstart", Ending::Vanishes);
        assert_eq!(site.run("POST", "/nodes/pve/qemu/101/status/start", &[]).await, "unexpected status");
        assert_eq!(kinds("statusfilter=error").await, ["qmstart"]);
        assert_eq!(kinds("statusfilter=unknown,error").await, ["qmstart", "qmstart"]);
        assert_eq!(kinds("statusfilter=warning").await, [""; 0]);
        assert_eq!(kinds("statusfilter=ok&vmid=9000").await, ["qmclone", "qmtemplate", "qmcreate"]);
    });
}

#[test]
fn a_task_can_be_stopped_and_cleans_up() {
    within(quick().with_latencies(Latencies::default()), async |site| {
        let upid = site.post("/nodes/pve/qemu/100/clone", &[("newid", "421"), ("full", "1")]).await;
        let path = format!("/nodes/pve/tasks/{}", upid.as_str().unwrap());
        assert!(site.datacenter.look().guests.contains_key(&421));
        assert_eq!(site.ask("DELETE", &path, &[]).await.status, 200);
        assert_eq!(site.end_of(&upid).await, "clone failed: interrupted by signal");
        let look = site.datacenter.look();
        assert!(!look.guests.contains_key(&421) && !look.has_volume("local-lvm:vm-421-disk-0"));
    });
}

#[test]
fn a_task_ends_as_it_is_told() {
    both(async |site| {
        site.datacenter.end_next_task("qmstart", Ending::Fails("start failed: QEMU exited with code 1".to_owned()));
        let start = "/nodes/pve/qemu/101/status/start";
        assert_eq!(site.run("POST", start, &[]).await, "start failed: QEMU exited with code 1");
        assert_eq!(site.run("POST", start, &[]).await, "OK");
    });
}

#[test]
fn tasks_of_others_need_a_right() {
    let mut blueprint = quick();
    let token = Token { name: "t".into(), secret: "s".into(), privsep: false };
    blueprint.users.push(User { id: "bob@pve".into(), password: None, tokens: vec![token] });
    blueprint.acl.push(AclEntry::new("/vms", "bob@pve", "PVEVMAdmin"));
    within(blueprint, async |mut site| {
        let upid = site.post("/nodes/pve/qemu/101/status/start", &[]).await;
        site.log_in_as("bob@pve!t", "s");
        let refused = site.ask("GET", &format!("/nodes/pve/tasks/{}/status", upid.as_str().unwrap()), &[]).await;
        assert_eq!(refused.line(), "403 Permission check failed (/nodes/pve, Sys.Audit)");
        assert_eq!(site.get("/nodes/pve/tasks?source=all").await, json!([]));
        assert_eq!(site.run("POST", "/nodes/pve/qemu/101/status/stop", &[]).await, "OK");
    });
}

#[test]
fn the_cluster_tells_the_latest_tasks_of_each_host() {
    let hosts = ["a".to_owned(), "b".to_owned()];
    within(Blueprint::embedded(&hosts), async |mut site| {
        for round in 0..13 {
            for deed in ["start", "stop"] {
                assert_eq!(site.run("POST", &format!("/nodes/a/qemu/101/status/{deed}"), &[]).await, "OK", "{round}");
            }
        }
        assert_eq!(site.run("POST", "/nodes/b/qemu", &[("vmid", "421")]).await, "OK");
        let running = site.ask("DELETE", "/nodes/a/qemu/101", &[]).await.body["data"].clone();
        let rows = site.get("/cluster/tasks").await;
        let rows = rows.as_array().unwrap();
        let of_a: Vec<&Value> = rows.iter().filter(|row| row["node"] == "a").collect();
        // 27 there were.
        assert_eq!((rows.len(), of_a.len()), (26, 25));
        assert_eq!((&of_a[0]["upid"], of_a[0].get("status"), &of_a[0]["saved"]), (&running, None, &json!("0")));
        let latest = of_a[1];
        assert_eq!((&latest["type"], &latest["status"], latest.get("pid")), (&json!("qmstop"), &json!("OK"), None));
        assert_eq!((&latest["user"], &latest["tokenid"]), (&json!("castle@pve"), &json!("embedded")));

        // A token is not the user whose task it was, even if it was its own; a user is.
        site.datacenter.revoke("castle@pve", "Sys.Audit");
        assert_eq!(site.get("/cluster/tasks").await, json!([]));
        site.log_in_as_root().await;
        assert_eq!(site.get("/cluster/tasks").await.as_array().unwrap().len(), 26);
    });
}
