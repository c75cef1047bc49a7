//! The patterns of `outputs`: what they mean, as a regular expression for whoever matches them, and what is wrong with one.
//!
//! `*` and `?` stay within a part of the path, `**` is any number of parts, `[a-z]` and `[!a-z]` are one letter, `{a,b}` is either,
//! and a backslash takes the meaning from the letter behind it. As in a shell and in `.gitignore`; a library for them would bring
//! a whole engine of expressions to the GPU machine. What must never live here: a path that exists.

/// What makes a part of a path a pattern.
pub const GLOB_LETTERS: [char; 5] = ['*', '?', '[', '{', '\\'];

/// Alternatives within alternatives: more is a slip, and whoever reads the expression has a limit of its own.
const DEPTH_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    #[error("its `[` is not closed")]
    OpenClass,
    #[error("its `{{` is not closed")]
    OpenChoice,
    #[error("its `}}` closes nothing")]
    NothingToClose,
    #[error("a range in its brackets ends before it begins")]
    Backwards,
    #[error("it ends with a backslash")]
    Backslash,
    #[error("`{{1..3}}` counts only in a shell: write `{{1,2,3}}`")]
    Counted,
    #[error("its braces are more than {DEPTH_MAX} deep")]
    TooDeep,
}

/// A pattern, or a path, without empty parts and `.`.
pub fn plain_path(glob: &str) -> String {
    glob.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/")
}

/// The expression that matches what the pattern names and, where that is a folder, all below it.
///
/// # Errors
/// The pattern is not well formed.
pub fn glob_expression(glob: &str) -> Result<String, GlobError> {
    let glob = plain_path(glob);
    // All below what is named belongs to it anyway.
    let letters: Vec<char> = glob.strip_suffix("/**").unwrap_or(&glob).chars().collect();
    let mut reader = Reader { letters: &letters, at: 0, out: String::new() };
    reader.whole()?;
    Ok(format!("(?s)^(?:{})(?:/.*)?$", reader.out))
}

struct Reader<'a> {
    letters: &'a [char],
    at: usize,
    out: String,
}

impl Reader<'_> {
    fn whole(&mut self) -> Result<(), GlobError> {
        // Where each open brace began, and whether it has two alternatives.
        let mut open: Vec<(usize, bool)> = Vec::new();
        while let Some(letter) = self.next() {
            match letter {
                '*' => self.stars(),
                '?' => self.out.push_str("[^/]"),
                '[' => self.class()?,
                '{' if open.len() == DEPTH_MAX => return Err(GlobError::TooDeep),
                '{' => {
                    open.push((self.at, false));
                    self.out.push_str("(?:");
                }
                ',' if !open.is_empty() => {
                    if let Some((_, is_choice)) = open.last_mut() {
                        *is_choice = true;
                    }
                    self.out.push('|');
                }
                '}' => {
                    let (from, is_choice) = open.pop().ok_or(GlobError::NothingToClose)?;
                    let inner: String = self.letters[from..self.at - 1].iter().collect();
                    if !is_choice && inner.contains("..") {
                        return Err(GlobError::Counted);
                    }
                    self.out.push(')');
                }
                '\\' => {
                    let meant = self.next().ok_or(GlobError::Backslash)?;
                    self.literal(meant);
                }
                letter => self.literal(letter),
            }
        }
        if open.is_empty() { Ok(()) } else { Err(GlobError::OpenChoice) }
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.letters.get(self.at).copied();
        self.at += usize::from(letter.is_some());
        letter
    }

    /// Two stars are any number of parts only where they are a part of their own; else they say no more than one.
    fn stars(&mut self) {
        let begins = self.at == 1 || matches!(self.letters[self.at - 2], '/' | '{' | ',');
        let mut stars = 1;
        while self.letters.get(self.at) == Some(&'*') {
            stars += 1;
            self.at += 1;
        }
        match self.letters.get(self.at) {
            Some('/') if begins && stars == 2 => {
                self.at += 1;
                self.out.push_str("(?:[^/]+/)*");
            }
            None | Some('}' | ',') if begins && stars == 2 => self.out.push_str(".*"),
            _ => self.out.push_str("[^/]*"),
        }
    }

    fn class(&mut self) -> Result<(), GlobError> {
        let is_not = matches!(self.letters.get(self.at), Some('!' | '^'));
        self.at += usize::from(is_not);
        let mut ranges: Vec<(char, char)> = Vec::new();
        loop {
            let letter = match self.next().ok_or(GlobError::OpenClass)? {
                // The first one is meant as it is, as in a shell.
                ']' if !ranges.is_empty() => break,
                '/' => return Err(GlobError::OpenClass),
                '\\' => self.next().ok_or(GlobError::OpenClass)?,
                letter => letter,
            };
            let mut to = letter;
            if let Some(['-', last]) = self.letters.get(self.at..self.at + 2)
                && !matches!(last, ']' | '/')
            {
                (to, self.at) = (*last, self.at + 2);
            }
            if to < letter {
                return Err(GlobError::Backwards);
            }
            ranges.push((letter, to));
        }
        self.out.push_str(if is_not { "[^/" } else { "[" });
        for (from, to) in ranges {
            self.code(from);
            self.out.push('-');
            self.code(to);
        }
        self.out.push(']');
        Ok(())
    }

    fn literal(&mut self, letter: char) {
        if letter.is_alphanumeric() || letter == '/' { self.out.push(letter) } else { self.code(letter) }
    }

    /// By its number no letter has a meaning.
    fn code(&mut self, letter: char) {
        self.out.push_str(&format!("\\x{{{:x}}}", u32::from(letter)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_pattern_is_said() {
        for (glob, wrong) in [
            ("[a", GlobError::OpenClass),
            ("[]", GlobError::OpenClass),
            ("[a/b]", GlobError::OpenClass),
            ("{a,b", GlobError::OpenChoice),
            ("a}", GlobError::NothingToClose),
            ("[z-a]", GlobError::Backwards),
            ("a\\", GlobError::Backslash),
            ("m{1..3}.pt", GlobError::Counted),
            ("{{{{{{{{{a}}}}}}}}}", GlobError::TooDeep),
        ] {
            assert_eq!(glob_expression(glob), Err(wrong), "{glob}");
        }
        for glob in ["model.pt", "**/*.[jt]son", "{a,b{c,d}}", "[]-]", "[!a-z0-9]", "\\[a", ""] {
            assert!(glob_expression(glob).is_ok(), "{glob}");
        }
    }
}
