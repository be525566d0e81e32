//! Which addresses a webhook may be sent to: public ones, and those of networks that the operator
//! allows. Else a webhook could reach what only this server can reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Networks that webhooks may reach although their addresses are not public.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// These networks.
    #[must_use]
    pub const fn new(allowed: Vec<IpNet>) -> Self {
        Self(allowed)
    }

    /// Whether a webhook may be sent to this address.
    #[must_use]
    pub fn allow(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        is_public(address) || self.0.iter().any(|network| network.contains(&address))
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_documentation()
        // This network, carriers' own addresses, protocol assignments, benchmarks, reserved.
        || a == 0
        || (a == 100 && b & 0xc0 == 64)
        || (a, b, c) == (192, 0, 0)
        || (a == 198 && b & 0xfe == 18)
        || a >= 240;
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    // An address of IPv4 in one of IPv6, as a translator reaches it (RFC 6052). Networks that have a
    // translator of their own (RFC 8215) may place it elsewhere.
    if let [0x64, 0xff9b, 0, 0, 0, 0, ..] = address.segments() {
        let [.., a, b, c, d] = address.octets();
        return is_public_v4(Ipv4Addr::new(a, b, c, d));
    }
    // Only global unicast is public (RFC 4291), without documentation, 6to4 and Teredo.
    first & 0xe000 == 0x2000 && first != 0x2002 && !(first == 0x2001 && matches!(second, 0 | 0xdb8))
}

/// Looks up names, and leaves out addresses that are refused.
pub(super) struct GuardedNames(pub(super) Networks);

impl Resolve for GuardedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.0.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let addresses: Vec<SocketAddr> =
                found.filter(|address| allowed.allow(address.ip())).collect();
            if addresses.is_empty() {
                return Err(format!("{} has no address that may be reached", name.as_str()).into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_not_public_are_refused_unless_their_network_is_allowed() {
        let none = Networks::default();
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1:a00:0:100:101:101",
            "2002:7f00:1::",
            "2001:db8::1",
        ] {
            assert!(!none.allow(address.parse().unwrap()), "{address}");
        }
        for address in ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "64:ff9b::101:101"] {
            assert!(none.allow(address.parse().unwrap()), "{address}");
        }
        let some = Networks::new(vec!["10.1.0.0/16".parse().unwrap()]);
        assert!(some.allow("10.1.2.3".parse().unwrap()));
        assert!(some.allow("::ffff:10.1.2.3".parse().unwrap()));
        assert!(!some.allow("10.2.2.3".parse().unwrap()));
    }
}
