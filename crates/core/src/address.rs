//! Which addresses belong to the open internet. Everything else is somebody's inside: this machine, its network, a cloud's
//! metadata service.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why nothing a model chose may be reached at this address. None: it is an address of the open internet.
///
/// The ranges are those of IANA's special-purpose registries for IPv4 and IPv6 that are not globally reachable. An IPv6
/// address that carries an IPv4 one (mapped, compatible, NAT64, 6to4) is judged by what it carries as well.
pub fn not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => inside_v4(address),
        IpAddr::V6(address) => inside_v6(address),
    }
}

fn inside_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, d] = address.octets();
    match (a, b, c, d) {
        (0, ..) => Some("this machine"),
        (127, ..) => Some("loopback"),
        (10, ..) | (192, 168, ..) => Some("a private network"),
        (172, 16..=31, ..) => Some("a private network"),
        (169, 254, ..) => Some("link-local; cloud metadata lives there"),
        (100, 64..=127, ..) => Some("shared address space of a carrier"),
        // Alibaba Cloud's metadata service lies in 100.100.100.200, inside the line above; Oracle's and Azure's wire server
        // have addresses that look public.
        (192, 0, 0, 192) | (168, 63, 129, 16) => Some("cloud metadata"),
        (192, 0, 0, _) => Some("reserved for protocols"),
        (192, 0, 2, _) | (198, 51, 100, _) | (203, 0, 113, _) => Some("reserved for documentation"),
        (192, 88, 99, _) => Some("a relay"),
        (198, 18..=19, ..) => Some("reserved for benchmarks"),
        (224..=239, ..) => Some("multicast"),
        (240..=255, ..) => Some("reserved"),
        _ => None,
    }
}

fn inside_v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    let last = || {
        let [.., a, b] = segments;
        let [[a, b], [c, d]] = [a.to_be_bytes(), b.to_be_bytes()];
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("this machine"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("loopback"),
        // mapped, translated and compatible
        [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0, 0, 0, 0, 0, 0, ..] => inside_v4(last()),
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => inside_v4(last()),
        [0x64, 0xff9b, ..] => Some("a local translation prefix"),
        [0x2002, a, b, ..] => {
            let [[a, b], [c, d]] = [a.to_be_bytes(), b.to_be_bytes()];
            inside_v4(Ipv4Addr::new(a, b, c, d))
        }
        [0x100, 0, 0, 0, ..] => Some("discarded"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => Some("reserved for documentation"),
        [0x2001, 0..=0x1ff, ..] => Some("reserved for protocols"),
        [0xfc00..=0xfdff, ..] => Some("a private network"),
        [0xfe80..=0xfebf, ..] => Some("link-local"),
        [0xfec0..=0xfeff, ..] => Some("site-local"),
        [0xff00..=0xffff, ..] => Some("multicast"),
        [0x2000..=0x3fff, ..] => None,
        _ => Some("not in use"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_open_internet_is_public() {
        for inside in [
            "0.0.0.0",
            "127.0.0.1",
            "127.255.255.254",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "4000::1",
        ] {
            assert!(not_public(inside.parse().unwrap()).is_some(), "{inside}");
        }
        for public in [
            "93.184.216.34",
            "1.1.1.1",
            "172.32.0.1",
            "172.15.0.1",
            "100.63.255.255",
            "100.128.0.1",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2002:101:101::1",
            "2a00:1450::1",
        ] {
            assert_eq!(not_public(public.parse().unwrap()), None, "{public}");
        }
    }
}
