//! The requirements of an ELF file: its processor, and the oldest C library with its symbols.
//!
//! It reads only the tables that the dynamic linker reads (`.gnu.version_r` and its names). Not
//! here: a file, or a judgement.

use crate::market::Arch;
use crate::ports::Glibc;

/// The section that lists the symbol versions which the file needs.
const SHT_GNU_VERNEED: u32 = 0x6fff_fffe;

/// The requirements of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    pub arch: Arch,
    pub glibc: Option<Glibc>,
}

/// `None`: not a program for a known machine.
pub fn needs(file: &[u8]) -> Option<Needs> {
    // 64 bits, little-endian.
    if file.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let arch = match u16_at(file, 18)? {
        62 => Arch::X86_64,
        183 => Arch::Arm64,
        _ => return None,
    };
    Some(Needs { arch, glibc: glibc(file) })
}

fn glibc(file: &[u8]) -> Option<Glibc> {
    let (table, size, count) = (u64_at(file, 40)?, u16_at(file, 58)?, u16_at(file, 60)?);
    let section =
        |index: u64| usize::try_from(table.checked_add(index.checked_mul(u64::from(size))?)?).ok();
    let needed = (0..u64::from(count))
        .filter_map(section)
        .find(|at| u32_at(file, at + 4) == Some(SHT_GNU_VERNEED))?;
    let names = section(u64::from(u32_at(file, needed + 40)?))?;
    let names = offset(file, names)?;
    let libraries = u32_at(file, needed + 44)?;
    let mut library = offset(file, needed)?;
    let mut newest = None;
    for _ in 0..libraries {
        let mut version = library + u32_at(file, library + 8)? as usize;
        for _ in 0..u16_at(file, library + 2)? {
            let name = text(file, names + u32_at(file, version + 8)? as usize)?;
            newest = newest.max(parsed(name));
            version += u32_at(file, version + 12)? as usize;
        }
        library += u32_at(file, library + 12)? as usize;
    }
    newest
}

/// Parses `GLIBC_2.34`; refuses private versions and other libraries.
fn parsed(name: &str) -> Option<Glibc> {
    let mut parts = name.strip_prefix("GLIBC_")?.split('.').map(str::parse);
    match (parts.next()?, parts.next()?) {
        (Ok(major), Ok(minor)) => Some(Glibc(major, minor)),
        _ => None,
    }
}

/// Where a section's bytes begin.
fn offset(file: &[u8], section: usize) -> Option<usize> {
    usize::try_from(u64_at(file, section + 24)?).ok()
}

fn text(file: &[u8], at: usize) -> Option<&str> {
    std::str::from_utf8(file.get(at..)?.split(|byte| *byte == 0).next()?).ok()
}

fn u16_at(file: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(file.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(file: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(file.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(file: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(file.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test that reads its own program")]
    fn it_reads_this_very_program_and_no_damaged_one() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let own = needs(&file).expect("this is a program of this machine");
        assert_eq!(own.arch, if cfg!(target_arch = "x86_64") { Arch::X86_64 } else { Arch::Arm64 });
        assert!(
            own.glibc.is_some_and(|glibc| glibc >= Glibc(2, 17) && glibc < Glibc(3, 0)),
            "{own:?}"
        );
        for cut in [0, 5, 17, 50, 63, 100, 1000, file.len() / 2] {
            assert!(needs(&file[..cut]).is_none_or(|needs| needs.glibc.is_none()), "{cut}");
        }
        assert_eq!(needs(b"#!/bin/sh\n"), None);
        // Damaged tables must not cause a panic.
        for at in 0..64 {
            let mut torn = file[..4096].to_vec();
            torn[at] = 0xff;
            let _ = needs(&torn);
        }
    }

    #[test]
    fn versions_are_numbers_and_not_texts() {
        assert!(parsed("GLIBC_2.9") < parsed("GLIBC_2.34"));
        assert_eq!(parsed("GLIBC_2.2.5"), Some(Glibc(2, 2)));
        assert_eq!((parsed("GLIBC_PRIVATE"), parsed("GCC_3.0")), (None, None));
    }
}
