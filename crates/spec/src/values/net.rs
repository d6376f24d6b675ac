//! Addresses, networks and ranges of addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::shape::{Scalar, Unfit};

impl Scalar for IpAddr {
    const NOUN: &'static str = "an IP address";
    const EXAMPLE: &'static str = "192.168.1.211";

    fn parse(text: &str) -> Result<Self, Unfit> {
        text.parse().map_err(|_| match text.split_once('/') {
            Some((address, _)) if address.parse::<IpAddr>().is_ok() => "an address without `/` and prefix".into(),
            _ => "not an IPv4 or IPv6 address".into(),
        })
    }

    fn placeholder() -> Self {
        Self::V4(Ipv4Addr::UNSPECIFIED)
    }

    fn schema() -> Value {
        json!({"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]})
    }

    fn show(&self) -> Value {
        self.to_string().into()
    }
}

impl Scalar for IpNet {
    const NOUN: &'static str = "a network";
    const EXAMPLE: &'static str = "192.168.1.0/24";

    fn parse(text: &str) -> Result<Self, Unfit> {
        let network: Self = text.parse().map_err(|_| match text.parse::<IpAddr>() {
            Ok(_) => "the prefix length is missing: an address, `/`, and how many bits name the network".to_owned(),
            Err(_) => "not an address, `/`, and a prefix length".to_owned(),
        })?;
        if network.trunc() == network {
            Ok(network)
        } else {
            Err(format!("this is an address in a network; the network is `{}`", network.trunc()).into())
        }
    }

    fn placeholder() -> Self {
        Self::default()
    }

    fn schema() -> Value {
        json!({"type": "string", "pattern": "^[0-9a-fA-F.:]+/[0-9]{1,3}$"})
    }

    fn show(&self) -> Value {
        self.to_string().into()
    }
}

/// Consecutive addresses, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// The first address.
    pub first: IpAddr,
    /// The last address.
    pub last: IpAddr,
}

impl AddressRange {
    /// Whether `address` is one of them.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.first.is_ipv4() && (self.first..=self.last).contains(&address)
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl Scalar for AddressRange {
    const NOUN: &'static str = "a range of addresses";
    const EXAMPLE: &'static str = "192.168.1.240-192.168.1.250";

    fn parse(text: &str) -> Result<Self, Unfit> {
        if text.contains('/') {
            let network = IpNet::parse(text)?;
            return Ok(Self { first: network.network(), last: network.broadcast() });
        }
        let (first, last) = text.split_once('-').ok_or("write the first and the last address with `-` between")?;
        let end = |text: &str| IpAddr::parse(text.trim());
        let (first, last) = (end(first)?, end(last)?);
        if first.is_ipv4() != last.is_ipv4() {
            Err("one end is IPv4, the other IPv6".into())
        } else if last < first {
            Err("it ends before it begins".into())
        } else {
            Ok(Self { first, last })
        }
    }

    fn placeholder() -> Self {
        Self { first: Ipv4Addr::UNSPECIFIED.into(), last: Ipv4Addr::UNSPECIFIED.into() }
    }

    fn schema() -> Value {
        json!({"type": "string", "pattern": "^[0-9a-fA-F.:]+( ?- ?[0-9a-fA-F.:]+|/[0-9]{1,3})$"})
    }

    fn show(&self) -> Value {
        self.to_string().into()
    }
}

/// The address `steps` after `first`, unless that passes the end of the address space.
pub(crate) fn step(first: IpAddr, steps: u128) -> Option<IpAddr> {
    match first {
        IpAddr::V4(address) => {
            let number = u128::from(u32::from(address)).checked_add(steps)?;
            Some(Ipv4Addr::from(u32::try_from(number).ok()?).into())
        }
        IpAddr::V6(address) => Some(Ipv6Addr::from(u128::from(address).checked_add(steps)?).into()),
    }
}

/// How many steps lead from `first` to `later`: nothing if it is not later, or of another family.
pub(crate) fn steps_between(first: IpAddr, later: IpAddr) -> Option<u128> {
    match (first, later) {
        (IpAddr::V4(first), IpAddr::V4(later)) => u32::from(later).checked_sub(u32::from(first)).map(u128::from),
        (IpAddr::V6(first), IpAddr::V6(later)) => u128::from(later).checked_sub(u128::from(first)),
        _ => None,
    }
}

/// A hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02X}:{b:02X}:{c:02X}:{d:02X}:{e:02X}:{g:02X}")
    }
}

impl Scalar for Mac {
    const NOUN: &'static str = "a hardware address";
    const EXAMPLE: &'static str = "02:1A:2B:3C:4D:5E";

    fn parse(text: &str) -> Result<Self, Unfit> {
        let octets: Vec<u8> = text
            .split(':')
            .map(|octet| u8::from_str_radix(octet, 16).ok().filter(|_| octet.len() == 2))
            .collect::<Option<_>>()
            .ok_or("six pairs of hexadecimal digits with `:` between")?;
        let octets: [u8; 6] = octets.try_into().map_err(|_| "six pairs of hexadecimal digits with `:` between")?;
        if octets[0] & 1 == 1 {
            return Err("this is a group address; the second digit must be even".into());
        }
        Ok(Self(octets))
    }

    fn placeholder() -> Self {
        Self([0; 6])
    }

    fn schema() -> Value {
        json!({"type": "string", "pattern": "^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$"})
    }

    fn show(&self) -> Value {
        self.to_string().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::tests::read_all;

    #[test]
    fn networks_name_their_own_mistakes() {
        insta::assert_snapshot!(read_all::<IpNet>(&["192.168.1.0/24", "192.168.1.5/24", "192.168.1.0", "x", "fd00::/64", "10.0.0.0/33"]), @r#"
        "192.168.1.0/24" is "192.168.1.0/24"
        "192.168.1.5/24": this is an address in a network; the network is `192.168.1.0/24`
        "192.168.1.0": the prefix length is missing: an address, `/`, and how many bits name the network
        "x": not an address, `/`, and a prefix length
        "fd00::/64" is "fd00::/64"
        "10.0.0.0/33": not an address, `/`, and a prefix length
        "#);
    }

    #[test]
    fn ranges_are_two_ends_or_a_network() {
        let texts = [
            "10.0.0.1-10.0.0.9",
            "10.0.0.1 - 10.0.0.9",
            "10.0.0.0/29",
            "10.0.0.9-10.0.0.1",
            "10.0.0.1",
            "10.0.0.1-fd00::1",
            "fd00::1-fd00::f",
        ];
        insta::assert_snapshot!(read_all::<AddressRange>(&texts), @r#"
        "10.0.0.1-10.0.0.9" is "10.0.0.1-10.0.0.9"
        "10.0.0.1 - 10.0.0.9" is "10.0.0.1-10.0.0.9"
        "10.0.0.0/29" is "10.0.0.0-10.0.0.7"
        "10.0.0.9-10.0.0.1": it ends before it begins
        "10.0.0.1": write the first and the last address with `-` between
        "10.0.0.1-fd00::1": one end is IPv4, the other IPv6
        "fd00::1-fd00::f" is "fd00::1-fd00::f"
        "#);
    }

    #[test]
    fn hardware_addresses_are_unicast() {
        insta::assert_snapshot!(read_all::<Mac>(&["02:1a:2b:3c:4d:5e", "03:1a:2b:3c:4d:5e", "02:1a:2b:3c:4d", "02-1a-2b-3c-4d-5e", "2:1a:2b:3c:4d:5e"]), @r#"
        "02:1a:2b:3c:4d:5e" is "02:1A:2B:3C:4D:5E"
        "03:1a:2b:3c:4d:5e": this is a group address; the second digit must be even
        "02:1a:2b:3c:4d": six pairs of hexadecimal digits with `:` between
        "02-1a-2b-3c-4d-5e": six pairs of hexadecimal digits with `:` between
        "2:1a:2b:3c:4d:5e": six pairs of hexadecimal digits with `:` between
        "#);
    }

    #[test]
    fn steps_stay_in_the_address_space() {
        let v4: IpAddr = "255.255.255.254".parse().unwrap();
        assert_eq!(step(v4, 1), Some("255.255.255.255".parse().unwrap()));
        assert_eq!(step(v4, 2), None);
        assert_eq!(steps_between("10.0.0.1".parse().unwrap(), "10.0.1.0".parse().unwrap()), Some(255));
        assert_eq!(steps_between("10.0.1.0".parse().unwrap(), "10.0.0.1".parse().unwrap()), None);
    }
}
