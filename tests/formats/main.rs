//! What is written once and read for ever: the records of every version, and the pages that
//! describe them.

#![expect(clippy::disallowed_methods, reason = "a test reads the files that it is about")]

mod catalogue;
#[cfg(feature = "lamp")]
mod corpus;
#[cfg(feature = "lamp")]
mod jobs;
mod links;
mod pages;
mod records;

use std::path::PathBuf;

fn text(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}
