//! The page of a job, its acts, and the costs.

use reqwest::StatusCode;
use serde_json::Value;

use crate::pages::Served;
use crate::place::{Place, wait_until};

fn run(place: &Place, name: &str) -> String {
    let words = ["run", "-d", "-q", "--usd-per-hour", "2", "--idle", "off", "--name", name];
    let ended =
        place.0.lamp(&[&words[..], &["--max-runtime", "1h", "--", "sh", "job.sh"]].concat());
    ended.out.trim().to_owned()
}

/// The form of a page, as a browser would send it.
fn form_of(page: &Served<'_>, path: &str) -> Vec<(String, String)> {
    let text = page.get(path).text;
    let (_, rest) = text.split_once(r#"name="token" value=""#).expect("a form with a token");
    vec![("token".to_owned(), rest.split('"').next().expect("a token").to_owned())]
}

#[test]
fn job_page_tells_all_without_a_script() {
    let place = Place::new(
        "echo one; echo 'Error: <b>bold</b>'; printf '10%%\\r20%%\\n'; while [ ! -e GO ]; do sleep 0.1; done; exit 4",
    );
    let job = run(&place, "</title><script>alert(1)</script>");
    place.until(&job, "running");
    let page = Served::of(&place);
    let text = wait_until("its log is there", || {
        let text = page.get(&format!("/job/{job}")).text;
        text.contains("20%").then_some(text)
    });
    for word in ["Attempts", "Timeline", "$2.00/h", "Nearest end", "lamp explain", "lamp logs"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert!(text.contains("Error: &lt;b&gt;bold&lt;/b&gt;"), "{text}");
    assert!(!text.contains("<script>alert") && !text.contains("<b>bold"), "{text}");
    assert!(!text.contains("10%"), "only the newest state of a bar: {text}");
    let found = page.get(&format!("/job/{job}?find=error")).text;
    assert!(found.contains("1 line of the last 3") && !found.contains(">one\n"), "{found}");
    assert_eq!(page.get("/job/none-222222").status, StatusCode::NOT_FOUND);
    assert_eq!(page.get(&format!("/job/{job}/act/explode")).status, StatusCode::NOT_FOUND);
    // The first sample has no rate yet. Usage comes from the second.
    wait_until("its usage is measured", || {
        page.get(&format!("/job/{job}")).text.contains("<dt>Usage</dt>").then_some(())
    });
    place.0.write("go", "");
    place.until(&job, "failed");
    let text = page.get(&format!("/job/{job}")).text;
    assert!(text.contains("Receipt") && text.contains("exit code 4"), "{text}");
    assert!(!text.contains("/act/stop"), "an ended job is not stopped: {text}");
    // The log of a moment: before its end, and long after.
    for at in ["2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"] {
        let shown = page.get(&format!("/job/{job}?at={at}")).text;
        assert!(shown.contains("Printed around ") && shown.contains("one\n"), "{shown}");
    }
    let begun = text.split("&amp;at=").nth(1).and_then(|rest| rest.split('#').next());
    let begun = begun.expect("the timeline leads to the log");
    assert!(page.get(&format!("/job/{job}?at={begun}")).text.contains("Printed around "));
    // Each plot has its numbers as JSON, table and CSV.
    let data: Value =
        serde_json::from_str(&page.get(&format!("/job/{job}/plot.json")).text).expect("JSON");
    let series = data["series"].as_array().expect("series");
    let name = series.iter().filter_map(|one| one["name"].as_str()).next().expect("a series");
    let csv = page.get(&format!("/job/{job}/csv/{name}")).text;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], format!("time,seconds,{name}"));
    assert!(lines.len() > 1 && lines[1].split(',').count() == 3, "{csv}");
    let printed = |form: &str| {
        place.0.lamp(&["explain", &job, "--samples", name, "--attempt", "1", "-o", form])
    };
    assert_eq!(printed("csv").out.trim_end(), csv.trim_end());
    let document: Value = serde_json::from_str(&printed("json").out).expect("JSON");
    assert_eq!(document["series"]["t_secs"], series[0]["t_secs"], "{document}");
    let table = page.get(&format!("/job/{job}/table/{name}?attempt=1")).text;
    assert!(table.contains(&format!("lamp explain {job} --samples {name} --attempt 1")), "{table}");
    let rows = place.0.lamp(&["explain", &job, "--samples", name]);
    let heading = name.to_uppercase();
    assert!(rows.out.contains(&heading) && rows.out.lines().count() == lines.len(), "{rows:?}");
    let none = place.0.lamp(&["explain", &job, "--samples", "gpu_clock_mhz"]);
    assert!(none.code == 101 && none.err.contains("there is cpu_percent"), "{none:?}");
    // The keyboard reaches a table that scrolls sideways, and a reader hears its name.
    for shown in [&text, &table] {
        assert!(
            shown.contains("class=\"wide\" tabindex=\"0\" role=\"group\" aria-label"),
            "{shown}"
        );
        assert!(!shown.contains("class=\"wide\">"), "{shown}");
    }
    assert!(table.contains("<table") && table.contains("Since the start"), "{table}");
    assert_eq!(page.get(&format!("/job/{job}/csv/none")).status, StatusCode::NOT_FOUND);
    assert_eq!(page.get(&format!("/job/{job}/csv/{name}?attempt=9")).status, StatusCode::NOT_FOUND);
    let costs = page.get("/costs.csv").text;
    let row = costs.lines().find(|line| line.contains(&job)).expect("a row");
    let at = costs.lines().next().expect("a heading").split(',').rev().position(|key| key == "usd");
    let usd = row.split(',').rev().nth(at.expect("a column")).expect("a cost");
    let usd: f64 = usd.parse().expect("a number");
    let receipt = place.receipt(&job);
    assert!((usd - receipt["total_usd"].as_f64().expect("a total")).abs() < 1e-5, "{costs}");
    assert!(row.contains("\"</title><script>alert(1)</script>\""), "{row}");
    let shown = page.get("/costs").text;
    assert!(shown.contains("By day") && !shown.contains("<script>alert"), "{shown}");
}

#[test]
fn acts_say_what_they_do_and_need_the_form() {
    let place = Place::new("while :; do sleep 0.1; done");
    let job = run(&place, "trains");
    place.until(&job, "running");
    let page = Served::of(&place);
    let requests = || {
        let explained = place.0.json(&["explain", &job, "-o", "json"]).1;
        explained["requests"].as_array().map_or(0, Vec::len)
    };
    let stop = format!("/job/{job}/act/stop");
    let said = page.get(&stop).text;
    assert!(said.contains("saves no checkpoint") && said.contains("$2.00/h"), "{said}");
    for path in [&stop, &format!("/job/{job}/act/cancel"), &format!("/job/{job}/act/extend")] {
        page.get(path);
    }
    assert_eq!(requests(), 0, "a GET changes nothing");
    for token in ["", "wrong"] {
        let refused = page.post(&stop, &[("token".to_owned(), token.to_owned())]);
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
    }
    assert_eq!(requests(), 0);
    let cancel = format!("/job/{job}/act/cancel");
    for name in ["", "train"] {
        let mut form = form_of(&page, &cancel);
        form.push(("name".to_owned(), name.to_owned()));
        let refused = page.post(&cancel, &form);
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{name}");
        assert!(
            refused.text.contains("Type its name, <strong>trains</strong>"),
            "{}",
            refused.text
        );
    }
    assert_eq!(requests(), 0, "another name cancels nothing");
    let extend = format!("/job/{job}/act/extend");
    let said = page.get(&extend).text;
    assert!(said.contains("the machine costs $2.00/h: at most $2.00 for 1h more"), "{said}");
    let with = |time: &str| {
        let mut form = form_of(&page, &extend);
        form.push(("time".to_owned(), time.to_owned()));
        page.post(&extend, &form)
    };
    assert_eq!(with("soon").status, StatusCode::BAD_REQUEST);
    assert_eq!(with("").status, StatusCode::BAD_REQUEST, "nothing to extend by");
    assert_eq!(requests(), 0);
    let more = with("2h");
    assert_eq!(more.status, StatusCode::OK, "{}", more.text);
    assert!(more.text.contains("may have 2h more"), "{}", more.text);
    let stopped = page.post(&stop, &form_of(&page, &stop));
    assert_eq!(stopped.status, StatusCode::OK, "{}", stopped.text);
    assert!(stopped.text.contains("asked"), "{}", stopped.text);
    place.until(&job, "stopped");
    assert_eq!(requests(), 2);
    assert_eq!(page.get(&stop).status, StatusCode::CONFLICT, "it has ended");
    let second = run(&place, "trains");
    place.until(&second, "running");
    let cancel = format!("/job/{second}/act/cancel");
    let mut form = form_of(&page, &cancel);
    form.push(("name".to_owned(), "trains".to_owned()));
    let cancelled = page.post(&cancel, &form);
    assert_eq!(cancelled.status, StatusCode::OK, "{}", cancelled.text);
    place.until(&second, "cancelled");
}
