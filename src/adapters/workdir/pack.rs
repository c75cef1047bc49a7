//! The workdir on the workstation: which files ship, and their archive.
//!
//! `survey` walks the workdir by .gitignore and .lampignore, and returns a `Survey`: the files in
//! order, and findings. `pack` makes the code archive from it.
//! Two packs of one tree give the same bytes: entries are sorted and hold no user. Not here: the
//! search for secrets (`secret_scan`), or unpacking (`unpack`, part of the agent).

use std::collections::HashSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use ignore::WalkBuilder;
use sha2::{Digest, Sha256};

use super::default_ignores::{SkippedFiles, is_left_out, reason_to_prune};
use super::git_tracked::tracked_but_ignored;
use super::unpack::link_stays_inside;
use crate::job::{CodeArchive, Finding, FindingCause};

/// The files that ship, in archive order.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    pub root: PathBuf,
    pub entries: Vec<PackEntry>,
    /// Bytes of all files.
    pub bytes: u64,
    pub files: u64,
    /// Errors: files that cannot ship. Warnings: files that were left out without an ignore rule.
    pub findings: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackEntry {
    /// Relative to the workdir.
    pub path: PathBuf,
    pub kind: PackKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackKind {
    Folder,
    File { bytes: u64 },
    Link { target: PathBuf },
}

#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error("cannot read `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{}` became shorter while it was being packed", path.display())]
    Changed { path: PathBuf },
    #[error("cannot write the archive `{}`", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// How many files the "too large" finding names: enough to see the pattern, few enough to read.
const LARGEST_NAMED: usize = 10;

/// zstd's default: level 3 packs source code at about 400 MB/s per core. Level 9 saves a tenth of
/// the bytes for four times the time.
const ZSTD_LEVEL: i32 = 3;

/// Walks the workdir. `never` are folders that never ship (the job's own checkpoints). A larger
/// total than `bytes_max` is a finding.
///
/// Unreadable files are findings too, so that the user sees all problems at once.
pub fn survey(root: &Path, never: &[PathBuf], bytes_max: u64) -> Survey {
    let mut survey = Survey { root: root.to_owned(), ..Survey::default() };
    let mut left_out = SkippedFiles::default();
    let skip: Vec<PathBuf> = never.iter().map(|path| root.join(path)).collect();
    // `ignore` removes entries before we see them, so the filter reports them.
    let (told, pruned) = std::sync::mpsc::channel();
    let mut walk = walker(root);
    let skipped = skip.clone();
    let (warn, unfit) = std::sync::mpsc::channel();
    let base = top(root).unwrap_or(root).to_owned();
    // The walk reads a folder's ignore files on entry, and would read a device for ever.
    let enters = move |folder: &Path| match unfit_ignore_file(&base, folder) {
        None => true,
        Some(finding) => {
            let _ = warn.send(finding);
            false
        }
    };
    if !ignore_folders(root).iter().all(|folder| enters(folder)) {
        survey.findings.extend(unfit.try_iter());
        return survey;
    }
    walk.filter_entry(move |entry| match reason_to_prune(entry, &skipped) {
        None => !entry.file_type().is_some_and(|kind| kind.is_dir()) || enters(entry.path()),
        Some(reason) => {
            // The receiver exists as long as the walk.
            let _ = told.send((entry.path().to_owned(), reason));
            false
        }
    });
    for entry in walk.build() {
        let Ok(entry) = entry.map_err(|error| survey.findings.push(unwalked(root, &error))) else {
            continue;
        };
        let path = entry.path().strip_prefix(root).unwrap_or(entry.path()).to_owned();
        if path.as_os_str().is_empty() {
            continue;
        }
        let taken = fs::symlink_metadata(entry.path())
            .and_then(|meta| take_in(&mut survey, &mut left_out, path.clone(), &meta));
        if let Err(error) = taken {
            survey.findings.push(unreadable(&path, error.kind()));
        }
    }
    left_out.pruned.extend(pruned.try_iter());
    survey.findings.extend(unfit.try_iter());
    if survey.findings.iter().any(|finding| finding.cause == FindingCause::IgnoreFileUnread) {
        return survey;
    }
    take_in_tracked(&mut survey, &mut left_out, &skip);
    survey.findings.extend(left_out.warnings(root));
    not_brought_back(&mut survey);
    if survey.files == 0 {
        survey.findings.push(Finding::warning(
            "workdir",
            "holds no files that ship: all are ignored, or there are none",
        ));
    }
    if survey.bytes > bytes_max {
        let finding = too_large(&survey, bytes_max);
        survey.findings.push(finding);
    } else if survey.bytes >= LARGE_BYTES {
        let finding = large(&survey);
        survey.findings.push(finding);
    }
    survey
}

/// Files that git tracks ship although `.gitignore` names them: a script may need them.
fn take_in_tracked(survey: &mut Survey, left_out: &mut SkippedFiles, skip: &[PathBuf]) {
    let root = survey.root.clone();
    let known: HashSet<PathBuf> = survey.entries.iter().map(|entry| entry.path.clone()).collect();
    for path in tracked_but_ignored(&root, &known, |folder| is_left_out(&root.join(folder), skip)) {
        let taken = fs::symlink_metadata(root.join(&path))
            .and_then(|meta| take_in(survey, left_out, path.clone(), &meta));
        if let Err(error) = taken {
            survey.findings.push(unreadable(&path, error.kind()));
        }
    }
    survey.entries.sort_by(|one, other| one.path.cmp(&other.path));
}

fn unreadable(path: &Path, error: impl std::fmt::Display) -> Finding {
    let shown = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let hint = "what need not ship is named in .lampignore, or the workdir is another folder: `--workdir FOLDER`, `.` by default";
    Finding::error("workdir", format!("`{}` cannot be read: {error}", shown.display())).hint(hint)
}

/// An error of the walk as a finding.
fn unwalked(root: &Path, error: &ignore::Error) -> Finding {
    match error {
        ignore::Error::WithPath { path, err } => {
            let cause =
                err.io_error().map_or_else(|| err.to_string(), |error| error.kind().to_string());
            unreadable(path.strip_prefix(root).unwrap_or(path), cause)
        }
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => {
            unwalked(root, err)
        }
        other => unreadable(Path::new(""), other),
    }
}

/// Warns about a `!file` line in `.lampignore` without effect. As in git, an ignored folder hides
/// all below it.
#[expect(
    clippy::disallowed_methods,
    reason = "an ignore file of the user's, which the walk reads too"
)]
fn not_brought_back(survey: &mut Survey) {
    let Ok(text) = fs::read_to_string(survey.root.join(".lampignore")) else { return };
    for line in text.lines() {
        let Some(path) =
            line.trim().strip_prefix('!').map(|path| Path::new(path.trim_matches('/')))
        else {
            continue;
        };
        let ships = survey.entries.iter().any(|entry| entry.path.starts_with(path));
        let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
            continue;
        };
        if ships || !survey.root.join(path).is_file() {
            continue;
        }
        let (path, folder) = (path.display(), folder.display());
        let message = format!(
            "`{path}` does not ship: .lampignore brings it back, but a folder above it is ignored"
        );
        let hint = format!("as in git, three lines do it: `!{folder}/`, `{folder}/*`, `!{path}`");
        let cause = FindingCause::DoesNotShip(path.to_string());
        survey.findings.push(Finding::warning("workdir", message).hint(hint).because(cause));
    }
}

/// The largest ignore file that is read. Known ones have some thousand lines.
const IGNORE_BYTES_MAX: u64 = 1_000_000;

/// The root and the folders above it whose ignore files the walk reads.
fn ignore_folders(root: &Path) -> Vec<PathBuf> {
    let Some(top) = top(root) else { return vec![root.to_owned()] };
    root.ancestors()
        .take_while(|folder| folder.starts_with(top))
        .map(Path::to_owned)
        .chain([top.join(".git/info")])
        .collect()
}

/// The root of the git repository that holds this folder.
fn top(root: &Path) -> Option<&Path> {
    root.ancestors().find(|folder| folder.join(".git").exists())
}

/// A folder's ignore file that cannot be read, is too large, or is a link out of the workdir, which
/// git does not follow either.
fn unfit_ignore_file(root: &Path, folder: &Path) -> Option<Finding> {
    let names: &[&str] =
        if folder.ends_with(".git/info") { &["exclude"] } else { &[".gitignore", ".lampignore"] };
    let problem = |path: &PathBuf| {
        let is_link = fs::symlink_metadata(path).ok()?.is_symlink();
        let meta = fs::metadata(path).ok()?;
        match () {
            () if is_link
                && !fs::canonicalize(path).ok()?.starts_with(fs::canonicalize(root).ok()?) =>
            {
                Some("is a link that leads outside")
            }
            // A folder of that name is an ordinary folder.
            () if meta.is_dir() => None,
            () if !meta.is_file() => Some("is no regular file"),
            () if meta.len() > IGNORE_BYTES_MAX => Some("is larger than 1 MB"),
            () => None,
        }
    };
    let (path, problem) = names
        .iter()
        .map(|name| folder.join(name))
        .find_map(|path| problem(&path).map(|problem| (path, problem)))?;
    let shown = path.strip_prefix(root).unwrap_or(&path).display();
    Some(
        Finding::error("workdir", format!("`{shown}` {problem} and is refused"))
            .hint("put a file with the patterns in its place")
            .because(FindingCause::IgnoreFileUnread),
    )
}

fn walker(root: &Path) -> WalkBuilder {
    // Ignore files above the workdir count only inside the same git repository. A `.gitignore` in
    // the home folder must not hide a project outside it.
    let in_repository = top(root).is_some();
    let mut walk = WalkBuilder::new(root);
    walk.standard_filters(false)
        .git_ignore(true)
        .git_exclude(true)
        .require_git(false)
        .parents(in_repository)
        .add_custom_ignore_filename(".lampignore")
        .follow_links(false)
        .sort_by_file_name(std::ffi::OsStr::cmp);
    walk
}

fn take_in(
    survey: &mut Survey,
    left_out: &mut SkippedFiles,
    path: PathBuf,
    meta: &Metadata,
) -> io::Result<()> {
    let kind = meta.file_type();
    let kind = if kind.is_dir() {
        PackKind::Folder
    } else if kind.is_file() {
        // Checks access without opening, which is faster for thousands of files.
        rustix::fs::access(survey.root.join(&path), rustix::fs::Access::READ_OK)?;
        survey.bytes += meta.len();
        survey.files += 1;
        PackKind::File { bytes: meta.len() }
    } else if kind.is_symlink() {
        let target = fs::read_link(survey.root.join(&path))?;
        if !link_stays_inside(&path, &target) {
            let message = format!(
                "`{}` is a link to `{}`, which is not in the workdir",
                path.display(),
                target.display()
            );
            let hint =
                "ignore it in .lampignore, put a copy in its place, or fetch the data in `setup`";
            survey.findings.push(Finding::error("workdir", message).hint(hint));
            return Ok(());
        }
        PackKind::Link { target }
    } else {
        debug_assert!(
            kind.is_socket() || kind.is_fifo() || kind.is_block_device() || kind.is_char_device()
        );
        left_out.special.push(path);
        return Ok(());
    };
    survey.entries.push(PackEntry { path, kind });
    Ok(())
}

/// From this size an upload takes more than a minute at 20 Mbit/s.
const LARGE_BYTES: u64 = 200 << 20;

/// How many files the "large" warning names.
const LARGE_NAMED: usize = 3;

fn large(survey: &Survey) -> Finding {
    let message = format!(
        "ships {} in {} files to each job; the largest are {}",
        show_bytes(survey.bytes),
        survey.files,
        largest(survey, LARGE_NAMED)
    );
    Finding::warning("workdir", message).hint("what need not ship is named in .lampignore")
}

fn too_large(survey: &Survey, bytes_max: u64) -> Finding {
    let message = format!(
        "holds {} in {} files, more than {}; the largest are {}",
        show_bytes(survey.bytes),
        survey.files,
        show_bytes(bytes_max),
        largest(survey, LARGEST_NAMED)
    );
    Finding::error("workdir", message)
        .hint("add data and results to .lampignore, or raise `workdir_max`")
}

/// The largest files with their sizes.
fn largest(survey: &Survey, named: usize) -> String {
    let of_file = |entry: &PackEntry| match entry.kind {
        PackKind::File { bytes } => Some((bytes, entry.path.clone())),
        _ => None,
    };
    let mut files: Vec<(u64, PathBuf)> = survey.entries.iter().filter_map(of_file).collect();
    files.sort_unstable_by(|left, right| right.cmp(left));
    let shown: Vec<String> = files
        .iter()
        .take(named)
        .map(|(bytes, path)| format!("{} ({})", path.display(), show_bytes(*bytes)))
        .collect();
    shown.join(", ")
}

/// `1.5 GiB`, as people compare sizes.
pub fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

/// Packs the survey's files into a new archive. `packed` counts their bytes meanwhile.
///
/// # Errors
/// When a file is unreadable or became shorter since the survey, or the archive cannot be written.
pub fn pack(survey: &Survey, out: &Path, packed: &AtomicU64) -> Result<CodeArchive, PackError> {
    let write_failed = |source| PackError::Write { path: out.to_owned(), source };
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(out)
        .map_err(write_failed)?;
    let hashed = Hashed { inner: BufWriter::new(file), hash: Sha256::new(), bytes: 0 };
    let encoder = zstd::stream::write::Encoder::new(hashed, ZSTD_LEVEL).map_err(write_failed)?;
    let mut tar = tar::Builder::new(encoder);
    let mut tree = Sha256::new();
    for entry in &survey.entries {
        append(&mut tar, &survey.root, entry, (&mut tree, packed))
            .map_err(|error| error.unwrap_or_else(write_failed))?;
    }
    let mut hashed =
        tar.into_inner().and_then(zstd::stream::write::Encoder::finish).map_err(write_failed)?;
    hashed.flush().map_err(write_failed)?;
    let sha256 = hex::encode(hashed.hash.finalize());
    Ok(CodeArchive {
        files: survey.files,
        bytes: survey.bytes,
        packed_bytes: hashed.bytes,
        sha256,
        tree: Some(hex::encode(tree.finalize())),
        source: None,
    })
}

/// `CodeArchive::tree` of a survey, without packing.
///
/// # Errors
/// When a file is unreadable or became shorter since the survey.
pub fn tree_of(survey: &Survey) -> Result<String, PackError> {
    let mut tar = tar::Builder::new(io::sink());
    let mut tree = Sha256::new();
    for entry in survey.entries.iter().filter(|entry| entry.kind != PackKind::Folder) {
        let no_archive = |source| PackError::Read { path: entry.path.clone(), source };
        append(&mut tar, &survey.root, entry, (&mut tree, &AtomicU64::default()))
            .map_err(|error| error.unwrap_or_else(no_archive))?;
    }
    Ok(hex::encode(tree.finalize()))
}

/// The files written after this moment.
pub fn changed_since(survey: &Survey, moment: SystemTime) -> Vec<&Path> {
    let is_newer = |path: &Path| {
        fs::symlink_metadata(survey.root.join(path))
            .and_then(|meta| meta.modified())
            .is_ok_and(|at| at > moment)
    };
    survey
        .entries
        .iter()
        .filter(|entry| entry.kind != PackKind::Folder)
        .map(|entry| entry.path.as_path())
        .filter(|path| is_newer(path))
        .collect()
}

/// A fault in an entry, or in writing the archive.
enum AppendError {
    Entry(PackError),
    Archive(io::Error),
}

impl AppendError {
    fn unwrap_or_else(self, archive: impl Fn(io::Error) -> PackError) -> PackError {
        match self {
            AppendError::Entry(error) => error,
            AppendError::Archive(error) => archive(error),
        }
    }
}

/// Appends an entry, and adds its kind and content to `tree`. Folders and dates are left out: files
/// that do not ship change them.
fn append<W: Write>(
    tar: &mut tar::Builder<W>,
    root: &Path,
    entry: &PackEntry,
    (tree, packed): (&mut Sha256, &AtomicU64),
) -> Result<(), AppendError> {
    let full = root.join(&entry.path);
    let unreadable =
        |source| AppendError::Entry(PackError::Read { path: entry.path.clone(), source });
    let meta = fs::symlink_metadata(&full).map_err(unreadable)?;
    let mut header = tar::Header::new_gnu();
    // Files that do not ship change the date of their folder.
    let dated = if entry.kind == PackKind::Folder { 0 } else { meta.mtime() };
    header.set_mtime(u64::try_from(dated).unwrap_or(0));
    header.set_mode(meta.mode() & 0o777);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    match &entry.kind {
        PackKind::Folder => {
            header.set_entry_type(tar::EntryType::Directory);
            tar.append_data(&mut header, &entry.path, io::empty()).map_err(AppendError::Archive)
        }
        PackKind::Link { target } => {
            name_in(tree, &entry.path, 'l', target.as_os_str().as_encoded_bytes().len() as u64);
            tree.update(target.as_os_str().as_encoded_bytes());
            header.set_entry_type(tar::EntryType::Symlink);
            tar.append_link(&mut header, &entry.path, target).map_err(AppendError::Archive)
        }
        PackKind::File { bytes } => {
            let changed = || AppendError::Entry(PackError::Changed { path: entry.path.clone() });
            header.set_entry_type(tar::EntryType::Regular);
            header.set_size(*bytes);
            // NOFOLLOW: the file may have become a link since the survey.
            let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
            let file = OpenOptions::new()
                .read(true)
                .custom_flags(no_follow)
                .open(&full)
                .map_err(unreadable)?;
            if file.metadata().map_err(unreadable)?.len() < *bytes {
                return Err(changed());
            }
            name_in(tree, &entry.path, if meta.mode() & 0o100 == 0 { 'f' } else { 'x' }, *bytes);
            let mut exact = Exact { file, left: *bytes, tree, packed };
            tar.append_data(&mut header, &entry.path, &mut exact).map_err(|error| {
                match error.kind() {
                    io::ErrorKind::UnexpectedEof => changed(),
                    _ => AppendError::Archive(error),
                }
            })
        }
    }
}

/// Reads exactly as many bytes as the header says. A log that grew is cut; a file that shrank is an
/// error.
struct Exact<'a> {
    file: File,
    left: u64,
    tree: &'a mut Sha256,
    packed: &'a AtomicU64,
}

/// Writes lengths first, so that no two entries hash alike.
fn name_in(tree: &mut Sha256, path: &Path, kind: char, bytes: u64) {
    let name = path.as_os_str().as_encoded_bytes();
    tree.update(format!("{kind} {} {bytes} ", name.len()));
    tree.update(name);
}

impl Read for Exact<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let got = self.file.read(&mut buffer[..want])?;
        if got == 0 && want > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= got as u64;
        self.tree.update(&buffer[..got]);
        self.packed.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got)
    }
}

/// Hashes and counts the bytes written.
struct Hashed<W> {
    inner: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hash.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
