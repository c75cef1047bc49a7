//! What ships of a workdir, its archive, and that nothing in an archive is trusted.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use lamplighter::adapters::workdir::pack::{PackError, Survey, pack, survey};
use lamplighter::adapters::workdir::unpack::{ArchiveError, ArchiveLimits, unpack};
use lamplighter::job::Severity;
use proptest::prelude::*;
use tar::{EntryType, Header};

const PLENTY: u64 = 1 << 30;

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        Tree(tempfile::tempdir().expect("a temporary folder can be made"))
    }

    fn root(&self) -> PathBuf {
        self.0.path().join("work")
    }

    fn with(self, path: &str, text: &str) -> Self {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("writable");
        fs::write(path, text).expect("writable");
        self
    }

    fn survey(&self) -> Survey {
        survey(&self.root(), &[], PLENTY)
    }

    fn ships(&self) -> Vec<String> {
        let files = self
            .survey()
            .entries
            .into_iter()
            .filter(|entry| !self.root().join(&entry.path).is_dir());
        files.map(|entry| entry.path.display().to_string()).collect()
    }
}

fn errors(survey: &Survey) -> Vec<String> {
    survey
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .map(|finding| finding.message.clone())
        .collect()
}

fn warnings(survey: &Survey) -> Vec<String> {
    survey
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Warning)
        .map(|finding| finding.message.clone())
        .collect()
}

/// skypilot#446: what somebody has added with `git add -f` is a part of the code, whatever
/// `.gitignore` says.
#[test]
fn what_git_tracks_ships_and_lampignore_stands_over_it() {
    let tree = Tree::new()
        .with(".gitignore", "data/\n*.bin\n")
        .with("a.py", "")
        .with("data/config.json", "{}")
        .with("data/untracked.json", "{}")
        .with("data/deep/er/x.txt", "x")
        .with("model.bin", "m")
        .with("__pycache__/a.pyc", "")
        .with("checkpoints/old.bin", "o")
        .with("gone.bin", "");
    let git = |words: &[&str]| {
        let mut git = std::process::Command::new("git");
        git.arg("-C")
            .arg(tree.root())
            .args(words)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .stdout(std::process::Stdio::null());
        git.status().is_ok_and(|status| status.success())
    };
    if !git(&["init", "-q"]) {
        return lamp_test_support::skipped("git", "there is no git on this machine");
    }
    let forced = [
        ".gitignore",
        "data/config.json",
        "data/deep/er/x.txt",
        "model.bin",
        "__pycache__/a.pyc",
        "checkpoints/old.bin",
        "gone.bin",
    ];
    assert!(git(&[&["add", "-f"], &forced[..]].concat()));
    fs::remove_file(tree.root().join("gone.bin")).expect("there");
    let survey = |tree: &Tree| survey(&tree.root(), &[PathBuf::from("checkpoints")], PLENTY);
    let names = |found: &Survey| {
        found.entries.iter().map(|entry| entry.path.display().to_string()).collect::<Vec<_>>()
    };
    let found = survey(&tree);
    assert_eq!(
        names(&found),
        [
            ".gitignore",
            "a.py",
            "data",
            "data/config.json",
            "data/deep",
            "data/deep/er",
            "data/deep/er/x.txt",
            "model.bin"
        ],
        "{:?}",
        found.findings
    );
    let tree = tree.with(".lampignore", "model.bin\ndata/deep/\n");
    assert_eq!(
        names(&survey(&tree)),
        [".gitignore", ".lampignore", "a.py", "data", "data/config.json"]
    );
}

#[test]
fn ignore_files_count_outside_git_too_and_git_never_ships() {
    let tree = Tree::new()
        .with(".gitignore", "*.log\n/data/\n!keep.log\n")
        .with("a.py", "")
        .with("run.log", "")
        .with("keep.log", "")
        .with("data/huge.bin", "")
        .with("src/.gitignore", "tmp\n")
        .with("src/tmp", "")
        .with("src/b.py", "")
        .with(".git/config", "")
        .with("vendored/.git", "gitdir: ../x")
        .with("vendored/c.py", "")
        .with("src/__pycache__/b.pyc", "")
        .with(".hidden", "");
    assert_eq!(
        tree.ships(),
        [
            ".gitignore",
            ".hidden",
            "a.py",
            "keep.log",
            "src/.gitignore",
            "src/b.py",
            "vendored/c.py"
        ]
    );
}

#[test]
fn lampignore_hides_more_and_brings_back() {
    let tree = Tree::new()
        .with(".gitignore", "*.csv\n")
        .with(".lampignore", "!small.csv\nnotes/\n")
        .with("small.csv", "")
        .with("big.csv", "")
        .with("notes/x", "");
    assert_eq!(tree.ships(), [".gitignore", ".lampignore", "small.csv"]);
}

#[test]
fn what_lampignore_cannot_bring_back_is_told() {
    let tree = |lampignore| {
        Tree::new()
            .with(".gitignore", "data/\n")
            .with(".lampignore", lampignore)
            .with("data/small.csv", "")
            .with("data/big.csv", "")
    };
    let told = tree("!data/small.csv\n");
    assert_eq!(told.ships(), [".gitignore", ".lampignore"]);
    assert_eq!(
        warnings(&told.survey()),
        [
            "`data/small.csv` does not ship: .lampignore brings it back, but a folder above it is ignored"
        ]
    );
    let hinted = tree("!data/\ndata/*\n!data/small.csv\n");
    assert_eq!(hinted.ships(), [".gitignore", ".lampignore", "data/small.csv"], "as the hint says");
    assert_eq!(warnings(&hinted.survey()), [""; 0]);
}

#[test]
fn ignore_file_above_the_workdir_counts_in_its_repository_only() {
    let tree = Tree::new().with("a.py", "").with("b.log", "");
    fs::write(tree.0.path().join(".gitignore"), "*\n").expect("writable");
    assert_eq!(
        tree.ships(),
        ["a.py", "b.log"],
        "a home folder that hides all hides nothing of a project"
    );
    fs::write(tree.0.path().join(".gitignore"), "*.log\n").expect("writable");
    fs::create_dir(tree.0.path().join(".git")).expect("writable");
    assert_eq!(tree.ships(), ["a.py"]);
}

/// A cloned repository may bring a link to a device as its ignore file, and its end would never
/// come.
#[test]
fn ignore_file_that_never_ends_is_refused_unread() {
    let refused = |name: &str, make: &dyn Fn(&Path)| {
        let tree = Tree::new().with("a.py", "x").with("sub/b.py", "x");
        let _ = fs::remove_file(tree.root().join(name));
        make(&tree.root().join(name));
        let found = tree.survey().findings;
        let told = found.iter().any(|finding| {
            finding.severity == Severity::Error && finding.message.starts_with(&format!("`{name}`"))
        });
        assert!(told, "{name}: {found:?}");
    };
    let device = |path: &Path| symlink("/dev/zero", path).expect("writable");
    let pipe = |path: &Path| {
        rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RWXU).expect("writable")
    };
    let huge =
        |path: &Path| fs::File::create(path).expect("writable").set_len(1 << 40).expect("sparse");
    for name in [".gitignore", ".lampignore", "sub/.gitignore", "sub/.lampignore"] {
        refused(name, &device);
        refused(name, &pipe);
        refused(name, &huge);
    }
    let tree = Tree::new().with("a.py", "x").with("patterns", "a.py\n");
    symlink("patterns", tree.root().join(".lampignore")).expect("writable");
    assert_eq!(tree.survey().findings.len(), 0, "a link inside is read");
}

#[test]
fn links_inside_ship_as_links_and_links_outside_are_refused() {
    let tree = Tree::new().with("a.py", "x").with("sub/b.py", "");
    symlink("a.py", tree.root().join("link")).expect("writable");
    symlink("../a.py", tree.root().join("sub/up")).expect("writable");
    assert_eq!(errors(&tree.survey()), [""; 0]);
    symlink("/etc/hostname", tree.root().join("absolute")).expect("writable");
    symlink("../../elsewhere", tree.root().join("sub/out")).expect("writable");
    let survey = tree.survey();
    assert_eq!(
        errors(&survey),
        [
            "`absolute` is a link to `/etc/hostname`, which is not in the workdir",
            "`sub/out` is a link to `../../elsewhere`, which is not in the workdir"
        ]
    );
    assert!(survey.findings.iter().all(|finding| finding.hint.is_some()));
}

#[test]
fn what_cannot_work_elsewhere_stays_and_is_told() {
    let tree = Tree::new()
        .with("a.py", "")
        .with("env/pyvenv.cfg", "")
        .with("env/bin/python", "")
        .with("checkpoints/step-9", "")
        .with("empty/.x", "");
    let _socket = UnixListener::bind(tree.root().join("s.sock")).expect("a socket can be made");
    let survey = survey(&tree.root(), &[PathBuf::from("checkpoints")], PLENTY);
    assert_eq!(survey.files, 2);
    assert_eq!(
        warnings(&survey),
        [
            "`s.sock` does not ship: it is a socket, a pipe or a device",
            "`checkpoints` does not ship: a job starts from its own checkpoints, not from an earlier run",
            "`env` does not ship: a virtual environment works only where it was made",
        ]
    );
    assert_eq!(
        warnings(&Tree::new().with(".git/x", "").survey()),
        ["holds no files that ship: all are ignored, or there are none"]
    );
}

#[test]
fn tree_comes_out_as_it_went_in() {
    let tree = Tree::new()
        .with("run.sh", "#!/bin/sh\n")
        .with("sub/deep/er/x.txt", "text")
        .with("empty-file", "");
    let root = tree.root();
    fs::create_dir(root.join("empty-folder")).expect("writable");
    fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o750)).expect("writable");
    symlink("sub/deep", root.join("link")).expect("writable");
    fs::write(root.join(OsStr::from_bytes(b"odd \xff name")), "odd").expect("writable");
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(150));
    let tree = tree.with(&long, "long");

    let out = tree.0.path().join("code.tar.zst");
    let surveyed = tree.survey();
    let count = AtomicU64::default();
    let code = pack(&surveyed, &out, &count).expect("it packs");
    assert_eq!(count.into_inner(), surveyed.bytes);
    assert_eq!((code.files, code.bytes), (5, 21));
    assert_eq!(code.packed_bytes, fs::metadata(&out).expect("it was written").len());

    let into = tree.0.path().join("unpacked");
    let unpacked = unpack(&out, &into, ArchiveLimits::of(&code)).expect("it unpacks");
    assert_eq!((unpacked.files, unpacked.bytes), (5, 21));
    assert_eq!(survey(&into, &[], PLENTY).entries, surveyed.entries);
    assert_eq!(
        fs::read_to_string(into.join("link/er/x.txt")).expect("the link leads there"),
        "text"
    );
    assert_eq!(
        fs::metadata(into.join("run.sh")).expect("it is there").permissions().mode() & 0o777,
        0o750
    );
    let modified = |path: PathBuf| {
        fs::metadata(path).expect("it is there").modified().expect("the disk keeps times")
    };
    let (before, after) = (modified(root.join("run.sh")), modified(into.join("run.sh")));
    assert!(
        before.duration_since(after).expect("whole seconds, cut").as_secs() == 0,
        "{before:?} {after:?}"
    );
}

#[test]
fn same_tree_gives_the_same_bytes() {
    let tree = Tree::new().with("b.py", "b").with("a/c.py", "c").with("a.py", "a");
    let out = |name: &str| {
        pack(&tree.survey(), &tree.0.path().join(name), &AtomicU64::default()).expect("it packs")
    };
    let (first, second) = (out("1"), out("2"));
    assert_eq!(first, second);
    assert_eq!(first.sha256.len(), 64);
    let tree = tree.with("a.py", "A");
    assert_ne!(
        pack(&tree.survey(), &tree.0.path().join("3"), &AtomicU64::default())
            .expect("it packs")
            .sha256,
        first.sha256
    );
}

#[test]
fn growing_log_is_packed_up_to_the_end_that_the_survey_saw() {
    let tree = Tree::new().with("log.txt", "one").with("z.txt", "after it");
    let surveyed = tree.survey();
    let tree = tree.with("log.txt", "one, two");
    let packed = tree.0.path().join("out");
    let code = pack(&surveyed, &packed, &AtomicU64::default())
        .expect("a live log does not keep the job from running");
    assert_eq!((code.files, code.bytes), (2, 11));
    let into = tree.0.path().join("unpacked");
    unpack(&packed, &into, ArchiveLimits::of(&code)).expect("it unpacks");
    let text = |name: &str| fs::read_to_string(into.join(name)).expect("it shipped");
    assert_eq!((text("log.txt").as_str(), text("z.txt").as_str()), ("one", "after it"));
}

#[test]
fn file_that_shrinks_while_it_is_packed_is_an_error() {
    let tree = Tree::new().with("log.txt", "one, two");
    let surveyed = tree.survey();
    let tree = tree.with("log.txt", "one");
    let error = pack(&surveyed, &tree.0.path().join("out"), &AtomicU64::default())
        .expect_err("the promised bytes are not there");
    assert!(
        matches!(&error, PackError::Changed { path } if path == Path::new("log.txt")),
        "{error:?}"
    );
    fs::remove_file(tree.root().join("log.txt")).expect("writable");
    symlink("/etc/hostname", tree.root().join("log.txt")).expect("writable");
    let error = pack(&surveyed, &tree.0.path().join("out"), &AtomicU64::default())
        .expect_err("it is a link now");
    assert!(matches!(&error, PackError::Read { .. }), "{error:?}");
}

/// Path, kind, target of a link, content.
type Entry<'a> = (&'a [u8], EntryType, &'a str, &'a [u8]);

/// An archive made by somebody who means harm: headers as they are, nothing checked.
fn archive_of(entries: &[Entry<'_>]) -> tempfile::NamedTempFile {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, kind, link, data) in entries {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path);
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o4777);
        header.set_size(data.len() as u64);
        header.set_cksum();
        tar.append(&header, *data).expect("a Vec takes everything");
    }
    let plain = tar.into_inner().expect("a Vec takes everything");
    let file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    fs::write(file.path(), zstd::encode_all(&plain[..], 1).expect("it packs")).expect("writable");
    file
}

fn unpack_of(
    entries: &[Entry<'_>],
    limits: ArchiveLimits,
) -> (tempfile::TempDir, Result<(), ArchiveError>) {
    let place = tempfile::tempdir().expect("a temporary folder can be made");
    let result = unpack(archive_of(entries).path(), &place.path().join("in"), limits).map(|_| ());
    (place, result)
}

const LIMITS: ArchiveLimits = ArchiveLimits { bytes_max: 1000, entries_max: 10 };

#[test]
fn harmful_archive_is_refused_and_writes_nothing_outside() {
    let file = EntryType::Regular;
    let link = EntryType::Symlink;
    let cases: &[&[Entry<'_>]] = &[
        &[(b"/etc/x", file, "", b"x")],
        &[(b"../x", file, "", b"x")],
        &[(b"a/../../x", file, "", b"x")],
        &[(b"l", link, "/etc", b"")],
        &[(b"l", link, "..", b"")],
        &[(b"a/l", link, "../../x", b"")],
        &[(b"d", link, "sub", b""), (b"l", link, "d/../../x", b"")],
        &[(b"h", EntryType::Link, "/etc/passwd", b"")],
        &[(b"dev", EntryType::Char, "", b"")],
        &[(b"dev", EntryType::Block, "", b"")],
        &[(b"pipe", EntryType::Fifo, "", b"")],
    ];
    for case in cases {
        let (place, result) = unpack_of(case, LIMITS);
        assert!(matches!(result, Err(ArchiveError::Refused { .. })), "{case:?}: {result:?}");
        let outside: Vec<_> = fs::read_dir(place.path())
            .expect("readable")
            .filter(|entry| entry.as_ref().expect("readable").file_name() != "in")
            .collect();
        assert!(outside.is_empty(), "{case:?}: {outside:?}");
    }
}

#[test]
fn unpacking_writes_nothing_through_a_link_or_over_a_file() {
    let (place, result) = unpack_of(
        &[(b"l", EntryType::Symlink, "sub", b""), (b"l/x", EntryType::Regular, "", b"x")],
        LIMITS,
    );
    assert!(matches!(result, Err(ArchiveError::Write { .. })), "{result:?}");
    assert!(!place.path().join("in/sub").exists());
    let (_, result) = unpack_of(
        &[(b"x", EntryType::Regular, "", b"1"), (b"x", EntryType::Regular, "", b"2")],
        LIMITS,
    );
    assert!(matches!(result, Err(ArchiveError::Write { .. })), "{result:?}");
}

#[test]
fn special_permission_bits_do_not_come_along() {
    let (place, result) = unpack_of(&[(b"x", EntryType::Regular, "", b"1")], LIMITS);
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(
        fs::metadata(place.path().join("in/x")).expect("it is there").permissions().mode() & 0o7000,
        0
    );
}

#[test]
fn more_than_was_said_is_refused() {
    let big = vec![7_u8; 600];
    let (_, result) = unpack_of(
        &[(b"a", EntryType::Regular, "", &big), (b"b", EntryType::Regular, "", &big)],
        LIMITS,
    );
    assert_eq!(
        result.expect_err("1200 bytes are more than 1000").to_string(),
        "the archive was refused: with `b` it holds more than 1000 bytes"
    );
    let many: Vec<Vec<u8>> = (0..11).map(|n| format!("f{n}").into_bytes()).collect();
    let entries: Vec<Entry<'_>> =
        many.iter().map(|name| (&name[..], EntryType::Regular, "", &b""[..])).collect();
    let (_, result) = unpack_of(&entries, LIMITS);
    assert_eq!(
        result.expect_err("11 entries are more than 10").to_string(),
        "the archive was refused: with `f10` it holds more than 10 entries"
    );
}

#[test]
fn torn_archive_is_an_error() {
    let whole = archive_of(&[(b"x", EntryType::Regular, "", &[9_u8; 500])]);
    let bytes = fs::read(whole.path()).expect("readable");
    for cut in [0, 1, bytes.len() / 2, bytes.len() - 1] {
        fs::write(whole.path(), &bytes[..cut]).expect("writable");
        let place = tempfile::tempdir().expect("a temporary folder can be made");
        assert!(
            unpack(whole.path(), place.path(), LIMITS).is_err(),
            "cut at {cut} of {}",
            bytes.len()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever links an archive holds: what it accepts never leads out of the folder.
    #[test]
    fn no_accepted_archive_has_a_way_out(
        links in prop::collection::vec(("[ab](/[ab]){0,2}", "(\\.\\./){0,3}[abc](/(\\.\\.|[ab])){0,3}"), 1..6),
    ) {
        let place = tempfile::tempdir().expect("a temporary folder can be made");
        let entries: Vec<Entry<'_>> =
            links.iter().map(|(path, target)| (path.as_bytes(), EntryType::Symlink, target.as_str(), &b""[..])).collect();
        let into = place.path().join("in");
        if unpack(archive_of(&entries).path(), &into, LIMITS).is_ok() {
            let root = into.canonicalize().expect("it is there");
            for (path, _) in &links {
                if let Ok(real) = into.join(path).canonicalize() {
                    prop_assert!(real.starts_with(&root), "{path} leads to {}", real.display());
                }
            }
        }
    }
}
