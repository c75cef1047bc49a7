//! Unpacks the code archive on the machine, and trusts none of it.
//!
//! Others may write to the bucket. So these are refused: absolute paths, `..`, links that leave the
//! folder, devices, hard links, and more bytes or entries than the spec says. Links are made last
//! and never below one another: a file cannot be written through a link. An error names its entry.
//! Not here: packing (`workdir::pack`, not part of the agent).

#![expect(
    clippy::disallowed_methods,
    reason = "this is the adapter that reads archives and writes their files"
)]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use tar::{Archive, EntryType};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveLimits {
    pub bytes_max: u64,
    pub entries_max: u64,
}

impl ArchiveLimits {
    /// As much as the packer recorded.
    pub fn of(code: &crate::job::CodeArchive) -> Self {
        // Folders and links are entries too but are not counted as files. A packed tree has fewer
        // folders.
        const ENTRIES_SPARE: u64 = 1_000_000;
        ArchiveLimits {
            bytes_max: code.bytes,
            entries_max: code.files.saturating_add(ENTRIES_SPARE),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Unpacked {
    pub files: u64,
    pub bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("cannot read the archive")]
    Read(#[source] io::Error),
    #[error("cannot read `{}` in the archive", shown(path))]
    Entry {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The next entry's name is unreadable; an empty path means that there was no entry before.
    #[error("cannot read what follows `{}` in the archive", shown(path))]
    After {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write `{}`", shown(path))]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the archive was refused: `{}` {problem}", shown(path))]
    Refused { path: PathBuf, problem: &'static str },
    #[error("the archive was refused: with `{}` it holds more than {what}", shown(path))]
    TooMuch { path: PathBuf, what: String },
}

/// For a message: the name may be long or hold control characters.
fn shown(path: &Path) -> String {
    const CHARS_MAX: usize = 200;
    let text = path.to_string_lossy();
    let mut plain: String =
        text.chars().take(CHARS_MAX).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        plain.push('…');
    }
    plain
}

/// Bytes allowed between two files' contents: headers and long names, which are read into memory. A
/// path has at most 4 KiB, attributes 64. Without a limit, a few bytes of zstd become gigabytes.
const BETWEEN_BYTES_MAX: u64 = 1 << 20;

/// A reader with a byte limit.
struct Metered<R> {
    inner: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 && !buffer.is_empty() {
            return Err(io::Error::other(format!(
                "it has more than {BETWEEN_BYTES_MAX} bytes beside the contents of files"
            )));
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.inner.read(&mut buffer[..most])?;
        self.left.set(left - read as u64);
        Ok(read)
    }
}

/// Unpacks into a folder that should be empty: an existing file is an error.
///
/// # Errors
/// When the archive is unreadable or breaks a rule above, or a file cannot be written. The caller
/// removes what was written.
pub fn unpack(
    archive: &Path,
    into: &Path,
    limits: ArchiveLimits,
) -> Result<Unpacked, ArchiveError> {
    let file = File::open(archive).map_err(ArchiveError::Read)?;
    let plain = zstd::stream::read::Decoder::new(file).map_err(ArchiveError::Read)?;
    fs::create_dir_all(into)
        .map_err(|source| ArchiveError::Write { path: into.to_owned(), source })?;
    let left = Rc::new(Cell::new(BETWEEN_BYTES_MAX));
    let mut archive = Archive::new(Metered { inner: plain, left: Rc::clone(&left) });
    let mut unpacker = Unpacker {
        into,
        limits,
        left,
        entries: 0,
        last: PathBuf::new(),
        done: Unpacked::default(),
        links: Vec::new(),
        folder_modes: Vec::new(),
    };
    for entry in archive.entries().map_err(ArchiveError::Read)? {
        let entry =
            entry.map_err(|source| ArchiveError::After { path: unpacker.last.clone(), source })?;
        unpacker.entry(entry)?;
        unpacker.left.set(BETWEEN_BYTES_MAX);
    }
    unpacker.finish()
}

struct Unpacker<'a> {
    into: &'a Path,
    limits: ArchiveLimits,
    /// Bytes that the archive may still give; reset after each entry.
    left: Rc<Cell<u64>>,
    entries: u64,
    /// The last entry, for errors.
    last: PathBuf,
    done: Unpacked,
    /// Relative path and target; made at the end.
    links: Vec<(PathBuf, PathBuf)>,
    /// Set at the end: a folder without write permission must be filled first.
    folder_modes: Vec<(PathBuf, u32)>,
}

impl Unpacker<'_> {
    fn entry<R: Read>(&mut self, entry: tar::Entry<'_, R>) -> Result<(), ArchiveError> {
        let last = self.last.clone();
        let path =
            entry.path().map_err(|source| ArchiveError::After { path: last, source })?.into_owned();
        self.last.clone_from(&path);
        let refuse = |problem| Err(ArchiveError::Refused { path: path.clone(), problem });
        let damaged = |source| ArchiveError::Entry { path: path.clone(), source };
        self.entries += 1;
        if self.entries > self.limits.entries_max {
            return Err(ArchiveError::TooMuch {
                path,
                what: format!("{} entries", self.limits.entries_max),
            });
        }
        let Some(inside) = inside(&path) else { return refuse("leaves the folder") };
        let mode = entry.header().mode().map_err(damaged)? & 0o777;
        match entry.header().entry_type() {
            EntryType::Directory => {
                self.folder(&inside)?;
                // The caller decides the root folder's mode.
                if inside != Path::new("") {
                    self.folder_modes.push((inside, mode));
                }
                Ok(())
            }
            EntryType::Regular | EntryType::Continuous => self.file(entry, &inside, mode),
            EntryType::Symlink => {
                let target = entry.link_name().map_err(damaged)?;
                let target = target.map(|target| target.into_owned()).unwrap_or_default();
                if !link_stays_inside(&inside, &target) {
                    return refuse("is a link that leaves the folder");
                }
                self.links.push((inside, target));
                Ok(())
            }
            EntryType::Link => refuse("is a hard link"),
            _ => refuse("is neither a file, a folder nor a link"),
        }
    }

    fn folder(&self, path: &Path) -> Result<(), ArchiveError> {
        let folder = self.into.join(path);
        fs::create_dir_all(&folder).map_err(|source| ArchiveError::Write { path: folder, source })
    }

    fn file<R: Read>(
        &mut self,
        mut entry: tar::Entry<'_, R>,
        path: &Path,
        mode: u32,
    ) -> Result<(), ArchiveError> {
        let size = entry.size();
        self.done.bytes = self.done.bytes.saturating_add(size);
        if self.done.bytes > self.limits.bytes_max {
            return Err(ArchiveError::TooMuch {
                path: path.to_owned(),
                what: format!("{} bytes", self.limits.bytes_max),
            });
        }
        self.left.set(size);
        if let Some(parent) = path.parent() {
            self.folder(parent)?;
        }
        let target = self.into.join(path);
        let failed = |source| ArchiveError::Write { path: target.clone(), source };
        // The owner may always read and write: a job must be able to change its files.
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode | 0o600)
            .open(&target)
            .map_err(failed)?;
        let copied = io::copy(&mut entry, &mut file).map_err(failed)?;
        if copied != size {
            return Err(ArchiveError::Entry {
                path: path.to_owned(),
                source: io::ErrorKind::UnexpectedEof.into(),
            });
        }
        if let Ok(secs) = entry.header().mtime() {
            let modified =
                SystemTime::UNIX_EPOCH + Duration::from_secs(secs.min(u64::from(u32::MAX)));
            file.set_modified(modified).map_err(failed)?;
        }
        self.done.files += 1;
        Ok(())
    }

    fn finish(self) -> Result<Unpacked, ArchiveError> {
        let links: BTreeSet<&Path> = self.links.iter().map(|(path, _)| path.as_path()).collect();
        for (path, target) in &self.links {
            // It would be made at the other link's target, and its own target was checked for
            // another place.
            if path.ancestors().skip(1).any(|above| links.contains(above)) {
                return Err(ArchiveError::Refused {
                    path: path.clone(),
                    problem: "is below a link",
                });
            }
            if let Some(parent) = path.parent() {
                self.folder(parent)?;
            }
            let link = self.into.join(path);
            std::os::unix::fs::symlink(target, &link)
                .map_err(|source| ArchiveError::Write { path: link, source })?;
        }
        for (path, mode) in self.folder_modes {
            let folder = self.into.join(path);
            let permissions = fs::Permissions::from_mode(mode | 0o700);
            fs::set_permissions(&folder, permissions)
                .map_err(|source| ArchiveError::Write { path: folder, source })?;
        }
        Ok(self.done)
    }
}

/// The path without `.` parts; `None` if it is absolute or has `..`.
fn inside(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

/// Whether a link at `link` (relative to the root) to `target` always stays inside the root.
///
/// Only leading `..` are allowed, at most as many as the link is deep. A `..` after a name is
/// refused: the name may itself be a link.
pub fn link_stays_inside(link: &Path, target: &Path) -> bool {
    let depth = link.components().count().saturating_sub(1);
    let mut climbs = 0;
    let mut descends = false;
    for part in target.components() {
        match part {
            Component::ParentDir if descends => return false,
            Component::ParentDir => climbs += 1,
            Component::Normal(_) => descends = true,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    climbs <= depth && (descends || climbs > 0 || target == Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_may_only_lead_inside() {
        let stays =
            |link: &str, target: &str| link_stays_inside(Path::new(link), Path::new(target));
        assert!(stays("a", "b"));
        assert!(stays("a/b", "../c"));
        assert!(stays("a/b/c", "../../d/e"));
        assert!(stays("a", "./b"));
        for (link, target) in [
            ("a", "/etc/passwd"),
            ("a", "../b"),
            ("a/b", "../../c"),
            ("a", "b/../c"),
            ("a", ""),
            ("a/b", "x/../../../y"),
        ] {
            assert!(!stays(link, target), "{link} -> {target}");
        }
    }
}
