//! The pages in `docs/` say what the program does: names, fields, messages and tests that stand
//! there exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use lamplighter::agent::startup::environment::{WorkloadPaths, environment};
use lamplighter::job::{AttemptNo, CheckpointNo};
use lamplighter::jobdir::layout;
use serde_json::Value;

use super::text;

/// What stands between backticks.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The names that a page explains: `- `name`: ...` and `- `name` (...): ...`.
fn explained(page: &str) -> Vec<&str> {
    let items = page
        .lines()
        .filter_map(|line| line.strip_prefix("- `").and_then(|rest| rest.split_once('`')));
    let items = items.filter(|(_, after)| after.starts_with(": ") || after.starts_with(" ("));
    items.map(|(name, _)| name).collect()
}

#[test]
fn environment_page_lists_exactly_what_the_workload_gets() {
    let (job, path) = ("digits-222222".parse().unwrap(), Path::new("/w"));
    let place = WorkloadPaths {
        job: &job,
        name: "digits",
        attempt: AttemptNo::FIRST,
        instance: "i-1",
        workdir: path,
        checkpoint_dir: path,
        output_dir: path,
        cache_dir: path,
        progress: path,
        done: path,
        notice: path,
        trial: None,
        hostfile: path,
        resumed: true,
        resume_step: Some(1.0),
        gpus: Some(1),
        rank: None,
    };
    let set: BTreeSet<String> = environment(&place, &BTreeMap::new()).into_keys().collect();
    let page = text("docs/environment.md");
    let variable = |name: &&str| {
        name.chars()
            .all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_')
    };
    let listed: BTreeSet<String> =
        explained(&page).into_iter().filter(variable).map(str::to_owned).collect();
    assert_eq!(listed, set, "left: docs/environment.md, right: agent::environment");
}

/// Every section `### `name`` of a page.
fn sections(page: &str) -> BTreeMap<&str, &str> {
    let parts = page.split("\n### `").skip(1);
    parts
        .filter_map(|part| part.split_once('`'))
        .map(|(name, body)| (name, body.split("\n## ").next().unwrap_or(body)))
        .collect()
}

#[test]
fn job_directory_page_names_every_field_of_every_record() {
    let page = text("docs/job-directory.md");
    let sections = sections(&page);
    let mut missing = Vec::new();
    for name in [
        "spec",
        "plan",
        "request",
        "lease",
        "status",
        "outcome",
        "settled",
        "manifest",
        "receipt",
        "schedule",
        "schedule-run",
        "waiting",
        "market",
        "pool",
        "suspects",
        "visit",
        "proof",
    ] {
        let file = format!("{name}.json");
        let record: Value = serde_json::from_str(&text(&format!("tests/data/v1/{file}"))).unwrap();
        let section = sections
            .get(file.as_str())
            .unwrap_or_else(|| panic!("docs/job-directory.md has no section on {file}"));
        let named = quoted(section);
        missing.extend(
            record
                .as_object()
                .unwrap()
                .keys()
                .filter(|key| !named.contains(*key))
                .map(|key| format!("{file}: {key}")),
        );
    }
    for file in ["events.jsonl", "samples.jsonl"] {
        let named = quoted(sections[file]);
        let lines = text(&format!("tests/data/v1/{file}"));
        let records = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let words = records.flat_map(|record| {
            let kind = record.get("kind").and_then(Value::as_str).map(str::to_owned);
            record.as_object().unwrap().keys().cloned().chain(kind).collect::<Vec<_>>()
        });
        missing.extend(
            words
                .collect::<BTreeSet<_>>()
                .into_iter()
                .filter(|word| !named.contains(word))
                .map(|word| format!("{file}: {word}")),
        );
    }
    assert!(missing.is_empty(), "docs/job-directory.md does not name:\n{}", missing.join("\n"));
}

#[test]
fn job_directory_page_lists_every_key() {
    let job = "j".parse().unwrap();
    let (attempt, checkpoint) = (AttemptNo::FIRST, CheckpointNo::FIRST);
    let keys = [
        layout::spec(&job),
        layout::code(&job, "<sha256>"),
        layout::request(&job, 1),
        layout::plan(&job, attempt),
        layout::lease(&job, attempt),
        layout::status(&job, attempt),
        layout::event_batch(&job, attempt, 1),
        layout::sample_batch(&job, attempt, 1),
        layout::log_piece(&job, attempt, 1),
        layout::stacks(&job, attempt, 1),
        layout::outcome(&job, attempt),
        layout::settled(&job, attempt),
        layout::checkpoint_file(&job, checkpoint, "..."),
        layout::manifest(&job, checkpoint),
        format!("{}...", layout::outputs(&job)),
        layout::receipt(&job),
        layout::waiting(&job),
        layout::market(&job),
        layout::pool("<zone>", "<type>"),
        layout::suspects("<name>"),
        layout::visit("<name>"),
        layout::proof("<account>", "<region>"),
        layout::tuning("<name>"),
        layout::tuning_end("<name>"),
        layout::tuning_code("<name>", "<sha256>"),
        format!("{}<n>.json", layout::tuning_trials("<name>")),
        layout::schedule("<set>", "<name>"),
        layout::schedule_code("<set>", "<name>", "<sha256>"),
        layout::schedule_waiting("<set>", "<name>"),
        format!("{}<due>.json", layout::schedule_runs("<set>", "<name>")),
    ];
    let page = text("docs/job-directory.md");
    let listed: BTreeSet<String> = explained(&page).into_iter().map(str::to_owned).collect();
    let as_listed = |key: &str| {
        let key = key.strip_prefix("jobs/j/").unwrap_or(key).replace("00000001", "0001");
        ["<n>", "<seq>", "<k>"].map(|name| {
            key.replacen(
                "0001",
                "<n>",
                key.matches("0001").count() - usize::from(key.contains("0001")),
            )
            .replacen("0001", name, 1)
        })
    };
    let missing: Vec<&String> =
        keys.iter().filter(|key| !as_listed(key).iter().any(|key| listed.contains(key))).collect();
    assert!(missing.is_empty(), "docs/job-directory.md does not list {missing:?}");
}

fn rust_sources() -> String {
    fn collect(folder: &Path, into: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            // `.venv` and the like are not ours: the example's own setup makes them.
            let hidden =
                entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if hidden {
                continue;
            }
            if entry.is_dir() {
                collect(&entry, into);
            } else if entry
                .extension()
                .is_some_and(|extension| ["rs", "sh", "py"].iter().any(|known| extension == *known))
            {
                into.push_str(&std::fs::read_to_string(&entry).unwrap());
            }
        }
    }
    let mut sources = String::new();
    for folder in ["src", "examples/digits"] {
        collect(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(folder), &mut sources);
    }
    sources
}

/// A message in a heading is quoted as the user sees it, with `…` for what differs each time.
#[test]
fn every_message_on_the_troubleshooting_page_is_one_of_ours() {
    let page = text("docs/troubleshooting.md");
    let messages: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert!(messages.len() > 5, "the page was not understood");
    let sources = rust_sources().replace("\\\"", "\"");
    let unknown = |message: &&str| {
        // The printer's own words.
        let message = message.trim_start_matches("error: ").trim_start_matches("no ");
        let parts = message
            .split(['…', '`'])
            .map(|part| part.trim_matches([' ', ':', ';', ',', '.']))
            .filter(|part| part.len() >= 8)
            .collect::<Vec<_>>();
        parts.is_empty() || parts.iter().any(|part| !sources.contains(part))
    };
    let unknown: Vec<&str> = messages.into_iter().filter(|message| unknown(message)).collect();
    assert!(unknown.is_empty(), "nothing in the program says:\n{}", unknown.join("\n"));
}

/// Whether there is a test of this name that runs: what stands above the function, without a blank
/// line, says so.
fn is_tested(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let (sync, r#async) = (format!("fn {name}("), format!("async fn {name}("));
    let begins = |at: &usize| {
        [&sync, &r#async]
            .iter()
            .any(|start| lines[*at].trim_start_matches("pub ").starts_with(start.as_str()))
    };
    (0..lines.len()).filter(begins).any(|at| {
        let above: Vec<&str> = lines[..at]
            .iter()
            .rev()
            .take_while(|line| !line.is_empty() && **line != "}")
            .copied()
            .collect();
        let marked = |marks: &[&str]| {
            above.iter().any(|line| marks.iter().any(|mark| line.starts_with(mark)))
        };
        marked(&["#[test]", "#[tokio::test"])
            && !marked(&["#[ignore"])
            && !above.iter().any(|line| line.contains("fn "))
    })
}

#[test]
fn function_is_a_test_only_when_it_is_marked_and_not_ignored() {
    let source = "#[test]\nfn one() {\n}\n\n/// Two.\n#[tokio::test(start_paused = true)]\nasync fn two() {}\n\n#[test]\n#[ignore = \"slow\"]\n\
                  fn three() {}\n\nfn four() {}\n\nproptest! {\n    #[test]\n    fn five(x in 0..3) {}\n}\n#[test]\nfn six() {\n}\nfn seven() {}\n";
    let tested = ["one", "two", "three", "four", "five", "six", "seven", "on", "eight"]
        .map(|name| is_tested(source, name));
    assert_eq!(tested, [true, true, false, false, true, true, false, false, false]);
}

/// `tests/area/file.rs::name` or `src/folder/file.rs::name`.
#[test]
fn every_test_that_a_promise_names_exists_and_runs() {
    let named = quoted(&format!("{}\n{}", text("docs/promises.md"), text("docs/false-world.md")));
    let tests: Vec<&String> = named.iter().filter(|text| text.contains(".rs::")).collect();
    assert!(tests.len() > 5, "the page was not understood");
    let gone = tests.iter().filter(|test| {
        let (file, name) = test.split_once("::").unwrap();
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file);
        !std::fs::read_to_string(path).is_ok_and(|source| is_tested(&source, name))
    });
    let gone: Vec<_> = gone.collect();
    assert!(gone.is_empty(), "the pages name what is no test that runs: {gone:#?}");
}

/// Each promise ends with a test, or with a file that is there.
#[test]
fn every_promise_names_what_holds_it() {
    let page = text("docs/promises.md");
    let (promises, _) =
        page.split_once("\n## The fault matrix\n").expect("the page has the matrix");
    let lines = promises.lines().filter_map(|line| line.strip_prefix("- "));
    let rows: Vec<(&str, &str)> =
        lines.map(|line| line.rsplit_once(": ").unwrap_or((line, ""))).collect();
    assert!(rows.len() > 80, "the page was not understood: {} promises", rows.len());
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let holds =
        |name: &String| name.contains(".rs::") || (name.contains('/') && root.join(name).is_file());
    let bare: Vec<_> = rows
        .iter()
        .filter(|(_, held_by)| !quoted(held_by).iter().any(holds))
        .map(|(promise, _)| promise)
        .collect();
    assert!(bare.is_empty(), "nothing holds: {bare:#?}");
}

/// Text beside the promises has no test: it stands on another page.
#[test]
fn between_the_promises_stands_nothing_but_their_headings() {
    let page = text("docs/promises.md");
    let (promises, matrix) =
        page.split_once("\n## The fault matrix\n").expect("the page has the matrix");
    let mut words = promises
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("- ") && !line.starts_with("## "));
    assert!(
        words.next().is_some_and(|line| line.starts_with("# "))
            && words.next().is_some_and(|line| line.starts_with("Each line names the test"))
    );
    assert_eq!(words.collect::<Vec<_>>(), [""; 0]);
    assert_eq!(
        matrix.lines().filter(|line| !line.is_empty() && matrix_row(line).is_none()).count(),
        1,
        "one line about the matrix, and its rows"
    );
}

/// `1. **fault** (bound): what happens. `test``.
fn matrix_row(line: &str) -> Option<[&str; 5]> {
    let (number, rest) = line.split_once(". **")?;
    let (fault, rest) = rest.split_once("** (")?;
    let (bound, rest) = rest.split_once("): ")?;
    let (end, test) = rest.rsplit_once(". `")?;
    Some([number, fault, bound, end, test])
}

/// As many rows as it says, numbered through; in each a fault, its bound, its end and a test.
#[test]
fn fault_matrix_has_a_test_in_every_row_and_no_empty_cell() {
    let page = text("docs/promises.md");
    let (_, matrix) = page.split_once("\n## The fault matrix\n").expect("the page has the matrix");
    let matrix = matrix.split("\n## ").next().expect("it has a beginning");
    let claimed: usize = matrix
        .split_once(" rows")
        .and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok())
        .expect("it says how many");
    let rows: Vec<[&str; 5]> = matrix
        .lines()
        .filter(|line| line.starts_with(|letter: char| letter.is_ascii_digit()))
        .map(|line| matrix_row(line).unwrap_or_else(|| panic!("a part is missing: {line}")))
        .collect();
    assert_eq!(rows.len(), claimed, "rows, and rows that are claimed");
    for (at, cells) in rows.iter().enumerate() {
        assert_eq!(cells[0], (at + 1).to_string(), "{cells:?}");
        assert!(
            cells.iter().all(|cell| !cell.is_empty() && !["-", "?", "..."].contains(cell)),
            "an empty part: {cells:?}"
        );
        assert!(cells[4].contains(".rs::"), "no test: {cells:?}");
    }
}
