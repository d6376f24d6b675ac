use std::sync::Arc;

use castle_testbed::in_virtual_time;
use serde_json::{Value, json};

use crate::site::{Site, plain, vault};

#[test]
fn a_folder_is_made_with_all_above_it_and_once() {
    in_virtual_time(async |clock| {
        let site = Site::open(vault(), Arc::new(*clock)).await;
        let told = site.ask("POST", "/v2/folders", site.body("/x/y", &json!({"name": "z"}))).await.body;
        assert_eq!((&told["folder"]["name"], &told["folder"]["path"]), (&json!("z"), &json!("/x/y/z")));
        let told = site.ask("POST", "/v2/folders", site.body("/x/y", &json!({"name": "z"}))).await;
        assert_eq!(told.refusal(), "400 BadRequest: Folder with name 'z' already exists in path '/x/y'");
        let told = site.ask("POST", "/v2/folders", site.body("/x", &json!({"name": "y"}))).await;
        assert_eq!(told.refusal(), "400 BadRequest: Folder with name 'y' already exists in path '/x'");
        assert_eq!(site.look("", "/x/y/z", "").await.body["secrets"], json!([]));
        let body = json!({"workspaceId": site.project, "environment": "prod", "name": "old", "path": "/"});
        assert_eq!(site.ask("POST", "/v1/folders", body).await.status, 200);
        let target = format!("/v2/folders?projectId={}&environment=prod&path=/", site.project);
        let told = site.ask("GET", &target, Value::Null).await.body;
        let names: Vec<String> =
            told["folders"].as_array().unwrap().iter().map(|folder| plain(&folder["name"])).collect();
        assert_eq!(names, ["a", "old", "x"]);
    });
}

#[test]
fn names_of_folders_are_plain() {
    in_virtual_time(async |clock| {
        let site = Site::open(vault(), Arc::new(*clock)).await;
        for name in ["a b", "a/b", "ä", ""] {
            let told = site.ask("POST", "/v2/folders", site.body("/", &json!({ "name": name }))).await;
            assert_eq!(told.status, 422, "{name}");
            assert!(told.body["message"][0]["message"].as_str().unwrap().starts_with("Invalid folder name."));
        }
    });
}

#[test]
fn a_folder_that_is_used_goes_only_by_force() {
    in_virtual_time(async |clock| {
        let site = Site::open(vault(), Arc::new(*clock)).await;
        let told = site.ask("DELETE", "/v2/folders/a", site.body("/", &json!({}))).await;
        assert!(
            told.refusal().starts_with("400 BadRequest: Cannot delete folder \"a\" because it contains resources.")
        );
        assert_eq!(
            site.ask("DELETE", "/v2/folders/a", site.body("/", &json!({"forceDelete": true}))).await.status,
            200
        );
        assert_eq!(site.look("", "/a/b", "").await.status, 404);
        let told = site.ask("DELETE", "/v2/folders/a", site.body("/", &json!({}))).await;
        assert_eq!(told.refusal(), "404 NotFound: Folder with ID 'a' not found");
    });
}
