//! `lamp prices` from outside: against a false EC2, and without any.

use crate::sandbox::{Ended, Sandbox};

/// Nobody listens there, and nothing names a key.
const OFFLINE: [(&str, &str); 4] = [
    ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
    ("AWS_EC2_METADATA_DISABLED", "true"),
    ("AWS_REGION", "us-east-1"),
    ("AWS_CONFIG_FILE", "/dev/null"),
];

pub(crate) fn offline(args: &[&str]) -> Ended {
    let sandbox = Sandbox::new();
    sandbox.end(sandbox.command(args).envs(OFFLINE))
}

#[test]
fn prices_without_credentials_show_the_dated_shipped_catalogue() {
    let asked = [
        "prices",
        "--gpu",
        "A10G",
        "--type",
        "g5.xlarge",
        "--type",
        "g5.2xlarge",
        "--region",
        "us-east-1",
    ];
    let once = offline(&asked);
    let of_each =
        |kind: &str| once.out.lines().filter(|line| line.starts_with(kind)).collect::<Vec<_>>();
    assert!(
        matches!(of_each("g5.xlarge ")[..], [line] if line.contains("use1-az1 +")),
        "once for the region: {once:?}"
    );
    assert!(
        once.err.contains(
            "+1 is one more zone of the region that sells it, for no less: `--zones` shows each"
        ),
        "{}",
        once.err
    );
    let ended = offline(&[&asked[..], &["--zones"]].concat());
    assert_eq!(ended.code, 0, "{ended:?}");
    let lines: Vec<&str> = ended.out.lines().collect();
    assert_eq!(
        lines[0], "TYPE        ZONE      GPUS      VCPUS  ON-DEMAND",
        "no columns of spot, of which nothing is known"
    );
    assert_eq!(lines[1], "g5.xlarge   use1-az1  1 x A10G      4    $1.0060");
    assert!(ended.err.contains("warning: this is not from EC2: "), "{}", ended.err);
    assert!(
        ended.err.contains("the catalogue that ships with `lamp`: on-demand prices of 2026-07-20, types and zones of 2026-10-27"),
        "{}",
        ended.err
    );
    assert!(!ended.err.contains("most interruptions"), "there is no bid to speak of");
}

#[test]
fn region_without_shipped_prices_says_so_and_makes_none_up() {
    let ended = offline(&["prices", "--gpu", "T4", "--region", "eu-west-1"]);
    assert_eq!(ended.code, 103, "{ended:?}");
    for said in [
        "error: EC2 did not answer, and the catalogue that ships with `lamp` lacks prices of eu-west-1",
        "hint: its prices are of us-east-1",
    ] {
        assert!(ended.err.contains(said), "{said}: {}", ended.err);
    }
}

#[test]
fn gpu_that_nobody_sells_is_answered_with_those_that_are_sold() {
    let ended = offline(&["prices", "--gpu", "A10", "--region", "us-east-1"]);
    assert_eq!(ended.code, 101, "{ended:?}");
    assert!(
        ended.err.contains("error: no GPU is called `A10`: there are A100, A10G, ")
            && ended.err.contains("hint: did you mean `A10G`?"),
        "{}",
        ended.err
    );
    let ended = offline(&["prices", "--gpu", "nonsense", "--region", "us-east-1"]);
    assert!(
        ended.err.contains("error: no GPU is called `nonsense`: there are ")
            && !ended.err.contains("did you mean"),
        "{}",
        ended.err
    );
    let ended = offline(&["prices", "--gpu", "A10G:64", "--region", "us-east-1"]);
    assert!(
        ended.err.contains("nothing with a known price: g5.")
            && ended.err.contains("the job needs A10G:64"),
        "{}",
        ended.err
    );
    assert_eq!(ended.err.matches("the job needs").count(), 1, "{}", ended.err);
}

/// Nobody asked for a GPU, and only EC2 knows the type: neither is the fault of the type.
#[test]
fn machine_type_that_only_ec2_knows_is_called_unknown() {
    let ended = offline(&["prices", "--type", "t3.micro"]);
    assert_eq!(ended.code, 103, "{ended:?}");
    assert!(
        ended.err.contains("EC2 gave no answer, and the shipped catalogue")
            && ended.err.contains("does not know t3.micro\n"),
        "{}",
        ended.err
    );
    assert!(!ended.err.contains("that many GPUs"), "{}", ended.err);
    let slip = offline(&["prices", "--type", "g5.xlrge"]);
    assert!(
        slip.code == 101
            && slip.err.contains("no machine type is called g5.xlrge: ")
            && slip.err.contains("hint: did you mean g5.xlarge?"),
        "{slip:?}"
    );
    // A name that is well formed is no slip for being near a machine with GPUs.
    for name in ["m5.large", "m5.xlarge"] {
        let known = offline(&["prices", "--type", name]);
        assert!(
            known.code == 103
                && !known.err.contains("did you mean")
                && known.err.contains("`lamp doctor` says what keeps AWS"),
            "{known:?}"
        );
    }
    let near = offline(&["prices", "--type", "g5.24xlage"]);
    assert!(near.err.contains("did you mean g5.24xlarge?"), "{near:?}");
    // A family may be newer than this program.
    let newer = offline(&["prices", "--type", "g9.xlarge"]);
    assert!(newer.code == 103 && newer.err.contains("does not know g9.xlarge\n"), "{newer:?}");
}

#[test]
fn what_is_bought_is_compared_with_what_is_rented() {
    let ended = offline(&[
        "prices",
        "--type",
        "g5.xlarge",
        "--region",
        "us-east-1",
        "--buy",
        "$10000",
        "--hours-per-week",
        "40",
    ]);
    // 1.006 an hour, 40 hours a week, 4.348 weeks a month: 174.97 a month.
    assert!(ended.out.contains("bought for $10000.00, with 40 hours of work a week and no electricity:\n  has paid for itself after 57 months (4.8 years), 9940 hours of work, against g5.xlarge on-demand at $1.0060/h"), "{}", ended.out);
    let dear = [
        "prices",
        "--type",
        "g5.xlarge",
        "--region",
        "us-east-1",
        "--buy",
        "9000",
        "--watts",
        "700",
        "--usd-per-kwh",
        "2",
    ];
    assert!(offline(&dear).out.contains(
        "never pays for itself against g5.xlarge on-demand at $1.0060/h: its electricity costs more"
    ));
}

#[test]
fn wrong_words_are_taught() {
    for (args, said) in [
        (&["prices", "--gpu", "A10G:"][..], "`A10G:` is not a GPU requirement"),
        (&["prices", "--bid", "cheap"], "`cheap` is not a price"),
        (&["prices", "--memory", "much"], "--memory: `much` is no size, write 24GiB"),
        (&["prices", "--days", "91"], "91 is not in 1..=90"),
    ] {
        let ended = offline(args);
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.err.contains(said), "{}", ended.err);
    }
}

#[cfg(feature = "aws")]
pub(crate) mod asked {
    use jiff::SignedDuration;
    use serde_json::Value;

    use super::*;
    use lamp_test_support::ec2::{FalseEc2, Options};

    /// A market of two zones: one quiet, one that rose for a while.
    fn market() -> Option<FalseEc2> {
        let ec2 = FalseEc2::start(Options::default())?;
        let hours = SignedDuration::from_hours;
        ec2.spot_prices("g5.xlarge", "us-east-1a", &[(hours(24 * 20), 0.40)]);
        ec2.spot_prices(
            "g5.xlarge",
            "us-east-1b",
            &[(hours(24 * 20), 0.36), (hours(24 * 6), 0.60), (hours(24 * 4), 0.36)],
        );
        Some(ec2)
    }

    pub(crate) fn asked(ec2: &FalseEc2, args: &[&str]) -> Ended {
        let sandbox = Sandbox::new();
        sandbox.end(sandbox.command(args).envs(ec2.env()))
    }

    #[test]
    fn price_table_shows_prices_ratio_bid_and_how_often_exceeded() {
        let Some(ec2) = market() else { return };
        let ended = asked(
            &ec2,
            &["prices", "--gpu", "A10G", "--type", "g5.xlarge", "--days", "10", "--backtest"],
        );
        assert_eq!(ended.code, 0, "{ended:?}");
        let lines: Vec<&str> = ended.out.lines().collect();
        assert_eq!(
            lines[0],
            "TYPE       ZONE        GPUS      VCPUS  ON-DEMAND     SPOT  RATIO      BID  EXCEEDED"
        );
        // 15% above the price now; two days of ten the price was above it.
        assert_eq!(
            lines[1],
            "g5.xlarge  us-east-1b  1 x A10G      4    $1.0060  $0.3600    36%  $0.4140  20.0% 1x"
        );
        assert_eq!(
            lines[2],
            "g5.xlarge  us-east-1a  1 x A10G      4    $1.0060  $0.4000    40%  $0.4600   0.0% 0x"
        );
        assert!(
            ended.out.contains(
                "what `auto` would have done, asked every six hours and followed for a day:"
            ),
            "{}",
            ended.out
        );
        // Four of the 37 moments were within a day before the rise.
        assert!(
            ended.out.contains(
                "g5.xlarge  us-east-1b       37      100.0%                10.8%         1.15"
            ),
            "{}",
            ended.out
        );
        assert!(
            ended.out.contains(
                "g5.xlarge in us-east-1b, dollars an hour; the line across is the bid of $0.4140\n"
            ),
            "{}",
            ended.out
        );
        assert!(
            ended.out.contains("10 days ago")
                && ended.out.contains("⡤⠤⠤⠤⠤⠤")
                && ended.out.contains(" $0.630\n"),
            "{}",
            ended.out
        );
        assert!(
            ended.err.contains("most interruptions come from capacity, not from price"),
            "{}",
            ended.err
        );
        let legend = "the cheapest on spot first, then what has no spot price; RATIO is spot over on-demand; BID is what `auto` gives, EXCEEDED for which \
                      share of the last 10 days the spot price was above that bid, and how many times it rose above it\n";
        assert!(ended.err.contains(legend), "{}", ended.err);
    }

    #[test]
    fn machines_read_json_lines_and_csv() {
        let Some(ec2) = market() else { return };
        let args = ["prices", "--type", "g5.xlarge", "--days", "10", "--bid", "p95 of 14d"];
        let ended = asked(&ec2, &[&args[..], &["-o", "json", "--buy", "1000"]].concat());
        let document: Value =
            serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        assert_eq!(document["source"]["name"], "ec2");
        let row = &document["rows"][0];
        // Two days of fourteen at 0.6 are more than a twentieth.
        assert_eq!(
            (&row["zone"], &row["bid"], &row["share_above"]),
            (&"us-east-1b".into(), &0.6.into(), &0.0.into())
        );
        assert_eq!(document["buy"]["against"][1]["market"], "spot");
        let ended = asked(&ec2, &[&args[..], &["-o", "jsonl"]].concat());
        assert_eq!(
            ended.out.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count(),
            ended.out.lines().count()
        );
        let ended = asked(&ec2, &[&args[..], &["--csv"]].concat());
        assert!(
            ended.out.starts_with("instance_type,region,zone,gpus,gpu_model,"),
            "{}",
            ended.out
        );
        assert!(
            ended.out.contains(
                "\ng5.xlarge,us-east-1,us-east-1b,1,A10G,22888,4,1.006,0.36,0.3579,0.6,0.0000,0"
            ),
            "{}",
            ended.out
        );
    }

    /// The points of a pool in a document, as prices.
    fn course(document: &Value, zone: &str) -> Vec<f64> {
        let histories = document["histories"].as_array().expect("a list");
        let of = histories
            .iter()
            .find(|history| history["zone"] == zone)
            .unwrap_or_else(|| panic!("{document}"));
        assert_eq!(of["instance_type"], "g5.xlarge");
        let points = of["points"].as_array().expect("a list");
        assert!(
            points.iter().all(|point| point["at"]
                .as_str()
                .is_some_and(|at| at.parse::<jiff::Timestamp>().is_ok())),
            "{of}"
        );
        points.iter().map(|point| point["price"].as_f64().expect("a price")).collect()
    }

    #[test]
    fn price_history_of_each_zone_is_in_json_and_in_csv_rows() {
        let Some(ec2) = market() else { return };
        let args = ["prices", "--type", "g5.xlarge", "--days", "10"];
        let json = |more: &[&str]| -> Value {
            let ended = asked(&ec2, &[&args[..3], more, &["-o", "json"]].concat());
            serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
        };
        let all = json(&["--days", "10"]);
        assert_eq!(
            (course(&all, "us-east-1a"), course(&all, "us-east-1b")),
            (vec![0.4], vec![0.36, 0.6, 0.36])
        );
        let five = json(&["--days", "5", "--zone", "us-east-1b"]);
        assert_eq!(
            course(&five, "us-east-1b"),
            [0.6, 0.36],
            "what held when the window began, and its changes"
        );
        assert_eq!(five["histories"].as_array().map(Vec::len), Some(1), "{five}");

        let csv = asked(&ec2, &[&args[..], &["--history", "-o", "csv"]].concat()).out;
        let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(rows[0], ["instance_type", "region", "zone", "at", "price"]);
        let points: Vec<(&str, &str)> = rows[1..].iter().map(|row| (row[2], row[4])).collect();
        assert_eq!(
            points[..4],
            [
                ("us-east-1b", "0.36"),
                ("us-east-1b", "0.6"),
                ("us-east-1b", "0.36"),
                ("us-east-1a", "0.4")
            ],
            "the cheapest first"
        );
        assert!(
            rows[1..].iter().all(|row| row.len() == 5 && row[3].parse::<jiff::Timestamp>().is_ok()),
            "{csv}"
        );
        let lines = asked(
            &ec2,
            &[&args[..], &["--history", "-o", "jsonl", "--zone", "us-east-1a"]].concat(),
        )
        .out;
        let point: Value =
            serde_json::from_str(lines.trim()).unwrap_or_else(|error| panic!("{error}: {lines}"));
        assert_eq!((&point["zone"], &point["price"]), (&"us-east-1a".into(), &0.4.into()));
    }

    #[test]
    fn plot_is_of_the_cheapest_zone_or_of_the_one_that_is_named() {
        let Some(ec2) = market() else { return };
        let args = ["prices", "--type", "g5.xlarge", "--days", "10"];
        let plotted = |more: &[&str]| asked(&ec2, &[&args[..], more].concat());
        assert!(plotted(&[]).out.contains(
            "g5.xlarge in us-east-1b, dollars an hour; the line across is the bid of $0.4140\n"
        ));
        let named = plotted(&["--zone", "us-east-1a"]);
        assert!(
            named.code == 0 && named.out.contains("g5.xlarge in us-east-1a, dollars an hour; the line across is the bid of $0.4600\n"),
            "{named:?}"
        );
        let nowhere = plotted(&["--zone", "us-east-1z"]);
        assert_eq!(nowhere.code, 101, "{nowhere:?}");
        assert!(
            nowhere.err.contains("no spot price of what was asked for in us-east-1z")
                && nowhere.err.contains("us-east-1a, us-east-1b"),
            "{nowhere:?}"
        );
    }

    #[test]
    fn long_answer_is_announced_and_nothing_is_asked_twice() {
        let Some(ec2) = market() else { return };
        ec2.latency(std::time::Duration::from_millis(700));
        let sandbox = Sandbox::new();
        let mut command = sandbox.command(&["prices", "--type", "g5.xlarge"]);
        let first = sandbox.end(command.envs(ec2.env()));
        assert!(first.err.contains("asking EC2 for types, zones and prices ..."), "{}", first.err);
        ec2.latency(std::time::Duration::ZERO);
        ec2.take_calls();
        let again = sandbox.end(&mut command);
        assert_eq!(first.out.lines().count(), again.out.lines().count());
        // S3 is another test's, whose daemon has not noticed that its port is ours now.
        let asked: Vec<String> = ec2
            .take_calls()
            .into_iter()
            .filter(|call| call.service != "s3")
            .map(|call| call.action)
            .collect();
        assert!(asked.is_empty(), "it is remembered in the cache folder: {asked:?}");
    }
}

#[test]
fn csv_is_a_format_of_prices_and_of_nothing_else() {
    let asked = ["--type", "g5.xlarge", "--region", "us-east-1"];
    let flag = offline(&[&["prices", "--csv"], &asked[..]].concat());
    for words in [&["-o", "csv"][..], &["--output", "csv"], &["-ocsv"], &["--output=csv"]] {
        let ended = offline(&[&["prices"], &asked[..], words].concat());
        assert_eq!((ended.code, &ended.out), (0, &flag.out), "{words:?}: {ended:?}");
    }
    let before = offline(&[&["-o", "csv", "prices"], &asked[..]].concat());
    assert_eq!(before.out, flag.out);
    let elsewhere = offline(&["status", "-o", "csv"]);
    assert!(elsewhere.code == 2 && elsewhere.err.contains("jsonl"), "{elsewhere:?}");
}

/// What was said and would not be done is refused; nothing is left out in silence.
#[test]
fn what_a_form_cannot_say_and_what_makes_no_sense_is_refused() {
    let row = ["prices", "--type", "g5.xlarge", "--region", "us-east-1"];
    for (more, said) in [
        (&["--csv", "-o", "json"][..], "two forms of the same rows"),
        (&["--csv", "--buy", "5000"], "`--buy` and `--hours` compare"),
        (&["-o", "csv", "--buy", "5000"], "`--buy` and `--hours` compare"),
        (&["-o", "jsonl", "--buy", "5000"], "`--buy` and `--hours` compare"),
        (&["--csv", "--backtest"], "`--backtest` is about all rows"),
        (&["--history"], "`--history` is a row for each change"),
        (&["--csv", "--zone", "us-east-1a"], "`--zone` chooses whose course"),
        (&["--csv", "--history", "--buy", "5000"], "`--history` is of prices alone"),
        (&["--watts", "300"], "--buy"),
        (&["--hours-per-week", "40"], "--buy"),
        (&["--buy", "5000", "--hours-per-week", "400"], "a week has 168 hours"),
        (&["--buy", "0"], "what is bought costs something"),
        (&["--buy", "5000", "--watts", "NaN"], "a machine is 0 or more"),
    ] {
        let ended = offline(&[&row[..], more].concat());
        assert!(ended.code == 2 && ended.err.contains(said), "{more:?}: {ended:?}");
        assert_eq!(ended.out, "", "{more:?}");
    }
    let untold = offline(&[&row[..], &["--csv", "--history"]].concat());
    assert!(
        untold.code == 103
            && untold.err.contains("no course of spot prices is known: EC2 gave no answer"),
        "{untold:?}"
    );
    let unsaid = offline(&["prices", "--buy"]);
    assert!(
        unsaid.code == 2
            && unsaid.err.contains(
                "hint: `--buy` needs what such a machine costs in a shop, in dollars: `lamp prices"
            ),
        "{unsaid:?}"
    );
    let bought = offline(
        &[&row[..], &["--buy", "5000", "--hours-per-week", "40", "--watts", "300"]].concat(),
    );
    assert!(bought.code == 0 && bought.out.contains("has paid for itself after"), "{bought:?}");
}
