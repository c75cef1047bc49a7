//! Refuses links that another user made to files of others: an agent with root's rights must not
//! follow them.
//!
//! A workload with its own user may turn its folder into a link at any time. Not here: reading.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Refuses a path with a link of another user, unless it is root's link or leads to a file of that
/// user.
///
/// # Errors
/// If there is such a link.
pub(crate) fn refuse_foreign_links(path: &Path) -> io::Result<()> {
    let us = rustix::process::geteuid().as_raw();
    let is_foreign = |part: &&Path| {
        let Ok(link) = fs::symlink_metadata(part) else { return false };
        link.is_symlink()
            && leads_astray(link.uid(), us, fs::metadata(part).ok().map(|target| target.uid()))
    };
    match path.ancestors().find(is_foreign) {
        Some(link) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("`{}` is a link that another user made", link.display()),
        )),
        None => Ok(()),
    }
}

fn leads_astray(link: u32, us: u32, target: Option<u32>) -> bool {
    link != 0 && link != us && target.is_some_and(|target| target != link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_link_of_another_user_to_what_is_not_theirs_leads_astray() {
        for (link, us, target, expected) in [
            (65534, 0, Some(0), true),
            (65534, 0, Some(1000), true),
            (65534, 0, Some(65534), false),
            (65534, 0, None, false),
            (0, 0, Some(1000), false),
            (0, 1000, Some(1000), false),
            (1000, 1000, Some(0), false),
        ] {
            assert_eq!(leads_astray(link, us, target), expected, "{link} {us} {target:?}");
        }
    }
}
