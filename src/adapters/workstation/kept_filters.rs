//! The filters that a person keeps for `lamp top`: one a line, in a file of the state folder.

#![expect(clippy::disallowed_methods, reason = "a file of our own")]

use std::io;
use std::path::Path;

use super::private_files;

const FILE: &str = "top-filters";

/// More do not fit a list that a person walks through.
const FILTERS_MAX: usize = 50;

/// Empty without a file, or if it cannot be read.
pub fn read(state: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(state.join(FILE)).unwrap_or_default();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.take(FILTERS_MAX).map(str::to_owned).collect()
}

/// # Errors
/// When the state folder cannot be written.
pub fn write(state: &Path, filters: &[String]) -> io::Result<()> {
    private_files::folder(state)?;
    let text: String = filters.iter().map(|filter| format!("{}\n", filter.trim())).collect();
    // A reader sees the old list or the new one.
    let new = state.join(format!("{FILE}.{}.new", std::process::id()));
    private_files::write(&new, text)?;
    std::fs::rename(new, state.join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read_as_they_were_kept() {
        let state = tempfile::tempdir().expect("a folder");
        let state = state.path().join("lamplighter");
        assert!(read(&state).is_empty());
        let kept = ["state:open cost<5".to_owned(), "gpu:A10G".to_owned()];
        write(&state, &kept).expect("written");
        assert_eq!(read(&state), kept);
        write(&state, &[]).expect("written");
        assert!(read(&state).is_empty());
    }
}
