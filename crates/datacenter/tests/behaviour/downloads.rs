//! What is found at an address, and in which words it is not.

use castle_datacenter::Download;

use crate::site::{Site, both};

const DOWNLOAD: &str = "/nodes/pve/storage/local/download-url";

async fn tried(site: &Site, url: &str) -> (String, String) {
    let end = site.run("POST", DOWNLOAD, &[("content", "import"), ("filename", "x.qcow2"), ("url", url)]).await;
    let log = site.datacenter.look().tasks.last().unwrap().log.clone();
    (end, log[log.len() - 2].clone())
}

/// Goal: a download that fails says why, in its sentence or in the line before it. Method: each way to fail.
#[test]
fn each_failure_has_its_sentence() {
    both(async |site| {
        let (end, reason) = tried(site, "https://factory.talos.dev/image/none/x.qcow2").await;
        assert_eq!(end, "download failed: exit code 8");
        assert!(reason.ends_with(" ERROR 404: Not Found."), "{reason}");
        let (end, _) = tried(site, "http://192.0.2.1:1/x.qcow2").await;
        assert_eq!(end, "download failed: Connecting to 192.0.2.1:1... failed: Connection refused.");
        let (end, _) = tried(site, "https://nowhere.invalid/x.qcow2").await;
        assert_eq!(end, "download failed: wget: unable to resolve host address 'nowhere.invalid'");
        site.datacenter.publish("https://own.lab/", Download::Untrusted);
        let (end, _) = tried(site, "https://own.lab/x.qcow2").await;
        assert_eq!(end, "download failed: To connect to own.lab insecurely, use `--no-check-certificate'.");
        site.datacenter
            .publish("https://own.lab/x.qcow2", Download::File { bytes: 1 << 40, size: 1 << 40, boots: true });
        let (end, _) = tried(site, "https://own.lab/x.qcow2").await;
        assert!(end.starts_with("download failed: Cannot write to '/var/lib/vz/import/x.qcow2.tmp_dwnl."), "{end}");
        assert!(!site.datacenter.look().has_volume("local:import/x.qcow2"));
    });
}

#[test]
fn a_server_is_asked_about_a_file_first() {
    both(async |site| {
        let ask = async |url: &str| site.ask("GET", "/nodes/pve/query-url-metadata", &[("url", url)]).await;
        let told = ask(crate::site::IMAGE).await.body["data"].clone();
        assert_eq!((&told["filename"], told["size"].as_u64()), (&"nocloud-amd64.qcow2".into(), Some(212 << 20)));
        let absent = ask("https://factory.talos.dev/nothing").await;
        assert_eq!(absent.line(), "500 invalid server response: '404 Not Found'");
        let refused = ask("http://192.0.2.1/x").await;
        assert_eq!(
            refused.line(),
            "500 invalid server response: '500 Can't connect to 192.0.2.1:80 (Connection refused)'"
        );
    });
}

/// Goal: a disk with nothing on it runs and never comes up. Method: its agent, and a device that it would have to let go.
#[test]
fn what_has_no_system_answers_nothing_and_lets_no_device_go() {
    both(async |site| {
        let url = "http://192.0.2.80/blank.qcow2";
        site.datacenter.publish(url, Download::File { bytes: 1 << 20, size: 1 << 30, boots: false });
        assert_eq!(tried(site, url).await.0, "OK");
        let guest = [
            ("vmid", "421"),
            ("agent", "1"),
            ("net0", "virtio,bridge=vmbr0"),
            ("scsi0", "local-lvm:0,import-from=local:import/x.qcow2"),
        ];
        assert_eq!(site.run("POST", "/nodes/pve/qemu", &guest).await, "OK");
        assert_eq!(site.run("POST", "/nodes/pve/qemu/421/status/start", &[]).await, "OK");
        let silent = site.ask("POST", "/nodes/pve/qemu/421/agent/ping", &[]).await;
        assert_eq!(silent.line(), "500 QEMU guest agent is not running");
        let config = "/nodes/pve/qemu/421/config";
        let other = ("net0", "virtio=02:00:00:00:00:01,bridge=vmbr0");
        let refused = site.ask("PUT", config, &[other]).await;
        assert_eq!(refused.line(), "400 Parameter verification failed.");
        let problem = refused.body["errors"]["net0"].as_str().unwrap().to_owned();
        assert!(problem.starts_with("hotplug problem - error on hot-unplugging device 'net0'"), "{problem}");
        // It waits for the guest to be off.
        assert_eq!(site.config(421).await["net0"], "virtio=02:00:00:00:00:01,bridge=vmbr0");
        assert_ne!(site.get(&format!("{config}?current=1")).await["net0"], "virtio=02:00:00:00:00:01,bridge=vmbr0");
        assert_eq!(site.run("POST", "/nodes/pve/qemu/421/status/stop", &[]).await, "OK");
        assert!(site.datacenter.look().guests[&421].pending.is_empty());
    });
}
