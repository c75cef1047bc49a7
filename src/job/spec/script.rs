//! The simple commands of a shell script, found without running it.
//!
//! Finds pipes, the program after a pipe, and work in the background. Understands quotes, comments,
//! redirections, arithmetic and here documents. Does not look into quoted substitutions.

/// One simple command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    pub text: &'a str,
    /// Its input is another command's output.
    pub piped: bool,
}

/// A script, split into commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts<'a> {
    pub parts: Vec<Part<'a>>,
    /// Part of the script was not understood: a here document without its end.
    pub is_odd: bool,
    /// A quoted substitution has a pipe, which is in none of the parts.
    pub has_inner_pipe: bool,
    /// Its last command runs in the background.
    pub leaves_last: bool,
}

/// Words before a program that run it.
const BEFORE: [&str; 9] =
    ["sudo", "command", "exec", "env", "time", "stdbuf", "nohup", "nice", "!"];

impl<'a> Part<'a> {
    pub fn words(&self) -> impl Iterator<Item = &'a str> {
        self.text.split_whitespace()
    }

    /// The file name of its program; empty if none.
    pub fn program(&self) -> &'a str {
        let is_before =
            |word: &&str| BEFORE.contains(word) || word.starts_with('-') || word.contains('=');
        let word = self.words().find(|word| !is_before(word)).unwrap_or_default();
        word.rsplit('/').next().unwrap_or(word)
    }
}

/// Words that a shell runs itself: no program of this name is needed.
const BUILTINS: [&str; 27] = [
    ".", ":", "[", "[[", "case", "cd", "do", "echo", "eval", "export", "for", "if", "printf",
    "read", "set", "source", "test", "trap", "true", "ulimit", "until", "while", "exit", "wait",
    "umask", "unset", "false",
];

/// The words of a script with one simple command, or one with pipes after it; otherwise empty.
pub fn plain_words(script: &str) -> Vec<&str> {
    let all = parts(script);
    let Some((first, rest)) = all.parts.split_first() else { return Vec::new() };
    if all.is_odd || all.has_inner_pipe || rest.iter().any(|part| !part.piped) {
        return Vec::new();
    }
    let is_set = |word: &&str| word.contains('=') && !word.starts_with(['-', '=']);
    let words: Vec<&str> = first.words().skip_while(is_set).collect();
    let needs_shell = |word: &&str| {
        word.contains([
            '$', '`', '\'', '"', '\\', '*', '?', '[', '~', '(', ')', '{', '}', '<', '>', '&', ';',
            '#', '!',
        ])
    };
    let until = words.iter().position(needs_shell).unwrap_or(words.len());
    match words.first() {
        Some(program) if until > 0 && !BUILTINS.contains(program) && !BEFORE.contains(program) => {
            words[..until].to_vec()
        }
        _ => Vec::new(),
    }
}

/// Splits a script into commands.
pub fn parts(script: &str) -> Parts<'_> {
    let bytes = script.as_bytes();
    let mut all = Parts::default();
    let mut documents: Vec<HereDocument<'_>> = Vec::new();
    let (mut at, mut from, mut piped) = (0, 0, false);
    let mut quote = None;
    let mut substitutes = false;
    while at < bytes.len() {
        let (byte, before) = (bytes[at], if at == 0 { b'\n' } else { bytes[at - 1] });
        let next = bytes.get(at + 1).copied().unwrap_or(b'\n');
        match (quote, byte) {
            (Some(b'\''), b'\'') => quote = None,
            (Some(b'\''), _) => {}
            (_, b'\\') => at += 1,
            (Some(_), b'"') => (quote, substitutes) = (None, false),
            (_, b'$') if script[at..].starts_with("$((") && script[at..].contains("))") => {
                at += script[at..].find("))").unwrap_or_default() + 1;
            }
            (Some(_), b'`') => substitutes = true,
            (Some(_), b'$') if next == b'(' => substitutes = true,
            (Some(_), b'|') if substitutes => all.has_inner_pipe = true,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'#') if before.is_ascii_whitespace() || before == b';' => {
                all.push(script, from, at, piped);
                // The main loop handles the newline at its end.
                at = script[at..].find('\n').map_or(bytes.len(), |length| at + length);
                from = at;
                continue;
            }
            (None, b'<') if script[at..].starts_with("<<<") => at += 2,
            (None, b'<') if next == b'<' => {
                let (document, length) = HereDocument::of(&script[at + 2..]);
                documents.push(document);
                at += 1 + length;
            }
            // A redirection, not the end of a command: `2>&1`, `&>file`, `>|file`.
            (None, b'&' | b'|') if matches!(before, b'>' | b'<') => {}
            (None, b'&') if next == b'>' => {}
            (None, b'&' | b'|' | b';' | b'\n' | b'(' | b')' | b'`') => {
                let is_empty = !all.push(script, from, at, piped);
                let is_twice = byte == next && matches!(byte, b'&' | b'|');
                // A line may end after the pipe.
                piped = (byte == b'|' && !is_twice)
                    || (piped && is_empty && matches!(byte, b'\n' | b'&' | b'('));
                all.leaves_last = byte == b'&' && !is_twice && before != b'|'
                    || (all.leaves_last && is_empty && matches!(byte, b'\n' | b')'));
                at += usize::from(is_twice);
                if byte == b'\n' {
                    for document in documents.drain(..) {
                        let length = document.length(&script[at + 1..]);
                        all.is_odd |= length.is_none();
                        at += length.unwrap_or(bytes.len() - at - 1);
                    }
                }
                from = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    all.push(script, from, bytes.len(), piped);
    all.is_odd |= !documents.is_empty();
    all
}

/// The word that ends a here document.
struct HereDocument<'a> {
    end: &'a str,
    /// `<<-`: tabs before the word do not count.
    has_tabs: bool,
}

impl<'a> HereDocument<'a> {
    /// Reads the text after `<<`. The number is the length of the part read, in bytes.
    fn of(text: &'a str) -> (HereDocument<'a>, usize) {
        let has_tabs = text.starts_with('-');
        let rest = text[usize::from(has_tabs)..].trim_start_matches([' ', '\t']);
        let is_after = |letter: char| letter.is_ascii_whitespace() || ";|&()<>".contains(letter);
        let word = &rest[..rest.find(is_after).unwrap_or(rest.len())];
        let end = word.trim_matches(['\'', '"', '\\']);
        (HereDocument { end, has_tabs }, text.len() - rest.len() + word.len())
    }

    /// The length of the document at the beginning of a text, with its last line. `None`: it has no
    /// end.
    fn length(&self, text: &str) -> Option<usize> {
        let mut length = 0;
        for line in text.split_inclusive('\n') {
            length += line.len();
            let line = line.trim_end_matches(['\n', '\r']);
            if (if self.has_tabs { line.trim_start_matches('\t') } else { line }) == self.end {
                return Some(length);
            }
        }
        None
    }
}

impl<'a> Parts<'a> {
    /// Whether there is a command between the two.
    fn push(&mut self, script: &'a str, from: usize, to: usize, piped: bool) -> bool {
        let text = script.get(from.min(to)..to).unwrap_or_default().trim();
        if !text.is_empty() {
            self.parts.push(Part { text, piped });
            self.leaves_last = false;
        }
        !text.is_empty()
    }

    /// Whether the script ends while its last command still runs.
    pub fn leaves_work_behind(&self) -> bool {
        self.leaves_last && !self.is_odd && !self.parts.iter().any(|part| part.program() == "wait")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(script: &str) -> Vec<(&str, bool)> {
        parts(script).parts.iter().map(|part| (part.program(), part.piped)).collect()
    }

    #[test]
    fn programs_and_pipes_are_seen() {
        assert_eq!(told("python3 a.py 2>&1 | tee log"), [("python3", false), ("tee", true)]);
        assert_eq!(
            told("a |& b |\n  c; d || e && f"),
            [("a", false), ("b", true), ("c", true), ("d", false), ("e", false), ("f", false)]
        );
        assert_eq!(told("A=1 sudo -n /usr/bin/tee x # a | b\nb"), [("tee", false), ("b", false)]);
        assert_eq!(told("echo 'a | b' \"c | d\" \\| e"), [("echo", false)]);
        assert_eq!(told("a >| f &> g"), [("a", false)]);
        assert_eq!(told(""), []);
        assert!(parts("echo \"$(a | b)\"").has_inner_pipe);
        assert!(!parts("echo \"a | b\"").has_inner_pipe);
    }

    #[test]
    fn here_documents_and_arithmetic_are_no_commands() {
        assert_eq!(told("a --n $((1<<20)) | tee log"), [("a", false), ("tee", true)]);
        assert_eq!(told("a <<< \"$B\" | tee log"), [("a", false), ("tee", true)]);
        for end in ["X\na | b\nX", "'X'\na | b\nX", "-X\n\ta | b\n\tX", " X\na | b\nX"] {
            let all = format!("cat > c.yaml <<{end}\npython a.py | tee log");
            let found = [("cat", false), ("python", false), ("tee", true)];
            assert_eq!(told(&all), found, "{all}");
            assert!(!parts(&all).is_odd, "{all}");
        }
        let between = "python - <<X | tee log && b\nimport c\nX\n";
        assert_eq!(told(between), [("python", false), ("tee", true), ("b", false)]);
        assert!(parts("cat <<X\nY").is_odd && parts("cat <<X").is_odd);
    }

    /// skypilot#3803
    #[test]
    fn work_that_is_left_in_the_background_is_seen() {
        for script in [
            "nohup python3 train.py > log 2>&1 &",
            "a & # comment",
            "a &\n\n",
            "(python train.py &)",
            "a; b &",
            "setsid a &>/dev/null &",
        ] {
            assert!(parts(script).leaves_work_behind(), "{script}");
        }
        for script in [
            "a & b",
            "a & wait",
            "a &\nb &\nwait",
            "a && b",
            "a 2>&1",
            "echo '&'",
            "echo a \\&",
            "a &> b",
            "a |& b",
            "a & wait -n; b &",
        ] {
            assert!(!parts(script).leaves_work_behind(), "{script}");
        }
    }
}
