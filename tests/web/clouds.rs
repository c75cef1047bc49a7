//! An open page asks the clouds by itself: the machines of the false EC2 that no job needs.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use lamp_test_support::ec2::{FalseEc2, IMAGE, OWNER, Options};
use lamplighter::instance::Tags;
use lamplighter::job::{AttemptNo, BOOT};
use lamplighter::market::Span;

use crate::pages::Served;
use crate::place::{Place, wait_until};

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
