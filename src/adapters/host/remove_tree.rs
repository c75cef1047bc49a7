//! Removes a folder tree, also folders without write permission.

#![expect(clippy::disallowed_methods, reason = "this is what removes folders")]

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The owner needs these rights to empty a folder.
const OWNERS: u32 = 0o700;

/// Removes a folder. Go's module cache, conda and others leave folders without write permission. An
/// ordinary user cannot empty them before it is restored.
///
/// # Errors
/// When it does not exist, or something below belongs to another user.
pub fn remove_tree(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(folder);
            fs::remove_dir_all(folder)
        }
        removed => removed,
    }
}

/// Restores the owner's rights on every folder of the tree. Folders of other users stay as they
/// are, and the removal reports them.
fn open_up(folder: &Path) {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        // A link's target is not part of the tree.
        let Ok(found) = fs::symlink_metadata(&folder) else { continue };
        let mode = found.permissions().mode();
        if found.is_dir() && mode & OWNERS != OWNERS {
            let _not_ours = fs::set_permissions(&folder, fs::Permissions::from_mode(mode | OWNERS));
        }
        let below = fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(
            below
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// checkout#1720
    #[test]
    fn remove_tree_removes_unwritable_folders_and_follows_no_link() {
        let root = tempfile::tempdir().expect("a folder");
        let (outside, tree) = (root.path().join("outside"), root.path().join("tree"));
        fs::create_dir_all(tree.join("m/p/q")).expect("made");
        fs::create_dir(&outside).expect("made");
        fs::write(tree.join("m/p/a"), "x").expect("written");
        std::os::unix::fs::symlink(&outside, tree.join("m/link")).expect("linked");
        for (folder, mode) in [
            (outside.clone(), 0o555),
            (tree.join("m/p/q"), 0),
            (tree.join("m/p"), 0o555),
            (tree.join("m"), 0o500),
        ] {
            fs::set_permissions(folder, fs::Permissions::from_mode(mode)).expect("set");
        }
        // Root needs no rights, so this part is tested directly.
        open_up(&tree);
        assert_eq!(fs::metadata(&outside).expect("there").permissions().mode() & 0o777, 0o555);
        assert_eq!(
            fs::metadata(tree.join("m/p")).expect("there").permissions().mode() & 0o777,
            0o755
        );
        remove_tree(&tree).expect("removed");
        assert!(!tree.exists() && outside.exists());
    }
}
