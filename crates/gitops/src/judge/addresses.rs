//! Addresses that a repository gives to services: not those that castle gives or has.

use std::net::IpAddr;

use super::{Case, Code, Finding};
use crate::object::Object;

/// Addresses that are somebody's already.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Taken {
    /// Whose: `the VIP`.
    pub whose: String,
    /// The first.
    pub first: IpAddr,
    /// The last.
    pub last: IpAddr,
    /// Whether services get them, from a pool of castle's.
    pub is_pool: bool,
}

pub(super) fn judge(case: &mut Case<'_>) {
    let mut found = Vec::new();
    let pools = case.forest.objects().map(|(_, object)| object).filter(|it| it.is("metallb.io", "IPAddressPool"));
    // The pool of castle's own name is told as an object that castle owns.
    for pool in pools.filter(|pool| !case.world.owned.contains_key(&pool.reference())) {
        for (index, text) in pool.list("/spec/addresses").enumerate() {
            let Some((first, last)) = text.as_str().and_then(range) else { continue };
            let overlap = case.world.taken.iter().find(|taken| first <= taken.last && taken.first <= last);
            found.extend(overlap.map(|taken| taken_already(pool, index, taken)));
        }
    }
    case.findings.extend(found);
}

fn taken_already(pool: &Object, index: usize, taken: &Taken) -> Finding {
    let Taken { whose, first, last, is_pool } = taken;
    let which = if first == last { first.to_string() } else { format!("{first}-{last}") };
    let (why, fix) = if *is_pool {
        (
            format!("overlaps {whose} ({which}): MetalLB's webhook refuses a pool that shares addresses with another"),
            "take other addresses, or name no network.loadBalancers in castle.yaml",
        )
    } else {
        (format!("holds {whose} ({which}): a service that gets this address takes it away"), "take other addresses")
    };
    Finding::of(Code::AddressTaken, pool, &format!("/spec/addresses/{index}"), why, fix).because(whose)
}

/// The first and the last address of `FIRST-LAST` or `NETWORK/LENGTH`; nothing if it is neither.
fn range(text: &str) -> Option<(IpAddr, IpAddr)> {
    if let Some((first, last)) = text.split_once('-') {
        return Some((first.trim().parse().ok()?, last.trim().parse().ok()?));
    }
    let (address, length) = text.trim().split_once('/')?;
    let length: u32 = length.parse().ok()?;
    match address.parse().ok()? {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.checked_sub(length)?).unwrap_or(0);
            let first = u32::from(address) & mask;
            Some((IpAddr::V4(first.into()), IpAddr::V4((first | !mask).into())))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.checked_sub(length)?).unwrap_or(0);
            let first = u128::from(address) & mask;
            Some((IpAddr::V6(first.into()), IpAddr::V6((first | !mask).into())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_range_are_read() {
        let told = |text: &str| range(text).map(|(first, last)| format!("{first} {last}"));
        assert_eq!(told("10.0.0.17 - 10.0.0.20").as_deref(), Some("10.0.0.17 10.0.0.20"));
        assert_eq!(told("10.0.0.17/28").as_deref(), Some("10.0.0.16 10.0.0.31"));
        assert_eq!(told("0.0.0.0/0").as_deref(), Some("0.0.0.0 255.255.255.255"));
        assert_eq!(told("fd00::5/126").as_deref(), Some("fd00::4 fd00::7"));
        for wrong in ["", "10.0.0.1", "10.0.0.1/33", "a-b", "10.0.0.0/x", "castle-does-not-know/28"] {
            assert_eq!(told(wrong), None, "{wrong}");
        }
    }
}
