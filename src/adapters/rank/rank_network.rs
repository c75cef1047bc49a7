//! The address at which the other ranks reach this machine.

use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;

use crate::ports::RankAddress;

/// The loopback interface of Linux.
const LOOPBACK: &str = "lo";

/// The last part of an address of the loopback network ends here.
const RANKS_MAX: u32 = 250;

/// Linux gives higher ports to outgoing connections. One of these would take the port while the
/// rank waits for the others.
const PORTS: Range<u16> = 20_000..30_000;

const TRIES_MAX: u16 = 100;

/// The IPv4 routes of Linux, one a line.
const ROUTES: &str = "/proc/net/route";

/// An address outside of every private network (RFC 5737). Nothing is sent to it.
const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);

/// How the ranks of a gang reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankNetwork {
    /// All ranks are on this workstation. Each has its own address, as machines have.
    Loopback,
    /// Each rank has a machine: the address of the default route. A machine may have several
    /// interfaces, and its name may not resolve on the others.
    Routed,
}

impl RankNetwork {
    /// # Errors
    /// When this machine has no network.
    pub fn address(self, rank: u32) -> io::Result<RankAddress> {
        let (host, interface) = match self {
            RankNetwork::Loopback => (IpAddr::from(loopback(rank)), Some(LOOPBACK.into())),
            RankNetwork::Routed => (source_address()?, default_interface(&routes())),
        };
        Ok(RankAddress { host: host.to_string(), interface, port: free_port()? })
    }
}

/// A port of these that is free, or else any.
fn free_port() -> io::Result<u16> {
    // The kernel draws it.
    let drawn = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.local_addr()?.port();
    let count = PORTS.end - PORTS.start;
    let mut ports = (0..TRIES_MAX).map(|next| PORTS.start + (drawn % count + next) % count);
    Ok(ports.find(|port| is_free(*port)).unwrap_or(drawn))
}

/// Whether a port is free on all addresses: an engine may listen on each of them.
pub(super) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}

fn loopback(rank: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + rank % RANKS_MAX)
}

/// The kernel chooses it by the routes when a socket is connected.
fn source_address() -> io::Result<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(ELSEWHERE)?;
    Ok(socket.local_addr()?.ip())
}

#[expect(clippy::disallowed_methods, reason = "a small file of /proc")]
fn routes() -> String {
    std::fs::read_to_string(ROUTES).unwrap_or_default()
}

/// The interface of the default route with the lowest metric; `None`: there is no such route.
fn default_interface(routes: &str) -> Option<String> {
    let defaults = routes.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (interface, destination, metric) = (words.first()?, words.get(1)?, words.get(6)?);
        (*destination == "00000000").then_some((metric.parse::<u32>().ok()?, *interface))
    });
    defaults.min().map(|(_, interface)| interface.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_is_that_of_the_default_route() {
        let routes = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
ens6\t00000000\t01001FAC\t0003\t0\t0\t200\t00000000\t0\t0\t0
ens5\t00000000\t01001FAC\t0003\t0\t0\t100\t00000000\t0\t0\t0
";
        assert_eq!(default_interface(routes).as_deref(), Some("ens5"));
        assert_eq!(default_interface("Iface\tDestination\n"), None);
        assert_eq!(default_interface(""), None);
    }

    #[test]
    fn ranks_of_a_workstation_use_the_loopback_interface() {
        let address = RankNetwork::Loopback.address(2).unwrap();
        assert_eq!(
            (address.host.as_str(), address.interface.as_deref()),
            ("127.0.0.3", Some("lo"))
        );
        assert!(PORTS.contains(&address.port), "{address:?}");
    }

    #[test]
    fn port_that_a_program_has_is_not_free() {
        let taken = TcpListener::bind((loopback(3), 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert!(!is_free(port));
        drop(taken);
        assert!(is_free(port));
    }
}
