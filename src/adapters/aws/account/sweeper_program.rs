//! The program that the sweeper in the cloud is made of: a `lamp` that starts on Lambda's machines.
//!
//! ```text
//!   the file that was named (LAMP_SWEEPER_BINARY)
//!   -> lamp-x86_64 or lamp-arm64 beside this program, or in the build folder's `portable`
//!   -> this program itself
//! ```
//! Not here: the upload.

#![expect(clippy::disallowed_methods, reason = "reads the program that it hands out")]

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::lambda_zip;
use crate::account::sweeper::RUNTIME_GLIBC;
use crate::adapters::workstation::{elf_requirements, process_env};
use crate::market::Arch;
use crate::ports::Glibc;

/// The largest archive that Lambda takes inside a call.
const ARCHIVE_BYTES_MAX: usize = 50 << 20;

/// A program, packed as Lambda wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweeperProgram {
    pub path: PathBuf,
    pub arch: Arch,
    pub archive: Vec<u8>,
}

impl SweeperProgram {
    /// In base64, as Lambda shows the hash of its program.
    pub fn sha256(&self) -> String {
        aws_smithy_types::base64::encode(Sha256::digest(&self.archive))
    }
}

/// `named`: the only file to use, if the user names one.
///
/// # Errors
/// A text for people: what is missing, and what to do.
pub fn find(named: Option<&Path>) -> Result<SweeperProgram, String> {
    if let Some(named) = named {
        return packed(named);
    }
    let exe =
        process_env::exe().map_err(|error| format!("this program cannot find itself ({error})"))?;
    let folder = exe.parent().map(Path::to_owned).unwrap_or_default();
    let of = |arch: Arch| {
        [
            folder.join(format!("lamp-{arch}")),
            folder.join("../portable").join(format!("lamp-{arch}")),
        ]
    };
    let portable = of(Arch::Arm64).into_iter().chain(of(Arch::X86_64)).find(|path| path.exists());
    packed(&portable.unwrap_or(exe))
}

fn packed(path: &Path) -> Result<SweeperProgram, String> {
    let shown = path.display();
    let bytes =
        std::fs::read(path).map_err(|error| format!("`{shown}` cannot be read ({error})"))?;
    let needs = elf_requirements::needs(&bytes)
        .ok_or_else(|| format!("`{shown}` is no program for Linux machines"))?;
    let there = Glibc(RUNTIME_GLIBC.0, RUNTIME_GLIBC.1);
    if let Some(glibc) = needs.glibc.filter(|glibc| *glibc > there) {
        let triple = format!(
            "{}-unknown-linux-gnu.{there}",
            if needs.arch == Arch::Arm64 { "aarch64" } else { "x86_64" }
        );
        return Err(format!(
            "`{shown}` needs glibc {glibc}, and the machines of AWS Lambda (Amazon Linux 2023) have {there}: build `lamp` on Debian 12 or \
             Ubuntu 22.04, or with `cargo zigbuild --release --bin lamp --target {triple}`, and name it in LAMP_SWEEPER_BINARY"
        ));
    }
    let archive = lambda_zip::with_program(&bytes).filter(|archive| archive.len() <= ARCHIVE_BYTES_MAX).ok_or_else(|| {
        format!(
            "`{shown}` has {} MB, and AWS Lambda takes {} MB: build it with `cargo build --release`, and name it in LAMP_SWEEPER_BINARY",
            bytes.len() / 1_000_000,
            ARCHIVE_BYTES_MAX / 1_000_000
        )
    })?;
    Ok(SweeperProgram { path: path.to_owned(), arch: needs.arch, archive })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lambda_cannot_start_is_refused_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let written = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).unwrap();
            find(Some(&folder.path().join(name)))
        };
        assert!(
            written("script", b"#!/bin/sh\n")
                .unwrap_err()
                .ends_with("is no program for Linux machines")
        );
        assert!(find(Some(&folder.path().join("nothing"))).unwrap_err().contains("cannot be read"));
        // 64 bits, little-endian, x86-64, and nothing that a linker would ask for.
        let mut program = vec![0; 64];
        program[..6].copy_from_slice(b"\x7fELF\x02\x01");
        program[18] = 62;
        let small = written("small", &program).unwrap();
        assert_eq!((small.arch, small.sha256().len()), (Arch::X86_64, 44));
        program.resize(ARCHIVE_BYTES_MAX, 0);
        let error = written("large", &program).unwrap_err();
        assert!(error.contains("52 MB") && error.contains("--release"), "{error}");
    }

    /// This test's own program stands for one that was built where it will run, or too new.
    #[test]
    fn c_library_is_looked_at() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let needed = elf_requirements::needs(&own).unwrap().glibc.unwrap();
        let said = find(Some(Path::new("/proc/self/exe")));
        let is_too_new = needed > Glibc(RUNTIME_GLIBC.0, RUNTIME_GLIBC.1);
        assert_eq!(said.is_err_and(|why| why.contains("needs glibc")), is_too_new, "{needed}");
    }
}
