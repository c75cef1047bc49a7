//! The referee: which layer may use which, how a folder looks, what the agent may carry.
//!
//! The rules are the tables at the top; docs/decisions.md and CONTRIBUTING.md give the reasons. If
//! a rule hurts, move the code or change the rule here in the open, with the reason in the commit;
//! do not work around it.

#![expect(clippy::disallowed_methods, reason = "a test reads the files it judges")]

#[path = "architecture/circles.rs"]
mod circles;
#[path = "architecture/source.rs"]
mod source;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use source::{Source, all, matching_brace, without_comments_and_strings};

const PURE: &[&str] = &["market", "job", "instance", "account", "policy"];

/// The layers that a face may name, besides the faces that it starts.
const FACE: &[&str] = &[
    "market",
    "job",
    "instance",
    "account",
    "policy",
    "jobdir",
    "controller",
    "agent",
    "config",
    "wire",
    "app",
];

/// Each layer, and the layers that its files may name besides their own. A folder that is not here
/// is an error.
const LAYERS: &[(&str, &[&str])] = &[
    ("market", &[]),
    ("job", &["market"]),
    ("instance", &["market", "job"]),
    ("account", &["market", "job", "instance"]),
    ("policy", &["market", "job", "instance", "account"]),
    ("ports", &["market", "job", "instance", "account"]),
    ("jobdir", &["market", "job", "instance", "account", "ports"]),
    ("controller", &["market", "job", "instance", "account", "policy", "ports", "jobdir"]),
    ("agent", &["market", "job", "instance", "account", "policy", "ports", "jobdir"]),
    ("adapters", &["market", "job", "instance", "account", "ports"]),
    (
        "sim",
        &[
            "market",
            "job",
            "instance",
            "account",
            "policy",
            "ports",
            "jobdir",
            "controller",
            "agent",
        ],
    ),
    ("config", &["market", "job", "instance", "account", "policy"]),
    (
        "wire",
        &[
            "market",
            "job",
            "instance",
            "account",
            "policy",
            "ports",
            "jobdir",
            "controller",
            "agent",
            "adapters",
            "sim",
        ],
    ),
    // What a person can ask for, for every face.
    (
        "app",
        &[
            "market",
            "job",
            "instance",
            "account",
            "policy",
            "jobdir",
            "controller",
            "agent",
            "config",
            "wire",
        ],
    ),
    // Entry points of the two programs and the nouns to print. `wire` hands the adapters in.
    (
        "cli",
        &[
            "market",
            "job",
            "instance",
            "account",
            "policy",
            "jobdir",
            "controller",
            "agent",
            "config",
            "wire",
            "app",
            // `lamp web`, `lamp mcp` and `lamp top` start the other faces.
            "web",
            "mcp",
            "top",
        ],
    ),
    ("top", FACE),
    ("web", FACE),
    ("mcp", FACE),
    (
        "bin",
        &[
            "market",
            "job",
            "instance",
            "account",
            "policy",
            "jobdir",
            "controller",
            "agent",
            "config",
            "wire",
            "app",
            "cli",
            "web",
            "mcp",
            "top",
        ],
    ),
    ("lib", &[]),
];

/// What a file may use although its layer may not: the file, the layer, and the page that argues
/// for it.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

/// The crates that a pure layer may use, besides the standard library. `croner` reads a cron
/// pattern, and knows no clock; `fast_glob` compares a pattern with a name, and opens nothing.
/// `utoipa` and `schemars` derive the schema of a type.
const PURE_CRATES: &[&str] =
    &["serde", "serde_json", "jiff", "thiserror", "croner", "fast_glob", "schemars", "utoipa"];

/// The parts of the standard library that a pure layer may not touch: they read or change the
/// world.
const PURE_STD_NEVER: &[&str] = &["fs", "env", "net", "process", "thread", "io", "os"];

/// A room is a file that a reader can hold in the head.
const LINES_MAX: usize = 710;

/// A file of tests is read one test at a time.
const TEST_LINES_MAX: usize = 900;

/// What the program on the GPU machine must not carry: each costs it megabytes, start-up time or
/// build time.
const AGENT_NEVER: &[&str] = &[
    "aws-config",
    "aws-sdk-cloudwatch",
    "aws-sdk-ec2",
    "aws-sdk-s3",
    "aws-lc-rs",
    "aws-lc-sys",
    "axum",
    "clap",
    "comfy-table",
    "croner",
    "ignore",
    "indicatif",
    "native-tls",
    "openssl-sys",
    "regex",
    "schemars",
    "strsim",
    "textplots",
    "toml_edit",
];

fn package() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<Source> {
    let sources = all(&package(), "src");
    assert!(
        sources.len() > 20,
        "only {} files were found: the referee looks in the wrong place",
        sources.len()
    );
    sources
}

fn everything() -> Vec<Source> {
    ["src", "tests", "benches"].iter().flat_map(|folder| all(&package(), folder)).collect()
}

/// Fails with all broken rules at once.
fn judge(broken: Vec<String>) {
    assert!(
        broken.is_empty(),
        "{} broken:\n\n{}\n",
        if broken.len() == 1 { "a rule is" } else { "rules are" },
        broken.join("\n\n")
    );
}

fn places(sources: &[Source], rule: impl Fn(&Source) -> Vec<(usize, String)>) -> Vec<String> {
    let of = |source: &Source| -> Vec<String> {
        rule(source)
            .into_iter()
            .map(|(line, what)| format!("{}:{line}: {what}", source.path.display()))
            .collect()
    };
    sources.iter().flat_map(of).collect()
}

// The layers.

fn wrong_arrows(source: &Source) -> Vec<(usize, String)> {
    let layer = source.layer();
    let Some((_, may_use)) = LAYERS.iter().find(|(name, _)| *name == layer) else {
        return vec![(
            1,
            format!(
                "`{layer}` is not a layer\n  do: add it to LAYERS in tests/architecture.rs and to the table in CONTRIBUTING.md, or move the file"
            ),
        )];
    };
    let excepted = |used: &str| {
        EXCEPTIONS.iter().any(|(file, layer, _)| source.path == Path::new(file) && *layer == used)
    };
    let mut wrong = Vec::new();
    for named in source.layers_named() {
        let used = named.first.as_str();
        if used == layer
            || may_use.contains(&used)
            || excepted(used)
            || layer == "lib"
            || used == "self"
        {
            continue;
        }
        let known = LAYERS.iter().any(|(name, _)| *name == used);
        let what = match known {
            true => format!(
                "`{layer}` may not use `{used}`, only {}",
                if may_use.is_empty() { "itself".into() } else { may_use.join(", ") }
            ),
            false => format!("`crate::{used}` is not a layer: name the folder that it lives in"),
        };
        wrong.push((named.line, format!("{what}\n  do: move the code to the layer that may, or hand the value in from `wire` through a port")));
    }
    wrong
}

#[test]
fn arrows_between_the_layers_point_one_way() {
    judge(places(&sources(), wrong_arrows));
}

/// CONTRIBUTING.md shows people the same table.
#[test]
fn table_in_contributing_is_this_one() {
    let page = std::fs::read_to_string(package().join("CONTRIBUTING.md"))
        .expect("the package has a CONTRIBUTING.md");
    let row = |(layer, may_use): &(&str, &[&str])| {
        let used: Vec<String> = may_use.iter().map(|used| format!("`{used}`")).collect();
        format!("| `{layer}` | {}", used.join(", "))
    };
    let shown = |row: &String| {
        page.lines().any(|line| {
            line.rsplit_once(" | ").is_some_and(|(start, _)| start.trim_end() == row.trim_end())
        })
    };
    let missing =
        LAYERS.iter().filter(|(layer, _)| *layer != "lib").map(row).filter(|row| !shown(row));
    judge(missing.map(|row| format!("CONTRIBUTING.md does not show `{row} | ...`\n  do: keep its table and LAYERS equal")).collect());
}

#[test]
fn every_exception_is_argued_and_still_needed() {
    let mut broken = Vec::new();
    for (file, layer, page) in EXCEPTIONS {
        if !package().join(page).is_file() {
            broken.push(format!(
                "{file} may use `{layer}`, but {page} does not exist\n  do: write down why"
            ));
        }
        let used = sources()
            .iter()
            .filter(|source| source.path == Path::new(file))
            .any(|source| source.layers_named().iter().any(|n| n.first == *layer));
        if !used {
            broken.push(format!("{file} no longer uses `{layer}`\n  do: remove the exception"));
        }
    }
    judge(broken);
}

/// The names of all dependencies, as they stand in paths.
fn dependencies() -> Vec<String> {
    let manifest =
        std::fs::read_to_string(package().join("Cargo.toml")).expect("the package has a manifest");
    let section = manifest
        .split("[dependencies]")
        .nth(1)
        .and_then(|rest| rest.split("\n[").next())
        .expect("the manifest has dependencies");
    section
        .lines()
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name.trim().replace('-', "_"))
        .collect()
}

fn impure(source: &Source) -> Vec<(usize, String)> {
    if !PURE.contains(&source.layer().as_str()) {
        return Vec::new();
    }
    let dependencies = dependencies();
    let crates: Vec<&str> = dependencies
        .iter()
        .map(String::as_str)
        .filter(|name| !PURE_CRATES.contains(name))
        .chain(["std"])
        .collect();
    let named = source
        .crates_named(&crates)
        .into_iter()
        .filter(|named| named.root != "std" || PURE_STD_NEVER.contains(&named.first.as_str()));
    named
        .filter(|named| named.root == "std" || !named.first.is_empty())
        .map(|named| {
            (
                named.line,
                format!("`{}::{}` in a pure layer\n  do: take the value as an argument; whoever calls reads the world", named.root, named.first),
            )
        })
        .collect()
}

#[test]
fn pure_layers_touch_nothing_of_the_world() {
    judge(places(&sources(), impure));
}

// The look of a folder and of a file.

/// Folders below `src`, one in another: `src/adapters/aws/ec2/launch.rs` has three.
const FOLDERS_DEEP_MAX: usize = 4;

/// Files of a folder that a reader takes in at one look.
const FILES_MAX: usize = 20;

#[test]
fn folders_are_at_most_four_deep() {
    judge(places(&sources(), |source| {
        let folders = source.path.components().count() - 2;
        let what = format!(
            "lies {folders} folders deep, {FOLDERS_DEEP_MAX} is the most\n  do: join two of its folders"
        );
        if folders > FOLDERS_DEEP_MAX { vec![(1, what)] } else { Vec::new() }
    }));
}

#[test]
fn folder_has_at_most_twenty_files() {
    let mut files: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for source in everything() {
        *files.entry(source.path.parent().expect("a file has a folder").to_owned()).or_default() +=
            1;
    }
    let crowded = files.iter().filter(|(_, count)| **count > FILES_MAX);
    let told = |(folder, count): (&PathBuf, &usize)| {
        format!(
            "{}: {count} files, {FILES_MAX} is the most\n  do: give its subjects folders",
            folder.display()
        )
    };
    judge(crowded.map(told).collect());
}

/// The simulated world is one machine: its parts know each other. No other folder may have a
/// circle.
const CIRCLE_ALLOWED: &str = "sim";

#[test]
fn files_use_each_other_in_no_circle() {
    let files: Vec<(PathBuf, String)> = sources()
        .into_iter()
        .map(|source| {
            let path = source.path.strip_prefix("src").expect("a file of src");
            (path.to_owned(), source.text.clone())
        })
        .collect();
    let arrows = circles::arrows(&files);
    let circles = arrows.circles().into_iter();
    let wrong =
        circles.filter(|circle| !circle.iter().all(|file| file.starts_with(CIRCLE_ALLOWED)));
    judge(
        wrong
            .map(|circle| {
                format!(
                    "{} files use each other in a circle:\n  {}\n  do: move what draws the arrow back into a file below both",
                    circle.len(),
                    arrows.inside(&circle).join("\n  ")
                )
            })
            .collect(),
    );
}

/// Each command has its `Args`, each module may have its `Error`.
const NAMED_OFTEN: &[&str] = &["Args", "Error"];

fn types(source: &Source) -> Vec<String> {
    let item = |line: &str| {
        let words = line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub(super) "));
        let words = words.or_else(|| line.strip_prefix("pub ")).unwrap_or(line);
        let name = ["struct ", "enum ", "trait ", "union ", "type "]
            .iter()
            .find_map(|kind| words.strip_prefix(kind))?;
        Some(name.chars().take_while(|letter| letter.is_alphanumeric()).collect::<String>())
    };
    source.code.lines().filter_map(item).collect()
}

#[test]
fn type_names_are_unique() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources().iter().filter(|source| !source.path.ends_with("_tests.rs")) {
        for name in types(source) {
            places.entry(name).or_default().push(source.path.display().to_string());
        }
    }
    let twice = places
        .iter()
        .filter(|(name, places)| places.len() > 1 && !NAMED_OFTEN.contains(&name.as_str()))
        .map(|(name, places)| {
            format!("`{name}` is {}\n  do: name each for what it is", places.join(" and "))
        });
    judge(twice.collect());
}

/// Words that say nothing of a subject: no file has them as its name.
const NO_NAMES: &[&str] = &[
    "again", "ahead", "apart", "away", "back", "beside", "beyond", "common", "done", "exposed",
    "general", "gist", "given", "gone", "held", "helper", "helpers", "here", "known", "kept",
    "left", "lone", "lost", "made", "misc", "most", "of", "other", "over", "own", "reach", "rest",
    "said", "seen", "sold", "stray", "stuff", "swept", "taken", "things", "through", "told",
    "tools", "until", "util", "utils", "within",
];

#[test]
fn file_names_are_nouns_of_the_field() {
    judge(places(&everything(), |source| {
        let name = source.path.file_stem().unwrap_or_default().to_string_lossy();
        let what = format!("`{name}` names no subject\n  do: name the file for what it is about");
        if NO_NAMES.contains(&name.as_ref()) { vec![(1, what)] } else { Vec::new() }
    }));
}

/// A longer name is a sentence, which belongs above the test.
const TEST_NAME_MAX: usize = 60;

#[test]
fn test_names_have_at_most_sixty_characters() {
    judge(places(&everything(), |source| {
        let mut is_test = false;
        let mut found = Vec::new();
        for (at, line) in source.text.lines().map(str::trim_start).enumerate() {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let name = line.trim_start_matches("async ").strip_prefix("fn ");
            let Some(name) = name.filter(|_| is_test) else { continue };
            is_test = false;
            let name = name.split('(').next().unwrap_or_default();
            if name.len() > TEST_NAME_MAX {
                let what = format!(
                    "`{name}` has {} characters, {TEST_NAME_MAX} is the most\n  do: name its subject, its condition and the result",
                    name.len()
                );
                found.push((at + 1, what));
            }
        }
        found
    }));
}

/// As rustfmt.toml says, which `cargo fmt --check` holds for code. rustfmt breaks no comment.
const COLUMNS_MAX: usize = 100;

fn too_wide(source: &Source) -> Vec<(usize, String)> {
    let lines = source.text.lines().enumerate();
    lines
        .filter(|(_, text)| text.trim_start().starts_with("//"))
        .filter(|(_, text)| text.chars().count() > COLUMNS_MAX)
        .map(|(at, _)| (at + 1, format!("more than {COLUMNS_MAX} columns\n  do: break the line")))
        .collect()
}

#[test]
fn comments_have_at_most_a_hundred_columns() {
    judge(places(&sources(), too_wide));
}

/// The first line of a `mod.rs` that is neither `mod`, `pub use` nor an attribute on one.
fn beyond_a_map(source: &Source) -> Vec<(usize, String)> {
    if !source.path.ends_with("mod.rs") {
        return Vec::new();
    }
    let mut rest = source.code.as_str();
    loop {
        rest = rest.trim_start();
        let at = source.code.len() - rest.len();
        if rest.is_empty() {
            return Vec::new();
        }
        let start = rest.trim_start_matches("#!").trim_start_matches('#');
        let length = if start.starts_with('[') {
            rest.len() - start.len() + matching_brace(start)
        } else {
            rest.find(';').map_or(rest.len(), |end| end + 1)
        };
        let item = rest[..length].trim();
        let without_visibility = item
            .strip_prefix("pub(crate)")
            .or_else(|| item.strip_prefix("pub(super)"))
            .or_else(|| item.strip_prefix("pub"));
        let words = without_visibility.unwrap_or(item).trim_start();
        let fine = item.starts_with('#')
            || (words.starts_with("mod ") && !words.contains('{'))
            || (words.starts_with("use ") && without_visibility.is_some());
        if !fine {
            let word = item.lines().next().unwrap_or_default();
            return vec![(
                source.line_of(at),
                format!(
                    "`{word}` in a mod.rs\n  do: a mod.rs is prose, `mod` and `pub use`; give the code a file with a name"
                ),
            )];
        }
        rest = &rest[length..];
    }
}

#[test]
fn mod_rs_is_prose_and_re_exports() {
    judge(places(&sources(), beyond_a_map));
}

#[test]
fn every_folder_and_file_begins_with_its_purpose() {
    judge(places(&sources(), |source| {
        let prose: String = source
            .text
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .map(|line| line[3..].trim())
            .collect();
        let says = "say purpose and flow, and what must never live here, in `//!` lines at the top";
        if prose.len() < 20 {
            vec![(1, format!("does not say what it is for\n  do: {says}"))]
        } else {
            Vec::new()
        }
    }));
}

#[test]
fn file_is_a_room() {
    judge(places(&everything(), |source| {
        // A module of tests at the end is read apart.
        let text = source.text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
        let lines = text.lines().count();
        let generated = source.text.lines().take(5).any(|line| line.contains("@generated"));
        let most = if source.path.starts_with("src") { LINES_MAX } else { TEST_LINES_MAX };
        if lines <= most || generated {
            return Vec::new();
        }
        let what =
            format!("{lines} lines, {most} is the most\n  do: split it where its words change");
        vec![(lines, what)]
    }));
}

/// What the code holds that must not be there: the text, and what to do instead. Strings and
/// comments do not count.
const NEVER_IN_CODE: &[(&str, &str)] = &[
    ("todo!", "write it, or leave it out"),
    ("unimplemented!", "write it, or return an error that says so"),
    (".unwrap()", "`?`, or `expect(\"why it cannot fail\")`"),
    ("dbg!", "log it with tracing, or leave it out"),
];

fn unfinished(source: &Source) -> Vec<(usize, String)> {
    let found = |(word, cure): &(&str, &str)| -> Vec<(usize, String)> {
        source
            .code
            .match_indices(word)
            .map(|(at, _)| (source.line_of(at), format!("`{word}`\n  do: {cure}")))
            .collect()
    };
    NEVER_IN_CODE.iter().flat_map(found).collect()
}

#[test]
fn nothing_is_unfinished() {
    judge(places(&sources(), unfinished));
}

/// Nothing of ours can be called, on a port or on a socket in a folder, but the page of `lamp web`,
/// when a person starts it (docs/web.md). systemd's own socket is written to, by a crate of its
/// own.
const NEVER_LISTENING: &[&str] = &[
    "TcpListener",
    "TcpSocket",
    "UdpSocket",
    "UnixListener",
    "UnixDatagram",
    "UnixSocket",
    "rustix::net",
    "libc::listen",
    "libc::bind",
    "socket2",
];

fn listening(source: &Source) -> Vec<(usize, String)> {
    let found = NEVER_LISTENING.iter().flat_map(|word| source.code.match_indices(word));
    found
        .map(|(at, word)| {
            (
                source.line_of(at),
                format!("`{word}`: who listens can be called\n  do: use the job directory"),
            )
        })
        .collect()
}

#[test]
fn nothing_listens() {
    let mut sources = sources();
    // The page, and the measurements of an agent whose job asks for them. A rank of a gang and the
    // server of a prediction need a free port: it is bound to find it, and let go.
    let may_listen = |source: &Source| {
        source.layer() == "web"
            || source.path.ends_with("adapters/http/metrics_server.rs")
            || source.path.ends_with("adapters/rank/rank_network.rs")
            || source.path.ends_with("adapters/prediction/loopback_http.rs")
    };
    sources.retain(|source| !may_listen(source));
    judge(places(&sources, listening));
    assert_eq!(
        judged(
            "src/agent/x.rs",
            "// TcpListener\nuse std::os::unix::net::{UnixListener, UnixStream};\n",
            listening
        ),
        [2]
    );
}

fn silent(source: &Source) -> Vec<(usize, String)> {
    // Test modules count here: a lint is silenced there with a reason too.
    let code = without_comments_and_strings(&source.text);
    let in_src = source.path.starts_with("src");
    let starts = ["#[allow(", "#![allow(", "#[expect(", "#![expect("]
        .iter()
        .flat_map(|start| code.match_indices(start));
    let mut found: Vec<(usize, String)> = starts
        .filter_map(|(at, start)| {
            let open = at + start.find('[').expect("every start has a bracket");
            let attribute = &code[at..open + matching_brace(&code[open..])];
            let what = match (attribute.contains("reason"), start.contains("allow")) {
                (false, _) => format!("`{start}` without a reason"),
                // A helper that several test programs share may be used whole by one and in part by
                // another.
                (true, true) if in_src => format!("`{start}` stays when it is no longer needed"),
                _ => return None,
            };
            Some((
                source.line_of(at),
                format!("{what}\n  do: write `#[expect(LINT, reason = \"...\")]`"),
            ))
        })
        .collect();
    found.sort();
    found
}

#[test]
fn lint_is_silenced_with_a_reason() {
    judge(places(&everything(), silent));
}

// What the agent carries.

#[test]
fn agent_is_lean() {
    // Without the crates that only run in the compiler: they are not in the program.
    let edges = "normal,no-proc-macro";
    let args = [
        "tree",
        "--no-default-features",
        "--features",
        "agent",
        "--edges",
        edges,
        "--prefix",
        "none",
        "--offline",
        "--locked",
    ];
    let output = Command::new(env!("CARGO"))
        .args(args)
        .current_dir(package())
        .output()
        .expect("cargo runs: it runs this test");
    assert!(
        output.status.success(),
        "cargo tree failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let tree = String::from_utf8_lossy(&output.stdout);
    let carried: Vec<&str> =
        tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(carried.contains(&"tokio"), "the tree was not understood:\n{tree}");
    let heavy = AGENT_NEVER.iter().filter(|name| carried.contains(name));
    judge(heavy.map(|name| format!("the agent carries `{name}`\n  do: `cargo tree -i {name} --no-default-features --features agent` says why; make it optional under the feature `lamp`")).collect());
}

// The referee itself.

fn judged(path: &str, text: &str, rule: impl Fn(&Source) -> Vec<(usize, String)>) -> Vec<usize> {
    rule(&Source::new(path, text)).into_iter().map(|(line, _)| line).collect()
}

#[test]
fn referee_sees_every_way_to_name_a_layer() {
    let arrows = |path, text| judged(path, text, wrong_arrows);
    assert_eq!(arrows("src/job/a.rs", "use crate::policy::x;"), [1]);
    assert_eq!(
        arrows("src/job/a.rs", "use crate::{\n    market::Usd,\n    ports::{Store, policy},\n};"),
        [3]
    );
    assert_eq!(arrows("src/job/a.rs", "fn f() -> super::super::agent::X {}"), [1]);
    assert_eq!(arrows("src/job/a.rs", "mod inner { use super::super::super::agent::X; }"), [1]);
    assert_eq!(arrows("src/job/mod.rs", "pub use super::cli::X;"), [1]);
    assert_eq!(arrows("src/bin/lamp.rs", "use lamplighter::adapters::x;"), [1]);
    assert_eq!(arrows("src/cli/a.rs", "let s: crate\n  ::adapters::S;"), [2]);
    assert_eq!(arrows("src/attic/a.rs", ""), [1]);
    assert_eq!(
        arrows("src/job/a.rs", "use crate::Spec;"),
        [1],
        "a name at the root hides its layer"
    );
}

#[test]
fn referee_passes_what_is_allowed() {
    let fine = "//! [`crate::policy`]\nuse crate::{job, market};\nuse super::Spec;\nconst A: &str = \"crate::policy\"; // crate::policy\nlet q = '\"'; let l: &'static str = r#\"crate::cli\"#;\n#[cfg(test)]\nmod tests {\n    use crate::policy::x;\n}\n";
    for rule in [wrong_arrows, impure, unfinished, silent] {
        assert_eq!(judged("src/instance/a.rs", fine, rule), [0_usize; 0]);
    }
}

#[test]
fn referee_sees_the_world_in_a_pure_layer() {
    assert_eq!(
        judged(
            "src/policy/a.rs",
            "use std::fmt;\nuse std::{fs, collections::BTreeMap};\ntokio::spawn(x);\nserde::de::X",
            impure
        ),
        [2, 3]
    );
    assert_eq!(judged("src/adapters/a.rs", "use std::fs;", impure), [0_usize; 0]);
}

#[test]
fn referee_sees_code_in_a_map_and_silence_without_reason() {
    assert_eq!(
        judged(
            "src/job/mod.rs",
            "//! x\nmod a;\n#[cfg(feature = \"lamp\")]\npub mod b;\npub use a::{B, C};\npub(crate) use a::d;\n",
            beyond_a_map
        ),
        [0_usize; 0]
    );
    assert_eq!(
        judged("src/job/mod.rs", "//! x\nmod a;\n\npub const X: u32 = 1;\n", beyond_a_map),
        [4]
    );
    assert_eq!(judged("src/job/mod.rs", "use std::fmt;\n", beyond_a_map), [1]);
    assert_eq!(
        judged("tests/a/a.rs", "#[allow(dead_code)]\n#[allow(x, reason = \"y\")]", silent),
        [1]
    );
    assert_eq!(
        judged(
            "src/a/a.rs",
            "#[allow(dead_code)]\n#[expect(x)]\n#[expect(\n  x,\n  reason = \"y\"\n)]",
            silent
        ),
        [1, 2]
    );
    assert_eq!(
        judged(
            "src/a/a.rs",
            "x.unwrap();\n// x.unwrap()\n#[cfg(test)]\nmod tests { fn f() { x.unwrap(); } }\ntodo!()",
            unfinished
        ),
        [5, 1]
    );
}
