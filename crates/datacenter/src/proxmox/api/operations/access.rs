//! What is asked of users and their rights.

use super::super::Operation;
use super::super::Permission::{Everyone, InHandler, World};
use super::super::field::flag;
use super::{Call, get};

pub(super) const ALL: &[Operation] = &[
    get(Call::AccessIndex, "/access", Everyone),
    get(Call::Users, "/access/users", InHandler).protected().taking(&[&[flag("enabled"), flag("full")]]),
    get(Call::Roles, "/access/roles", Everyone),
    get(Call::Acl, "/access/acl", InHandler),
    get(Call::Domains, "/access/domains", World).checks_more(),
];
