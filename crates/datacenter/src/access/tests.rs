use super::*;
use crate::blueprint::Token;

fn access(acl: &[(&str, &str, &str, bool)]) -> Access {
    with_key(acl, 1)
}

fn with_key(acl: &[(&str, &str, &str, bool)], key: u8) -> Access {
    let token = Token { name: "t".into(), secret: "s".into(), privsep: true };
    let users = vec![
        User { id: "bob@pve".into(), password: Some("p".into()), tokens: vec![token] },
        User { id: ROOT.into(), password: None, tokens: Vec::new() },
    ];
    let entry = |&(path, who, role, propagate): &(&str, &str, &str, bool)| AclEntry {
        path: path.into(),
        who: who.into(),
        role: role.into(),
        propagate,
    };
    Access::new(Version::Nine, users, &BTreeMap::new(), acl.iter().map(entry).collect(), &[key; 32])
}

fn bob(token: bool) -> Identity {
    Identity { user: "bob@pve".into(), token: token.then(|| "t".into()) }
}

fn has(access: &Access, who: &Identity, path: &str, privilege: &str) -> bool {
    access.privileges(who, path).contains_key(privilege)
}

#[test]
fn the_nearest_entry_decides() {
    let access = access(&[("/", "bob@pve", "PVEVMAdmin", true), ("/vms/5", "bob@pve", "NoAccess", true)]);
    assert!(has(&access, &bob(false), "/vms/4", "VM.Audit"));
    assert!(!has(&access, &bob(false), "/vms/5", "VM.Audit"));
}

#[test]
fn what_does_not_propagate_holds_only_there() {
    let access = access(&[("/vms", "bob@pve", "PVEVMAdmin", false)]);
    assert!(has(&access, &bob(false), "/vms", "VM.Audit"));
    assert!(!has(&access, &bob(false), "/vms/4", "VM.Audit"));
    assert_eq!(access.privileges(&bob(false), "/vms").get("VM.Audit"), Some(&false));
}

#[test]
fn a_separated_token_has_what_both_have() {
    let access = access(&[("/", "bob@pve", "PVEVMUser", true), ("/", "bob@pve!t", "PVEVMAdmin", true)]);
    assert!(has(&access, &bob(true), "/vms/4", "VM.Audit"));
    assert!(!has(&access, &bob(true), "/vms/4", "VM.Allocate"));
}

#[test]
fn the_administrator_has_everything_of_his_generation() {
    let root = Identity { user: ROOT.into(), token: None };
    let access = access(&[]);
    assert!(has(&access, &root, "/anything", "Sys.Modify") && !has(&access, &root, "/", "VM.Monitor"));
    assert!(root.is_root() && !bob(true).is_root());
}

#[test]
fn tickets_are_signed_and_end() {
    let access = access(&[]);
    let ticket = access.ticket("bob@pve", 1_000);
    assert_eq!(access.by_ticket(&ticket, 1_001), Some(bob(false)));
    assert_eq!(access.by_ticket(&ticket, 1_001 + TICKET_SECONDS), None);
    assert_eq!(access.by_ticket(&ticket.replace("bob", "eve"), 1_001), None);
    assert!(access.is_csrf("bob@pve", &access.csrf("bob@pve", 5), 6));
    assert!(!access.is_csrf("eve@pve", &access.csrf("bob@pve", 5), 6));
    let other = with_key(&[], 2);
    assert_eq!(other.by_ticket(&ticket, 1_001), None, "another datacenter's");
    assert!(!other.is_csrf("bob@pve", &access.csrf("bob@pve", 5), 6));
}
