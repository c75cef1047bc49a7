//! What `lamp prices` says beside its rows: whose prices they are, what was not answered, and why a
//! bid is missing.

use serde_json::Value;

use crate::plan::prices::offline;

/// Rows have no document around them: each says whose word it is, and stderr says the rest.
#[test]
fn rows_of_the_shipped_catalogue_name_it_and_its_day() {
    let asked = ["prices", "--type", "g5.xlarge", "--region", "us-east-1"];
    let (lines, csv) = (
        offline(&[&asked[..], &["-o", "jsonl"]].concat()),
        offline(&[&asked[..], &["-o", "csv"]].concat()),
    );
    let rows: Vec<Value> = lines
        .out
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object a line"))
        .collect();
    assert!(
        !rows.is_empty()
            && rows.iter().all(|row| row["source"]
                == serde_json::json!({ "name": "catalogue", "as_of": "2026-07-20" })),
        "{rows:?}"
    );
    assert!(
        csv.out.lines().next().is_some_and(|heading| heading.ends_with(",source,as_of")),
        "{}",
        csv.out
    );
    assert!(
        csv.out.lines().skip(1).all(|row| row.ends_with(",catalogue,2026-07-20")),
        "{}",
        csv.out
    );
    for ended in [&lines, &csv] {
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(ended.err.starts_with("warning: this is not from EC2: "), "{}", ended.err);
        let note = "the catalogue that ships with `lamp`: on-demand prices of 2026-07-20, types and zones of 2026-10-27";
        assert!(ended.err.contains(note), "{}", ended.err);
    }
    let quiet = offline(&[&asked[..], &["-o", "jsonl", "-q"]].concat());
    assert!(
        quiet.err.starts_with("warning: this is not from EC2: ")
            && !quiet.err.contains("that ships with"),
        "{}",
        quiet.err
    );
    let document = offline(&[&asked[..], &["-o", "json"]].concat());
    assert_eq!(document.err, "", "a document has all of it");
}

#[cfg(feature = "aws")]
mod asked {
    use jiff::{SignedDuration, Timestamp};
    use serde_json::Value;

    use crate::plan::prices::asked::asked;
    use lamp_test_support::ec2::{FalseEc2, Fault, Options};

    #[test]
    fn region_that_does_not_answer_is_named_beside_rows_too() {
        let Some(ec2) = FalseEc2::start(Options::default()) else { return };
        ec2.fault(
            Fault::code("DescribeInstanceTypes", "AuthFailure")
                .when("region", "us-west-2")
                .always(),
        );
        let words =
            ["prices", "--type", "g5.xlarge", "--region", "us-east-1", "--region", "us-west-2"];
        for form in [
            &["--csv"][..],
            &["-o", "csv", "--history"],
            &["-o", "jsonl"],
            &["-o", "jsonl", "--history"],
        ] {
            let ended = asked(&ec2, &[&words[..], form].concat());
            assert_eq!(ended.code, 0, "{form:?}: {ended:?}");
            assert!(
                ended.out.contains("us-east-1a") && !ended.out.contains("us-west-2"),
                "{form:?}: {}",
                ended.out
            );
            assert!(
                ended.err.contains("us-west-2 was not asked to the end: "),
                "{form:?}: {}",
                ended.err
            );
        }
        let line = asked(&ec2, &[&words[..], &["-o", "jsonl"]].concat()).out;
        let row: Value =
            serde_json::from_str(line.lines().next().expect("a row")).expect("an object a line");
        assert!(
            row["source"]["name"] == "ec2"
                && row["source"]["as_of"]
                    .as_str()
                    .is_some_and(|at| at.parse::<Timestamp>().is_ok()),
            "{row}"
        );
    }

    /// The shipped price list, which stands in for one that may not be read, knows one region
    /// alone.
    #[test]
    fn without_an_on_demand_price_no_bid_vanishes_without_a_word() {
        let Some(ec2) = FalseEc2::start(Options::default()) else { return };
        ec2.fault(Fault::code("GetProducts", "AccessDeniedException").status(400).always());
        let words = ["prices", "--type", "g5.xlarge", "--region", "us-west-2"];
        let ended = asked(&ec2, &words);
        assert_eq!(ended.code, 0, "{ended:?}");
        let because = "has no known on-demand price, which the bid would be reckoned from; `--bid 0.65` names one in dollars";
        assert!(
            ended.err.contains("`auto` gives no bid: g5.xlarge in us-west-2b ")
                && ended.err.contains(because),
            "{}",
            ended.err
        );
        assert_eq!(ended.err.matches(because).count(), 1, "all zones lack the same: {}", ended.err);
        // The course is known, and is drawn without a line across.
        let title = |ended: &str, zone: &str| {
            ended.contains(&format!("\ng5.xlarge in {zone}, dollars an hour\n"))
        };
        assert!(
            title(&ended.out, "us-west-2b") && ended.out.contains("14 days ago"),
            "{}",
            ended.out
        );
        let named = asked(&ec2, &[&words[..], &["--zone", "us-west-2c"]].concat());
        assert!(title(&named.out, "us-west-2c"), "{}", named.out);
        let rows = asked(&ec2, &[&words[..], &["--csv"]].concat());
        assert!(rows.err.contains("`auto` gives no bid: "), "{}", rows.err);
        let document: Value =
            serde_json::from_str(&asked(&ec2, &[&words[..], &["-o", "json"]].concat()).out)
                .expect("a document");
        assert_eq!(
            (&document["rows"][0]["bid"], &document["rows"][0]["no_bid"]),
            (&Value::Null, &because.into())
        );
        // A quantile is known without it; that nothing cuts it is said.
        let quantile = asked(&ec2, &[&words[..], &["--bid", "p95 of 14d"]].concat());
        assert!(
            quantile.err.contains(
                "g5.xlarge in us-west-2b has no known on-demand price that its bid would be cut to"
            ),
            "{}",
            quantile.err
        );
        assert!(quantile.out.contains("the line across is the bid of $"), "{}", quantile.out);
    }

    /// Ninety days are all that EC2 keeps: more changes than a page has rows, in two regions, some
    /// of them older than that.
    #[test]
    fn ninety_days_of_two_regions_come_whole() {
        let Some(ec2) = FalseEc2::start(Options::default()) else { return };
        let zones = ["us-east-1a", "us-west-2a"];
        // A hundred days of fifteen changes.
        let changes: Vec<(SignedDuration, f64)> = (0..1500_i32)
            .rev()
            .map(|n| {
                (SignedDuration::from_mins(96 * i64::from(n) + 48), 0.3 + f64::from(n % 7) / 100.0)
            })
            .collect();
        zones.iter().for_each(|zone| ec2.spot_prices("g5.xlarge", zone, &changes));
        let before = Timestamp::now();
        let ended = asked(
            &ec2,
            &[
                "prices",
                "--type",
                "g5.xlarge",
                "--days",
                "90",
                "--region",
                "us-east-1",
                "--region",
                "us-west-2",
                "-o",
                "json",
            ],
        );
        let document: Value =
            serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        let histories = document["histories"].as_array().expect("a list");
        for zone in zones {
            let course = histories
                .iter()
                .find(|history| history["zone"] == zone)
                .unwrap_or_else(|| panic!("{zone}: {histories:?}"));
            // Those of the ninety days, and what held when they began; one more where a minute
            // passed meanwhile.
            let points = course["points"].as_array().expect("a list").len();
            assert!((1350..=1352).contains(&points), "{zone}: {points}");
        }
        let calls = ec2.calls_of("DescribeSpotPriceHistory");
        for region in ["us-east-1", "us-west-2"] {
            let here: Vec<_> = calls.iter().filter(|call| call.region == region).collect();
            assert!(
                here.iter().any(|call| call.params.contains_key("NextToken")),
                "{region}: one page is not all"
            );
            for call in here {
                let start: Timestamp = call.params["StartTime"].parse().expect("a moment");
                let days = before.duration_since(start).as_hours() as f64 / 24.0;
                assert!((89.9..=90.1).contains(&days), "{region} was asked from {start} on");
            }
        }
    }
}
