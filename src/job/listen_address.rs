//! An address that a server of the job listens on.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A port alone means this machine alone: `9400` is `127.0.0.1:9400`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ListenAddress(pub SocketAddr);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an address, write a port like `9400`, or `127.0.0.1:9400`")]
pub struct ListenAddressError(String);

impl ListenAddress {
    /// Whether only programs of the same machine reach it.
    pub fn is_loopback(self) -> bool {
        self.0.ip().is_loopback()
    }
}

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, ListenAddressError> {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let port = text.strip_prefix("localhost:").unwrap_or(text);
        let address = match port.parse::<u16>() {
            Ok(port) => Some(SocketAddr::new(here, port)),
            Err(_) => text.parse().ok(),
        };
        address.map(ListenAddress).ok_or_else(|| ListenAddressError(text.to_owned()))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_alone_is_reached_from_this_machine_alone() {
        for text in ["9400", "localhost:9400", "127.0.0.1:9400"] {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), "127.0.0.1:9400");
            assert!(address.is_loopback());
        }
        let open: ListenAddress = "0.0.0.0:9400".parse().unwrap();
        assert!(!open.is_loopback());
        for wrong in ["", ":9400", "host:9400", "94000", "127.0.0.1"] {
            assert!(wrong.parse::<ListenAddress>().is_err(), "{wrong}");
        }
    }
}
