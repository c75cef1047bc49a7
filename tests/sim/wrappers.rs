//! A port that wraps another must pass on *every* method. Otherwise a default method would answer,
//! and the false world would be kinder than the real one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[expect(clippy::disallowed_methods, reason = "this test reads the sources")]
fn text(file: &Path) -> String {
    fs::read_to_string(file).unwrap()
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, into);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            into.push(entry);
        }
    }
}

/// Blocks whose head begins with these words at the start of a line, up to the brace in the first
/// column: head and methods.
fn blocks(text: &str, begins: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(head) = lines.find(|line| line.starts_with(begins) && line.ends_with('{')) {
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "}").collect();
        found.push((head.to_owned(), body.join("\n")));
    }
    found
}

fn methods(body: &str) -> BTreeSet<String> {
    let named = |line: &str| {
        let rest = line.strip_prefix("    ").filter(|rest| !rest.starts_with(' '))?;
        let rest = rest.strip_prefix("async fn ").or(rest.strip_prefix("fn "))?;
        Some(rest.split(['(', '<']).next()?.to_owned())
    };
    body.lines().filter_map(named).collect()
}

fn traits(root: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut files = Vec::new();
    sources(&root.join("src/ports"), &mut files);
    let texts: Vec<String> = files.iter().map(|file| text(file)).collect();
    let named = |(head, body): (String, String)| {
        (head["pub trait ".len()..].split([':', ' ']).next().unwrap().to_owned(), methods(&body))
    };
    texts.iter().flat_map(|text| blocks(text, "pub trait ")).map(named).collect()
}

/// `impl Cloud for Through<dyn Cloud> {`, or an impl with the wrapped port in `self.1`.
fn is_wrapper(head: &str, body: &str) -> bool {
    head.contains("<dyn ") || body.contains("self.1.")
}

#[test]
fn port_wrapper_passes_every_method_on() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let traits = traits(root);
    assert!(
        traits["Cloud"].contains("residue") && traits["Files"].contains("walk_aside"),
        "{traits:?}"
    );
    let mut files = Vec::new();
    sources(&root.join("src/sim"), &mut files);
    sources(&root.join("tests"), &mut files);
    let (mut wrappers, mut missing) = (0, Vec::new());
    for file in files {
        for (head, body) in blocks(&text(&file), "impl ") {
            let Some(all) = head.split(' ').nth(1).and_then(|name| traits.get(name)) else {
                continue;
            };
            if is_wrapper(&head, &body) {
                wrappers += 1;
                let there = methods(&body);
                let lacks: Vec<&String> = all.difference(&there).collect();
                missing.extend(
                    (!lacks.is_empty())
                        .then(|| format!("{}: `{head}` lacks {lacks:?}", file.display())),
                );
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(wrappers >= 8, "only {wrappers} were found");
}
