use std::sync::Arc;

use castle_testbed::in_virtual_time;
use serde_json::{Value, json};

use crate::site::{Site, pairs, plain, vault};

#[test]
fn v4_expands_references_and_takes_imports_unless_told_not_to() {
    in_virtual_time(async |clock| {
        let site = Site::open(vault(), Arc::new(*clock)).await;
        let told = site.look("", "/a/b", "").await.body;
        assert_eq!(pairs(&told["secrets"]), ["ONE=1", "TWO=<13${NOBODY}>"]);
        assert_eq!(pairs(&told["imports"][0]["secrets"]), ["THREE=3"]);
        assert_eq!(
            (&told["imports"][0]["environment"], &told["imports"][0]["secretPath"]),
            (&json!("dev"), &json!("/c"))
        );
        let told = site.look("", "/a/b/", "&expandSecretReferences=false&includeImports=false").await.body;
        assert_eq!(pairs(&told["secrets"]), ["ONE=1", "TWO=<${ONE}${dev.c.THREE}${NOBODY}>"]);
        assert_eq!(told["imports"], json!([]));
        assert_eq!(site.look("/THREE", "/a/b", "").await.body["secret"]["secretValue"], "3");
        let told = site.look("/THREE", "/a/b", "&includeImports=false").await;
        assert_eq!(told.refusal(), "404 NotFound: Secret with name 'THREE' not found");
        assert_eq!(site.look("/TWO", "/a/b", "").await.body["secret"]["secretValue"], "<13${NOBODY}>");
        let told = site.look("", "/", "&recursive=true").await.body;
        assert_eq!(pairs(&told["secrets"]), ["ROOT=top", "ONE=1", "TWO=<13${NOBODY}>"]);
    });
}

#[test]
fn v3_does_neither_and_knows_projects_by_slug() {
    in_virtual_time(async |clock| {
        let site = Site::open(vault(), Arc::new(*clock)).await;
        let target = "/v3/secrets/raw?workspaceSlug=tazlab&environment=prod&secretPath=%2Fa%2Fb";
        let told = site.ask("GET", target, Value::Null).await.body;
        assert_eq!(pairs(&told["secrets"]), ["ONE=1", "TWO=<${ONE}${dev.c.THREE}${NOBODY}>"]);
        assert_eq!(told["imports"], json!([]));
        // As the vendor's Go client asks, and with the slash that its command line puts at the end.
        for alike in [format!("{target}&workspaceId="), target.replace("raw?", "raw/?")] {
            let again = site.ask("GET", &alike, Value::Null).await.body;
            assert_eq!(pairs(&again["secrets"]), pairs(&told["secrets"]), "{alike}");
        }
        let told = site.ask("GET", &format!("{target}&include_imports=true"), Value::Null).await.body;
        assert_eq!(pairs(&told["imports"][0]["secrets"]), ["THREE=3"]);
        let body = json!({"projectSlug": "tazlab", "environment": "prod", "secretValue": "x"});
        assert_eq!(site.ask("POST", "/v3/secrets/raw/NEW", body.clone()).await.status, 200);
        assert_eq!(
            site.ask("POST", "/v3/secrets/raw/NEW", body).await.refusal(),
            "400 BadRequest: Secret already exists"
        );
        let body = json!({"workspaceId": site.project, "environment": "prod", "mode": "upsert",
            "secrets": [{"secretKey": "NEW", "secretValue": "y"}]});
        assert_eq!(site.ask("PATCH", "/v3/secrets/batch/raw", body).await.status, 200);
        let body = json!({"workspaceId": site.project, "environment": "prod"});
        let told = site.ask("DELETE", "/v3/secrets/raw/NEW", body).await;
        assert_eq!(told.body["secret"]["secretValue"], "y");
    });
}

#[test]
fn values_are_trimmed_when_written() {
    in_virtual_time(async |clock| {
        let site = Site::open(vault(), Arc::new(*clock)).await;
        for (name, value, kept) in [("A", "  x y \n\n", "x y\n"), ("B", "\tx ", "x"), ("C", "\u{feff}x\n", "x\n")] {
            let body = site.body("/", &json!({"secretValue": value, "secretComment": " by hand "}));
            let told = site.ask("POST", &format!("/v4/secrets/{name}"), body).await;
            assert_eq!(told.body["secret"]["secretValue"], kept, "{name}");
            assert_eq!(told.body["secret"]["secretComment"], "by hand");
            assert_eq!(site.look(&format!("/{name}"), "/", "").await.body["secret"]["secretValue"], kept);
        }
    });
}

#[test]
fn one_is_created_changed_and_deleted_with_a_body() {
    in_virtual_time(async |clock| {
        let site = Site::open(vault(), Arc::new(*clock)).await;
        let value = |value: &str| site.body("/", &json!({ "secretValue": value }));
        let told = site.ask("POST", "/v4/secrets/NEW", value("1")).await.body;
        assert_eq!((&told["secret"]["version"], &told["secret"]["secretValueHidden"]), (&json!(1), &json!(false)));
        assert_eq!(
            site.ask("POST", "/v4/secrets/NEW", value("1")).await.refusal(),
            "400 BadRequest: Secret already exists"
        );
        let told = site.ask("PATCH", "/v4/secrets/NEW", value("2")).await.body;
        assert_eq!((&told["secret"]["version"], &told["secret"]["secretValue"]), (&json!(2), &json!("2")));
        assert_eq!(
            site.ask("PATCH", "/v4/secrets/OTHER", value("2")).await.refusal(),
            "404 NotFound: Secret with name OTHER not found"
        );
        assert_eq!(site.ask("DELETE", "/v4/secrets/NEW", site.body("/", &json!({}))).await.status, 200);
        let told = site.ask("DELETE", "/v4/secrets/NEW", site.body("/", &json!({}))).await;
        assert_eq!(told.refusal(), "404 NotFound: Secret not found");
        let told = site.ask("DELETE", "/v4/secrets/NEW", Value::Null).await;
        assert_eq!(told.status, 422, "without a body nobody knows from where");
    });
}

#[test]
fn the_modes_of_a_batch() {
    in_virtual_time(async |clock| {
        let site = Site::open(vault(), Arc::new(*clock)).await;
        let batch = |mode: &str| {
            let mut more = json!({"secrets": [{"secretKey": "ONE", "secretValue": mode}, {"secretKey": "NEW", "secretValue": mode}]});
            if !mode.is_empty() {
                more["mode"] = mode.into();
            }
            site.body("/a/b", &more)
        };
        let told = site.ask("PATCH", "/v4/secrets/batch", batch("")).await;
        assert_eq!(told.refusal(), "404 NotFound: Secret does not exist: NEW in path /a/b");
        assert_eq!(
            pairs(&site.ask("PATCH", "/v4/secrets/batch", batch("ignore")).await.body["secrets"]),
            ["ONE=ignore"]
        );
        let told = site.ask("PATCH", "/v4/secrets/batch", batch("upsert")).await;
        assert_eq!(pairs(&told.body["secrets"]), ["NEW=upsert", "ONE=upsert"]);
        assert_eq!(site.ask("PATCH", "/v4/secrets/batch", batch("replace")).await.status, 422);
        let told = site.ask("POST", "/v4/secrets/batch", batch("x")).await;
        assert_eq!(told.refusal(), "400 BadRequest: Secret already exists: NEW,ONE");

        let names = |names: &[&str]| {
            let secrets: Vec<Value> = names.iter().map(|name| json!({ "secretKey": name })).collect();
            site.body("/a/b", &json!({ "secrets": secrets }))
        };
        let told = site.ask("DELETE", "/v4/secrets/batch", names(&["NEW", "NOBODY"])).await;
        assert_eq!(told.refusal(), "404 NotFound: One or more secrets does not exist: NEW");
        assert_eq!(site.ask("DELETE", "/v4/secrets/batch", names(&["NEW", "ONE"])).await.status, 200);
        assert_eq!(pairs(&site.look("", "/a/b", "&includeImports=false").await.body["secrets"]).len(), 1);
    });
}

#[test]
fn a_list_that_has_not_changed_is_not_sent_again() {
    in_virtual_time(async |clock| {
        let site = Site::open(vault(), Arc::new(*clock)).await;
        let first = site.look("", "/", "").await;
        let tag = first.headers["etag"].to_str().unwrap().to_owned();
        let target = format!("/v4/secrets?projectId={}&environment=prod", site.project);
        let again = site.ask_with("GET", &target, Value::Null, &[("if-none-match", &tag)]).await;
        assert_eq!((again.status, &again.body), (304, &Value::Null));
        let body = site.body("/", &json!({"secretValue": "changed"}));
        site.ask("PATCH", "/v4/secrets/ROOT", body).await;
        let again = site.ask_with("GET", &target, Value::Null, &[("if-none-match", &tag)]).await;
        assert_eq!((again.status, pairs(&again.body["secrets"])), (200, vec!["ROOT=changed".to_owned()]));
        assert_ne!(plain(&again.body["secrets"][0]["secretPath"]), "");
    });
}
