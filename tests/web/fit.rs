//! The pages in a real Chromium: they fit a narrow window, and axe-core finds no barrier.
//!
//! A page is fetched without a script and put into a frame of the wanted width.

use std::process::Command;

use lamp_test_support::skipped;

use crate::pages::Served;
use crate::place::Place;

/// Asks the frame until it is loaded, and writes the answer where the dumped page has it.
const HARNESS: &str = "<!DOCTYPE html><html><body><pre id=\"answer\"></pre>
<iframe id=\"page\" style=\"border:0;height:900px;width:WIDTHpx\" srcdoc=\"SOURCE\"></iframe>
<script>
const frame = document.getElementById('page');
const tell = (text) => { document.getElementById('answer').textContent = 'told:' + text + ':end'; };
frame.addEventListener('load', async () => {
  try { tell(await (async (view) => { SCRIPT })(frame.contentWindow)); }
  catch (error) { tell('failed ' + error); }
});
</script></body></html>";

/// How a page is looked at.
struct Look<'a> {
    width: u32,
    is_dark: bool,
    /// A script of another program, in the frame.
    library: &'a str,
    /// Its value is the answer; the frame's window is `view`.
    script: &'a str,
}

/// The answer of the script about this page. `None`: there is no browser here.
fn told(place: &Place, page: &Served<'_>, path: &str, look: &Look<'_>) -> Option<String> {
    let style = page.get("/assets/style.css").text;
    let html = page.get(path).text;
    assert!(html.contains("<main>"), "{path}: {html}");
    let head = format!("<style>{style}</style><script>{}</script></head>", look.library);
    let html = html.replacen("</head>", &head, 1).replace("script src=", "script data-left-out=");
    let source = html.replace('&', "&amp;").replace('"', "&quot;");
    let harness = HARNESS
        .replace("WIDTH", &look.width.to_string())
        .replace("SCRIPT", look.script)
        .replace("SOURCE", &source);
    let file = place.0.path().join("harness.html");
    std::fs::write(&file, harness).expect("written");
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"])
        .args(["--virtual-time-budget=60000", "--dump-dom"])
        .args(look.is_dark.then_some("--blink-settings=preferredColorScheme=0"))
        .arg(format!("--user-data-dir={}", place.0.path().join("browser").display()))
        .arg(format!("file://{}", file.display()))
        .env("HOME", place.0.path())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            skipped("chromium", format!("chromium is needed: {error}"));
            return None;
        }
    };
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let answer = dom.split_once("told:").and_then(|(_, rest)| rest.split_once(":end"));
    let (answer, _) = answer.unwrap_or_else(|| panic!("{path}: no answer: {}", dom.len()));
    Some(answer.to_owned())
}

/// A job that ended, and one that runs.
fn two_jobs(place: &Place) -> [String; 2] {
    let run = |name: &str, script: &str| {
        let words = ["run", "-d", "-q", "--usd-per-hour", "2", "--max-runtime", "1h", "--name"];
        let ended = place.0.lamp(&[&words[..], &[name, "--", "sh", script]].concat());
        ended.out.trim().to_owned()
    };
    place.0.write(
        "short.sh",
        "echo a-very-long-word-without-a-blank-that-no-phone-can-hold-in-one-line; sleep 1",
    );
    let ended = run("a-name-that-is-rather-long-for-a-narrow-window", "short.sh");
    let running = run("runs", "job.sh");
    place.until(&ended, "succeeded");
    place.until(&running, "running");
    [ended, running]
}

fn paths(jobs: &[String; 2]) -> Vec<String> {
    let fixed = [
        "/",
        "/machines",
        "/machines?look=1",
        "/costs",
        "/tunings",
        "/prices",
        "/prices?gpu=what?",
    ];
    let jobs = jobs.iter().map(|job| format!("/job/{job}"));
    fixed.map(str::to_owned).into_iter().chain(jobs).collect()
}

const WAITS: &str = "while [ ! -e GO ]; do sleep 0.1; done";

#[test]
fn pages_fit_a_narrow_window() {
    let place = Place::new(WAITS);
    let jobs = two_jobs(&place);
    let page = Served::of(&place);
    let script = "const page = view.document.documentElement;
        return view.innerWidth + ' wide, ' + (page.scrollWidth - page.clientWidth) + ' hidden';";
    for path in paths(&jobs) {
        let look = Look { width: 360, is_dark: false, library: "", script };
        let Some(width) = told(&place, &page, &path, &look) else { return };
        assert_eq!(width, "360 wide, 0 hidden", "{path}");
    }
    place.0.write("go", "");
    place.until(&jobs[1], "succeeded");
}

#[test]
fn dark_window_gets_dark_pages() {
    let place = Place::new("true");
    let page = Served::of(&place);
    let script = "return view.getComputedStyle(view.document.body).backgroundColor;";
    let colour =
        |is_dark| told(&place, &page, "/costs", &Look { width: 800, is_dark, library: "", script });
    let (Some(light), Some(dark)) = (colour(false), colour(true)) else { return };
    assert_eq!((light.as_str(), dark.as_str()), ("rgb(246, 247, 249)", "rgb(18, 23, 29)"));
}

/// `LAMP_TEST_AXE` names `axe.min.js` of the npm package `axe-core`.
#[test]
fn axe_finds_no_barrier() {
    let Ok(axe) = std::env::var("LAMP_TEST_AXE") else {
        skipped("axe-core", "LAMP_TEST_AXE names no axe.min.js");
        return;
    };
    let library = std::fs::read_to_string(axe).expect("axe.min.js");
    // The text would end the script that it stands in.
    let library = library.replace("</script", "<\\/script");
    let place = Place::new(WAITS);
    let jobs = two_jobs(&place);
    let page = Served::of(&place);
    let script = "const found = await view.axe.run(view.document, { iframes: false });
        return found.passes.length + ' passed' + found.violations.map((one) => '; ' + one.id + ' at '
            + one.nodes.map((node) => node.target.join(' ')).join(', ')).join('');";
    let mut found = Vec::new();
    for path in paths(&jobs) {
        for is_dark in [false, true] {
            let look = Look { width: 1200, is_dark, library: &library, script };
            let Some(answer) = told(&place, &page, &path, &look) else { return };
            if answer.contains(';') || !answer.ends_with(" passed") || answer.starts_with("0 ") {
                found.push(format!("{path}: {answer}"));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    place.0.write("go", "");
    place.until(&jobs[1], "succeeded");
}
