//! Names files in the workdir that are not kept, before the machine is deleted.
//!
//! A script that writes `model.pt` beside itself ends well, but its model is deleted with the
//! machine. The agent cannot keep every file (it may be a data set), but the user should be told.
//! Not here: an upload.

use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;

use super::outputs::{FILES_MAX, Pattern, WantedOutputs};
use crate::agent::report::retry_sender::Outbox;
use crate::ports::TreeFile;

/// How many files are named, the largest first; the rest is a number.
const NAMED_MAX: usize = 3;

/// Parts of a path that tools create.
const MADE_BY_TOOLS: [&str; 3] = ["__pycache__", "node_modules", "lost+found"];

/// A sentence about new files that neither `wanted` nor a checkpoint keeps. `apart`: the checkpoint
/// folder and the done marker, which are not results.
pub async fn left_behind(
    outbox: &Outbox,
    workdir: &Path,
    wanted: WantedOutputs<'_>,
    apart: &[&str],
    since: Timestamp,
) -> Option<String> {
    let tree = outbox.files.walk_aside(workdir, FILES_MAX).await.ok()?;
    let named = wanted
        .named
        .iter()
        .map(String::as_str)
        .chain(wanted.if_any.iter().copied())
        .chain(apart.iter().copied());
    let patterns: Vec<Pattern> = named.map(Pattern::new).collect();
    let is_kept = |path: &str| patterns.iter().any(|pattern| pattern.matches(path));
    let since = i64::try_from(since.as_nanosecond()).unwrap_or(i64::MAX);
    let by_the_work = |file: &&TreeFile| file.stamp.modified_nanos >= since && file.stamp.bytes > 0;
    let mut files: Vec<&TreeFile> = tree
        .files
        .iter()
        .filter(by_the_work)
        .filter(|file| !is_made_by_tools(&file.path) && !is_kept(&file.path))
        .collect();
    files.sort_by_key(|file| std::cmp::Reverse(file.stamp.bytes));
    // A folder of the code is not named whole because of one new file.
    let of_code: BTreeSet<&str> = tree
        .files
        .iter()
        .filter(|file| !by_the_work(file))
        .filter_map(|file| Some(file.path.split_once('/')?.0))
        .collect();
    said(&files, &to_keep(&files, wanted.named, &of_code), tree.truncated)
}

/// Most patterns in the hint: a longer line is hard to paste.
const PATTERNS_MAX: usize = 6;

/// The value of `outputs` that also keeps these files: whole folders, and single files by name.
fn to_keep(files: &[&TreeFile], named: &[String], of_code: &BTreeSet<&str>) -> Vec<String> {
    let mut patterns: Vec<String> = named.to_vec();
    for file in files {
        let pattern = match file.path.split_once('/') {
            Some((folder, _)) if !of_code.contains(folder) => format!("{folder}/**"),
            _ => file.path.clone(),
        };
        if !patterns.contains(&pattern) && patterns.len() < named.len() + PATTERNS_MAX {
            patterns.push(pattern);
        }
    }
    patterns
}

/// Hidden, or made by an interpreter or a package manager.
fn is_made_by_tools(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with('.') || MADE_BY_TOOLS.contains(&part))
        || path.ends_with(".pyc")
}

/// `cut`: there are more files than were looked at.
fn said(files: &[&TreeFile], patterns: &[String], cut: bool) -> Option<String> {
    if files.is_empty() {
        return cut.then(|| format!("whether the work left anything in its workdir is not known: it holds more than {FILES_MAX} files"));
    }
    let names: Vec<String> = files
        .iter()
        .take(NAMED_MAX)
        .map(|file| format!("`{}` ({})", file.path, size(file.stamp.bytes)))
        .collect();
    let more = files.len().saturating_sub(NAMED_MAX);
    let more = match (more, cut) {
        (_, true) => format!(" and others (only {FILES_MAX} files were looked at)"),
        (0, false) => String::new(),
        (more, false) => format!(" and {more} more"),
    };
    let quoted: Vec<String> = patterns.iter().map(|pattern| format!("{pattern:?}")).collect();
    Some(format!(
        "written into the workdir and kept by nobody: {}{more}; `outputs = [{}]` in the job file keeps them, and so does writing to $LAMP_OUTPUT_DIR",
        names.join(", "),
        quoted.join(", ")
    ))
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::FileStamp;

    #[test]
    fn largest_unsaved_files_are_named_with_hint() {
        let file = |path: &str, bytes| TreeFile {
            path: path.into(),
            stamp: FileStamp { bytes, modified_nanos: 1, inode: 1, mode: 0o644 },
        };
        let files = [
            file("model.pt", 44_000_000),
            file("out/a", 3_000),
            file("out/deep/b", 20),
            file("src/c", 10),
        ];
        let files: Vec<&TreeFile> = files.iter().collect();
        let patterns = to_keep(&files, &["log.txt".to_owned()], &["src"].into());
        let text = said(&files, &patterns, false).unwrap();
        assert_eq!(
            text,
            "written into the workdir and kept by nobody: `model.pt` (44.0 MB), `out/a` (3.0 kB), `out/deep/b` (20 B) and 1 more; \
             `outputs = [\"log.txt\", \"model.pt\", \"out/**\", \"src/c\"]` in the job file keeps them, and so does writing to $LAMP_OUTPUT_DIR"
        );
        assert_eq!(said(&[], &[], false), None);
        assert!(
            said(&[], &[], true).is_some_and(|text| text.contains("is not known")),
            "the text says that it is unknown"
        );
        assert!(
            is_made_by_tools("src/__pycache__/a.pyc")
                && is_made_by_tools(".venv/bin/python")
                && !is_made_by_tools("runs/model.pt")
        );
    }
}
