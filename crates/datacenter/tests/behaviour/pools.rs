//! Pools that come and go.

use castle_datacenter::Version;
use castle_datacenter::blueprint::AclEntry;
use serde_json::{Value, json};

use crate::site::{Site, quick, within};

/// Runs a test as the administrator, in both generations.
#[expect(clippy::needless_pass_by_value, reason = "a closure reads better without a reference")]
fn as_root(test: impl AsyncFn(&Site, Version)) {
    for version in [Version::Eight, Version::Nine] {
        within(quick().on(version), async |mut site| {
            site.log_in_as_root().await;
            test(&site, version).await;
        });
    }
}

/// What is said to the wish to make or delete a pool; nothing if it is done.
async fn complaint(site: &Site, method: &str, pool: &str) -> String {
    let said = site.ask(method, "/pools", &[("poolid", pool)]).await;
    if said.status == 200 { String::new() } else { said.line() }
}

#[test]
fn a_pool_is_made_once_and_where_it_can_be() {
    as_root(async |site, version| {
        assert_eq!(site.post("/pools", &[("poolid", "blue"), ("comment", "the blue one")]).await, Value::Null);
        assert_eq!(site.get("/pools").await, json!([{ "poolid": "blue", "comment": "the blue one" }]));
        assert_eq!(complaint(site, "POST", "blue").await, "500 create pool failed: pool 'blue' already exists");
        assert_eq!(
            complaint(site, "POST", "green/a").await,
            "500 create pool failed: parent 'green' of pool 'green/a' does not exist"
        );
        assert_eq!(site.post("/pools", &[("poolid", "blue/sky")]).await, Value::Null);
        let digit = complaint(site, "POST", "1st").await;
        match version {
            Version::Eight => assert_eq!(digit, ""),
            Version::Nine => assert_eq!(digit, "500 create pool failed: pool name must start with a letter"),
        }
        assert_eq!(site.ask("POST", "/pools", &[("poolid", "a b")]).await.status, 400);
    });
}

#[test]
fn only_an_empty_pool_can_be_deleted() {
    as_root(async |site, _| {
        assert_eq!(complaint(site, "DELETE", "blue").await, "500 delete pool failed: pool 'blue' does not exist");
        for pool in ["blue", "blue/sky"] {
            site.post("/pools", &[("poolid", pool)]).await;
        }
        site.put("/pools", &[("poolid", "blue"), ("vms", "101"), ("storage", "local")]).await;
        let full = |what: &str| format!("500 delete pool failed: pool 'blue' is not empty (contains {what})");
        assert_eq!(complaint(site, "DELETE", "blue").await, full("pool 'blue/sky'"));
        assert_eq!(complaint(site, "DELETE", "blue/sky").await, "");
        assert_eq!(complaint(site, "DELETE", "blue").await, full("VM 101"));
        site.put("/pools", &[("poolid", "blue"), ("vms", "101"), ("delete", "1")]).await;
        assert_eq!(complaint(site, "DELETE", "blue").await, full("storage 'local'"));
        site.put("/pools", &[("poolid", "blue"), ("storage", "local"), ("delete", "1")]).await;
        assert_eq!(complaint(site, "DELETE", "blue").await, "");
        assert_eq!(site.get("/pools").await, json!([]));
    });
}

#[test]
fn a_pool_takes_its_rights_along() {
    let mut blueprint = quick();
    blueprint.pools.push("blue".to_owned());
    blueprint.acl.extend(["/pool/blue", "/pool/bluer"].map(|path| AclEntry::new(path, "bob@pve", "PVEPoolAdmin")));
    within(blueprint, async |mut site| {
        assert_eq!(complaint(&site, "DELETE", "blue").await, "403 Permission check failed (/pool/blue, Pool.Allocate)");
        assert_eq!(complaint(&site, "POST", "red").await, "403 Permission check failed (/pool/red, Pool.Allocate)");
        site.log_in_as_root().await;
        assert_eq!(complaint(&site, "DELETE", "blue").await, "");
        let places = site.get("/access/permissions?userid=bob@pve").await;
        assert_eq!(places.as_object().unwrap().keys().collect::<Vec<_>>(), ["/pool/bluer"]);
        site.datacenter.set_quorum(false);
        assert_eq!(
            complaint(&site, "POST", "blue").await,
            "500 create pool failed: cfs-lock 'file-user_cfg' error: no quorum!"
        );
    });
}
