//! The page in a real Chromium without a window: the way in, live updates, a picture.

use std::process::Command;

use crate::pages::Served;
use crate::place::Place;
use lamp_test_support::skipped;

/// What the browser shows at the end of the way in. `None`: there is no browser here.
pub(crate) fn shown(place: &Place, page: &Served<'_>, to: &str, more: &[&str]) -> Option<String> {
    let link = format!("{}&to={to}", page.link);
    let profile = place.0.path().join("browser");
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .args(["--timeout=8000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(more)
        .arg(link)
        .env("HOME", place.0.path())
        .output();
    match output {
        Err(error) => {
            skipped("chromium", format!("chromium is needed: {error}"));
            None
        }
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
    }
}

#[test]
fn link_opens_the_overview_and_names_are_text() {
    let place = Place::new("echo done");
    let name = "<img src=x onerror=document.title='owned'>";
    let job = place.0.lamp(&[
        "run",
        "-d",
        "-q",
        "--max-runtime",
        "1h",
        "--name",
        name,
        "--",
        "sh",
        "job.sh",
    ]);
    let job = job.out.trim();
    place.until(job, "succeeded");
    let page = Served::of(&place);
    let Some(dom) = shown(&place, &page, "%2F%3Fq%3Dstate%3Asucceeded", &[]) else { return };
    assert!(dom.contains("<title>Jobs · Lamplighter</title>"), "{dom}");
    assert!(dom.contains(job) && dom.contains("Most it can cost"), "{dom}");
    assert!(dom.contains("&lt;img src=x") && !dom.contains("<img"), "{dom}");
}

#[test]
fn narrow_window_gets_a_picture() {
    let place = Place::new("echo done");
    let page = Served::of(&place);
    let picture = place.0.path().join("page.png");
    let shot = format!("--screenshot={}", picture.display());
    let Some(_) = shown(&place, &page, "%2F", &["--window-size=500,900", &shot]) else { return };
    let picture = std::fs::read(&picture).expect("a picture");
    assert!(picture.starts_with(b"\x89PNG") && picture.len() > 5_000, "{}", picture.len());
}

#[test]
fn plots_are_drawn_over_bands() {
    let place = Place::new("sleep 3");
    let job = place.0.lamp(&["run", "-d", "-q", "--max-runtime", "1h", "--", "sh", "job.sh"]);
    let job = job.out.trim();
    place.until(job, "succeeded");
    let page = Served::of(&place);
    let to = format!("%2Fjob%2F{job}");
    // Lets the script fetch and draw. The page of an ended job keeps no connection open.
    let Some(dom) = shown(&place, &page, &to, &["--virtual-time-budget=4000"]) else { return };
    // The script has replaced each drawing, and found a band or none for the cursor.
    assert!(dom.contains("class=\"uplot") && dom.contains("u-over"), "{dom}");
    assert!(!dom.contains("<polyline"), "{dom}");
    assert!(dom.contains("class=\"legend\""), "{dom}");
}
