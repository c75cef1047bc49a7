//! A zip archive with one stored program, as AWS Lambda takes it.
//!
//! It has a header, the bytes, the header again as a directory, and the directory's place. The same
//! program gives the same bytes, so a hash tells whether it was sent already. It is not compressed:
//! a stripped program shrinks by half at best, and the crate would cost every build. Not here: what
//! the program does.

/// AWS Lambda starts the file of this name.
const NAME: &[u8] = b"bootstrap";

/// A regular file that all users may read and run, in Unix's upper half of the attributes.
const MODE: u32 = 0o100_755 << 16;

/// "Made by" Unix, since readers ignore the mode otherwise. Version 2.0 can read it.
const MADE_BY: u16 = 3 << 8 | 20;
const READ_BY: u16 = 20;

/// The first of January 1980, the earliest date of a zip file, so that the archive does not depend
/// on the time.
const DATE: u16 = 0x21;

/// `None`: larger than 4 GiB, the limit of a plain zip file.
pub fn with_program(program: &[u8]) -> Option<Vec<u8>> {
    let size = u32::try_from(program.len()).ok()?;
    let mut zip = Vec::with_capacity(program.len() + 256);
    let about = about(crc32(program), size);
    zip.extend(b"PK\x03\x04");
    zip.extend(&about);
    zip.extend(NAME);
    zip.extend(program);
    let directory = u32::try_from(zip.len()).ok()?;
    zip.extend(b"PK\x01\x02");
    zip.extend(MADE_BY.to_le_bytes());
    zip.extend(&about);
    // The comment is empty, the disk is the first, and the file begins where the archive does.
    zip.extend([0; 6]);
    zip.extend(MODE.to_le_bytes());
    zip.extend(0u32.to_le_bytes());
    zip.extend(NAME);
    let length = u32::try_from(zip.len()).ok()? - directory;
    zip.extend(b"PK\x05\x06");
    zip.extend([0, 0, 0, 0, 1, 0, 1, 0]);
    zip.extend(length.to_le_bytes());
    zip.extend(directory.to_le_bytes());
    zip.extend([0; 2]);
    Some(zip)
}

/// The fields that both headers share: stored, date, checksum, both sizes, length of the name.
fn about(sum: u32, size: u32) -> Vec<u8> {
    let mut about = Vec::with_capacity(26);
    about.extend(READ_BY.to_le_bytes());
    about.extend([0; 6]);
    about.extend(DATE.to_le_bytes());
    about.extend(sum.to_le_bytes());
    about.extend(size.to_le_bytes());
    about.extend(size.to_le_bytes());
    about.extend((NAME.len() as u16).to_le_bytes());
    about.extend([0; 2]);
    about
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut table = [0u32; 256];
    for (number, entry) in (0u32..).zip(&mut table) {
        *entry =
            (0..8).fold(
                number,
                |rest, _| if rest & 1 == 1 { 0xedb8_8320 ^ (rest >> 1) } else { rest >> 1 },
            );
    }
    !bytes.iter().fold(!0, |sum, byte| table[(sum as u8 ^ byte) as usize] ^ (sum >> 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_is_that_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn lambda_zip_is_reproducible_and_its_offsets_are_right() {
        let zip = with_program(b"\x7fELF and so on").unwrap();
        assert_eq!(with_program(b"\x7fELF and so on").unwrap(), zip);
        let at = |from: usize| u32::from_le_bytes(zip[from..from + 4].try_into().unwrap()) as usize;
        let end = zip.len() - 22;
        assert_eq!(&zip[end..end + 4], b"PK\x05\x06");
        let (length, directory) = (at(end + 12), at(end + 16));
        assert_eq!((&zip[directory..directory + 4], directory + length), (&b"PK\x01\x02"[..], end));
        assert_eq!(
            (&zip[..4], &zip[30..39], &zip[39..43]),
            (&b"PK\x03\x04"[..], &b"bootstrap"[..], &b"\x7fELF"[..])
        );
        assert_eq!(
            (at(directory + 38) >> 16, at(directory + 42)),
            (0o100_755, 0),
            "may be run, and begins at the beginning"
        );
    }

    /// Python's own reader accepts the archive.
    #[test]
    fn python_unpacks_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program.zip");
        #[expect(clippy::disallowed_methods, reason = "a test's own file")]
        std::fs::write(&path, with_program(b"#!/bin/sh echo").unwrap()).unwrap();
        let script = "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None; i = z.getinfo('bootstrap'); \
                      print(oct(i.external_attr >> 16), z.read(i))";
        let Ok(ended) =
            std::process::Command::new("python3").args(["-c", script]).arg(&path).output()
        else {
            return;
        };
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert_eq!(
            said.trim(),
            "0o100755 b'#!/bin/sh echo'",
            "{}",
            String::from_utf8_lossy(&ended.stderr)
        );
    }
}
