//! The certificates of `AWS_CA_BUNDLE`, which AWS's own tools read too. They serve a proxy that
//! opens TLS, or a private store.
//!
//! Every client that speaks to AWS trusts them, beside the certificates of the system. Not here: a
//! client.

#![expect(clippy::disallowed_methods, reason = "reads the file that the environment names")]

use std::path::Path;
use std::sync::OnceLock;

use object_store::{Certificate, ClientOptions};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::adapters::workstation::process_env;

const VARIABLE: &str = "AWS_CA_BUNDLE";
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Each certificate of the bundle, as PEM. Empty if the variable is not set. A bundle that cannot
/// be read causes one warning.
pub fn certificates() -> &'static [String] {
    static READ: OnceLock<Vec<String>> = OnceLock::new();
    READ.get_or_init(|| {
        let Some(path) = process_env::variable(VARIABLE) else { return Vec::new() };
        match read(Path::new(&path)) {
            Ok(found) => found,
            Err(why) => {
                tracing::warn!(
                    "{VARIABLE} names `{}`, and {why}: AWS is asked without it",
                    Path::new(&path).display()
                );
                Vec::new()
            }
        }
    })
}

/// The same for clients made with reqwest.
pub fn for_reqwest() -> impl Iterator<Item = reqwest::Certificate> {
    certificates().iter().filter_map(|pem| reqwest::Certificate::from_pem(pem.as_bytes()).ok())
}

/// The same for a store.
pub fn options() -> ClientOptions {
    let known = certificates().iter().filter_map(|pem| Certificate::from_pem(pem.as_bytes()).ok());
    known.fold(ClientOptions::new(), ClientOptions::with_root_certificate)
}

fn read(path: &Path) -> Result<Vec<String>, String> {
    let text = std::fs::read(path).map_err(|error| format!("it cannot be read: {error}"))?;
    let found: Vec<String> =
        blocks(&String::from_utf8_lossy(&text)).into_iter().filter(|pem| is_root(pem)).collect();
    if found.is_empty() { Err("it holds no certificate in PEM".to_owned()) } else { Ok(found) }
}

fn blocks(text: &str) -> Vec<String> {
    let bodies = text.split(BEGIN).skip(1).filter_map(|rest| rest.split_once(END));
    bodies.map(|(body, _)| format!("{BEGIN}{body}{END}\n")).collect()
}

/// Whether the clients accept it: one of them panics on an invalid certificate.
fn is_root(pem: &str) -> bool {
    CertificateDer::from_pem_slice(pem.as_bytes())
        .is_ok_and(|certificate| RootCertStore::empty().add(certificate).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, format!("# a comment\n{BEGIN}\nAAAA\n{END}\n")).expect("written");
        assert_eq!(read(&file), Err("it holds no certificate in PEM".to_owned()));
        assert!(
            read(&folder.path().join("none.pem"))
                .is_err_and(|why| why.starts_with("it cannot be read"))
        );
        assert_eq!(blocks(&format!("{BEGIN}\na\n{END}\n# two\n{BEGIN}\nb\n{END}")).len(), 2);
    }

    /// `openssl req -x509` made it for this test, and its key is deleted.
    const ROOT: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBlTCCATugAwIBAgIUCK6navG6IzAH8XggygR83YppaiUwCgYIKoZIzj0EAwIw\n\
        HzEdMBsGA1UEAwwUYSBwcm94eSBvZiB0aGUgaG91c2UwIBcNMjYxMTI4MTExOTE0\n\
        WhgPMjEyNjExMDQxMTE5MTRaMB8xHTAbBgNVBAMMFGEgcHJveHkgb2YgdGhlIGhv\n\
        dXNlMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEOaB93PAoI1UKOrg3Wjip6ePk\n\
        AWzyonrrV6FjlU54rm4Y8E1aN58ftP5p/nfnL8RFtRAsB0HJ2ugpz3Krn41SAqNT\n\
        MFEwHQYDVR0OBBYEFBhMj04h2dw4wikmujGmnzwRhamuMB8GA1UdIwQYMBaAFBhM\n\
        j04h2dw4wikmujGmnzwRhamuMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwID\n\
        SAAwRQIhAMySUPOhFvSKCKGXM8V2dZbK06USMGG+JBh+rjWqACNqAiAFjfe7jL5g\n\
        vihrEshvw0MWbPsn1fJnqkPmFik5x3Z5iQ==\n\
        -----END CERTIFICATE-----\n";

    #[test]
    fn each_certificate_of_a_bundle_is_taken_by_every_client() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ca.pem");
        std::fs::write(
            &file,
            format!("# of the house\n{ROOT}{BEGIN}\nAAAA\n{END}\n# again\n{ROOT}"),
        )
        .expect("written");
        let found = read(&file).expect("two of them");
        assert_eq!(found.len(), 2);
        for pem in found {
            assert_eq!(pem, ROOT);
            assert!(
                reqwest::Certificate::from_pem(pem.as_bytes()).is_ok()
                    && Certificate::from_pem(pem.as_bytes()).is_ok()
            );
        }
    }
}
