//! Links between the pages lead somewhere: the file exists, and so does the heading that a link
//! names. The pages in `docs/` are a book (`book.toml`), so their links stay in it. The source
//! files that a page names exist too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Pages outside the book that link into it.
const OTHERS: [&str; 6] = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "tests/README.md",
    "tests/sim/bounds.md",
    "benches/README.md",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The lines of a page without its code blocks.
fn prose(page: &str) -> Vec<&str> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            lines.push(line);
        }
    }
    lines
}

/// The anchors of a page, as mdbook and GitHub make them from its headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = prose(page).into_iter().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ if letter.is_alphanumeric() => Some(letter.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

/// The targets of the links on a page, without those to the web.
fn links(page: &str) -> Vec<String> {
    let text = prose(page).join("\n");
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).map(str::to_owned).collect()
}

/// `a/../b` without its detour.
fn straight(path: &Path) -> PathBuf {
    let mut straight = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(straight.pop()),
            Component::CurDir => {}
            part => straight.push(part),
        }
    }
    straight
}

/// All pages, by their path in the repository.
fn pages() -> BTreeMap<PathBuf, String> {
    let book = std::fs::read_dir(root().join("docs")).expect("the book is there");
    let book = book.map(|entry| Path::new("docs").join(entry.expect("readable").file_name()));
    let book = book.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let all = book.chain(OTHERS.map(PathBuf::from));
    all.map(|path| (path.clone(), super::text(path.to_str().expect("ASCII")))).collect()
}

#[test]
fn links_between_the_pages_lead_somewhere() {
    let pages = pages();
    assert!(pages.len() > 20, "only {} pages were found", pages.len());
    let mut broken = Vec::new();
    for (path, page) in &pages {
        for link in links(page) {
            let (file, anchor) = link.split_once('#').unwrap_or((link.as_str(), ""));
            let target = match file {
                "" => path.clone(),
                file => straight(&path.parent().expect("a folder").join(file)),
            };
            let why = if !root().join(&target).exists() {
                "no such file"
            } else if path.starts_with("docs") && !target.starts_with("docs") {
                "it leaves the book"
            } else if !anchor.is_empty()
                && !pages.get(&target).is_some_and(|page| anchors(page).contains(anchor))
            {
                "no such heading"
            } else {
                continue;
            };
            broken.push(format!("{}: {link}: {why}", path.display()));
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

/// `tests/sim/bounds.md` and `src/lib.rs` from the root; `agent/decide.rs` below `src`; on the page
/// about policies, also below `src/policy`.
#[test]
fn each_source_file_that_a_page_names_is_there() {
    let mut named = 0;
    let mut gone = Vec::new();
    for (path, page) in &pages() {
        for quoted in prose(page).join("\n").split('`').skip(1).step_by(2) {
            let file = quoted.split("::").next().unwrap_or_default();
            if !file.ends_with(".rs") || file.contains(' ') {
                continue;
            }
            named += 1;
            if !["", "src", "src/policy"].iter().any(|at| root().join(at).join(file).is_file()) {
                gone.push(format!("{}: {file}", path.display()));
            }
        }
    }
    assert!(named > 100, "only {named} files were found: the pages were not understood");
    assert!(gone.is_empty(), "files that are not there:\n{}", gone.join("\n"));
}

/// A page that the summary does not name is not in the book.
#[test]
fn summary_names_each_page_of_the_book_once() {
    let pages = pages();
    let mut named = links(&pages[Path::new("docs/SUMMARY.md")]);
    named.push("SUMMARY.md".to_owned());
    named.sort_unstable();
    let book = pages.keys().filter_map(|path| path.strip_prefix("docs").ok());
    let mut book: Vec<String> = book.map(|path| path.display().to_string()).collect();
    book.sort_unstable();
    assert_eq!(named, book, "left: docs/SUMMARY.md, right: docs");
}

#[test]
fn anchor_is_made_from_its_heading() {
    assert_eq!(anchor(" no offer fits: …"), "no-offer-fits-");
    assert_eq!(anchor(" the notify command `…` …"), "the-notify-command--");
    assert_eq!(
        anchor(" 4. An interruption leaves no outcome"),
        "4-an-interruption-leaves-no-outcome"
    );
    assert_eq!(links("[a](b.md#c) [d](https://e)\n```\n[f](g)\n```"), ["b.md#c"]);
}
