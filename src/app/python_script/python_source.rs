//! A Python script as text: its calls, and the values of its names and paths.
//!
//! It runs no Python: the script may import what is not installed here. `None` is an expression
//! that the text does not explain. `{}` is a part of a path that only a run knows:
//! `f"results/step_{n}.pt"` is `results/step_{}.pt`. Pure.

use std::collections::HashMap;

use regex::Regex;

/// Stands for a part of a path that only a run knows.
pub const UNKNOWN: &str = "{}";

/// The longest chain of names that refer to one another.
const DEPTH_MAX: usize = 8;

pub struct PythonScript {
    /// The text without comments and triple-quoted strings.
    text: String,
    /// The same length, with blanks inside of quotes, so that structure can be told from text.
    mask: String,
    /// The expressions that each name stands for.
    values: HashMap<String, Vec<String>>,
    /// Options of the command line without a default, by their names in the script.
    pub required: HashMap<String, String>,
}

pub struct PythonCall<'a> {
    pub positional: Vec<&'a str>,
    pub named: Vec<(&'a str, &'a str)>,
}

impl<'a> PythonCall<'a> {
    pub fn named(&self, name: &str) -> Option<&'a str> {
        self.named.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    pub fn argument(&self, name: &str, place: usize) -> Option<&'a str> {
        self.named(name).or_else(|| self.positional.get(place).copied())
    }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern of ours, tried by the tests")
}

impl PythonScript {
    pub fn new(source: &str) -> Self {
        let (text, mask) = masked(source);
        let mut script =
            PythonScript { text, mask, values: HashMap::new(), required: HashMap::new() };
        script.learn();
        script
    }

    pub fn imports(&self, module: &str) -> bool {
        pattern(&format!(r"(?m)^[ \t]*(?:from|import)[ \t]+{}\b", regex::escape(module)))
            .is_match(&self.mask)
    }

    pub fn has(&self, word: &str) -> bool {
        self.text.contains(word)
    }

    /// All calls of a function or method by its last name.
    pub fn calls(&self, name: &str) -> Vec<PythonCall<'_>> {
        let begins = pattern(&format!(r"(?:^|[^\w]){}\s*\(", regex::escape(name)));
        begins.find_iter(&self.mask).filter_map(|found| self.arguments(found.end())).collect()
    }

    /// The text before each `.name()`: `path` of `path.exists()`.
    pub fn owners(&self, method: &str) -> Vec<&str> {
        let owner = pattern(&format!(r"([\w.]+)\.{}\s*\(", regex::escape(method)));
        owner
            .captures_iter(&self.mask)
            .filter_map(|found| found.get(1))
            .map(|found| &self.text[found.range()])
            .collect()
    }

    fn arguments(&self, begin: usize) -> Option<PythonCall<'_>> {
        let end = closing(&self.mask, begin)?;
        let mut call = PythonCall { positional: Vec::new(), named: Vec::new() };
        let keyword = pattern(r"^\s*\*{0,2}([A-Za-z_]\w*)\s*(?::[^=]*)?=[^=]");
        for (from, to) in pieces(&self.mask, begin, end, ',') {
            match keyword
                .captures(&self.mask[from..to.min(self.mask.len())])
                .and_then(|found| found.get(1))
            {
                Some(name) => {
                    let equals = from + self.mask[from..to].find('=').unwrap_or_default() + 1;
                    call.named.push((
                        &self.text[from + name.start()..from + name.end()],
                        self.text[equals..to].trim(),
                    ));
                }
                None if !self.text[from..to].trim().is_empty() => {
                    call.positional.push(self.text[from..to].trim())
                }
                None => {}
            }
        }
        Some(call)
    }

    /// Learns names and their values: assignments, parameter defaults, command-line options, opened
    /// files.
    fn learn(&mut self) {
        let mut values: Vec<(String, String)> = Vec::new();
        let assignment = pattern(r"(?m)^[ \t]*(?:self\.)?([A-Za-z_]\w*)[ \t]*(?::[^=\n]+)?=[ \t]*");
        for found in assignment.captures_iter(&self.mask) {
            let (Some(whole), Some(name)) = (found.get(0), found.get(1)) else { continue };
            if !self.mask[whole.end()..].starts_with('=') {
                let value = &self.text[whole.end()..end_of_statement(&self.mask, whole.end())];
                values.push((name.as_str().to_owned(), value.trim().to_owned()));
            }
        }
        for found in pattern(r"\bdef\s+\w+\s*\(").find_iter(&self.mask) {
            let parameters = self.arguments(found.end());
            values.extend(
                parameters
                    .into_iter()
                    .flat_map(|call| call.named)
                    .map(|(name, value)| (name.to_owned(), value.to_owned())),
            );
        }
        let opened = pattern(r"\bopen\s*\(([^\n]*)\)\s+as\s+(\w+)");
        for found in opened.captures_iter(&self.mask) {
            if let (Some(arguments), Some(name)) = (found.get(1), found.get(2)) {
                values.push((
                    name.as_str().to_owned(),
                    format!("open({})", &self.text[arguments.range()]),
                ));
            }
        }
        let mut required = HashMap::new();
        for call in ["add_argument", "option"].iter().flat_map(|name| self.calls(name)) {
            let options = call
                .positional
                .iter()
                .filter_map(|word| literal(word))
                .filter(|word| word.starts_with("--"));
            let Some(option) = options.max_by_key(String::len) else { continue };
            let name = call
                .named("dest")
                .and_then(literal)
                .unwrap_or_else(|| option.trim_start_matches('-').replace('-', "_"));
            match call.named("default").filter(|value| *value != "None") {
                Some(value) => values.push((name, value.to_owned())),
                None => drop(required.insert(name, option)),
            }
        }
        self.required = required;
        for (name, value) in values {
            self.values.entry(name).or_default().push(value);
        }
    }

    pub fn resolve(&self, expression: &str) -> Option<String> {
        self.resolve_in(expression, DEPTH_MAX)
    }

    pub fn required_option(&self, expression: &str) -> Option<&str> {
        let name = expression.trim().rsplit('.').next()?;
        self.required.get(name).map(String::as_str)
    }

    pub fn demands(&self, option: &str) -> bool {
        let calls =
            ["add_argument", "option"].iter().flat_map(|name| self.calls(name)).collect::<Vec<_>>();
        let is_it = |call: &&PythonCall<'_>| {
            call.positional.iter().filter_map(|word| literal(word)).any(|word| word == option)
        };
        calls.iter().filter(is_it).any(|call| call.named("required") == Some("True"))
    }

    fn resolve_in(&self, expression: &str, depth: usize) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        let whole = expression.trim();
        if let Some(text) = self.text_of(whole, depth) {
            return Some(text);
        }
        let (_, mask) = masked(whole);
        if mask.len() != whole.len() {
            return None;
        }
        if mask.starts_with('(') && closing(&mask, 1) == Some(mask.len() - 1) {
            return self.resolve_in(&whole[1..whole.len() - 1], depth);
        }
        if let Some(at) = mask.find(" or ") {
            return self
                .resolve_in(&whole[..at], depth)
                .or_else(|| self.resolve_in(&whole[at + 4..], depth));
        }
        for (operator, between) in [('/', "/"), ('+', "")] {
            let parts = pieces(&mask, 0, mask.len(), operator);
            if parts.len() > 1 {
                let part = |(from, to): &(usize, usize)| {
                    self.resolve_in(&whole[*from..*to], depth).unwrap_or_else(|| UNKNOWN.to_owned())
                };
                return known(parts.iter().map(part).collect::<Vec<_>>().join(between));
            }
        }
        if mask.ends_with(')') {
            return self.resolve_call(whole, &mask, depth);
        }
        let name = whole.rsplit('.').next()?;
        self.values
            .get(name)?
            .iter()
            .filter(|value| *value != whole)
            .find_map(|value| self.resolve_in(value, depth))
    }

    fn resolve_call(&self, whole: &str, mask: &str, depth: usize) -> Option<String> {
        let open = mask.find('(').filter(|open| closing(mask, open + 1) == Some(mask.len() - 1));
        let Some(open) = open else {
            // In `Path("a").resolve()` the last call adds nothing.
            let dot = mask.rfind('.')?;
            return self.resolve_in(&whole[..dot], depth);
        };
        let inner = PythonScript {
            text: whole.to_owned(),
            mask: mask.to_owned(),
            values: HashMap::new(),
            required: HashMap::new(),
        };
        let call = inner.arguments(open + 1)?;
        let (owner, name) =
            whole[..open].trim().rsplit_once('.').unwrap_or(("", whole[..open].trim()));
        let first = || self.resolve_in(call.positional.first()?, depth);
        match name {
            "join" | "Path" | "PurePath" | "joinpath" => {
                let own = (name == "joinpath").then_some(owner);
                let parts = own.into_iter().chain(call.positional.iter().copied());
                known(
                    parts
                        .map(|part| {
                            self.resolve_in(part, depth).unwrap_or_else(|| UNKNOWN.to_owned())
                        })
                        .collect::<Vec<_>>()
                        .join("/"),
                )
            }
            "str" | "abspath" | "realpath" | "fspath" | "expanduser" | "normpath" | "open"
            | "Directory" => first(),
            "get" | "getenv" => self.resolve_in(call.positional.get(1)?, depth),
            "field" | "Argument" | "Option" => self.resolve_in(
                call.named("default").or_else(|| call.positional.first().copied())?,
                depth,
            ),
            "resolve" | "absolute" | "as_posix" | "strip" => self.resolve_in(owner, depth),
            "format" => self.resolve_in(owner, depth),
            _ => None,
        }
    }

    /// A quoted text. In an f-string, names are looked up; in one with `%` or `{}`, the rest is
    /// unknown.
    fn text_of(&self, expression: &str, depth: usize) -> Option<String> {
        let expression = expression.split(" % ").next()?.trim();
        let prefix = expression.find(['"', '\'']).filter(|at| *at <= 2)?;
        let text = literal(&expression[prefix..])?;
        let is_format = expression[..prefix].to_ascii_lowercase().contains('f');
        let value = pattern(r"\{([^{}]*)\}");
        let known = value.replace_all(&text, |found: &regex::Captures<'_>| {
            let name = found[1].split([':', '!']).next().unwrap_or_default();
            let is_name = is_format
                && !name.is_empty()
                && name.chars().all(|letter| letter.is_alphanumeric() || "._".contains(letter));
            is_name
                .then(|| self.resolve_in(name, depth))
                .flatten()
                .unwrap_or_else(|| UNKNOWN.to_owned())
        });
        Some(pattern(r"%0?\d*[dsif]").replace_all(&known, UNKNOWN).into_owned())
    }

    pub fn printed(&self) -> Vec<String> {
        let calls = ["print", "info", "log"].iter().flat_map(|name| self.calls(name));
        calls.map(|call| call.positional.join(", ")).filter(|text| !text.is_empty()).collect()
    }
}

/// A path with only unknown parts is not a path.
fn known(path: String) -> Option<String> {
    path.replace(UNKNOWN, "").contains(char::is_alphanumeric).then_some(path)
}

/// The text between quotes, if the whole expression is one text.
pub fn literal(expression: &str) -> Option<String> {
    let expression = expression.trim();
    let quote = expression.chars().next().filter(|letter| ['"', '\''].contains(letter))?;
    let inner = expression.strip_prefix(quote)?.strip_suffix(quote)?;
    (!inner.contains(quote) && !inner.contains('\n')).then(|| inner.to_owned())
}

/// The text without comments, and its mask with blank strings. Both have the same length in bytes.
fn masked(source: &str) -> (String, String) {
    let bytes = source.as_bytes();
    let (mut text, mut mask) = (Vec::with_capacity(bytes.len()), Vec::with_capacity(bytes.len()));
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        if byte == b'#' {
            while at < bytes.len() && bytes[at] != b'\n' {
                at += 1;
            }
            continue;
        }
        if byte != b'"' && byte != b'\'' {
            text.push(byte);
            mask.push(byte);
            at += 1;
            continue;
        }
        let is_triple = bytes[at..].starts_with(&[byte; 3]);
        let quotes = if is_triple { 3 } else { 1 };
        let (begin, mut end) = (at + quotes, at + quotes);
        while end < bytes.len()
            && !bytes[end..].starts_with(&bytes[at..at + quotes])
            && (is_triple || bytes[end] != b'\n')
        {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let (end, after) = (end.min(bytes.len()), (end + quotes).min(bytes.len()));
        text.extend(&bytes[at..begin]);
        mask.extend(&bytes[at..begin]);
        let blank = |byte: &u8| if *byte == b'\n' { b'\n' } else { b' ' };
        mask.extend(bytes[begin..end].iter().map(blank));
        if is_triple {
            text.extend(bytes[begin..end].iter().map(blank));
        } else {
            text.extend(&bytes[begin..end]);
        }
        text.extend(&bytes[end..after]);
        mask.extend(&bytes[end..after]);
        at = after;
    }
    // Non-ASCII bytes outside of quotes keep their length, so that both can be cut at the same
    // places.
    let mask: String =
        mask.into_iter().map(|byte| if byte.is_ascii() { char::from(byte) } else { '_' }).collect();
    (String::from_utf8_lossy(&text).into_owned(), mask)
}

/// Where the bracket that was opened before `begin` closes.
fn closing(mask: &str, begin: usize) -> Option<usize> {
    let mut open = 1;
    for (at, byte) in mask.bytes().enumerate().skip(begin) {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at);
        }
    }
    None
}

/// The pieces between `begin` and `end`, split outside of all brackets.
fn pieces(mask: &str, begin: usize, end: usize, by: char) -> Vec<(usize, usize)> {
    let (mut pieces, mut from, mut open) = (Vec::new(), begin, 0_i32);
    for (at, letter) in mask.bytes().enumerate().take(end).skip(begin) {
        match letter {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open -= 1,
            _ if open == 0 && char::from(letter) == by => {
                pieces.push((from, at));
                from = at + 1;
            }
            _ => {}
        }
    }
    pieces.push((from, end));
    pieces
}

fn end_of_statement(mask: &str, begin: usize) -> usize {
    let mut open = 0_i32;
    for (at, byte) in mask.bytes().enumerate().skip(begin) {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open -= 1,
            b'\n' | b';' if open <= 0 => return at,
            _ => {}
        }
    }
    mask.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(script: &str, expression: &str) -> Option<String> {
        PythonScript::new(script).resolve(expression)
    }

    #[test]
    fn path_is_found_through_names_joins_and_defaults() {
        let script = r#"
# OUT = "wrong"
OUT = "out"
FOLDER = os.path.join(OUT, "ckpt")  # here
def main(snapshot_path="snapshot.pt", path: str = 'p.pt'):
    self.snapshot_path = snapshot_path
parser.add_argument("-o", "--output-dir", type=str, default="results", help="it's where (things) go")
parser.add_argument("--needed", required=True)
@dataclass
class Config:
    save_dir: str = field(default="runs")
with open(FOLDER + "/state.pkl", "wb") as sink:
    pickle.dump(state, sink)
"#;
        for (expression, path) in [
            ("\"a/b.pt\"", "a/b.pt"),
            ("OUT", "out"),
            ("FOLDER", "out/ckpt"),
            ("self.snapshot_path", "snapshot.pt"),
            ("path", "p.pt"),
            ("args.output_dir", "results"),
            ("cfg.save_dir", "runs"),
            ("f\"{OUT}/step_{step}.pt\"", "out/step_{}.pt"),
            ("os.path.join(args.output_dir, 'step_%d.pt' % step)", "results/step_{}.pt"),
            ("Path(OUT) / name / \"x\"", "out/{}/x"),
            ("str(Path(OUT).resolve())", "out"),
            ("os.environ.get('OUT', 'fallback')", "fallback"),
            ("sink", "out/ckpt/state.pkl"),
            ("\"model_{}.pt\".format(epoch)", "model_{}.pt"),
        ] {
            assert_eq!(resolved(script, expression).as_deref(), Some(path), "{expression}");
        }
        for expression in ["step", "compute(x)", "args.needed", "[1]", "", "(", "f(", "é"] {
            assert_eq!(resolved(script, expression), None, "{expression}");
        }
        assert_eq!(PythonScript::new(script).required_option("args.needed"), Some("--needed"));
    }

    #[test]
    fn names_that_stand_for_themselves_end() {
        assert_eq!(resolved("a = b\nb = a\nc = c\n", "a"), None);
    }

    #[test]
    fn calls_in_comments_and_texts_are_none() {
        let script = PythonScript::new(
            "\"\"\"\ntorch.save(x, 'doc.pt')\n\"\"\"\n# torch.save(x, 'no.pt')\ns = \"save(1)\"\ntorch.save(\n    {'a': [1, 2]},\n    'yes.pt',\n)\n",
        );
        let calls = script.calls("save");
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].positional, ["{'a': [1, 2]}", "'yes.pt'"]);
    }

    #[test]
    fn any_text_can_be_read() {
        for text in [
            "'",
            "\"\"\"",
            "f(",
            "a = (\n",
            "é = 'ü'\nf('é', x=é)",
            "x = \"\\",
            "f(a=)",
            "f(=1)",
            "x = éor y",
            "a é= f(ü.é)",
        ] {
            let script = PythonScript::new(text);
            drop((script.calls("f"), script.resolve("x"), script.printed()));
        }
    }
}
