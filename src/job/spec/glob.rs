//! The patterns of `outputs`: the paths they match, and their syntax errors.
//!
//! `*` and `?` stay within a part of the path, `**` is any number of parts. `[a-z]` and `[!a-z]`
//! are one letter, `{a,b}` is either. A backslash quotes the next letter, as in a shell and in
//! `.gitignore`. Reads no files.

use std::path::Path;

/// The letters that make a part of a path a pattern.
pub const GLOB_LETTERS: [char; 5] = ['*', '?', '[', '{', '\\'];

/// A pattern that is well formed.
pub struct OutputGlob(String);

impl OutputGlob {
    /// # Errors
    /// The syntax error, in words.
    pub fn new(glob: &str) -> Result<Self, String> {
        let glob = plain_path(glob);
        // A named folder includes all below it.
        let glob = glob.strip_suffix("/**").unwrap_or(&glob);
        // A leading `!` is a plain letter: patterns cannot exclude.
        let glob = if glob.starts_with('!') { format!("\\{glob}") } else { glob.to_owned() };
        fast_glob::validate(&glob).map_err(|error| error.to_string())?;
        Ok(OutputGlob(glob))
    }

    /// Whether it matches this path, or a folder above it.
    pub fn names(&self, path: &str) -> bool {
        let above =
            Path::new(path).ancestors().filter_map(Path::to_str).filter(|path| !path.is_empty());
        above.into_iter().any(|path| fast_glob::glob_match(&self.0, path))
    }
}

/// A pattern or a path without empty parts and `.`.
pub fn plain_path(glob: &str) -> String {
    glob.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_pattern_is_said() {
        for (glob, wrong) in
            [("[a", "missing ']'"), ("{a,b", "missing '}'"), ("a\\", "trailing backslash")]
        {
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
