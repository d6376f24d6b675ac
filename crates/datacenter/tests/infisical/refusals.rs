use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::blueprint::{RateLimits, Right};
use castle_seams::Clock;
use castle_testbed::in_virtual_time;
use serde_json::{Value, json};

use crate::site::{HOST, ID, Site, vault};

#[test]
fn what_is_missing_is_named_as_the_vendor_names_it() {
    in_virtual_time(async |clock| {
        let site = Site::open(vault(), Arc::new(*clock)).await;
        assert_eq!(
            site.look("", "/nowhere", "").await.refusal(),
            "404 SecretPathNotFound: Folder with path '/nowhere' in environment 'prod' was not found. Please ensure the \
             environment slug and secret path is correct."
        );
        let told = site.look("/X", "/nowhere", "").await.refusal();
        assert_eq!(told, "404 GetSecretByName: Folder with path '/nowhere' in environment with slug 'prod' not found");
        let told =
            site.ask("POST", "/v4/secrets/X", site.body("/nowhere", &json!({"secretValue": "x"}))).await.refusal();
        assert_eq!(told, "404 CreateSecret: Folder with path '/nowhere' in environment with slug 'prod' not found");
        let upsert = json!({"mode": "upsert", "secrets": [{"secretKey": "X", "secretValue": "x"}]});
        let told = site.ask("PATCH", "/v4/secrets/batch", site.body("/nowhere", &upsert)).await.refusal();
        assert_eq!(told, "404 NotFound: Folder with path '/nowhere' in environment 'prod' not found");
        let mut body = site.body("/", &upsert);
        body["environment"] = "staging".into();
        let told = site.ask("PATCH", "/v4/secrets/batch", body).await.refusal();
        assert!(told.starts_with("404 NotFound: Environment with slug 'staging' in project with ID '"), "{told}");
        let told = site.ask("GET", "/v4/secrets", Value::Null).await.refusal();
        assert_eq!(told, "400 BadRequest: Missing project id or environment");
        assert_eq!(site.ask("GET", "/v9/secrets", Value::Null).await.status, 404);
    });
}

#[test]
fn what_is_not_valid_is_told_in_a_list() {
    in_virtual_time(async |clock| {
        let site = Site::open(vault(), Arc::new(*clock)).await;
        let told = site.ask("PATCH", "/v4/secrets/batch", json!({"secrets": [{"secretKey": "a:b"}]})).await;
        assert_eq!((told.status, &told.body["error"]), (422, &json!("ValidationFailure")));
        let paths: Vec<String> =
            told.body["message"].as_array().unwrap().iter().map(|issue| issue["path"].to_string()).collect();
        assert_eq!(paths, [r#"["secrets",0,"secretKey"]"#, r#"["environment"]"#, r#"["projectId"]"#]);
        assert_eq!(told.body["message"][0]["message"], "Secret name cannot contain colon or forward slash.");
        assert_eq!(site.ask("PATCH", "/v4/secrets/batch", site.body("/", &json!({"secrets": []}))).await.status, 422);
        assert_eq!(site.look("", "/", "&includeImports=perhaps").await.status, 422);
        assert_eq!(site.ask("GET", "/v2/folders", Value::Null).await.status, 422);
    });
}

#[test]
fn a_body_that_is_too_large_is_something_that_went_wrong() {
    in_virtual_time(async |clock| {
        let site = Site::open(vault(), Arc::new(*clock)).await;
        let body = |bytes: usize| site.body("/", &json!({ "secretValue": "x".repeat(bytes) }));
        assert_eq!(site.ask("POST", "/v4/secrets/SMALL", body(1_048_000)).await.status, 200);
        let told = site.ask("POST", "/v4/secrets/BIG", body(1 << 20)).await;
        assert_eq!(told.refusal(), "500 InternalServerError: Something went wrong");
        assert_eq!(site.look("/BIG", "/", "").await.status, 404);
    });
}

#[test]
fn rights_are_asked_for_one_by_one() {
    in_virtual_time(async |clock| {
        let site = Site::open(vault(), Arc::new(*clock)).await;
        let upsert = |name: &str| {
            site.body("/", &json!({"mode": "upsert", "secrets": [{"secretKey": name, "secretValue": "x"}]}))
        };
        let denied = |what: &str| format!("403 PermissionDenied: You are not allowed to {what}");
        let revoke = |right| site.datacenter.revoke_vault_right(HOST, ID, "tazlab", right);
        revoke(Right::Edit);
        assert_eq!(site.ask("PATCH", "/v4/secrets/batch", upsert("ROOT")).await.refusal(), denied("edit on secrets"));
        assert_eq!(site.ask("PATCH", "/v4/secrets/batch", upsert("NEW")).await.status, 200);
        revoke(Right::Create);
        assert_eq!(
            site.ask("PATCH", "/v4/secrets/batch", upsert("OTHER")).await.refusal(),
            denied("create on secrets")
        );
        revoke(Right::Delete);
        let told = site.ask("DELETE", "/v4/secrets/NEW", site.body("/", &json!({}))).await;
        assert_eq!(told.refusal(), denied("delete on secrets"));
        revoke(Right::CreateFolder);
        let told = site.ask("POST", "/v2/folders", site.body("/", &json!({"name": "n"}))).await;
        assert_eq!(told.refusal(), denied("create on secret-folders"));
        revoke(Right::DeleteFolder);
        let told = site.ask("DELETE", "/v2/folders/a", site.body("/", &json!({}))).await;
        assert_eq!(told.refusal(), denied("delete on secret-folders"));
        revoke(Right::ReadValue);
        let shown = &site.look("", "/", "").await.body["secrets"][0];
        assert_eq!(
            (&shown["secretValue"], &shown["secretValueHidden"]),
            (&json!("<hidden-by-infisical>"), &json!(true))
        );
        let told = site.look("/ROOT", "/", "").await.refusal();
        assert_eq!(
            told,
            "403 ForbiddenReadSecretError: You do not have permission to view secret value on secret with name 'ROOT'"
        );
        let shown = &site.look("/ROOT", "/", "&viewSecretValue=false").await.body["secret"];
        assert_eq!(shown["secretValueHidden"], true);
        revoke(Right::Describe);
        assert_eq!(site.look("", "/", "").await.refusal(), denied("describeSecret on secrets"));
    });
}

#[test]
fn limits_hold_for_a_minute_and_say_how_long() {
    in_virtual_time(async |clock| {
        let site = Site::open(vault(), Arc::new(*clock)).await;
        site.datacenter.set_vault_limits(HOST, Some(RateLimits { secrets: 2, ..RateLimits::FREE }));
        for _ in 0..2 {
            assert_eq!(site.look("", "/", "").await.status, 200);
        }
        clock.sleep(Duration::from_millis(17_500)).await;
        let told = site.look("", "/", "").await;
        assert_eq!(told.refusal(), "429 RateLimitExceeded: Rate limit exceeded. Please try again in 43 seconds");
        assert_eq!(told.headers["retry-after"], "43");
        assert_eq!(site.ask("GET", "/v1/projects/slug/tazlab", Value::Null).await.status, 200, "counted apart");
        clock.sleep(Duration::from_millis(42_500)).await;
        assert_eq!(site.look("", "/", "").await.status, 200);
    });
}
