//! A small program in place of the agent, whose debug build has hundreds of megabytes: `/bin/true`
//! with the agent's mark.

use std::path::{Path, PathBuf};

/// Into this folder.
pub fn small_agent(folder: &Path) -> PathBuf {
    let path = folder.join("small-agent");
    let mark = b"[the program lamp-agent of Lamplighter]".as_slice();
    let program = std::fs::read("/bin/true").expect("a small program");
    std::fs::write(&path, [&program, mark].concat()).expect("the test's folder can be written");
    path
}
