//! The pages in a real Chromium that a test drives: live updates, the filter, a button, no script,
//! a dark and narrow window.

use serde_json::json;

use crate::devtools::Browser;
use crate::pages::Served;
use crate::place::{Place, pids, signal, wait_until};
use crate::six_jobs::SixJobs;

const WAITS: &str = "echo first-line; while [ ! -e GO ]; do sleep 0.1; done; echo last-line";

fn run(place: &Place, name: &str, script: &str) -> String {
    let words = ["run", "-d", "-q", "--usd-per-hour", "2", "--idle", "off", "--name", name];
    let command = ["--max-runtime", "1h", "--", "sh", script];
    let started = place.0.lamp(&[&words[..], &command].concat());
    assert_eq!(started.code, 0, "{}", started.err);
    started.out.trim().to_owned()
}

#[test]
fn open_page_follows_the_records_and_keeps_its_filter() {
    let place = Place::new(WAITS);
    place.0.write("short.sh", "true");
    let job = run(&place, "alpha-job", "job.sh");
    place.until(&job, "running");
    let page = Served::of(&place);
    let Some(mut browser) = Browser::of(&place, &page) else { return };
    browser.open(&page.root);
    browser.value("(document.querySelector('form.filter input').value = 'state:running', document.querySelector('form.filter').requestSubmit(), 1)");
    browser.until(
        "the filter is in the address",
        "location.search.includes('running') && document.readyState === 'complete'",
    );
    assert!(browser.text().contains("alpha-job"));
    browser.value("window.isSame = 1");
    let ended = run(&place, "quick-job", "short.sh");
    place.until(&ended, "succeeded");
    let second = run(&place, "beta-job", "job.sh");
    browser.until("the new job is shown", "document.body.innerText.includes('beta-job')");
    let kept = "[window.isSame, location.search.includes('running'), document.querySelector('form.filter input').value]";
    assert_eq!(browser.value(kept), json!([1, true, "state:running"]), "nothing was loaded again");
    assert!(!browser.text().contains("quick-job"), "the filter still holds: {}", browser.text());
    // The page of a job shows what its log says, in the same way.
    browser.open(&format!("{}/job/{job}", page.root));
    browser.until("its log is shown", "document.body.innerText.includes('first-line')");
    browser.value("window.isSame = 2");
    place.0.write("go", "");
    browser.until("the last line is shown", "document.body.innerText.includes('last-line')");
    browser.until("its end is shown", "document.body.innerText.includes('Receipt')");
    assert_eq!(browser.value("window.isSame"), 2, "nothing was loaded again");
    place.until(&second, "succeeded");
}

/// A batch as the agent sends it after its first minute. The test needs not wait that long.
fn first_batch(place: &Place, job: &str) {
    let began = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(60);
    let rows: Vec<String> = (1..=6)
        .map(|number| {
            let (at, secs) =
                (began + jiff::SignedDuration::from_secs(number * 10), number as f64 * 10.0);
            json!({ "at": at.to_string(), "t_secs": secs, "interval_secs": 10.0, "cpu_percent": 90.0, "memory_bytes": 2.1e9 })
                .to_string()
        })
        .collect();
    let packed = zstd::encode_all(rows.join("\n").as_bytes(), 3).expect("packed");
    let batch = "attempts/0001/samples/00000001.jsonl.zst";
    place.0.write(&format!("home/.local/state/lamplighter/jobs/{job}/{batch}"), packed);
}

/// The events of the first attempt so far.
fn events(place: &Place, job: &str) -> String {
    let folder = format!("home/.local/state/lamplighter/jobs/{job}/attempts/0001/events");
    let Ok(files) = std::fs::read_dir(place.0.path().join(folder)) else { return String::new() };
    files.flatten().filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect()
}

/// The page is open before there are samples, and while the next attempt begins. The samples of the
/// second attempt are the agent's.
#[test]
fn open_job_page_gets_its_plots_and_follows_the_next_attempt() {
    let place =
        Place::new("echo attempt-$LAMP_ATTEMPT-runs; while [ ! -e GO ]; do sleep 0.1; done");
    let job = run(&place, "alpha-job", "job.sh");
    let page = Served::of(&place);
    let Some(mut browser) = Browser::of(&place, &page) else { return };
    place.until(&job, "running");
    browser.open(&format!("{}/job/{job}", page.root));
    browser.value("window.isSame = 1");
    assert_eq!(browser.value("document.querySelectorAll('#plots .uplot').length"), 0);
    first_batch(&place, &job);
    browser.until("its plots are drawn", "document.querySelectorAll('#plots .uplot').length > 1");
    let started = || events(&place, &job).contains("workload_started");
    wait_until("its start is recorded", || started().then_some(()));
    let machine = place.until(&job, "running")["instance"].as_str().expect("one").to_owned();
    for pid in pids(&place, &["machine", &machine]) {
        signal(pid, "KILL");
    }
    browser.until(
        "the next attempt is shown",
        "document.getElementById('log').innerText.includes('attempt 2') && document.body.innerText.includes('attempt-2-runs')",
    );
    browser.until(
        "its plots are drawn",
        "document.getElementById('plots').dataset.from.includes('attempt=2') && document.querySelector('#plots .uplot') !== null",
    );
    assert_eq!(browser.value("window.isSame"), 1, "nothing was loaded again");
    // Both attempts lie on one time axis, until one is chosen.
    browser.until("both are drawn", "facts.attempts.length === 2");
    let plots = |query: &str| -> serde_json::Value {
        let answer = page.get(&format!("/job/{job}/plot.json?{query}")).text;
        serde_json::from_str(&answer).expect("JSON")
    };
    let both = plots("all=true");
    let spans = both["attempts"].as_array().expect("a list");
    assert!(spans[0]["to_secs"].as_f64() <= spans[1]["from_secs"].as_f64(), "{both}");
    let marks = both["marks"].as_array().expect("a list");
    let begins: Vec<_> = marks.iter().filter(|mark| mark["word"] == "attempt").collect();
    assert!(begins[1]["text"].as_str().is_some_and(|text| text.starts_with("2: ")), "{both}");
    let one = plots("attempt=1");
    assert_eq!(one["attempts"].as_array().map(Vec::len), Some(1), "{one}");
    let series = both["series"][0]["name"].as_str().expect("a name").to_owned();
    let rows = |query: &str| page.get(&format!("/job/{job}/csv/{series}?{query}")).text;
    assert!(rows("all=true").lines().count() > rows("attempt=1").lines().count());
    place.0.write("go", "");
    place.until(&job, "succeeded");
    browser.open(&format!("{}/job/{job}?attempt=2", page.root));
    assert!(browser.text().contains("the beginning"), "no checkpoint: {}", browser.text());
    assert!(browser.text().contains("The newest attempts on one time axis"), "{}", browser.text());
    // A click on a plot leads to the log of its time.
    browser.until("its plots are drawn", "document.querySelector('#plots .u-over') !== null");
    let middle = "(() => { const over = document.querySelector('#plots .u-over'); over.scrollIntoView({ block: 'center' });
        const box = over.getBoundingClientRect(); return [box.left + box.width / 2, box.top + box.height / 2]; })()";
    let middle = browser.value(middle);
    for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
        let at = json!({ "type": kind, "x": middle[0], "y": middle[1], "button": "left", "clickCount": 1 });
        browser.call("Input.dispatchMouseEvent", at);
    }
    browser.until("the log is offered", "!document.getElementById('log-at').hidden");
    browser.value("document.querySelector('#log-at a').click()");
    browser.until(
        "the log of that time is shown",
        "location.search.includes('at=') && document.body.innerText.includes('Printed around')",
    );
    assert!(browser.text().contains("attempt-2-runs"), "{}", browser.text());
}

#[test]
fn log_stays_in_view_and_counts_the_lines_below() {
    // Equal lines: their texts do not say which of them are new.
    let script = "seq 300; yes same | head -n 20; while [ ! -e GO.more ]; do sleep 0.1; done
        yes same | head -n 4; echo 305; while [ ! -e GO ]; do sleep 0.1; done";
    let place = Place::new(script);
    let job = run(&place, "prints", "job.sh");
    let page = Served::of(&place);
    let Some(mut browser) = Browser::of(&place, &page) else { return };
    place.until(&job, "running");
    browser.open(&format!("{}/job/{job}", page.root));
    let log = "document.querySelector('pre.log')";
    browser.until("its log is there", &format!("{log}?.textContent.includes('300') ?? false"));
    browser.value(&format!("({log}.scrollTop = 200, 1)"));
    place.0.write("go.more", "");
    let below = "document.getElementById('below')";
    browser.until(
        "the new lines are counted",
        &format!("{below}?.innerText.includes('5 new lines below') ?? false"),
    );
    let seen = browser.value(&format!("[{log}.scrollTop, {log}.textContent.includes('305')]"));
    assert_eq!(seen, json!([200, true]), "nothing jumps, and the lines are there");
    browser.press("5 new lines below");
    browser.until("the end is in view", &format!("isAtEnd({log}) && {below} === null"));
    place.0.write("go", "");
    place.until(&job, "succeeded");
}

#[test]
fn first_error_is_in_view_and_stays_there() {
    let script =
        "seq 300; echo 'Error: no such file'; seq 300; while [ ! -e GO ]; do sleep 0.1; done";
    let place = Place::new(script);
    let job = run(&place, "fails", "job.sh");
    let page = Served::of(&place);
    let Some(mut browser) = Browser::of(&place, &page) else { return };
    place.until(&job, "running");
    let path = format!("/job/{job}?jump=true");
    wait_until("its log is there", || page.get(&path).text.contains("<mark>").then_some(()));
    browser.open(&format!("{}{path}", page.root));
    let is_seen = "(() => { const [log, mark] = ['.log', '.log mark'].map((one) => document.querySelector(one).getBoundingClientRect());
        return mark.top >= log.top && mark.bottom <= log.bottom; })()";
    assert_eq!(browser.value(is_seen), true, "it is found without a scroll");
    browser.value("document.getElementById('live').firstElementChild.isOld = true");
    browser.until("the next part", "!document.getElementById('live').firstElementChild.isOld");
    assert_eq!(browser.value(is_seen), true, "a new part keeps it in view");
    browser.open(&format!("{}/job/{job}?find=1", page.root));
    assert_eq!(browser.value("document.querySelector('.log').scrollTop"), 0, "from the first line");
    place.0.write("go", "");
    place.until(&job, "succeeded");
}

#[test]
fn stop_button_asks_first_and_then_ends_the_job() {
    let place = Place::new("while :; do sleep 0.1; done");
    let job = run(&place, "trains", "job.sh");
    place.until(&job, "running");
    let page = Served::of(&place);
    let Some(mut browser) = Browser::of(&place, &page) else { return };
    let asked = || {
        let explained = place.0.json(&["explain", &job, "-o", "json"]).1;
        explained["requests"].as_array().map_or(0, Vec::len)
    };
    browser.open(&format!("{}/job/{job}", page.root));
    browser.press("Keep 1h");
    browser.until(
        "it says what it costs",
        "document.body.innerText.includes('at most $2.00 for this time')",
    );
    assert_eq!(asked(), 0, "a question changes nothing");
    browser.press("Keep this job for an hour");
    browser
        .until("it is recorded", "document.querySelector('h1').textContent === 'It is recorded'");
    assert_eq!(asked(), 1);
    browser.open(&format!("{}/job/{job}", page.root));
    browser.press("Stop");
    browser.until("the question", "document.querySelector('h1').textContent === 'Stop this job'");
    assert!(browser.text().contains("saves no checkpoint"), "{}", browser.text());
    assert_eq!((asked(), place.status(&job)["state"].clone()), (1, json!("running")));
    browser.press("Stop this job");
    browser
        .until("it is recorded", "document.querySelector('h1').textContent === 'It is recorded'");
    place.until(&job, "stopped");
}

#[test]
fn pages_work_without_a_script_in_a_dark_and_narrow_window() {
    let place = Place::new("echo first-line; sleep 2");
    let job = run(&place, "ended", "job.sh");
    place.until(&job, "succeeded");
    let page = Served::of(&place);
    let Some(mut browser) = Browser::of(&place, &page) else { return };
    browser.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    let narrow = json!({ "width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": true });
    browser.call("Emulation.setDeviceMetricsOverride", narrow);
    let dark = json!({ "features": [{ "name": "prefers-color-scheme", "value": "dark" }] });
    browser.call("Emulation.setEmulatedMedia", dark);
    for path in ["/".to_owned(), "/costs".to_owned(), format!("/job/{job}")] {
        browser.open(&format!("{}{path}", page.root));
        let seen = browser.value("[getComputedStyle(document.body).backgroundColor, window.innerWidth, document.documentElement.scrollWidth]");
        assert_eq!(seen, json!(["rgb(18, 23, 29)", 360, 360]), "{path}");
        let has_run = browser.value("document.querySelectorAll('.uplot').length");
        assert_eq!(has_run, 0, "{path}: a script ran");
    }
    let text = browser.text();
    assert!(text.contains("Receipt") && text.contains("first-line"), "{text}");
    let drawn = browser.value("document.querySelectorAll('.canvas polyline').length > 0");
    assert_eq!(drawn, true, "the drawings need no script");
}

/// The plots that a mouse over the first one shows, each with the time under its cursor.
const CURSORS: &str = "[...document.querySelectorAll('#plots .canvas')].filter((one) => one.plot)
    .map((one) => Math.round(one.plot.posToVal(one.plot.cursor.left, 'x')))";

#[test]
fn cursor_of_one_plot_shows_the_same_moment_in_all() {
    let six = SixJobs::new();
    let page = Served::by(&six.place, six.command(&["web", "--port", "0"]));
    let Some(mut browser) = Browser::of(&six.place, &page) else { return };
    browser.open(&format!("{}/job/llama-ft-7f3k2q", page.root));
    browser.until("its plots are drawn", "document.querySelectorAll('#plots .uplot').length > 3");
    let over = browser.value(
        "(() => { const over = document.querySelector('#plots .u-over'); over.scrollIntoView({ block: 'center' });
        const at = over.getBoundingClientRect(); return [at.x + at.width * 0.9, at.y + at.height / 2]; })()",
    );
    let mouse = json!({ "type": "mouseMoved", "x": over[0], "y": over[1] });
    browser.call("Input.dispatchMouseEvent", mouse);
    let moments = browser.value(CURSORS);
    let moments: Vec<i64> =
        moments.as_array().expect("a list").iter().filter_map(serde_json::Value::as_i64).collect();
    assert!(moments.len() > 3, "{moments:?}");
    // An hour is a few hundred pixels wide.
    assert!(moments.iter().all(|at| *at > 0 && (at - moments[0]).abs() < 30), "{moments:?}");
    let said = browser.value("document.getElementById('mark').textContent");
    assert!(said.as_str().is_some_and(|said| said.starts_with("busy")), "{said}");
}

/// The time axis of the first plot.
const AXIS: &str = "(() => { const { min, max } = document.querySelector('#plots .canvas').plot.scales.x; return [min, max]; })()";

#[test]
fn plots_have_one_axis_up_to_the_last_band() {
    let six = SixJobs::new();
    let page = Served::by(&six.place, six.command(&["web", "--port", "0"]));
    let Some(mut browser) = Browser::of(&six.place, &page) else { return };
    browser.open(&format!("{}/job/llama-ft-7f3k2q", page.root));
    browser.until("its plots are drawn", "document.querySelectorAll('#plots .uplot').length > 3");
    let whole = browser.value("[facts.zero, facts.zero + facts.end]");
    assert_eq!(browser.value(AXIS), whole);
    let is_same = "[...document.querySelectorAll('#plots .canvas')].filter((one) => one.plot)
        .every((one) => one.plot.scales.x.max === facts.zero + facts.end)";
    assert_eq!(browser.value(is_same), true);
}

#[test]
fn zoomed_plot_keeps_its_part_at_the_next_draw() {
    let six = SixJobs::new();
    let page = Served::by(&six.place, six.command(&["web", "--port", "0"]));
    let Some(mut browser) = Browser::of(&six.place, &page) else { return };
    browser.open(&format!("{}/job/llama-ft-7f3k2q", page.root));
    browser.until("its plots are drawn", "document.querySelectorAll('#plots .uplot').length > 3");
    let part = browser.value("[facts.zero + 600, facts.zero + 1200]");
    let plot = "document.querySelector('#plots .canvas').plot";
    browser.value(&format!("({plot}.setScale('x', {{ min: {}, max: {} }}), 1)", part[0], part[1]));
    let drawn = format!("draw().then(() => {AXIS})");
    assert_eq!(browser.value(&drawn), part, "the next draw");
    assert_eq!(browser.value(&drawn), part, "and the one after it");
    browser.value(&format!("({plot}.setScale('x', {{ min: 0, max: 1e11 }}), 1)"));
    let whole = browser.value("[facts.zero, facts.zero + facts.end]");
    assert_eq!(browser.value(&drawn), whole, "the whole axis follows the samples again");
}

/// The longest line of text, in the width of its letters' size; 56 are about 110 letters.
const LONGEST: &str = "Math.max(...[...document.querySelectorAll('main p:not(.legend, .acts, .presets), main .need li')]
    .map((one) => one.getBoundingClientRect().width / parseFloat(getComputedStyle(one).fontSize)))";

#[test]
fn wide_window_has_no_sideways_scroll_and_readable_lines() {
    let six = SixJobs::new();
    let page = Served::by(&six.place, six.command(&["web", "--port", "0"]));
    let Some(mut browser) = Browser::of(&six.place, &page) else { return };
    let wide = json!({ "width": 2560, "height": 1300, "deviceScaleFactor": 1, "mobile": false });
    browser.call("Emulation.setDeviceMetricsOverride", wide);
    for path in ["/", "/machines", "/costs", "/prices", "/tunings", "/job/llama-ft-7f3k2q"] {
        six.beat();
        browser.open(&format!("{}{path}", page.root));
        // A bar for the way down takes its part of the width.
        let page = "document.documentElement";
        let seen = browser.value(&format!("[innerWidth, {page}.scrollWidth - {page}.clientWidth]"));
        assert_eq!(seen, json!([2560, 0]), "{path}");
        let longest = browser.value(LONGEST).as_f64().unwrap_or_default();
        assert!((1.0..=56.0).contains(&longest), "{path}: {longest}");
    }
}

/// The sum of all that moved without a press of the person.
const MOVED: &str = "(async () => {
    let sum = 0;
    const count = (list) => { for (const one of list.getEntries()) if (!one.hadRecentInput) sum += one.value; };
    new PerformanceObserver(count).observe({ type: 'layout-shift', buffered: true });
    for (let frame = 0; frame < 5; frame += 1) await new Promise(requestAnimationFrame);
    return sum;
})()";

#[test]
fn page_layout_stays_still_at_its_plots_and_its_first_update() {
    let six = SixJobs::new();
    let page = Served::by(&six.place, six.command(&["web", "--port", "0"]));
    let Some(mut browser) = Browser::of(&six.place, &page) else { return };
    for (path, drawn) in [("/", ".spark"), ("/job/llama-ft-7f3k2q", ".uplot")] {
        six.beat();
        browser.open(&format!("{}{path}", page.root));
        browser.value("document.getElementById('live').firstElementChild.isOld = true");
        browser
            .until("the first update", "!document.getElementById('live').firstElementChild.isOld");
        browser.until("its drawings", &format!("!!document.querySelector('{drawn}')"));
        let moved = browser.value(MOVED).as_f64().expect("a sum");
        // Browsers call a sum of 0.1 good.
        assert!(moved < 0.02, "{path}: {moved}");
    }
}

/// Presses a key on the page, as a keyboard does.
fn types(browser: &mut Browser, key: &str) {
    let event = json!({ "key": key, "bubbles": true, "cancelable": true });
    browser.value(&format!(
        "(document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {event})), 1)"
    ));
}

#[test]
fn keys_move_on_the_page_and_a_filter_can_be_kept() {
    let place = Place::new("true");
    for name in ["alpha-job", "beta-job"] {
        let job = run(&place, name, "job.sh");
        place.until(&job, "succeeded");
    }
    let page = Served::of(&place);
    let Some(mut browser) = Browser::of(&place, &page) else { return };
    browser.open(&page.root);
    let focused = "document.activeElement.textContent";
    types(&mut browser, "j");
    let first = browser.value(focused);
    types(&mut browser, "j");
    assert_ne!(browser.value(focused), first, "the next job");
    types(&mut browser, "k");
    assert_eq!(browser.value(focused), first);
    types(&mut browser, "/");
    assert_eq!(browser.value("document.activeElement.id"), "q");
    types(&mut browser, "?");
    assert_eq!(browser.value("document.getElementById('keys').open"), false, "it is typed");
    types(&mut browser, "Escape");
    types(&mut browser, "?");
    assert_eq!(browser.value("document.getElementById('keys').open"), true);
    assert!(browser.text().contains("next and previous job"), "{}", browser.text());
    browser.value("(document.getElementById('keys-on').click(), document.getElementById('keys').close(), document.activeElement.blur(), 1)");
    types(&mut browser, "2");
    assert_eq!(browser.value("location.pathname"), "/", "the keys are switched off");
    browser.open(&format!("{}/?q=beta", page.root));
    browser.value("(document.querySelector('#filter button.plain').click(), 1)");
    browser.open(&page.root);
    let kept = "document.querySelector('#filter .presets').textContent.includes('beta')";
    assert_eq!(browser.value(kept), true);
    browser.value("(document.getElementById('keys-on').click(), 1)");
    types(&mut browser, "2");
    browser.until("the page of machines", "location.pathname === '/machines'");
}
