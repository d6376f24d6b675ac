//! Ranges of addresses, as pools name them.

use std::net::IpAddr;

use serde_json::Value;

use crate::kubernetes::value;

/// Addresses of one family, from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    is_v6: bool,
    first: u128,
    last: u128,
}

fn number(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(address) => (false, u32::from(address).into()),
        IpAddr::V6(address) => (true, address.into()),
    }
}

impl Range {
    /// `10.0.0.0/24`, or `10.0.0.1-10.0.0.9`.
    fn read(text: &str) -> Option<Self> {
        if let Some((first, last)) = text.split_once('-') {
            let (is_v6, first) = number(first.trim().parse().ok()?);
            let (other, last) = number(last.trim().parse().ok()?);
            return (is_v6 == other && first <= last).then_some(Self { is_v6, first, last });
        }
        let (address, length) = text.split_once('/')?;
        let (is_v6, address) = number(address.trim().parse().ok()?);
        let bits: u32 = if is_v6 { 128 } else { 32 };
        let free = bits.checked_sub(length.trim().parse().ok()?)?;
        let host = 1_u128.checked_shl(free).map_or(u128::MAX, |size| size - 1);
        Some(Self { is_v6, first: address & !host, last: address | host })
    }

    fn overlaps(self, other: Self) -> bool {
        self.is_v6 == other.is_v6 && self.first <= other.last && other.first <= self.last
    }

    pub(super) fn holds(self, address: IpAddr) -> bool {
        let (is_v6, number) = number(address);
        self.is_v6 == is_v6 && (self.first..=self.last).contains(&number)
    }

    fn count(self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    fn address(self, number: u128) -> IpAddr {
        match u32::try_from(number) {
            Ok(number) if !self.is_v6 => IpAddr::V4(number.into()),
            _ => IpAddr::V6(number.into()),
        }
    }

    /// Its addresses, in order.
    fn addresses(self) -> impl Iterator<Item = IpAddr> {
        (self.first..=self.last).map(move |number| self.address(number))
    }
}

/// The ranges of a pool that can be read.
pub(super) fn ranges(pool: &Value) -> Vec<Range> {
    value::items(pool, "spec.addresses").iter().filter_map(Value::as_str).filter_map(Range::read).collect()
}

/// The addresses that a pool may give, in order.
pub(super) fn addresses(pool: &Value) -> impl Iterator<Item = IpAddr> {
    let avoids = value::is_true(pool, "spec.avoidBuggyIPs");
    let is_buggy = |address: &IpAddr| matches!(address, IpAddr::V4(address) if [0, 255].contains(&address.octets()[3]));
    // Services have IPv4 here.
    let own = ranges(pool).into_iter().filter(|range| !range.is_v6).flat_map(Range::addresses);
    own.filter(move |address| !avoids || !is_buggy(address))
}

/// How many addresses a pool has, of IPv4 and of IPv6.
pub(super) fn counts(pool: &Value) -> (u128, u128) {
    let of = |is_v6: bool| {
        let own = ranges(pool).into_iter().filter(move |range| range.is_v6 == is_v6);
        own.fold(0_u128, |sum, range| sum.saturating_add(range.count()))
    };
    (of(false), of(true))
}

/// The first thing that is wrong with pools.
pub(super) fn first_fault<'a>(pools: impl Iterator<Item = &'a Value>) -> Option<String> {
    let mut known: Vec<(&str, &str, Range)> = Vec::new();
    for pool in pools {
        let name = value::name(pool);
        let listed = value::items(pool, "spec.addresses");
        if listed.is_empty() {
            return Some(format!("parsing address pool {name:?}: pool has no prefixes defined"));
        }
        for text in listed.iter().filter_map(Value::as_str) {
            let Some(range) = Range::read(text) else {
                let kind = if text.contains('-') { "IP range" } else { "CIDR" };
                return Some(format!("parsing address pool {name:?}: invalid {kind} {text:?} in pool {name:?}"));
            };
            if let Some((other, rival, _)) = known.iter().find(|(_, _, own)| own.overlaps(range)) {
                return Some(format!(
                    "CIDR {text:?} in pool {name:?} overlaps with already defined CIDR {rival:?} in pool {other:?}"
                ));
            }
            known.push((name, text, range));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(name: &str, addresses: &[&str]) -> Value {
        json!({ "metadata": { "name": name }, "spec": { "addresses": addresses } })
    }

    #[test]
    fn ranges_are_read_counted_and_held_against_each_other() {
        let own = pool("a", &["10.0.0.0/30", "10.0.1.5-10.0.1.6", "fd00::/126"]);
        assert_eq!(counts(&own), (6, 4));
        let all: Vec<String> = addresses(&own).map(|address| address.to_string()).collect();
        assert_eq!(all, ["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.1.5", "10.0.1.6"]);
        assert_eq!(first_fault([&own].into_iter()), None);
        for (text, fault) in [
            ("10.0.0.2-10.0.0.9", "overlaps with already defined CIDR \"10.0.0.0/30\" in pool \"a\""),
            ("10.0.0.9-10.0.0.2", "invalid IP range"),
            ("10.0.0.300/24", "invalid CIDR"),
            ("10.0.0.0/33", "invalid CIDR"),
        ] {
            let told = first_fault([&own, &pool("b", &[text])].into_iter()).unwrap();
            assert!(told.contains(fault), "{told}");
        }
        assert!(first_fault([&pool("c", &[])].into_iter()).unwrap().contains("no prefixes"));
    }
}
