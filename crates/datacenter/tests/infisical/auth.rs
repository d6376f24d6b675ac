use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::{Blueprint, Keys};
use castle_seams::Clock;
use castle_testbed::in_virtual_time;
use serde_json::{Value, json};

use crate::site::{ID, SECRET, Site, plain, vault};

#[test]
fn a_login_gives_a_token_and_tells_its_time() {
    in_virtual_time(async |clock| {
        let site = Site::closed(vault(), Arc::new(*clock));
        let told = site.login(ID, SECRET).await.body;
        assert_eq!((&told["expiresIn"], &told["accessTokenMaxTTL"]), (&json!(2_592_000), &json!(2_592_000)));
        assert_eq!(told["tokenType"], "Bearer");
        assert_eq!(plain(&told["accessToken"]).split('.').count(), 3);
        let told = site.ask("POST", "/v1/auth/universal-auth/login", json!({"clientId": ID})).await;
        assert_eq!((told.status, &told.body["error"]), (422, &json!("ValidationFailure")));
        assert_eq!(told.body["message"][0]["path"], json!(["clientSecret"]));
    });
}

#[test]
fn nobody_computes_the_tokens_of_a_datacenter_with_keys_of_its_own() {
    in_virtual_time(async |clock| {
        let known = Site::closed(vault(), Arc::new(*clock));
        let keys = Keys { token: "t", password: "p", client_secret: "s", seed: &[9; 32] };
        let blueprint = Blueprint::embedded(&[]).with_keys(&keys);
        let mut keyed = Site::of(blueprint, vault(), Arc::new(*clock));
        let told = async |site: &Site| plain(&site.login(ID, SECRET).await.body["accessToken"]);
        let (computed, given) = (told(&known).await, told(&keyed).await);
        for (token, expected) in [(given, 200), (computed, 403)] {
            keyed.token = token;
            assert_eq!(keyed.ask("GET", "/v1/projects/slug/tazlab", Value::Null).await.status, expected);
        }
    });
}

#[test]
fn three_failures_lock_for_five_minutes_and_fewer_are_forgotten() {
    in_virtual_time(async |clock| {
        let site = Site::closed(vault(), Arc::new(*clock));
        let wrong = "401 UnauthorizedError: Invalid credentials";
        let locked = "401 UnauthorizedError: This identity auth method is temporarily locked, please try again later";
        for _ in 0..2 {
            assert_eq!(site.login(ID, "wrong").await.refusal(), wrong);
        }
        clock.sleep(Duration::from_secs(30)).await;
        for _ in 0..3 {
            assert_eq!(site.login(ID, "wrong").await.refusal(), wrong);
        }
        assert_eq!(site.login(ID, SECRET).await.refusal(), locked);
        clock.sleep(Duration::from_secs(299)).await;
        assert_eq!(site.login(ID, SECRET).await.refusal(), locked);
        clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(site.login(ID, SECRET).await.status, 200);
        // Nobody's identity is never locked.
        for _ in 0..4 {
            assert_eq!(site.login("nobody", "wrong").await.refusal(), wrong);
        }
    });
}

#[test]
fn tokens_end_and_are_renewed_up_to_their_longest_life() {
    in_virtual_time(async |clock| {
        let mut vault = vault();
        vault.identities[0].ttl = Duration::from_secs(100);
        vault.identities[0].max_ttl = Duration::from_secs(250);
        let mut site = Site::open(vault, Arc::new(*clock)).await;
        let renew =
            async |site: &Site| site.ask("POST", "/v1/auth/token/renew", json!({"accessToken": site.token})).await;
        for expected in [100, 90] {
            clock.sleep(Duration::from_secs(80)).await;
            let told = renew(&site).await;
            assert_eq!(told.body["expiresIn"], json!(expected));
            site.token = plain(&told.body["accessToken"]);
        }
        clock.sleep(Duration::from_secs(90)).await;
        let expired = "403 TokenError: Your token has expired. Please re-authenticate.";
        assert_eq!(site.look("", "/", "").await.refusal(), expired);
        assert_eq!(renew(&site).await.refusal(), expired);
    });
}

#[test]
fn a_token_that_could_go_on_cannot_outlive_its_maximum() {
    in_virtual_time(async |clock| {
        let mut vault = vault();
        (vault.identities[0].ttl, vault.identities[0].max_ttl) = (Duration::from_secs(50), Duration::from_secs(40));
        let site = Site::open(vault, Arc::new(*clock)).await;
        clock.sleep(Duration::from_secs(39)).await;
        let told = site.ask("POST", "/v1/auth/token/renew", json!({"accessToken": site.token})).await;
        assert_eq!(told.body["expiresIn"], json!(1));
        clock.sleep(Duration::from_millis(500)).await;
        let told = site.ask("POST", "/v1/auth/token/renew", json!({"accessToken": site.token})).await;
        assert_eq!(
            told.refusal(),
            "401 UnauthorizedError: Cannot renew: identity access token has reached its max TTL"
        );
    });
}

#[test]
fn what_is_no_token_of_its_own_is_refused_with_403_and_what_is_revoked_with_401() {
    in_virtual_time(async |clock| {
        let mut site = Site::open(vault(), Arc::new(*clock)).await;
        let good = std::mem::take(&mut site.token);
        assert_eq!(site.look("", "/", "").await.refusal(), "401 UnauthorizedError: Token missing");
        site.token = "x".into();
        assert!(
            site.look("", "/", "")
                .await
                .refusal()
                .starts_with("403 TokenError: The provided access token is malformed.")
        );
        site.token = "a.b.c".into();
        assert_eq!(site.look("", "/", "").await.refusal(), "403 TokenError: invalid signature");
        site.token = good;
        assert_eq!(site.ask("POST", "/v1/auth/token/revoke", json!({"accessToken": site.token})).await.status, 200);
        assert_eq!(
            site.look("", "/", "").await.refusal(),
            "401 UnauthorizedError: Failed to authorize: token has been revoked"
        );
        let told = site.ask("POST", "/v1/auth/token/renew", json!({"accessToken": site.token})).await;
        assert_eq!(told.refusal(), "401 UnauthorizedError: Cannot renew: token has been revoked");
    });
}

#[test]
fn a_project_is_found_by_its_slug_and_told_bare() {
    in_virtual_time(async |clock| {
        let site = Site::open(vault(), Arc::new(*clock)).await;
        let told = site.ask("GET", "/v1/projects/slug/tazlab", Value::Null).await.body;
        assert_eq!(told["slug"], "tazlab");
        let slugs: Vec<String> =
            told["environments"].as_array().unwrap().iter().map(|each| plain(&each["slug"])).collect();
        assert_eq!(slugs, ["dev", "prod"]);
        let told = site.ask("GET", "/v1/projects/slug/other", Value::Null).await;
        assert_eq!(told.refusal(), "404 NotFound: Project with slug 'other' not found");
    });
}

#[test]
fn whoever_is_no_member_of_a_project_is_told_so() {
    in_virtual_time(async |clock| {
        let mut vault = vault();
        let mut other = vault.identities[0].clone();
        (other.client_id, other.rights) = ("stranger".into(), Vec::new());
        vault.identities.push(other);
        let mut site = Site::open(vault, Arc::new(*clock)).await;
        site.token = plain(&site.login("stranger", SECRET).await.body["accessToken"]);
        let told = site.look("", "/", "").await;
        assert_eq!((told.status, plain(&told.body["error"])), (403, "ProjectMembershipNotFound".to_owned()));
    });
}
