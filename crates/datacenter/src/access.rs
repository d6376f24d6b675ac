//! Who is known, and who may do what where.

use std::collections::{BTreeMap, BTreeSet};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;

use crate::blueprint::{AclEntry, BUILTIN, User, Version, builtin};
use crate::world::guest::hex;

/// How long a ticket holds, in seconds.
const TICKET_SECONDS: u64 = 2 * 60 * 60;

/// The user to whom nothing is refused.
pub(crate) const ROOT: &str = "root@pam";

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) user: String,
    /// The name of the token, if it is one.
    pub(crate) token: Option<String>,
}

impl Identity {
    /// As it stands in the names of tasks: the user, or the user with the token.
    pub(crate) fn name(&self) -> String {
        match &self.token {
            Some(token) => format!("{}!{token}", self.user),
            None => self.user.clone(),
        }
    }

    /// Whether it is the very administrator, and not a token of his.
    pub(crate) fn is_root(&self) -> bool {
        self.user == ROOT && self.token.is_none()
    }
}

/// Privileges, and whether each holds below too.
pub(crate) type Privileges = BTreeMap<String, bool>;

/// Users, roles and rights.
#[derive(Debug)]
pub(crate) struct Access {
    users: BTreeMap<String, User>,
    roles: BTreeMap<String, BTreeSet<String>>,
    acl: Vec<AclEntry>,
    /// Privileges that were taken away by hand: from whom, and which.
    revoked: BTreeSet<(String, String)>,
    /// Tokens that hold no more.
    expired: BTreeSet<String>,
    version: Version,
    /// What signs tickets.
    key: hmac::Key,
}

impl Access {
    pub(crate) fn new(
        version: Version,
        users: Vec<User>,
        roles: &BTreeMap<String, Vec<String>>,
        acl: Vec<AclEntry>,
        ticket_key: &[u8; 32],
    ) -> Self {
        Self {
            users: users.into_iter().map(|user| (user.id.clone(), user)).collect(),
            roles: roles.iter().map(|(name, words)| (name.clone(), words.iter().cloned().collect())).collect(),
            acl,
            revoked: BTreeSet::new(),
            expired: BTreeSet::new(),
            version,
            key: hmac::Key::new(hmac::HMAC_SHA256, ticket_key),
        }
    }

    /// Whose token this is: `user@realm!name=secret`.
    pub(crate) fn by_token(&self, text: &str) -> Option<Identity> {
        let (id, secret) = text.split_once('=').or_else(|| text.split_once(' '))?;
        let (user, name) = id.split_once('!')?;
        let token = self.users.get(user)?.tokens.iter().find(|token| token.name == name)?;
        let is_valid = token.secret == secret && !self.expired.contains(id);
        is_valid.then(|| Identity { user: user.to_owned(), token: Some(name.to_owned()) })
    }

    /// Who has this password, which may be a ticket of his.
    pub(crate) fn by_password(&self, user: &str, password: &str, now: u64) -> Option<Identity> {
        let known = self.users.get(user)?;
        let by_ticket = self.by_ticket(password, now).is_some_and(|who| who.user == user);
        let is_valid = by_ticket || known.password.as_deref() == Some(password);
        is_valid.then(|| Identity { user: user.to_owned(), token: None })
    }

    pub(crate) fn ticket(&self, user: &str, now: u64) -> String {
        format!("PVE:{user}:{now:08X}::{}", self.signature("ticket", user, now))
    }

    pub(crate) fn csrf(&self, user: &str, now: u64) -> String {
        format!("{now:08X}:{}", self.signature("csrf", user, now))
    }

    pub(crate) fn by_ticket(&self, ticket: &str, now: u64) -> Option<Identity> {
        let (user, rest) = ticket.strip_prefix("PVE:")?.split_once(':')?;
        let (stamp, signed) = rest.split_once("::")?;
        let stamp = u64::from_str_radix(stamp, 16).ok()?;
        let is_valid = self.has_signed("ticket", user, stamp, signed) && is_current(stamp, now);
        (is_valid && self.users.contains_key(user)).then(|| Identity { user: user.to_owned(), token: None })
    }

    pub(crate) fn is_csrf(&self, user: &str, token: &str, now: u64) -> bool {
        let Some((stamp, signed)) = token.split_once(':') else { return false };
        let Ok(stamp) = u64::from_str_radix(stamp, 16) else { return false };
        self.has_signed("csrf", user, stamp, signed) && is_current(stamp, now)
    }

    /// What tells a ticket of this datacenter from one that somebody made up.
    fn signature(&self, purpose: &str, user: &str, stamp: u64) -> String {
        hex(hmac::sign(&self.key, signed(purpose, user, stamp).as_bytes()).as_ref())
    }

    fn has_signed(&self, purpose: &str, user: &str, stamp: u64, signature: &str) -> bool {
        verify_slices_are_equal(self.signature(purpose, user, stamp).as_bytes(), signature.as_bytes()).is_ok()
    }

    pub(crate) fn expire(&mut self, token: &str) {
        self.expired.insert(token.to_owned());
    }

    /// Lets a token hold again.
    pub(crate) fn renew(&mut self, token: &str) {
        self.expired.remove(token);
    }

    pub(crate) fn revoke(&mut self, who: &str, privilege: &str) {
        self.revoked.insert((who.to_owned(), privilege.to_owned()));
    }

    pub(crate) fn grant(&mut self, who: &str, privilege: &str) {
        self.revoked.remove(&(who.to_owned(), privilege.to_owned()));
    }

    /// Adds a right, or one that takes away what is given above.
    pub(crate) fn allow(&mut self, entry: AclEntry) {
        self.acl.push(entry);
    }

    /// Forgets the rights at a place and below.
    pub(crate) fn forget(&mut self, path: &str) {
        let is_there = |entry: &AclEntry| {
            entry.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.acl.retain(|entry| !is_there(entry));
    }

    /// The places that somebody has been given rights at.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.acl.iter().map(|entry| entry.path.as_str())
    }

    /// Those places, and all above them.
    pub(crate) fn tree(&self) -> BTreeSet<String> {
        self.paths().flat_map(ancestors).collect()
    }

    pub(crate) fn users(&self) -> impl Iterator<Item = &User> {
        self.users.values()
    }

    pub(crate) fn acl(&self) -> impl Iterator<Item = &AclEntry> {
        self.acl.iter()
    }

    /// All roles: name, privileges, and whether Proxmox brings it.
    pub(crate) fn roles(&self) -> impl Iterator<Item = (&str, Vec<String>, bool)> {
        let brought = BUILTIN.iter().map(|name| (*name, self.role(name), true));
        brought.chain(self.roles.keys().map(|name| (name.as_str(), self.role(name), false)))
    }

    /// The privileges of a role.
    fn role(&self, role: &str) -> Vec<String> {
        match builtin(self.version, role) {
            Some(words) => words.into_iter().map(str::to_owned).collect(),
            None => self.roles.get(role).into_iter().flatten().cloned().collect(),
        }
    }

    /// What a user or token was given at a place: the entry nearest to it decides.
    fn given(&self, who: &str, path: &str) -> Privileges {
        let mut found = Privileges::new();
        for place in ancestors(path) {
            let here = self.acl.iter().filter(|entry| entry.who == who && entry.path == place);
            let here: Vec<&AclEntry> = here.filter(|entry| entry.propagate || place == path).collect();
            if here.is_empty() {
                continue;
            }
            found.clear();
            for entry in here {
                for privilege in self.role(&entry.role) {
                    let propagates = found.entry(privilege).or_insert(false);
                    *propagates |= entry.propagate;
                }
            }
        }
        found.retain(|privilege, _| !self.revoked.contains(&(who.to_owned(), privilege.clone())));
        found
    }

    /// What somebody may at a place, pools not counted.
    pub(crate) fn privileges(&self, who: &Identity, path: &str) -> Privileges {
        let of_user = if who.user == ROOT {
            self.role("Administrator").into_iter().map(|privilege| (privilege, true)).collect()
        } else {
            self.given(&who.user, path)
        };
        let Some(token) = &who.token else { return of_user };
        let known = self.users.get(&who.user).and_then(|user| user.tokens.iter().find(|it| it.name == *token));
        let name = who.name();
        let mut allowed = of_user;
        if known.is_some_and(|token| token.privsep) {
            let own = self.given(&name, path);
            allowed.retain(|privilege, _| own.contains_key(privilege));
        }
        allowed.retain(|privilege, _| !self.revoked.contains(&(name.clone(), privilege.clone())));
        allowed
    }
}

/// The places above this one, from the root on, and itself.
fn ancestors(path: &str) -> Vec<String> {
    let mut places = vec!["/".to_owned()];
    let mut place = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        place = format!("{place}/{part}");
        places.push(place.clone());
    }
    places
}

fn is_current(stamp: u64, now: u64) -> bool {
    now + 300 >= stamp && now <= stamp + TICKET_SECONDS
}

/// What is signed.
fn signed(purpose: &str, user: &str, stamp: u64) -> String {
    format!("castle embedded {purpose} {user} {stamp}")
}

#[cfg(test)]
mod tests;
