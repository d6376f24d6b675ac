//! Images and volumes.

use castle_datacenter::blueprint::{GIB, Storage, StorageKind};
use castle_datacenter::checksum;
use serde_json::{Value, json};

use crate::site::{IMAGE, Site, both, quick, within};

const DOWNLOAD: &str = "/nodes/pve/storage/local/download-url";

async fn download(site: &Site, more: &[(&str, &str)]) -> String {
    let mut given = vec![("content", "import"), ("filename", "talos.qcow2"), ("url", IMAGE)];
    given.extend(more);
    site.run("POST", DOWNLOAD, &given).await
}

#[test]
fn an_image_is_downloaded_and_its_checksum_looked_at() {
    both(async |site| {
        let right = checksum(IMAGE, "sha256").unwrap();
        let wrong = "0".repeat(64);
        let end = download(site, &[("checksum", &wrong), ("checksum-algorithm", "sha256")]).await;
        assert_eq!(end, format!("checksum mismatch: got '{right}' != expect '{wrong}'"));
        assert!(!site.datacenter.look().has_volume("local:import/talos.qcow2"));
        assert_eq!(download(site, &[("checksum", &right), ("checksum-algorithm", "sha256")]).await, "OK");
        let listed = site.get("/nodes/pve/storage/local/content?content=import").await;
        assert_eq!((&listed[0]["volid"], &listed[0]["format"]), (&json!("local:import/talos.qcow2"), &json!("qcow2")));

        // A file that is there already is not downloaded again, and not replaced.
        assert_eq!(download(site, &[("checksum", &right), ("checksum-algorithm", "sha256")]).await, "OK");
        assert_eq!(site.datacenter.effects()["download local:import/talos.qcow2"], 1);
        assert_eq!(download(site, &[]).await, "refusing to override existing file '/var/lib/vz/import/talos.qcow2'");
        let end = download(site, &[("checksum", &wrong), ("checksum-algorithm", "sha256")]).await;
        assert_eq!(end, format!("checksum mismatch: got '{right}' != expect '{wrong}', aborting"));
    });
}

#[test]
fn what_cannot_be_downloaded_is_refused() {
    both(async |site| {
        let ask = async |path: &str, name: &str, content: &str| {
            site.ask("POST", path, &[("content", content), ("filename", name), ("url", IMAGE)]).await
        };
        assert_eq!(ask(DOWNLOAD, "talos.qcow2", "iso").await.body["errors"]["filename"], "wrong file extension");
        let block = ask("/nodes/pve/storage/local-lvm/download-url", "talos.qcow2", "import").await;
        assert_eq!(block.line(), "500 can't upload to storage type 'lvmthin', not a file based storage!");
        site.datacenter.revoke("castle@pve", "Sys.AccessNetwork");
        assert_eq!(ask(DOWNLOAD, "talos.qcow2", "import").await.line(), "403 Permission check failed");
    });
}

#[test]
fn volumes_are_listed_looked_at_and_deleted() {
    both(async |site| {
        let of_nas = site.get("/nodes/pve/storage/local-lvm/content?vmid=100").await;
        assert_eq!(of_nas.as_array().unwrap().len(), 1);
        assert_eq!((&of_nas[0]["volid"], &of_nas[0]["size"]), (&json!("local-lvm:vm-100-disk-0"), &json!(64 * GIB)));
        assert_eq!(download(site, &[]).await, "OK");
        let path = "/nodes/pve/storage/local/content/local:import/talos.qcow2";
        assert_eq!(site.get(path).await["format"], "qcow2");
        assert_eq!(site.get("/nodes/pve/storage/local/content/local%3Aimport%2Ftalos.qcow2").await["format"], "qcow2");
        site.datacenter.revoke("castle@pve", "Datastore.Allocate");
        assert_eq!(
            site.ask("DELETE", path, &[]).await.line(),
            "403 Permission check failed (/storage/local, Datastore.Allocate)"
        );
        site.datacenter.grant("castle@pve", "Datastore.Allocate");
        assert_eq!(site.run("DELETE", path, &[]).await, "OK");
        assert!(!site.datacenter.look().has_volume("local:import/talos.qcow2"));
        // The interface has no mercy with the disk of a guest.
        let disk = "/nodes/pve/storage/local-lvm/content/local-lvm:vm-100-disk-0";
        assert_eq!(site.ask("DELETE", disk, &[("delay", "5")]).await.body["data"], Value::Null);
        assert_eq!(site.datacenter.look().tasks.last().unwrap().id, "100@local-lvm");
    });
}

/// Goal: a thin pool takes what is written, and no more. Method: its use after an import, a linked clone, and a full one.
#[test]
fn a_thin_pool_takes_what_is_written() {
    both(async |site| {
        let used = async || site.get("/nodes/pve/storage/local-lvm/status").await["used"].as_u64().unwrap();
        let before = used().await;
        assert_eq!(site.run("POST", "/nodes/pve/qemu", &[("vmid", "421"), ("scsi0", "local-lvm:500")]).await, "OK");
        assert_eq!(used().await, before);
        site.make_template("9000").await;
        let image = used().await - before;
        assert!(image > 100 << 20 && image < GIB, "{image}");
        assert_eq!(site.run("POST", "/nodes/pve/qemu/9000/clone", &[("newid", "500")]).await, "OK");
        assert_eq!(used().await, before + image);
        assert_eq!(site.run("POST", "/nodes/pve/qemu/9000/clone", &[("newid", "501"), ("full", "1")]).await, "OK");
        assert_eq!(used().await, before + 2 * image);
        assert_eq!(site.run("POST", "/nodes/pve/qemu/500/status/start", &[]).await, "OK");
        assert!(used().await > before + 2 * image);
        let status = site.get("/nodes/pve/storage/local-lvm/status").await;
        assert_eq!(
            status["total"].as_u64().unwrap(),
            status["used"].as_u64().unwrap() + status["avail"].as_u64().unwrap()
        );
    });
}

#[test]
fn storages_are_told_and_strange_ones_are_not_there() {
    both(async |site| {
        let all = site.get("/storage").await;
        assert_eq!((&all[1]["storage"], &all[1]["type"]), (&json!("local-lvm"), &json!("lvmthin")));
        let for_images = site.get("/nodes/pve/storage?content=images").await;
        assert_eq!(for_images.as_array().unwrap().len(), 1);
        assert_eq!(
            site.ask("GET", "/nodes/pve/storage/nope/status", &[]).await.line(),
            "500 storage 'nope' does not exist"
        );
        let refused = site.ask("POST", "/nodes/pve/qemu", &[("vmid", "421"), ("scsi0", "local:8")]).await;
        assert_eq!(refused.body["errors"], json!({ "storage": "storage 'local' does not support vm images" }));
    });
}

#[test]
fn pools_are_told_and_filled() {
    both(async |site| {
        site.datacenter.add_pool("blue");
        assert_eq!(site.get("/pools").await, json!([{ "poolid": "blue" }]));
        let refused = site.ask("PUT", "/pools", &[("poolid", "blue"), ("vms", "101")]).await;
        assert_eq!(refused.line(), "403 Permission check failed (/pool/blue, Pool.Allocate)");
        let members = site.get("/pools/blue").await;
        assert_eq!(members["members"], Value::Array(Vec::new()));
    });
}

#[test]
fn a_volume_is_asked_for_at_its_own_storage() {
    both(async |site| {
        let elsewhere = "/nodes/pve/storage/local/content/local-lvm:vm-101-disk-0";
        for method in ["GET", "DELETE"] {
            let refused = site.ask(method, elsewhere, &[]).await;
            assert_eq!(refused.line(), "400 Parameter verification failed.");
            // With the end of the line that the vendor does not cut off.
            assert_eq!(refused.body["errors"], json!({ "volume": "storage ID mismatch (local-lvm != local)\n" }));
        }
        assert!(site.datacenter.look().has_volume("local-lvm:vm-101-disk-0"));
        let nameless = site.ask("GET", "/nodes/pve/storage/local-lvm/content/local-lvm:", &[]).await;
        assert_eq!(nameless.body["errors"]["volume"], "unable to parse volume ID 'local-lvm:'\n");
        let strange = site.ask("DELETE", "/nodes/pve/storage/local-lvm/content/disk-0", &[]).await;
        assert_eq!(strange.line(), "500 unable to parse lvm volume name 'disk-0'");
    });
}

#[test]
fn a_task_is_named_after_the_owner_in_the_name_of_a_volume() {
    both(async |site| {
        let absent = "/nodes/pve/storage/local-lvm/content/local-lvm:vm-999-disk-0";
        assert_ne!(site.run("DELETE", absent, &[]).await, "OK");
        let ownerless = "/nodes/pve/storage/local/content/import/talos.qcow2";
        // A file that is not there is only warned of.
        assert_eq!(site.run("DELETE", ownerless, &[]).await, "OK");
        let ids: Vec<String> = site.datacenter.look().tasks.iter().map(|task| task.id.clone()).collect();
        assert_eq!(ids, ["999@local-lvm", "local"]);
    });
}

#[test]
fn the_path_of_a_volume_is_that_on_the_host() {
    let mut blueprint = quick();
    blueprint.storages.push(Storage::new("files", StorageKind::Dir, &["images"], 64 * GIB));
    blueprint.storages.push(Storage::new("tank", StorageKind::ZfsPool, &["images"], 64 * GIB));
    within(blueprint, async |site| {
        assert_eq!(download(&site, &[]).await, "OK");
        let iso = [("content", "iso"), ("filename", "talos.iso"), ("url", &IMAGE.replace(".qcow2", ".iso"))];
        assert_eq!(site.run("POST", DOWNLOAD, &iso).await, "OK");
        let guest = [("vmid", "421"), ("scsi0", "files:1"), ("scsi1", "tank:1")];
        assert_eq!(site.run("POST", "/nodes/pve/qemu", &guest).await, "OK");
        for (volid, path) in [
            ("local-lvm:vm-100-disk-0", "/dev/pve/vm-100-disk-0"),
            ("local:import/talos.qcow2", "/var/lib/vz/import/talos.qcow2"),
            ("local:iso/talos.iso", "/var/lib/vz/template/iso/talos.iso"),
            ("files:421/vm-421-disk-0.raw", "/var/lib/vz/images/421/vm-421-disk-0.raw"),
            ("tank:vm-421-disk-0", "/dev/zvol/rpool/data/vm-421-disk-0"),
        ] {
            let (storage, _) = volid.split_once(':').unwrap();
            assert_eq!(site.get(&format!("/nodes/pve/storage/{storage}/content/{volid}")).await["path"], path);
        }
    });
}

#[test]
fn a_storage_is_told_as_it_is_defined() {
    both(async |site| {
        let thin = site.get("/storage/local-lvm").await;
        assert_eq!(
            (&thin["vgname"], &thin["thinpool"], &thin["content"]),
            (&json!("pve"), &json!("data"), &json!("images,rootdir"))
        );
        assert_eq!(site.get("/storage").await[1], thin);
        assert_eq!(site.get("/storage/local").await["path"], "/var/lib/vz");
        assert_eq!(site.ask("GET", "/storage/nope", &[]).await.line(), "500 storage 'nope' does not exist");
        // To read all of it takes more than to see it in the list.
        site.datacenter.revoke("castle@pve", "Datastore.Allocate");
        let refused = site.ask("GET", "/storage/local", &[]).await;
        assert_eq!(refused.line(), "403 Permission check failed (/storage/local, Datastore.Allocate)");
    });
}
