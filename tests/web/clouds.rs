//! An open page asks the clouds by itself: the machines of the false EC2 that no job needs.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use lamp_test_support::ec2::{FalseEc2, IMAGE, OWNER, Options};
use lamplighter::instance::Tags;
use lamplighter::job::{AttemptNo, BOOT};
use lamplighter::market::Span;

use crate::pages::Served;
use crate::place::{Place, wait_until};
use crate::six_jobs::SixJobs;

/// The last region of the list: it is shown only if no region before it holds the look up.
const REGION: &str = "us-west-2";

fn launch(ec2: &FalseEc2, tags: &BTreeMap<String, String>) -> String {
    let params =
        [("ImageId", IMAGE), ("InstanceType", "g5.xlarge"), ("MinCount", "1"), ("MaxCount", "1")];
    let launched = ec2.ask_in(REGION, "RunInstances", &params).expect("launched");
    let id = launched.all("instanceId")[0].text.clone();
    ec2.tag(&id, tags);
    id
}

/// Its hard cap was an hour ago.
fn orphan(ec2: &FalseEc2) -> String {
    let tags = Tags {
        owner: OWNER.into(),
        job: "digits-222222".parse().expect("an id"),
        attempt: AttemptNo::FIRST,
        lease: Span::from_secs(1800),
        boot: BOOT,
        kill_at: Some(Timestamp::now() - SignedDuration::from_hours(1)),
    };
    launch(ec2, &tags.to_map())
}

#[test]
fn open_page_shows_machines_of_all_regions_without_a_job() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let (ours, foreign) = (orphan(&ec2), launch(&ec2, &BTreeMap::new()));
    let place = Place::new("true");
    // Without a job for AWS, only who has set it up is asked about it.
    place
        .0
        .write("home/.config/lamplighter/config.toml", "[aws]\nsecurity_group = 'lamplighter'\n");
    let mut command = place.0.command(&["web", "--port", "0"]);
    command.envs(ec2.env()).env("LAMP_OWNER", OWNER);
    let page = Served::by(&place, command);
    let text = wait_until("the clouds have answered", || {
        let text = page.get("/").text;
        text.contains("The clouds were asked").then_some(text)
    });
    assert!(text.contains(&format!("{ours} in {REGION}")), "{text}");
    assert!(text.contains(&format!("{foreign} in {REGION}")), "{text}");
    assert!(text.contains("<code>lamp sweep</code>"), "{text}");
    for silent in ["did not answer", "nobody answered", "unknown: "] {
        assert!(!text.contains(silent), "{silent}: {text}");
    }
    // A person who asks for more gets the bill of each.
    let text = page.get("/machines?look=1").text;
    assert!(text.contains(&ours) && text.contains(&foreign), "{text}");
    assert!(text.contains("<strong>orphan</strong>"), "{text}");
    assert!(!text.contains("These places did not answer"), "{text}");
}

#[test]
fn prices_have_their_changes_the_chance_and_the_jobs_there() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let minutes = SignedDuration::from_mins;
    ec2.spot_prices("g5.xlarge", "us-east-1a", &[(minutes(300), 0.44), (minutes(40), 0.452)]);
    let six = SixJobs::new();
    six.on_spot(ON_SPOT);
    let spells = serde_json::json!({ "there": { "ended": 0.0, "expected": 0.0 },
        "gone": { "ended": 0.0, "expected": 0.0 }, "now": { "there": true, "age_hours": 2.0 } });
    let memory = serde_json::json!({ "format": 1, "zone": "us-east-1a", "instance_type": "g5.xlarge",
        "looked": Timestamp::now(), "spells": spells, "starts": ["4m"], "learned": null });
    let record = "home/.local/state/lamplighter/market/us-east-1a/g5.xlarge.json";
    six.place.0.write(record, memory.to_string());
    let mut command = six.command(&["web", "--port", "0"]);
    command.envs(ec2.env()).env("LAMP_OWNER", OWNER);
    let page = Served::by(&six.place, command);
    assert!(page.get("/prices").text.contains("/prices?type=g5.xlarge"), "the types of its jobs");
    let text = page.get("/prices?type=g5.xlarge&region=us-east-1").text;
    let costs = page.get("/prices?type=g5.xlarge&region=us-east-1&hours=10").text;
    for words in ["10 h on demand", "10 h spot", "$4.52", "--days 14 --hours 10"] {
        assert!(costs.contains(words), "{words}: {costs}");
    }
    assert!(!text.contains("h on demand"), "{text}");
    let same = "lamp prices --type g5.xlarge --region us-east-1 --zone us-east-1a --days 14 --history -o csv";
    for word in [
        "Table of its changes",
        "$0.4520",
        same,
        "100 %, lasts about",
        "seen ",
        "tr class=\"mine\"",
    ] {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert!(text.contains(&format!("/job/{ON_SPOT}")), "{text}");
    let csv =
        |query: &str| page.get(&format!("/prices.csv?type=g5.xlarge&region=us-east-1{query}")).text;
    let own = csv("&zone=us-east-1a&pool=g5.xlarge");
    assert!(
        own.lines().count() > 1 && own.lines().skip(1).all(|row| row.contains("us-east-1a")),
        "{own}"
    );
    assert_eq!(csv("&zone=us-east-1z").lines().count(), 1, "the heading alone");
}

/// A spot job, whose price has changed twice since it began, and once before.
const ON_SPOT: &str = "llama-ft-7f3k2q";

#[test]
fn plots_of_spot_job_mark_changes_of_its_price() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let minutes = SignedDuration::from_mins;
    let prices =
        [(minutes(300), 0.44), (minutes(40), 0.452), (minutes(30), 0.452), (minutes(15), 0.47)];
    ec2.spot_prices("g5.xlarge", "us-east-1a", &prices);
    let six = SixJobs::new();
    six.on_spot(ON_SPOT);
    let mut command = six.command(&["web", "--port", "0"]);
    command.envs(ec2.env()).env("LAMP_OWNER", OWNER);
    let page = Served::by(&six.place, command);
    let marks = |job: &str| -> Vec<(f64, String)> {
        let plots = page.get(&format!("/job/{job}/plot.json")).text;
        let plots: serde_json::Value = serde_json::from_str(&plots).expect("JSON");
        let marks = plots["marks"].as_array().expect("marks").iter();
        let prices = marks.filter(|mark| mark["word"] == "price");
        let told = |mark: &serde_json::Value| {
            (
                mark["secs"].as_f64().expect("seconds"),
                mark["text"].as_str().expect("text").to_owned(),
            )
        };
        prices.map(told).collect()
    };
    let found = wait_until("EC2 has told the prices", || {
        Some(marks(ON_SPOT)).filter(|marks| !marks.is_empty())
    });
    let texts: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["spot $0.4520/h, before $0.4400/h", "spot $0.4700/h, before $0.4520/h"]);
    let apart = found[1].0 - found[0].0;
    assert!((apart - 1500.0).abs() < 2.0, "{apart} s between them");
    let text = page.get(&format!("/job/{ON_SPOT}")).text;
    assert_eq!(
        text.matches("<title>price: spot $0.4700/h").count(),
        text.matches("data-series").count()
    );
    assert!(text.contains("Ticks at the foot are changes of the spot price"), "{text}");
    assert_eq!(marks("whisper-5hq2wz"), [], "a price on demand does not change");
    let calls = ec2.calls_of("DescribeSpotPriceHistory").len();
    assert_eq!((calls, marks(ON_SPOT).len()), (1, 2), "EC2 is asked once for all looks");
}
