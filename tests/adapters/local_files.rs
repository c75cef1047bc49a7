//! Local files as the agent meets them: links that lead outside, names that are no text, files that
//! come and go.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use lamplighter::adapters::host::files::LocalFiles;
use lamplighter::ports::{ClockLead, Files, Tree};
use tempfile::TempDir;

fn paths(tree: &Tree) -> Vec<&str> {
    tree.files.iter().map(|file| file.path.as_str()).collect()
}

#[test]
fn what_is_not_there_is_no_error() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("file"), "x").unwrap();
    for path in ["absent", "absent/deeper", "file/below"] {
        let path = folder.path().join(path);
        assert_eq!(LocalFiles.read(&path).unwrap(), None);
        assert_eq!(LocalFiles.read_from(&path, 3, 4).unwrap(), None);
        assert_eq!(LocalFiles.stamp(&path).unwrap(), None);
        assert!(LocalFiles.list(&path).unwrap().is_empty());
        assert_eq!(LocalFiles.walk(&path, 10).unwrap(), Tree::default());
        LocalFiles.remove(&path).unwrap();
    }
    assert_eq!(LocalFiles.stamp(folder.path()).unwrap(), None, "a folder is not a file");
}

#[test]
fn state_is_written_whole_and_for_its_owner_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state/deep/record.json");
    LocalFiles.replace(&path, b"one").unwrap();
    LocalFiles.replace(&path, b"two").unwrap();
    assert_eq!(LocalFiles.read(&path).unwrap().unwrap(), b"two");
    assert_eq!(
        LocalFiles.list(path.parent().unwrap()).unwrap().len(),
        1,
        "nothing is left beside it"
    );
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    let log = folder.path().join("log/events");
    LocalFiles.append(&log, b"ab").unwrap();
    LocalFiles.append(&log, b"cd").unwrap();
    assert_eq!(LocalFiles.read_from(&log, 1, 2).unwrap().unwrap(), b"bc");
    assert_eq!(LocalFiles.read_from(&log, 9, 2).unwrap().unwrap(), b"");
    assert_eq!(mode(&log), 0o600);
}

#[test]
fn walk_follows_links_inside_and_tells_of_the_rest() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("root");
    fs::create_dir_all(root.join("sub/deep")).unwrap();
    fs::write(root.join("a.pt"), "abc").unwrap();
    fs::write(root.join("sub/deep/b.pt"), "b").unwrap();
    fs::write(folder.path().join("secret"), "s").unwrap();
    symlink("sub/deep/b.pt", root.join("latest")).unwrap();
    symlink("../secret", root.join("outside")).unwrap();
    symlink("sub", root.join("folder")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
    let bad = std::ffi::OsStr::from_bytes(b"bad\xff");
    fs::write(root.join(bad), "x").unwrap();

    let tree = LocalFiles.walk(&root, 100).unwrap();
    assert_eq!(paths(&tree), ["a.pt", "latest", "sub/deep/b.pt"]);
    let skipped = tree.skipped.join("\n");
    for said in [
        "outside: a link that leads outside",
        "dangling: a link to nothing",
        "loop: a link to nothing",
        "pipe: not a regular file",
    ] {
        assert!(skipped.contains(said), "{said} in {skipped}");
    }
    assert!(skipped.contains("the name is not UTF-8"), "{skipped}");
    assert_eq!(tree.files[1].stamp, tree.files[2].stamp, "a link is its file");
    let links: Vec<(&str, &str)> =
        tree.links.iter().map(|link| (link.path.as_str(), link.target.as_str())).collect();
    assert_eq!(links, [("folder", "sub")], "a link to a folder is kept as a link");
    assert!(LocalFiles.walk(&root, 2).unwrap().truncated);
}

/// `/dev/shm` is another file system, dated by the same clock.
#[tokio::test]
async fn file_systems_of_one_machine_have_one_clock() {
    let (one, other) = (TempDir::new().unwrap(), TempDir::new_in("/dev/shm").unwrap());
    let lead = LocalFiles.clock_lead(one.path(), other.path()).await;
    assert_eq!(lead.unwrap(), ClockLead::default());
    let missing = one.path().join("missing");
    assert!(LocalFiles.clock_lead(&missing, other.path()).await.is_err());
}
