//! `lamp simulate`: the job's own cost and finish on recorded and drawn courses of capacity.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::place::{Place, end, signal};
use crate::sandbox::Sandbox;

const PRICES: [&str; 4] = ["--spot-price", "1", "--on-demand-price", "3"];

fn simulate<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [
        &["simulate", "--quick", "--work", "10h", "--checkpoint", "ckpt", "--runs", "20"][..],
        &PRICES,
        more,
        &["--", "true"],
    ]
    .concat()
}

/// Ten minutes of work, lived through ten times. An hour of a world costs a processor a second.
fn lived<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let short = [
        "simulate",
        "--work",
        "10m",
        "--start",
        "2m",
        "--checkpoint",
        "ckpt",
        "--runs",
        "10",
        "--market",
        "spot",
    ];
    [&short[..], &PRICES, more, &["--", "true"]].concat()
}

/// The command line of a job ends with its own words, so ours stand before.
fn shown(sandbox: &Sandbox, words: &[&str]) -> (i32, serde_json::Value) {
    let ended = sandbox.lamp(words);
    (
        ended.code,
        serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}")),
    )
}

#[test]
fn on_a_recorded_course_the_numbers_are_what_it_says() {
    let sandbox = Sandbox::new();
    sandbox
        .write("always.json", r#"{"gap_seconds": 600, "ticks": 400, "first": 1, "runs": [400]}"#);
    let (code, found) =
        shown(&sandbox, &simulate(&["-o", "json", "--trace", "always.json", "--start", "12m"]));
    assert_eq!(code, 0, "{found}");
    assert_eq!((&found["runs"], &found["traces"][0]), (&20.into(), &"always.json".into()));
    let markets = found["markets"].as_array().unwrap();
    let named: Vec<&str> =
        markets.iter().map(|market| market["market"].as_str().unwrap()).collect();
    assert_eq!(named, ["auto", "spot", "on-demand"]);
    for (market, usd) in markets.iter().zip([10.2, 10.2, 30.6]) {
        assert!((market["usd"]["mean"].as_f64().unwrap() - usd).abs() < 1e-6, "{market}");
        assert_eq!(
            (market["interruptions"].as_f64(), market["late_share"].as_f64()),
            (Some(0.0), Some(0.0))
        );
        // A start of twelve minutes, and capacity all the time.
        let parts = ["work_hours", "lost_hours", "start_hours", "waiting_hours"]
            .map(|part| market["finish_parts"][part].as_f64().unwrap());
        assert!(
            parts
                .iter()
                .zip([10.0, 0.0, 0.2, 0.0])
                .all(|(part, hours)| (part - hours).abs() < 1e-6),
            "{market}"
        );
    }
}

#[test]
fn people_get_a_table_a_plot_and_a_word_on_what_was_played() {
    let sandbox = Sandbox::new();
    let ended = sandbox.lamp(&simulate(&["--market", "spot"]));
    assert_eq!(ended.code, 0, "{}", ended.err);
    let lines: Vec<&str> = ended.out.lines().collect();
    assert!(lines[0].starts_with("MARKET") && lines[0].ends_with("ON DEMAND"), "{}", ended.out);
    assert!(
        lines[1].starts_with("spot ") && lines[2].is_empty(),
        "only what was asked for: {}",
        ended.out
    );
    assert!(ended.out.contains("so many finished for at most so much: s spot\n"), "{}", ended.out);
    assert!(ended.err.contains("usd and ends (hours from now) are of the runs that finished: half of them stay within p50"), "{}", ended.err);
    assert!(
        ended.err.contains("h of starts, saves and ends, ")
            && ended.err.contains("h of waiting for a machine"),
        "{}",
        ended.err
    );
    assert!(ended.err.contains("drawn from the law of spot machines in general"), "{}", ended.err);
}

#[test]
fn deadline_is_met_by_auto_and_what_cannot_be_played_is_said() {
    let sandbox = Sandbox::new();
    sandbox.write("never.json", r#"{"gap_seconds": 600, "first": 0, "runs": [400]}"#);
    sandbox.write("broken.json", r#"{"gap_seconds": 600}"#);
    let by = (Timestamp::now() + SignedDuration::from_hours(15)).to_string();
    let (code, found) = shown(
        &sandbox,
        &simulate(&["-o", "json", "--trace", "never.json", "--market", "auto", "--deadline", &by]),
    );
    assert_eq!((code, found["markets"][0]["late_share"].as_f64()), (0, Some(0.0)), "{found}");
    assert_eq!(
        found["markets"][0]["on_demand_hours"].as_f64().map(|hours| hours > 10.0),
        Some(true),
        "{found}"
    );
    let (code, found) = shown(
        &sandbox,
        &simulate(&[
            "-o",
            "json",
            "--trace",
            "never.json",
            "--market",
            "auto",
            "--deadline",
            "15h",
        ]),
    );
    let hours = found["job"]["deadline_hours"].as_f64().unwrap();
    assert!(
        code == 0 && (14.0..15.0).contains(&hours),
        "a span from now, less the end of a job: {found}"
    );
    let ended = sandbox.lamp(&simulate(&["--deadline", "30"]));
    assert!(
        ended.code == 2 && ended.err.contains("or `30h` for so long from now"),
        "{}",
        ended.err
    );
    assert_eq!(sandbox.lamp(&simulate(&["--trace", "nowhere.json"])).code, 101);
    let ended = sandbox.lamp(&simulate(&["--trace", "broken.json"]));
    assert!(
        ended.code == 100 && ended.err.contains("`broken.json` is no recording of spot capacity"),
        "{}",
        ended.err
    );
    let ended = sandbox.lamp(&[&["simulate", "--quick"], &PRICES[..], &["--", "true"]].concat());
    assert!(
        ended.code == 100 && ended.err.contains("does not say how much work it is"),
        "{}",
        ended.err
    );
    // All that it wants is said at once.
    let ended = sandbox.lamp(&["simulate", "--quick", "--", "true"]);
    assert!(
        ended.code == 100
            && ended.err.starts_with("error: the prices of both markets are not known here\nthe job does not say how much work it is\n"),
        "{}",
        ended.err
    );
    assert!(
        ended
            .err
            .contains("--spot-price 0.4 --on-demand-price 1.2; and --work 20h, or `limits.work`"),
        "{}",
        ended.err
    );
    let ended = sandbox.lamp(&["simulate", "--quick", "--work", "20h", "--", "true"]);
    assert!(ended.code == 100 && !ended.err.contains("how much work"), "{}", ended.err);
}

#[test]
fn the_plot_of_a_recorded_course_is_drawn_as_it_is_here() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "flaps.json",
        r#"{"gap_seconds": 600, "first": 1, "runs": [40, 6, 12, 3, 90, 20, 5, 5, 7, 31, 200, 64]}"#,
    );
    let ended = sandbox.lamp(&simulate(&["--trace", "flaps.json", "--start", "12m"]));
    assert_eq!(ended.code, 0, "{}", ended.err);
    insta::assert_snapshot!(ended.out);
}

#[test]
fn what_never_finishes_is_not_called_cheap_or_late() {
    let sandbox = Sandbox::new();
    sandbox.write("never.json", r#"{"gap_seconds": 600, "first": 0, "runs": [400]}"#);
    let (code, found) =
        shown(&sandbox, &simulate(&["-o", "json", "--trace", "never.json", "--market", "spot"]));
    let spot = &found["markets"][0];
    assert_eq!(
        (code, &spot["usd"], &spot["finish_hours"]),
        (100, &serde_json::Value::Null, &serde_json::Value::Null),
        "{found}"
    );
    assert_eq!(
        [&spot["unfinished_share"], &spot["usd_unfinished"], &spot["late_share"]]
            .map(|share| share.as_f64()),
        [Some(1.0), Some(0.0), Some(0.0)]
    );
    let ended = sandbox.lamp(&simulate(&["--trace", "never.json", "--market", "spot"]));
    assert_eq!(
        ended.code, 100,
        "whoever scripts it is not to take it for a job that can be run: {ended:?}"
    );
    let ended_with_others = sandbox.lamp(&simulate(&["--trace", "never.json"]));
    assert_eq!(ended_with_others.code, 0, "on demand it finishes: {ended_with_others:?}");
    assert!(
        ended.out.lines().nth(1).is_some_and(|row| row
            .split_whitespace()
            .take(7)
            .eq(["spot", "-", "-", "-", "-", "-", "0%"])),
        "{}",
        ended.out
    );
    assert!(ended.err.contains("spot: 20 of 20 runs were given up unfinished after 6d 4h, ten times the work and two days"), "{}", ended.err);
}

#[test]
fn recording_that_is_another_than_it_says_is_refused() {
    let sandbox = Sandbox::new();
    for (text, because) in [
        (
            r#"{"gap_seconds": 600, "first": 2, "runs": [4]}"#,
            "`first` is 2 in `trace.json`: 1 (capacity is there) or 0 (it is gone)",
        ),
        (
            r#"{"gap_seconds": 0, "first": 1, "runs": [4]}"#,
            "`gap_seconds` is 0 in `trace.json`: seconds from one look to the next",
        ),
        (
            r#"{"gap_seconds": 600, "ticks": 9, "first": 1, "runs": [4, 4]}"#,
            "`trace.json` says 9 ticks, and its `runs` are 8 together",
        ),
        (r#"{"gap_seconds": 600, "first": 1, "runs": [0]}"#, "`trace.json` holds no ticks"),
        (
            r#"{"gap_seconds": 600, "first": 1, "runs": [4000000, 4000000]}"#,
            "`trace.json` holds 8000000 ticks, more than",
        ),
    ] {
        sandbox.write("trace.json", text);
        let ended = sandbox.lamp(&simulate(&["--trace", "trace.json"]));
        assert!(
            ended.code == 100
                && ended.err.contains(because)
                && ended.err.contains("lamp simulate --help"),
            "{text}: {}",
            ended.err
        );
    }
}

#[test]
fn simulate_without_quick_runs_lamp_in_the_false_world() {
    let sandbox = Sandbox::new();
    // Ten minutes, half an hour without capacity, and then for ever.
    sandbox.write("gap.json", r#"{"gap_seconds": 300, "first": 1, "runs": [2, 6, 100]}"#);
    let (code, found) = shown(&sandbox, &lived(&["-o", "json", "--trace", "gap.json"]));
    assert_eq!(
        (code, &found["plays"], &found["runs"]),
        (0, &"world".into(), &10.into()),
        "{found}"
    );
    let spot = &found["markets"][0];
    let number = |name: &str| spot[name].as_f64().unwrap();
    // One run of ten begins in the gap's look of the recording, and one before it.
    assert!(
        number("interruptions") > 0.0
            && number("interruptions") < 1.0
            && number("unfinished_share") == 0.0,
        "{spot}"
    );
    assert!(
        (0.15..0.3).contains(&spot["usd"]["mean"].as_f64().unwrap()),
        "ten minutes, a start and an end, at a dollar: {spot}"
    );
    assert!(
        spot["finish_hours"]["p95"].as_f64().unwrap() > 0.6,
        "whoever meets the gap waits for its end: {spot}"
    );
    let ended = sandbox.lamp(&lived(&["--trace", "gap.json"]));
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(
        ended.out.starts_with("MARKET")
            && ended.out.contains("so many finished for at most so much: s spot\n"),
        "{}",
        ended.out
    );
    assert!(ended.err.contains("living through 10 worlds ..."), "{}", ended.err);
    assert!(ended.err.contains("lamp itself, in a false world without other faults, lived through 10 times on the recorded course"));
    assert!(
        !ended.err.contains("trying again"),
        "what a false controller warns of is nobody's trouble: {}",
        ended.err
    );
}

#[test]
fn recorded_prices_are_what_it_pays_and_what_takes_its_machine() {
    let sandbox = Sandbox::new();
    let course = |zone: &str, prices: &[(&str, f64)]| {
        let points: Vec<_> = prices
            .iter()
            .map(|(at, price)| serde_json::json!({"at": at, "price": price}))
            .collect();
        serde_json::json!({"region": "us-east-1", "zone": zone, "instance_type": "g5.xlarge", "points": points})
    };
    let half =
        course("us-east-1a", &[("2026-11-01T00:00:00Z", 0.5), ("2026-11-02T00:00:00Z", 0.5)]);
    sandbox.write(
        "half.json",
        serde_json::json!({ "source": {"as_of": "2026-11-03T00:00:00Z"}, "histories": [half] })
            .to_string(),
    );
    sandbox.write("two.json", serde_json::json!({ "histories": [half, course("us-east-1b", &[("2026-11-01T00:00:00Z", 0.4)])] }).to_string());
    sandbox.write("none.json", r#"{"histories": []}"#);
    sandbox.write("always.json", r#"{"gap_seconds": 600, "first": 1, "runs": [400]}"#);
    let (code, found) =
        shown(&sandbox, &lived(&["-o", "json", "--trace", "always.json", "--prices", "half.json"]));
    let usd = found["markets"][0]["usd"]["mean"].as_f64().unwrap();
    assert!(
        code == 0 && (0.08..0.13).contains(&usd),
        "half of what the price of now would be: {found}"
    );
    // Points that lie a microsecond apart are no recording that goes round a million times a
    // second.
    let close = course(
        "us-east-1a",
        &[("2026-11-01T00:00:00Z", 0.9), ("2026-11-01T00:00:00.000001Z", 0.5)],
    );
    sandbox.write(
        "close.json",
        serde_json::json!({ "source": {"as_of": "2026-11-20T00:00:00Z"}, "histories": [close] })
            .to_string(),
    );
    let (code, found) = shown(
        &sandbox,
        &lived(&["-o", "json", "--trace", "always.json", "--prices", "close.json"]),
    );
    let usd = found["markets"][0]["usd"]["mean"].as_f64().unwrap();
    assert!(
        code == 0 && (0.08..0.13).contains(&usd),
        "its last price held until it was made: {found}"
    );
    let ended = sandbox.lamp(&lived(&["--prices", "two.json"]));
    let because = "`two.json` holds the courses of 2 pools (g5.xlarge in us-east-1a, g5.xlarge in us-east-1b), and a job is played in one";
    assert!(
        ended.code == 100
            && ended.err.contains(because)
            && ended.err.contains("lamp prices --type"),
        "{}",
        ended.err
    );
    let ended = sandbox.lamp(&lived(&["--prices", "none.json"]));
    assert!(ended.code == 100 && ended.err.contains("`none.json` holds no price"), "{}", ended.err);
    assert_eq!(sandbox.lamp(&lived(&["--prices", "nowhere.json"])).code, 101);
    assert_eq!(
        sandbox.lamp(&simulate(&["--prices", "half.json"])).code,
        2,
        "the choice alone knows one price"
    );
}

#[test]
fn simulate_interrupted_shows_the_worlds_that_have_run() {
    let place = Place::new("");
    place.0.write("gap.json", r#"{"gap_seconds": 600, "first": 1, "runs": [2, 6, 100]}"#);
    let many = [
        "simulate",
        "--work",
        "10m",
        "--start",
        "2m",
        "--checkpoint",
        "ckpt",
        "--runs",
        "10000",
        "--trace",
        "gap.json",
    ];
    // Until the first course has been lived through in all three markets: on a busy machine that
    // takes its time.
    let left_after = |format: &str, secs: u64| {
        let simulate = place.start(&[&many[..], &PRICES, &["-o", format, "--", "true"]].concat());
        std::thread::sleep(Duration::from_secs(secs));
        signal(simulate.id(), "INT");
        let (code, out, err) = end(simulate);
        (code, String::from_utf8_lossy(&out).into_owned(), err)
    };
    for format in ["text", "json"] {
        let too_early = |ended: &(i32, String, String)| {
            ended.2.contains("left before one course was lived through in each market")
        };
        let ended = [6, 12, 30, 120]
            .into_iter()
            .map(|secs| left_after(format, secs))
            .find(|ended| !too_early(ended));
        let (code, out, err) = ended.expect("two minutes are enough for three short worlds");
        assert_eq!(code, 130, "{out}{err}");
        if format == "text" {
            assert!(
                out.starts_with("MARKET")
                    && err.contains("left before the rest: 10000 were to be played"),
                "{out}{err}"
            );
            continue;
        }
        let found: serde_json::Value = serde_json::from_str(&out).unwrap();
        let runs = found["runs"].as_u64().unwrap();
        assert!(found["runs_asked"] == 10000 && (1..10_000).contains(&runs), "{found}");
        assert_eq!(found["markets"].as_array().map(Vec::len), Some(3));
    }
}

#[test]
fn limit_that_no_market_can_keep_is_told_before_it_is_played() {
    let sandbox = Sandbox::new();
    // A run time is one machine's: where one is taken early enough, the next has what is left of
    // the work and the whole of its time.
    for (limit, code, what, enough) in [
        (
            ["--deadline", "4h"],
            100,
            "the deadline cannot be met, even on demand: 10h of work and a start of 12m take 6h 1",
            "`--deadline 11h` is enough",
        ),
        (
            ["--budget", "2"],
            100,
            "`limits.budget` is too small: 10h of work and a start of 12m take 8h ",
            "`--budget 10.",
        ),
        (
            ["--max-runtime", "3h"],
            0,
            "`limits.max_runtime` is too short: 10h of work",
            "`--max-runtime 11h` is enough",
        ),
    ] {
        let ended = sandbox.lamp(&simulate(&limit));
        assert!(
            ended.code == code
                && ended.err.contains(&format!("\nwarning: {what}"))
                && ended.err.contains(enough),
            "{ended:?}"
        );
        let (_, found) = shown(&sandbox, &simulate(&[&limit[..], &["-o", "json"]].concat()));
        assert_eq!(found["out_of_reach"]["work_hours"], 10.0, "{found}");
    }
    // What recorded prices come to, only the playing shows.
    let half = serde_json::json!({"at": "2026-11-01T00:00:00Z", "price": 0.1});
    let course = serde_json::json!({"region": "us-east-1", "zone": "us-east-1a", "instance_type": "g5.xlarge", "points": [half]});
    sandbox.write(
        "cheap.json",
        serde_json::json!({ "source": {"as_of": "2026-11-03T00:00:00Z"}, "histories": [course] })
            .to_string(),
    );
    sandbox.write("always.json", r#"{"gap_seconds": 600, "first": 1, "runs": [400]}"#);
    let cheap = ["--trace", "always.json", "--prices", "cheap.json", "--budget", "0.1"];
    let (_, found) = shown(&sandbox, &lived(&[&["-o", "json"], &cheap[..]].concat()));
    assert!(found["out_of_reach"].is_null(), "{found}");
    let (_, found) = shown(&sandbox, &simulate(&["-o", "json", "--deadline", "30h"]));
    assert!(found["out_of_reach"].is_null(), "{found}");
}

#[test]
fn without_credentials_it_says_what_makes_it_playable() {
    let sandbox = Sandbox::with_script();
    let words = [
        "simulate",
        "--cloud",
        "aws",
        "--gpus",
        "A10G",
        "--work",
        "10h",
        "--max-runtime",
        "100h",
        "--",
        "python3",
        "train.py",
    ];
    let ended = sandbox.end(
        sandbox
            .command(&words)
            .envs([("AWS_EC2_METADATA_DISABLED", "true"), ("AWS_REGION", "us-east-1")]),
    );
    assert_eq!(ended.code, 103, "{ended:?}");
    assert!(
        ended.err.contains(
            "or give both prices, and no cloud is asked: --spot-price 0.4 --on-demand-price 1.2"
        ),
        "{ended:?}"
    );
}
