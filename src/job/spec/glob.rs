//! The patterns of `outputs`: what they name, and what is wrong with one.
//!
//! `*` and `?` stay within a part of the path, `**` is any number of parts, `[a-z]` and `[!a-z]` are one letter, `{a,b}` is either,
//! and a backslash takes the meaning from the letter behind it, as in a shell and in `.gitignore`. What must never live here: a path
//! that exists.

use std::path::Path;

/// What makes a part of a path a pattern.
pub const GLOB_LETTERS: [char; 5] = ['*', '?', '[', '{', '\\'];

/// A pattern that is well formed.
pub struct OutputGlob(String);

impl OutputGlob {
    /// # Errors
    /// In words, what is not well formed.
    pub fn new(glob: &str) -> Result<Self, String> {
        let glob = plain_path(glob);
        // All below what is named belongs to it anyway.
        let glob = glob.strip_suffix("/**").unwrap_or(&glob);
        // Nothing is named by what it is not.
        let glob = if glob.starts_with('!') { format!("\\{glob}") } else { glob.to_owned() };
        fast_glob::validate(&glob).map_err(|error| error.to_string())?;
        Ok(OutputGlob(glob))
    }

    /// Whether it names this path, or a folder above it.
    pub fn names(&self, path: &str) -> bool {
        let above = Path::new(path).ancestors().filter_map(Path::to_str).filter(|path| !path.is_empty());
        above.into_iter().any(|path| fast_glob::glob_match(&self.0, path))
    }
}

/// A pattern, or a path, without empty parts and `.`.
pub fn plain_path(glob: &str) -> String {
    glob.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_pattern_is_said() {
        for (glob, wrong) in [("[a", "missing ']'"), ("{a,b", "missing '}'"), ("a\\", "trailing backslash")] {
            assert!(OutputGlob::new(glob).is_err_and(|error| error.contains(wrong)), "{glob}");
        }
        for glob in ["model.pt", "**/*.[jt]son", "{a,b{c,d}}", "[!a-z0-9]", "\\[a", "!a", ""] {
            assert!(OutputGlob::new(glob).is_ok(), "{glob}");
        }
    }

    #[test]
    fn nothing_is_named_by_what_it_is_not() {
        assert!(OutputGlob::new("!a").is_ok_and(|glob| glob.names("!a") && !glob.names("b")));
    }
}
