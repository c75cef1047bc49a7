//! Reads Rust source closely enough to find its paths: comments, strings and test modules do not
//! count.
//!
//! Not a parser: it blanks what is no code, keeps every line where it is, and looks at the words
//! that are left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One file of `src`.
pub struct Source {
    /// Relative to the package, `src/job/spec/spec.rs`.
    pub path: PathBuf,
    pub text: String,
    /// The text with comments, strings and `#[cfg(test)]` items blanked, byte for byte as long as
    /// it.
    pub code: String,
}

/// A path that the code names, absolute within the crate: `crate::job::spec` is `["job", "spec"]`.
#[derive(Debug, PartialEq, Eq)]
pub struct Named {
    pub line: usize,
    /// As it would be written from the root: `crate::job`, `std::fs`.
    pub root: String,
    pub first: String,
}

impl Source {
    pub fn new(path: impl Into<PathBuf>, text: &str) -> Self {
        let code = without_tests(&without_comments_and_strings(text));
        Source { path: path.into(), text: text.to_owned(), code }
    }

    /// The first part of the module path: the layer. `lib` for the crate root.
    pub fn layer(&self) -> String {
        let inner = self.path.strip_prefix("src").unwrap_or(&self.path);
        inner
            .components()
            .next()
            .map(|part| {
                Path::new(part.as_os_str()).with_extension("").to_string_lossy().into_owned()
            })
            .unwrap_or_default()
    }

    /// How many modules deep the file is: `src/wire.rs` and `src/job/mod.rs` are 1,
    /// `src/job/spec/spec.rs` is 2, `lib.rs` 0.
    fn depth(&self) -> usize {
        let inner = self.path.strip_prefix("src").unwrap_or(&self.path);
        let own = usize::from(!["mod.rs", "lib.rs"].iter().any(|name| inner.ends_with(name)));
        inner.components().count() - 1 + own
    }

    pub fn line_of(&self, at: usize) -> usize {
        self.code[..at].bytes().filter(|byte| *byte == b'\n').count() + 1
    }

    /// The layers of this crate that the code names, through `crate::`, `lamplighter::` or
    /// `super::`.
    pub fn layers_named(&self) -> Vec<Named> {
        let inline = inline_modules(&self.code);
        let is_bin = self.layer() == "bin";
        let mut found = Vec::new();
        for (at, word) in path_starts(&self.code) {
            let root = word == "crate" || (word == "lamplighter" && is_bin);
            let mut rest = at + word.len();
            let depth = self.depth()
                + inline.iter().filter(|(from, to)| (*from..*to).contains(&at)).count();
            let mut left = depth;
            if word == "super" {
                left = left.saturating_sub(1);
                while let Some(next) = after_colons(&self.code, rest)
                    .filter(|next| word_at(&self.code, *next) == "super")
                {
                    left = left.saturating_sub(1);
                    rest = next + "super".len();
                }
            }
            if (root || (word == "super" && left == 0)) && after_colons(&self.code, rest).is_some()
            {
                found.extend(self.firsts(rest, "crate"));
            }
        }
        found
    }

    /// The modules of other crates that the code names: `std::fs` gives root `std`, first `fs`.
    pub fn crates_named(&self, crates: &[&str]) -> Vec<Named> {
        let starts = path_starts(&self.code).into_iter().filter(|(_, word)| crates.contains(word));
        starts
            .flat_map(|(at, word)| {
                let firsts = self.firsts(at + word.len(), word);
                let alone =
                    Named { line: self.line_of(at), root: word.to_owned(), first: String::new() };
                if firsts.is_empty() { vec![alone] } else { firsts }
            })
            .collect()
    }

    /// What follows `::` at `at`: one word, or the first word of each branch of a group.
    fn firsts(&self, at: usize, root: &str) -> Vec<Named> {
        let Some(next) = after_colons(&self.code, at) else { return Vec::new() };
        let named = |at: usize, first: &str| Named {
            line: self.line_of(at),
            root: root.to_owned(),
            first: first.to_owned(),
        };
        if !self.code[next..].starts_with('{') {
            let word = word_at(&self.code, next);
            return if word.is_empty() { Vec::new() } else { vec![named(next, word)] };
        }
        let mut found = Vec::new();
        let (mut nesting, mut fresh) = (0, false);
        for (at, letter) in
            self.code[next..].char_indices().map(|(offset, letter)| (next + offset, letter))
        {
            match letter {
                '{' => (nesting, fresh) = (nesting + 1, nesting == 0),
                '}' => nesting -= 1,
                ',' => fresh = nesting == 1,
                letter if fresh && is_word(letter) => {
                    found.push(named(at, word_at(&self.code, at)));
                    fresh = false;
                }
                _ => {}
            }
            if nesting == 0 {
                break;
            }
        }
        found
    }
}

pub fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The word that begins at `at`, empty when none does.
pub fn word_at(code: &str, at: usize) -> &str {
    let rest = &code[at..];
    &rest[..rest.find(|letter| !is_word(letter)).unwrap_or(rest.len())]
}

/// Where the next thing begins after optional blanks, `::` and optional blanks.
fn after_colons(code: &str, at: usize) -> Option<usize> {
    let rest = code[at..].trim_start().strip_prefix("::")?.trim_start();
    Some(code.len() - rest.len())
}

/// Every word that is not itself inside a path (nothing with `::` stands before it).
fn path_starts(code: &str) -> Vec<(usize, &str)> {
    let mut starts = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let word = word_at(code, at);
        if word.is_empty() {
            at += code[at..].chars().next().map_or(1, char::len_utf8);
            continue;
        }
        if !code[..at].trim_end().ends_with("::") {
            starts.push((at, word));
        }
        at += word.len();
    }
    starts
}

/// From, to of every `mod name { ... }` in the file.
fn inline_modules(code: &str) -> Vec<(usize, usize)> {
    let mods = path_starts(code).into_iter().filter(|(_, word)| *word == "mod");
    mods.filter_map(|(at, _)| {
        let open = at + code[at..].find(['{', ';'])?;
        code[open..].starts_with('{').then(|| (open, open + matching_brace(&code[open..])))
    })
    .collect()
}

/// The length up to and with the brace that closes the one at the start.
pub fn matching_brace(code: &str) -> usize {
    let mut nesting = 0_usize;
    for (at, letter) in code.char_indices() {
        match letter {
            '{' | '[' | '(' => nesting += 1,
            '}' | ']' | ')' => nesting = nesting.saturating_sub(1),
            _ => continue,
        }
        if nesting == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// Blanks every item under `#[cfg(test)]`.
fn without_tests(code: &str) -> String {
    const MARKS: [&str; 2] = ["#[cfg(test)]", "#[cfg(all(test"];
    let mut code = code.to_owned();
    while let Some(at) = MARKS.iter().filter_map(|mark| code.find(mark)).min() {
        let item = at + 1 + matching_brace(&code[at + 1..]);
        let end = match code[item..].find(['{', ';']) {
            Some(offset) if code[item + offset..].starts_with('{') => {
                item + offset + matching_brace(&code[item + offset..])
            }
            Some(offset) => item + offset + 1,
            None => code.len(),
        };
        let blank = blanked(&code[at..end]);
        code.replace_range(at..end, &blank);
    }
    code
}

fn blanked(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

/// Blanks comments, and the insides of strings and of character literals.
pub fn without_comments_and_strings(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let length = match literal_or_comment(rest, code.chars().next_back()) {
            Some(length) => {
                code.push_str(&blanked(&rest[..length]));
                length
            }
            None => {
                let letter = rest.chars().next().expect("the rest is not empty");
                code.push(letter);
                letter.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    code
}

/// The length of the comment, string or character literal that begins here, if one does.
fn literal_or_comment(rest: &str, before: Option<char>) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if let Some(comment) = rest.strip_prefix("/*") {
        return Some(comment.find("*/").map_or(rest.len(), |end| end + 4));
    }
    if rest.starts_with('"') {
        return Some(quoted(rest, '"'));
    }
    let in_word = before.is_some_and(is_word);
    if let Some(raw) =
        rest.strip_prefix('r').or_else(|| rest.strip_prefix("br")).filter(|_| !in_word)
    {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let start = rest.len() - raw.len() + hashes + 1;
            return Some(
                rest[start..].find(&close).map_or(rest.len(), |end| start + end + close.len()),
            );
        }
    }
    // 'a' is a literal and 'a a lifetime.
    let mut letters = rest.strip_prefix('\'')?.chars();
    match (letters.next()?, letters.next()) {
        ('\\', _) => Some(quoted(rest, '\'')),
        (letter, Some('\'')) => Some(2 + letter.len_utf8()),
        _ => None,
    }
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            letter if letter == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// All Rust files below `folder`, relative to `root`, in order.
pub fn all(root: &Path, folder: &str) -> Vec<Source> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()))
        {
            let path = entry.expect("a listed entry can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path)
                    .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
                let relative = path.strip_prefix(root).expect("listed below the root").to_owned();
                found.insert(relative.clone(), Source::new(relative, &text));
            }
        }
    }
    found.into_values().collect()
}
