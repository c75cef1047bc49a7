//! Costs, machines, prices and the shared file: the real binary, asked by a real HTTP client.

use std::time::Duration;

use reqwest::StatusCode;

use crate::pages::Served;
use crate::place::Place;

fn ended_job(place: &Place) -> String {
    let words = ["run", "-d", "-q", "--usd-per-hour", "360", "--max-runtime", "1h", "--", "sh"];
    let job = place.0.lamp(&[&words[..], &["job.sh"]].concat()).out.trim().to_owned();
    place.until(&job, "succeeded");
    job
}

#[test]
fn page_and_command_tell_the_same_costs() {
    let place = Place::new("sleep 2");
    let job = ended_job(&place);
    let listed = place.0.lamp(&["costs", "--by", "job", "-o", "json"]);
    let costs: serde_json::Value = serde_json::from_str(&listed.out).expect("a document");
    let usd = costs["total"]["usd"].as_f64().expect("a sum");
    assert!(usd > 0.2, "a second costs ten cents: {costs}");
    assert_eq!(costs["groups"][0]["key"], job.as_str());
    assert_eq!(costs["total"]["saved_usd"], 0.0, "it ran at the full price: {costs}");
    assert_eq!(costs["total"]["lost_usd"], 0.0, "no interruption: {costs}");
    let page = Served::of(&place);
    let text = page.get("/costs").text;
    for word in
        [job.as_str(), &format!("${usd:.2}"), "Lost to interruptions", "lamp costs --by owner"]
    {
        assert!(text.contains(word), "{word} in {text}");
    }
    // A part has a letter and a pattern, and not a colour alone.
    let by_job = page.get("/costs?parts=job").text;
    for word in ["url(#part-0)", "<strong>A</strong>", "by job: ", "aria-current=\"true\">job<"] {
        assert!(by_job.contains(word), "{word} in {by_job}");
    }
    assert!(text.contains("by use: "), "{text}");
    assert_eq!(page.get("/costs.csv").text, place.0.lamp(&["costs", "-o", "csv"]).out);
    let focus = page.get("/costs.focus.csv").text;
    assert_eq!(focus, place.0.lamp(&["costs", "--focus"]).out);
    let billed: f64 = focus
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(1).expect("a cell").parse::<f64>().expect("dollars"))
        .sum();
    assert!((billed - usd).abs() < 1e-5, "{billed} and {usd}");
}

/// Without credentials the clouds stay unknown, and the page says so.
#[test]
fn machines_tell_records_at_once_and_clouds_on_request() {
    let place = Place::new("while [ ! -e GO ]; do sleep 0.1; done");
    let words = ["run", "-d", "-q", "--usd-per-hour", "2", "--max-runtime", "1h", "--", "sh"];
    let job = place.0.lamp(&[&words[..], &["job.sh"]].concat()).out.trim().to_owned();
    place.until(&job, "running");
    let page = Served::of(&place);
    let text = page.get("/machines").text;
    assert!(text.contains(&format!("/job/{job}")) && text.contains("$2.00/h"), "{text}");
    assert!(!text.contains("Yours, by the clouds"), "the clouds are asked on request: {text}");
    let looked = page.get("/machines?look=1").text;
    assert!(looked.contains("Yours, by the clouds") && looked.contains("keep"), "{looked}");
    // No AWS is set up here: the other faces say nothing of it.
    let status = place.0.lamp(&["status"]);
    let told = format!("{}{}", status.out, status.err);
    assert!(status.code == 0 && !told.contains("machines there are unknown"), "{told}");
    place.0.write("go", "");
    place.until(&job, "succeeded");
    // A look at the records is at most some seconds old.
    let has_none = || page.get("/machines").text.contains("No unfinished job has a machine");
    let within = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        has_none()
    });
    assert!(within, "{}", page.get("/machines").text);
}

#[test]
fn prices_ask_nothing_before_a_wish_and_refuse_a_wrong_one() {
    let place = Place::new("true");
    let page = Served::of(&place);
    let text = page.get("/prices").text;
    assert!(text.contains("Name a GPU or a machine type"), "{text}");
    let wrong = page.get("/prices?gpu=A10G&bid=soon").text;
    assert!(wrong.contains("`soon` is not understood"), "{wrong}");
}

#[test]
fn shared_job_is_one_file_without_scripts() {
    let place = Place::new("echo '<b>hello</b> /home/ann/data'; sleep 1");
    let job = ended_job(&place);
    let page = Served::of(&place);
    assert!(page.get(&format!("/job/{job}")).text.contains(&format!("/job/{job}/share")));
    let sent = page.get(&format!("/job/{job}/share"));
    assert_eq!(sent.status, StatusCode::OK);
    for word in ["Receipt", "Timeline", "&lt;b&gt;hello&lt;/b&gt; ~/data", "@media"] {
        assert!(sent.text.contains(word), "{word} in {}", sent.text);
    }
    let token = page.token();
    for word in ["<script", "src=", "href=", token.trim()] {
        assert!(!sent.text.contains(word), "{word} in {}", sent.text);
    }
    let written = place.0.lamp(&["share", &job, "out.html"]);
    assert_eq!((written.code, written.out.trim()), (0, "out.html"), "{}", written.err);
    assert!(place.0.read("out.html").contains("&lt;b&gt;hello"));
    let again = place.0.lamp(&["share", &job, "out.html"]);
    assert_eq!(again.code, 102, "{}", again.err);
    assert!(again.err.contains("already there") && again.err.contains("--force"), "{}", again.err);
    assert_eq!(place.0.lamp(&["share", &job, "out.html", "--force"]).code, 0);
}

#[test]
fn tuning_shows_its_trials_and_drawings() {
    let place = Place::new("echo \"{\\\"loss\\\": ${1#--x=}}\" >> \"$LAMP_PROGRESS\"");
    place.0.write(
        "job.toml",
        "name = 'walks'\ncommand = ['sh', 'job.sh']\n[tune]\n[tune.params.x]\ntype = 'int'\n\
         min = 2\nmax = 4\n",
    );
    let ended = place.0.lamp(&["tune", "job.toml", "--usd-per-hour", "90"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let page = Served::of(&place);
    let list = page.get("/tunings").text;
    assert!(list.contains("/tuning/walks") && list.contains("ended, 3 of 3 trials"), "{list}");
    let newer = "home/.local/state/lamplighter/tunings/newer/tuning.json";
    place.0.write(newer, "{\"format\": 99}");
    let list = page.get("/tunings").text;
    assert!(list.contains("Left out: ") && list.contains("has format 99"), "{list}");
    assert!(list.contains("/tuning/walks"), "it does not hide the others: {list}");
    let text = page.get("/tuning/walks").text;
    for word in [
        "sh job.sh --x=2",
        "x=3",
        "values of 3 complete trials",
        "the best so far",
        "/job/walks-1-",
        "Cost of each trial",
        "lamp tune status walks --importance",
    ] {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert!(!text.contains("/tuning/walks/live"), "it has ended: {text}");
    assert!(page.get("/tuning/nothing").text.contains("no tuning `nothing`"));
}

/// The use of the caps is unknown then, and the other jobs are shown.
#[test]
fn record_of_a_newer_version_hides_no_other_job() {
    let place = Place::new("true");
    place.0.write("home/.config/lamplighter/config.toml", "[caps]\nusd_per_hour = 1000\n");
    let (job, newer) = (ended_job(&place), ended_job(&place));
    let receipt = format!("home/.local/state/lamplighter/jobs/{newer}/receipt.json");
    place.0.write(&receipt, "{\"format\": 99}");
    let page = Served::of(&place);
    let text = page.get("/").text;
    assert!(text.contains(&format!("data-job=\"{job}\"")), "{text}");
    assert!(text.contains("left out: ") && text.contains("has format 99"), "{text}");
    assert!(text.contains("what counts against the caps is unknown"), "{text}");
    assert!(!text.contains("No cap is set"), "{text}");
}
