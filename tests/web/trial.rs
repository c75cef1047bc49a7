//! One set-up, three faces: each alone tells what runs, what is useful, what it costs now and at
//! most, when and why each will stop, and what to do. The pictures of the documentation are of it.

use std::process::Command;

use lamp_test_support::skipped;

use crate::browser::shown;
use crate::ended_week;
use crate::pages::Served;
use crate::place::Place;
use crate::six_jobs::{ENDED, STRAY, SixJobs, WAITS};

/// What every face says, in its own layout.
fn facts() -> Vec<String> {
    let told = [
        // What runs, and what is useful: two of five machines.
        "$5.03/h",
        "$2.01/h",
        // Why and when each will stop.
        "quiet for 12m of 15m",
        "it ends as idle, if it stays quiet, at",
        "no step, log line or checkpoint for 21m, 20m was enough",
        "a cheaper machine: g5.xlarge spot costs $0.98/h now",
        // How long it may take: 570 steps of 5.4 to 7.2 seconds.
        "51m 18s to 1h 8m left",
        // What to do.
        "lamp extend bert-eval-3m8xkt --keep 1h",
        "lamp stop resnet-k4t9vd",
        "has no job here, and it bills $1.01/h",
        ENDED.split('-').next().expect("a name"),
        WAITS.split('-').next().expect("a name"),
    ];
    let stray = format!("lamp sweep --machine {STRAY}");
    told.iter().map(|told| (*told).to_owned()).chain([stray, STRAY.to_owned()]).collect()
}

/// Without line breaks and indents, which are the layout of a face.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn assert_told(face: &str, text: &str) {
    let text = flat(text);
    let missing: Vec<String> =
        facts().into_iter().filter(|fact| !text.contains(fact.as_str())).collect();
    assert!(missing.is_empty(), "{face} does not say {missing:#?}:\n{text}");
}

/// `&amp;`, and the marks that stand between words on a page.
fn page_text(html: &str) -> String {
    let mut text = String::new();
    let mut is_tag = false;
    for letter in html.chars() {
        match letter {
            '<' => is_tag = true,
            '>' if is_tag => is_tag = false,
            letter if !is_tag => text.push(letter),
            _ => {}
        }
    }
    text.replace("&amp;", "&").replace("&#39;", "'").replace("&quot;", "\"")
}

#[test]
fn each_face_alone_answers_for_six_jobs_and_an_orphan() {
    let six = SixJobs::new();
    for words in [&["top", "--once"][..], &["status"]] {
        six.beat();
        let ended = six.place.0.end(&mut six.command(words));
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert_told(words[0], &format!("{}{}", ended.out, ended.err));
    }
    six.beat();
    let page = Served::by(&six.place, six.command(&["web", "--port", "0"]));
    assert_told("the page", &page_text(&page.get("/").text));
}

/// The largest picture that a page of the documentation carries.
const PICTURE_BYTES_MAX: usize = 150 * 1024;

/// `page` is the page of the documentation that shows it.
fn keep(picture: &std::path::Path, name: &str, page: &str) {
    let bytes = std::fs::read(picture).expect("a picture");
    assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 5_000, "{name}: {}", bytes.len());
    assert!(bytes.len() <= PICTURE_BYTES_MAX, "{name}: {} bytes", bytes.len());
    let root = crate::sandbox::repository();
    let kept = root.join("docs/images").join(name);
    if std::env::var_os("LAMP_UPDATE").is_some() {
        std::fs::write(&kept, &bytes).expect("written");
    }
    assert!(kept.exists(), "{name} is not in docs/images: LAMP_UPDATE=1 writes it");
    let text = std::fs::read_to_string(root.join(page)).expect("a page of the documentation");
    assert!(text.contains(&format!("images/{name}")), "{page} does not show {name}");
}

#[test]
fn pictures_of_the_documentation_can_be_made() {
    let six = SixJobs::new();
    // As wide as the picture.
    let once = six.place.0.end(six.command(&["top", "--once"]).env("COLUMNS", "104"));
    assert_eq!(once.code, 0, "{}", once.err);
    let picture = six.place.0.path().join("picture.png");
    let shot = format!("--screenshot={}", picture.display());
    for (path, name, size) in [
        ("%2F", "web-overview.png", "--window-size=960,800"),
        ("%2Fjob%2Fllama-ft-7f3k2q", "web-job.png", "--window-size=960,1000"),
    ] {
        six.beat();
        // The link works once.
        let page = Served::by(&six.place, six.command(&["web", "--port", "0"]));
        if shown(&six.place, &page, path, &[size, &shot]).is_none() {
            return;
        }
        keep(&picture, name, "README.md");
    }
    let text = once.out.replace('&', "&amp;").replace('<', "&lt;");
    six.place.0.write(
        "top.html",
        format!(
            "<!DOCTYPE html><meta charset=utf-8><style>body{{margin:0;background:#12171d}}\
             pre{{margin:16px;color:#dbe2ea;font:12px/1.3 'DejaVu Sans Mono',monospace}}</style><pre>{text}</pre>"
        ),
    );
    let drawn = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .args([shot.as_str(), "--window-size=780,640"])
        .arg(format!("--user-data-dir={}", six.place.0.path().join("browser").display()))
        .arg(format!("file://{}", six.place.0.path().join("top.html").display()))
        .env("HOME", six.place.0.path())
        .output();
    match drawn {
        Ok(_) => keep(&picture, "top.png", "README.md"),
        Err(error) => skipped("chromium", format!("chromium is needed: {error}")),
    }
}

#[test]
fn picture_of_costs_can_be_made() {
    let place = Place::new("true");
    ended_week::written(&place);
    let page = Served::of(&place);
    let text = page_text(&page.get("/costs").text);
    // The lost work of an interruption, the idle time, and what spot has saved.
    for told in ["$0.30", "$0.25", "$14.96"] {
        assert!(text.contains(told), "{told}: {text}");
    }
    let picture = place.0.path().join("picture.png");
    let shot = format!("--screenshot={}", picture.display());
    if shown(&place, &page, "%2Fcosts", &["--window-size=960,975", &shot]).is_some() {
        keep(&picture, "web-costs.png", "docs/web.md");
    }
}
