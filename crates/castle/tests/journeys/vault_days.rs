//! The vault's bad days, as whoever runs castle meets them.

use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use castle_datacenter::VaultReply;
use castle_datacenter::blueprint::{Approvals, Placed, Right};

use crate::room::BLUE;
use crate::within::{CLIENT_ID, CLIENT_SECRET, ENVIRONMENT, PROJECT, VAULT, Within};
use crate::world::{Ran, identity};

/// The login at a mirror, which only the vault holds.
const LOGIN: &str = "me:login-of-a-mirror";

/// A machine whose castle keeps its secrets, and the login of a mirror, in somebody's own Infisical.
fn within() -> Within {
    let within = Within::new(400);
    let world = &within.room.world;
    world.write(".config/sops/age/keys.txt", &identity().private);
    world.write(".sops.yaml", format!("creation_rules:\n- age: {}\n", identity().public));
    world.write("s.enc.yaml", format!("vault:\n  clientId: {CLIENT_ID}\n  clientSecret: {CLIENT_SECRET}\n"));
    assert_eq!(world.castle(&["secrets", "encrypt", "--in-place", "s.enc.yaml"]).code, Some(0));
    let login = Placed::new(ENVIRONMENT, "/blue", "MIRROR", LOGIN);
    within.datacenter.place_secret(VAULT, PROJECT, login);
    write(&within, &within.secrets());
    within
}

fn write(within: &Within, secrets: &str) {
    let mirrors = "mirrors: {docker.io: {endpoints: ['https://mirror.lan'], credential: 'vault:MIRROR'}}";
    let castle = BLUE.replace("talos: {version: v1.13.9}", &format!("talos: {{version: v1.13.9, {mirrors}}}"));
    within.room.write("castle.yaml", &(castle + secrets));
}

/// Runs castle, and holds how it ends and what it says.
fn hold(within: &Within, args: &[&str], code: i32, words: &[&str]) -> Ran {
    let ran = within.room.castle(args);
    let said = ran.transcript().replace(&within.vault.to_string(), "VAULT");
    assert_eq!(ran.code, Some(code), "{args:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{args:?} says {word:?}: {said}");
    }
    ran
}

/// Runs castle until it has said all of `words`, and then wants no more of it: how it ends, and all that it said.
fn enough(within: &Within, args: &[&str], words: &[&str]) -> (Option<i32>, String) {
    let mut running = within.room.start(args);
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut told = String::new();
    while !words.iter().all(|word| told.contains(word)) {
        let line = lines.next().unwrap_or_else(|| panic!("{args:?} says {words:?}: {told}"));
        told += &format!("{line}\n");
    }
    castle_seams::terminate(running.id()).unwrap();
    lines.for_each(|line| told += &format!("{line}\n"));
    (running.wait().unwrap().code(), told)
}

/// Everything that was changed anywhere: nothing, if nothing was begun.
fn is_untouched(within: &Within) -> bool {
    within.datacenter.effects().is_empty() && !within.room.world.path(".local/state/castle/blue").is_dir()
}

#[test]
fn nobody_is_there() {
    let within = within();
    // A port that nobody is given.
    write(&within, &within.secrets().replace(&within.vault.to_string(), "127.0.0.1:1"));
    let words = [
        "Infisical (127.0.0.1:1): cannot connect to 127.0.0.1:1: connection refused",
        "next: is it up, and is the region right? castle doctor",
    ];
    for verb in ["up", "plan", "adopt", "status"] {
        hold(&within, &[verb], 1, &words);
        assert!(is_untouched(&within), "{verb}");
    }
    let doctor = hold(&within, &["doctor"], 1, &["1 thing is in the way of blue on embedded"]);
    assert!(doctor.stdout.contains("WRONG  vault"), "{}", doctor.transcript());
    // What needs no vault goes on without it.
    hold(&within, &["check"], 0, &[]);
    let got = hold(&within, &["secrets", "get", "s.enc.yaml", "vault.clientSecret"], 0, &[]);
    assert_eq!(got.stdout, CLIENT_SECRET);
}

#[test]
fn it_hangs_up_on_everybody() {
    let within = within();
    within.datacenter.vault_down(VAULT, true);
    let up = hold(
        &within,
        &["up", "--json"],
        1,
        &["Infisical (VAULT): the connection was closed before a whole answer came"],
    );
    assert_eq!(up.result()["result"], "failed", "{}", up.transcript());
    hold(&within, &["doctor"], 1, &["WRONG  vault"]);
    assert!(is_untouched(&within));
    within.datacenter.vault_down(VAULT, false);
    hold(&within, &["up"], 0, &["blue on embedded stands"]);
}

/// Goal: a vault that is away for a while is waited for. Method: it takes the first change and hangs up, and on the next two as well.
#[test]
fn it_goes_away_in_the_middle_and_comes_back() {
    let within = within();
    let left = AtomicU32::new(3);
    within.vault_day(move |asked, handle| {
        let is_away = asked.target.starts_with("/api/v4/secrets/batch") || left.load(Ordering::Relaxed) < 3;
        if is_away && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            handle();
            return None;
        }
        Some(handle())
    });
    let up = hold(&within, &["up"], 0, &["secrets/vault/blue  looks again in", "blue on embedded stands"]);
    assert_eq!(up.stdout.matches("secrets/vault/blue  save").count(), 1, "it was done: {}", up.transcript());
    hold(&within, &["plan", "--exit-code"], 0, &[]);
}

/// Goal: a vault that stays away keeps machines from being made, and the next run goes on. Method: whoever waits has had enough.
#[test]
fn it_goes_away_in_the_middle_and_stays_away() {
    let within = within();
    within.vault_day({
        let datacenter = within.datacenter.clone();
        move |asked, handle| {
            if asked.target.starts_with("/api/v4/secrets/batch") {
                // Not from here: whoever watches is inside of the datacenter.
                let datacenter = datacenter.clone();
                std::thread::spawn(move || datacenter.vault_down(VAULT, true));
                return None;
            }
            Some(handle())
        }
    });
    let (code, told) = enough(&within, &["up"], &["secrets/vault/blue  looks again"]);
    assert!(code == Some(130) && told.contains("Run the same command again to go on"), "{code:?} {told}");
    assert!(!told.contains("platform/vm/blue-cp-1  "), "machines come after: {told}");
    within.usual_day();
    hold(&within, &["up"], 1, &["Infisical (VAULT)"]);
    within.datacenter.vault_down(VAULT, false);
    hold(&within, &["up"], 0, &["blue on embedded stands"]);
    hold(&within, &["plan", "--exit-code"], 0, &[]);
}

/// Goal: machines are taken away without the vault, and what is in it later. Method: it is away, and whoever waits has had enough.
#[test]
fn it_is_away_when_the_castle_goes() {
    let within = within();
    hold(&within, &["up"], 0, &["blue on embedded stands"]);
    let kept = || within.datacenter.vault(VAULT).secrets.into_keys().collect::<Vec<_>>();
    assert_eq!(kept().len(), 4, "{:?}", kept());
    within.datacenter.vault_down(VAULT, true);
    let words = ["secrets/vault/blue  looks again", "platform/image/"];
    let (code, told) = enough(&within, &["down", "--yes"], &words);
    assert!(code == Some(130) && told.contains("secrets/vault/blue"), "{code:?} {told}");
    within.datacenter.vault_down(VAULT, false);
    hold(&within, &["down", "--yes"], 0, &["Nothing of blue on embedded is left on its hypervisor."]);
    assert_eq!(kept(), ["lab prod:/blue/MIRROR"], "what castle did not write stays");
}

#[test]
fn the_token_ends_in_the_middle() {
    let within = within();
    let ended = Arc::new(AtomicU32::new(0));
    within.vault_day({
        let (datacenter, ended) = (within.datacenter.clone(), ended.clone());
        move |asked, handle| {
            if asked.method == "PATCH" && ended.fetch_add(1, Ordering::Relaxed) == 0 {
                datacenter.expire_vault_tokens(VAULT);
            }
            Some(handle())
        }
    });
    hold(&within, &["up"], 0, &["blue on embedded stands"]);
    assert_eq!(ended.load(Ordering::Relaxed), 3, "refused once, and done once; and once more when etcd had begun");
    let logins = |requests: &[String]| requests.iter().filter(|request| request.ends_with("/login")).count();
    assert_eq!(logins(&within.seen.vault_requests()), 2);
}

#[test]
fn a_change_waits_for_approval() {
    let within = within();
    within.datacenter.set_approvals(VAULT, PROJECT, Approvals::Everybody);
    let words = [
        "secrets/vault/blue failed: Infisical (VAULT), folder /blue: the change waits for approval and has not been made",
        "next: approve it in Infisical, or exempt castle's folder from the policy",
    ];
    let up = hold(&within, &["up"], 1, &words);
    assert!(!up.stdout.contains("platform/vm/blue-cp-1  "), "machines come after: {}", up.transcript());
    within.datacenter.set_approvals(VAULT, PROJECT, Approvals::None);
    hold(&within, &["up"], 0, &["blue on embedded stands"]);
}

#[test]
fn values_are_hidden() {
    let within = within();
    hold(&within, &["up"], 0, &["blue on embedded stands"]);
    within.datacenter.revoke_vault_right(VAULT, CLIENT_ID, PROJECT, Right::ReadValue);
    for verb in ["up", "plan"] {
        hold(&within, &[verb], 1, &["talos.mirrors.docker.io.credential", "MIRROR", "hidden", "next: "]);
    }
}

/// Goal: a secret that is not what it should be stops a castle before anything is made of it. Method: one from the vault, one from a file.
#[test]
fn secrets_are_of_the_wrong_kind() {
    let within = within();
    let gitops = "gitops: {repository: 'https://git.lan/lab', credential: 'file:credential'}\n";
    let castle = within.room.world.read("castle.yaml");
    within.room.write("castle.yaml", &(castle + gitops));
    within.datacenter.place_secret(VAULT, PROJECT, Placed::new(ENVIRONMENT, "/blue", "MIRROR", "******"));
    let world = &within.room.world;
    world.write("credential", "github_pat_short-planted");
    std::fs::set_permissions(world.path("credential"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let words = [
        "secrets/valid/blue failed: the secrets of this castle: gitops.credential (file:credential): ",
        "talos.mirrors.docker.io.credential (vault:MIRROR): it is the mark of a secret that was left out, not the secret",
        "next: correct what is named where it comes from",
    ];
    for verb in ["plan", "up"] {
        let ran = hold(&within, &[verb], 1, &words);
        assert!(!ran.transcript().contains("planted"), "{}", ran.transcript());
        assert!(within.datacenter.effects().is_empty(), "{verb}");
    }
}

#[test]
fn it_is_the_wrong_region() {
    let within = within();
    write(&within, &within.secrets_elsewhere());
    let words = [
        "the login of the identity was refused: Invalid credentials",
        "next: check clientId and clientSecret before the next try, the third locks it; if the project is in the cloud, write `region: eu` or `region: us`",
    ];
    let up = hold(&within, &["up"], 1, &words);
    let logins = within.seen.vault_requests();
    assert_eq!(logins, ["POST /api/v1/auth/universal-auth/login"], "a login that is refused is not tried again");
    let doctor = hold(&within, &["doctor"], 1, &words);
    let region = format!("Infisical ({}): ", within.elsewhere);
    assert!(
        up.stderr.contains(&region) && doctor.stdout.contains(&region),
        "the region is named: {}",
        doctor.transcript()
    );
    assert!(is_untouched(&within));
}

#[test]
fn it_has_too_much_to_do() {
    let within = within();
    let busy = |seconds: u32| {
        let message = format!("Rate limit exceeded. Please try again in {seconds} seconds");
        let reply = VaultReply::failure(429, "RateLimitExceeded", message);
        Some(VaultReply { headers: vec![("retry-after", seconds.to_string())], ..reply })
    };
    // Longer than anyone waits.
    within.vault_day(move |_, _| busy(600));
    hold(
        &within,
        &["up"],
        1,
        &["Infisical (VAULT): Rate limit exceeded. Please try again in 600 seconds", "next: wait for"],
    );
    assert!(is_untouched(&within));
    // As long as one waits: once for each kind of request.
    let told = Mutex::new(std::collections::BTreeSet::new());
    within.vault_day(move |asked, handle| {
        let kind = format!("{} {}", asked.method, asked.target.split('?').next().unwrap_or_default());
        if told.lock().unwrap().insert(kind) { busy(1) } else { Some(handle()) }
    });
    hold(&within, &["up"], 0, &["blue on embedded stands"]);
}
