//! `lamp discard`: what ended jobs have stored goes, their records stay, and nothing goes that a
//! job still needs.

use serde_json::{Value, json};

use crate::faces::terminal::Terminal;
use crate::place::{Place, end};
use crate::sandbox::{Sandbox, repository};

const ROOT: &str = "home/.local/state/lamplighter/jobs";
const JOB: &str = "digits-7f3k2q";

fn record(name: &str) -> Value {
    serde_json::from_str(
        &std::fs::read_to_string(repository().join("tests/data/v1").join(name)).expect("a record"),
    )
    .expect("JSON")
}

/// A job that has ended and has stored something of each kind; `spec` and `receipt` may say
/// otherwise.
fn add(sandbox: &Sandbox, job: &str, change: impl Fn(&mut Value, &mut Value)) {
    let (mut spec, mut receipt) = (record("spec.json"), record("receipt.json"));
    for record in [&mut spec, &mut receipt] {
        record["job"] = job.into();
    }
    spec["owner"] = "alice".into();
    for key in ["continues", "applied", "trial"] {
        spec[key] = Value::Null;
    }
    change(&mut spec, &mut receipt);
    let folder = format!("{ROOT}/{job}");
    sandbox.write(&format!("{folder}/spec.json"), spec.to_string());
    if !receipt.is_null() {
        sandbox.write(&format!("{folder}/receipt.json"), receipt.to_string());
    }
    for (path, bytes) in STORED {
        sandbox.write(&format!("{folder}/{path}"), vec![b'x'; bytes]);
    }
    for path in RECORDS {
        sandbox.write(&format!("{folder}/{path}"), "{}");
    }
}

/// It began from a checkpoint of that one.
fn goes_on_from(spec: &mut Value, job: &str) {
    let saved = record("receipt.json")["attempts"][0]["resumed_from"].clone();
    spec["continues"] =
        json!({ "job": job, "checkpoint": { "job": job, "checkpoint": saved }, "machine": null });
}

const STORED: [(&str, usize); 7] = [
    ("checkpoints/0001/manifest.json", 1),
    ("checkpoints/0001/files/a/model.pt", 3000),
    ("outputs/model.pt", 2000),
    ("outputs/deep/spec.json", 1),
    ("attempts/0001/log/00000001.zst", 500),
    ("attempts/0001/samples/00000001.jsonl.zst", 40),
    ("code/0a.tar.zst", 700),
];
const RECORDS: [&str; 4] = [
    "requests/0001.json",
    "attempts/0001/events/00000001.jsonl",
    "told/ended-0a.json",
    "attempts/0001/stacks/0001.txt",
];

/// Files of a job, without its own two records.
fn files(sandbox: &Sandbox, job: &str) -> Vec<String> {
    let root = sandbox.path().join(ROOT).join(job);
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path => {
                    found.push(path.strip_prefix(&root).expect("below it").display().to_string())
                }
            }
        }
    }
    found.retain(|path| path != "spec.json" && path != "receipt.json");
    found.sort();
    found
}

fn with(records: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = RECORDS.iter().chain(records).map(ToString::to_string).collect();
    all.sort();
    all
}

#[test]
fn what_an_ended_job_has_stored_goes_and_its_records_stay() {
    let sandbox = Sandbox::new();
    add(&sandbox, JOB, |_, _| ());
    let before = sandbox.lamp(&["receipt", JOB]);
    let dry = sandbox.lamp(&["discard", "digits", "--dry-run"]);
    assert_eq!(dry.code, 0, "{dry:?}");
    let row = dry.out.lines().nth(1).unwrap_or_default();
    assert!(
        row.contains(JOB)
            && row.contains("2.9 KiB")
            && row.ends_with("6.1 KiB")
            && dry.err.ends_with("nothing was deleted\n"),
        "{dry:?}"
    );
    let unsaid = sandbox.lamp(&["discard", JOB]);
    assert!(
        unsaid.code == 102
            && unsaid.err.contains(
                "7 objects, 6.1 KiB of 1 job (checkpoints, outputs, logs, code) will be gone"
            ),
        "{unsaid:?}"
    );
    assert!(
        unsaid.err.contains("this call cannot ask") && unsaid.err.contains("nothing was deleted"),
        "{unsaid:?}"
    );
    assert_eq!(files(&sandbox, JOB).len(), STORED.len() + RECORDS.len(), "all of it is there");

    let (code, document) = sandbox.json(&["discard", JOB, "--yes", "-o", "json"]);
    assert_eq!(
        (code, &document["objects"], &document["bytes"], &document["done"]),
        (0, &json!(7), &json!(6242), &json!(true)),
        "{document:#}"
    );
    assert_eq!(
        (&document["jobs"][0]["job"], &document["left_out"]),
        (&json!(JOB), &json!([])),
        "{document:#}"
    );
    assert_eq!(files(&sandbox, JOB), with(&["discarded.json"]));
    // The bill is explained as before, and who looks for the rest hears what became of it.
    let after = sandbox.lamp(&["receipt", JOB]);
    assert!(after.code == 0 && after.out.contains("total $0.46; useful 55m"), "{after:?}");
    assert!(
        after.out.lines().any(|line| line.starts_with("  discarded at ")
            && line.ends_with(": checkpoints, outputs, logs, code")),
        "{after:?}"
    );
    assert_ne!(before.out, after.out);
    let gone =
        after.out.lines().find_map(|line| line.strip_prefix("  discarded ")).expect("said above");
    let status = sandbox.lamp(&["status", JOB]);
    assert!(status.out.lines().any(|line| line == format!("discarded   {gone}")), "{status:?}");
    let explained = sandbox.lamp(&["explain", JOB]);
    assert!(explained.out.lines().any(|line| line == format!("discarded {gone}")), "{explained:?}");
    for (shown, job) in [
        (sandbox.json(&["status", JOB, "-o", "json"]).1["jobs"][0].clone(), "status"),
        (sandbox.json(&["explain", JOB, "-o", "json"]).1, "explain"),
    ] {
        let record: Value =
            serde_json::from_str(&sandbox.read(&format!("{ROOT}/{JOB}/discarded.json")))
                .expect("JSON");
        for field in ["at", "by", "kinds"] {
            assert_eq!(shown["discarded"][field], record[field], "{job}: {shown:#}");
        }
    }
    assert!(
        sandbox.json(&["status", "-o", "json"]).1["jobs"][0].get("discarded").is_none(),
        "a list reads one record of a job that has ended"
    );
    let logs = sandbox.lamp(&["logs", JOB]);
    assert!(
        logs.code == 0
            && logs.err.starts_with(&format!("warning: {JOB}: its logs were discarded at ")),
        "{logs:?}"
    );
    assert!(
        sandbox
            .lamp(&["outputs", JOB])
            .err
            .starts_with(&format!("warning: {JOB}: its outputs were discarded at "))
    );
    let start = sandbox.lamp(&["start", JOB]);
    assert!(
        start.code == 102 && start.err.contains("cannot go on: its checkpoints were discarded at "),
        "{start:?}"
    );
    assert!(
        start.err.contains("nothing was started or billed")
            && start.err.contains("`lamp run FILE`"),
        "{start:?}"
    );
    let again = sandbox.lamp(&["discard", JOB, "--yes"]);
    assert_eq!((again.code, &*again.err), (0, "there is nothing to delete\n"));
}

#[test]
fn one_kind_goes_alone_and_another_later() {
    let sandbox = Sandbox::new();
    add(&sandbox, JOB, |_, _| ());
    assert_eq!(sandbox.lamp(&["discard", JOB, "--yes", "--only", "logs"]).code, 0);
    let left = files(&sandbox, JOB);
    assert!(
        left.contains(&"code/0a.tar.zst".to_owned())
            && !left.iter().any(|path| path.contains("/log/") || path.contains("/samples/")),
        "{left:?}"
    );
    // Its receipt says that it has succeeded; of nothing else is it told.
    let start = sandbox.lamp(&["start", JOB]);
    assert!(
        start.code == 102 && start.err.contains("has succeeded, and its machine is gone"),
        "a job goes on without its log: {start:?}"
    );
    assert_eq!(sandbox.lamp(&["discard", JOB, "--yes", "--only", "checkpoints,code"]).code, 0);
    let kinds: Value =
        serde_json::from_str(&sandbox.read(&format!("{ROOT}/{JOB}/discarded.json"))).expect("JSON");
    assert_eq!(
        kinds["kinds"],
        json!(["checkpoints", "logs", "code"]),
        "what went before is still said"
    );
    assert_eq!(
        files(&sandbox, JOB),
        with(&["discarded.json", "outputs/deep/spec.json", "outputs/model.pt"])
    );
    let wrong = sandbox.lamp(&["discard", JOB, "--only", "receipts"]);
    assert!(
        wrong.code == 2
            && wrong.err.contains("it stores `checkpoints`, `outputs`, `logs` and `code`"),
        "{wrong:?}"
    );
}

#[test]
fn what_is_still_needed_stays_and_is_said() {
    let sandbox = Sandbox::new();
    let stopped = |receipt: &mut Value| receipt["outcome"] = "stopped".into();
    let first = || add(&sandbox, "first-222222", |_, receipt| stopped(receipt));
    first();
    add(&sandbox, "next-222222", |spec, receipt| {
        stopped(receipt);
        receipt["ended"] = jiff::Timestamp::now().to_string().into();
        goes_on_from(spec, "first-222222");
    });
    add(&sandbox, "open-222222", |_, receipt| *receipt = Value::Null);
    add(&sandbox, "bobs-222222", |spec, _| spec["owner"] = "bob".into());
    add(&sandbox, "kept-222222", |_, receipt| {
        let disk = json!({ "kind": "volume", "id": "v", "region": "us-east-1", "detail": "100 GiB", "usd_per_month": 8.0, "fate": "kept" });
        receipt["left"] = json!([disk]);
    });
    let count = |job: &str| files(&sandbox, job).len();
    let both = sandbox.lamp(&["discard", "--yes", "next-222222", "first-222222"]);
    assert!(
        both.code == 0 && both.err.contains("deleted 14 objects"),
        "both go together: {both:?}"
    );
    assert_eq!(
        (files(&sandbox, "first-222222"), files(&sandbox, "next-222222")),
        (with(&["discarded.json"]), with(&["discarded.json"]))
    );
    // As they were.
    for job in ["first-222222", "next-222222"] {
        std::fs::remove_file(sandbox.path().join(ROOT).join(job).join("discarded.json"))
            .expect("it was written");
    }
    first();
    for (job, why, hint) in [
        (
            "first-222222",
            "job `next-222222` began from a checkpoint of `first-222222`",
            "`lamp discard first-222222 next-222222`",
        ),
        ("open-222222", "job `open-222222` has not ended", "`lamp stop open-222222`"),
        ("bobs-222222", "is of the owner `bob`", "LAMP_OWNER"),
        ("kept-222222", "job `kept-222222` keeps a machine", "`lamp cancel kept-222222`"),
    ] {
        let refused = sandbox.lamp(&["discard", "--yes", job]);
        assert!(
            refused.code == 102 && refused.err.contains(why) && refused.err.contains(hint),
            "{refused:?}"
        );
        assert!(refused.err.contains("nothing was deleted"), "{refused:?}");
        assert!(count(job) >= STORED.len() + RECORDS.len(), "{job} has lost something");
    }
    // Whoever means all that is old hears what stays, and the rest goes.
    add(&sandbox, "free-222222", |_, _| ());
    add(&sandbox, "young-222222", |_, receipt| {
        receipt["ended"] = jiff::Timestamp::now().to_string().into()
    });
    let (code, document) = sandbox.json(&["discard", "--older", "1h", "--yes", "-o", "json"]);
    assert_eq!(code, 0, "{document:#}");
    let names = |key: &str| {
        document[key]
            .as_array()
            .expect("a list")
            .iter()
            .map(|entry| entry["job"].as_str().expect("an id").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (names("jobs"), names("left_out")),
        (vec!["free-222222".to_owned()], vec!["first-222222".to_owned(), "kept-222222".to_owned()])
    );
    assert_eq!(files(&sandbox, "free-222222"), with(&["discarded.json"]));
    assert_eq!(count("young-222222"), STORED.len() + RECORDS.len());
    assert_eq!(count("bobs-222222"), STORED.len() + RECORDS.len());
}

#[test]
fn no_job_is_guessed() {
    let sandbox = Sandbox::new();
    add(&sandbox, "toy-222222", |_, _| ());
    add(&sandbox, "toy-333333", |_, _| ());
    let several = sandbox.lamp(&["discard", "--yes", "toy"]);
    assert!(
        several.code == 101
            && several.err.contains("2 jobs have the name `toy`")
            && several.err.contains("toy-222222, toy-333333"),
        "{several:?}"
    );
    let unsaid = sandbox.lamp(&["discard", "--yes"]);
    assert!(
        unsaid.code == 2
            && unsaid.err.contains("no job is named")
            && unsaid.err.contains("--older 30d"),
        "without a word nothing is meant: {unsaid:?}"
    );
    let negative = sandbox.lamp(&["discard", "--older", "-1d"]);
    assert!(negative.code == 2 && !negative.err.contains("unexpected argument"), "{negative:?}");
    assert_eq!(sandbox.lamp(&["discard", "--yes", ""]).code, 2);
    assert_eq!(sandbox.lamp(&["discard", "--yes", "nobody"]).code, 101);
    for job in ["toy-222222", "toy-333333"] {
        assert_eq!(files(&sandbox, job).len(), STORED.len() + RECORDS.len());
    }
    // A job of words that nobody can read may be anything.
    sandbox.write(&format!("{ROOT}/odd-222222/spec.json"), "{\"format\": 99}");
    let newer = sandbox.lamp(&["discard", "--yes", "toy-222222"]);
    assert!(newer.code == 102 && newer.err.contains("update this one"), "{newer:?}");
    assert_eq!(files(&sandbox, "toy-222222").len(), STORED.len() + RECORDS.len());
}

/// A job that has saved nothing of its own goes on from the one before it: of that, too, it is
/// written down that nobody does any more.
#[test]
fn job_that_has_stored_nothing_does_not_begin_from_nothing() {
    let sandbox = Sandbox::new();
    let stopped = |receipt: &mut Value| receipt["outcome"] = "stopped".into();
    add(&sandbox, "first-222222", |_, receipt| stopped(receipt));
    add(&sandbox, "next-222222", |spec, receipt| {
        stopped(receipt);
        goes_on_from(spec, "first-222222");
    });
    for (path, _) in STORED {
        std::fs::remove_file(sandbox.path().join(ROOT).join("next-222222").join(path))
            .expect("it was written");
    }
    let gone =
        sandbox.lamp(&["discard", "--yes", "--only", "checkpoints", "first-222222", "next-222222"]);
    assert!(gone.code == 0 && gone.err.contains("deleted 2 objects, 2.9 KiB of 1 job"), "{gone:?}");
    assert_eq!(files(&sandbox, "next-222222"), with(&["discarded.json"]));
    // Cut between the two, its record would be missing: what it goes on from says it as well.
    let start = || sandbox.lamp(&["start", "next-222222"]);
    assert!(
        start().code == 102
            && start().err.contains("cannot go on: its checkpoints were discarded at "),
        "{:?}",
        start()
    );
    std::fs::remove_file(sandbox.path().join(ROOT).join("next-222222/discarded.json"))
        .expect("it was written");
    assert!(
        start().code == 102
            && start()
                .err
                .contains("it goes on from `first-222222`, and its checkpoints were discarded"),
        "{:?}",
        start()
    );
    assert!(start().err.contains("nothing was started or billed"), "{:?}", start());
}

/// Who discards by age does so each night: what is said of the others stays, and of nothing that
/// never was.
#[test]
fn what_is_written_down_is_what_was_there_and_when_it_went() {
    let sandbox = Sandbox::new();
    let said = |job: &str| {
        std::fs::read_to_string(sandbox.path().join(ROOT).join(job).join("discarded.json")).ok()
    };
    for job in ["gone-222222", "rest-222222", "bare-222222"] {
        add(&sandbox, job, |_, receipt| receipt["outcome"] = "stopped".into());
    }
    for path in STORED
        .iter()
        .map(|(path, _)| path)
        .filter(|path| path.starts_with("checkpoints") || path.starts_with("outputs"))
    {
        std::fs::remove_file(sandbox.path().join(ROOT).join("bare-222222").join(path))
            .expect("it was written");
    }
    assert_eq!(sandbox.lamp(&["discard", "--yes", "gone-222222"]).code, 0);
    let before = said("gone-222222");
    let rest =
        sandbox.lamp(&["discard", "--older", "1h", "--yes", "--only", "checkpoints,outputs"]);
    assert!(
        rest.code == 0
            && rest.err.contains("of 1 job")
            && rest.err.contains("`lamp start` goes on with 1 job of these no more"),
        "{rest:?}"
    );
    assert_eq!(
        (said("gone-222222") == before, said("bare-222222")),
        (true, None),
        "nothing was deleted of either"
    );
    let bare = sandbox.lamp(&["start", "bare-222222"]);
    assert!(
        bare.err.contains("it saved no checkpoint") && !bare.err.contains("discarded"),
        "{bare:?}"
    );
    assert!(sandbox.lamp(&["outputs", "bare-222222"]).err.contains("has kept no outputs"));
    let (_, logs) = sandbox.json(&["logs", "gone-222222", "-o", "json"]);
    let (_, outputs) = sandbox.json(&["outputs", "rest-222222", "-o", "json"]);
    let (_, bare) = sandbox.json(&["outputs", "bare-222222", "-o", "json"]);
    assert!(
        logs["discarded"]["at"].is_string()
            && outputs["discarded"]["by"].is_string()
            && bare["discarded"].is_null(),
        "{logs} {outputs} {bare}"
    );
    // All that is left of it, and no more, is what goes then.
    assert_eq!(sandbox.lamp(&["discard", "--yes", "bare-222222"]).code, 0);
    let kinds: Value =
        serde_json::from_str(&said("bare-222222").expect("it is there")).expect("JSON");
    assert_eq!(kinds["kinds"], json!(["logs", "code"]));
    assert!(sandbox.lamp(&["start", "bare-222222"]).err.contains("it saved no checkpoint"));
}

/// In a bucket, where nothing of another job root or of another job goes, and what is deleted stays
/// for its versions' time.
#[cfg(feature = "aws")]
#[test]
fn in_a_bucket_what_is_stored_goes_and_nothing_beside_it() {
    let Some(user) = crate::account::setup::User::new() else { return };
    let bucket = user.bucket();
    assert_eq!(user.lamp(&["init", "aws", "--yes", "--bucket", &bucket, "--prefix", "a"]).code, 0);
    let (mut spec, receipt) = (record("spec.json"), record("receipt.json"));
    for key in ["continues", "applied", "trial"] {
        spec[key] = Value::Null;
    }
    spec["owner"] = Value::Null;
    let put = |key: &str, body: &str| {
        assert!(user.ec2.s3("PUT", &format!("/{bucket}/{key}"), body.as_bytes()).0 == 200, "{key}")
    };
    let keys = |prefix: &str| {
        let listed = user.ec2.s3("GET", &format!("/{bucket}?list-type=2&prefix={prefix}"), b"").1;
        String::from_utf8_lossy(&listed).matches("<Key>").count()
    };
    for root in
        [format!("a/jobs/{JOB}"), format!("b/jobs/{JOB}"), "a/jobs/digits-222222".to_owned()]
    {
        put(&format!("{root}/spec.json"), &spec.to_string());
        put(&format!("{root}/receipt.json"), &receipt.to_string());
        for (path, bytes) in STORED {
            put(&format!("{root}/{path}"), &"x".repeat(bytes));
        }
    }
    let all = STORED.len() + 2;
    // Whoever has the rights of every day alone has changed nothing by trying.
    user.ec2.fault(lamp_test_support::ec2::Fault::code("DELETE /*", "AccessDenied"));
    let denied = user.lamp(&["discard", "--yes", JOB]);
    assert!(
        denied.code == 103
            && denied.err.contains("nothing was deleted")
            && denied.err.contains("`lamp iam setup`"),
        "{denied:?}"
    );
    assert_eq!(keys("a/jobs/digits-7f3k2q/"), all, "nor is anything written down");
    // And what is cut in half reads as gone, and goes on.
    user.ec2
        .fault(lamp_test_support::ec2::Fault::code("DELETE /*/outputs/model.pt", "AccessDenied"));
    let cut = user.lamp(&["discard", "--yes", "--only", "outputs", JOB]);
    assert!(
        cut.code == 103
            && cut.err.contains(" of 2 objects are gone; the same line, typed again, goes on"),
        "{cut:?}"
    );
    let rest = user.lamp(&["outputs", "--list", JOB]);
    assert!(rest.code == 0 && rest.err.contains("its outputs were discarded at "), "{rest:?}");
    assert_eq!(user.lamp(&["discard", "--yes", "--only", "outputs", JOB]).code, 0);
    for path in ["outputs/model.pt", "outputs/deep/spec.json"] {
        put(
            &format!("a/jobs/{JOB}/{path}"),
            &"x".repeat(if path.ends_with(".pt") { 2000 } else { 1 }),
        );
    }
    let gone = user.lamp(&["discard", "--yes", JOB]);
    assert!(gone.code == 0 && gone.err.contains("deleted 7 objects, 6.1 KiB of 1 job"), "{gone:?}");
    assert!(
        gone.err.contains("keeps what was deleted for 30 days more, and bills for it"),
        "{gone:?}"
    );
    assert_eq!(
        ["a/jobs/digits-7f3k2q/", "b/jobs/", "a/jobs/digits-222222/"].map(keys),
        [3, all, all]
    );
    assert!(user.lamp(&["receipt", JOB]).out.contains("discarded at "));
}

/// Saves a number, and then fails.
const SAVES: &str = r#"echo 1 > "$LAMP_CHECKPOINT_DIR/n.new"; mv "$LAMP_CHECKPOINT_DIR/n.new" "$LAMP_CHECKPOINT_DIR/n"; sleep 2; exit 3"#;

/// While the question waits for its answer, another user continues the job. The new job needs the
/// checkpoint.
#[test]
fn discard_keeps_a_checkpoint_used_by_a_start_before_the_yes() {
    if !Terminal::is_there() {
        return lamp_test_support::skipped("script", "no `script`, which makes a terminal");
    }
    let place = Place::new(SAVES);
    place.0.write("lamp.toml", "name = 'saves'\ncommand = ['sh', 'job.sh']\n[checkpoint]\npath = 'ckpt'\ninterval = '1s'\n");
    assert_eq!(end(place.start(&["run", "-q"])).0, 3);
    let receipt = place.receipt("saves");
    let job = receipt["job"].as_str().expect("an id").to_owned();
    assert!(receipt["checkpoints"].as_u64() > Some(0), "{receipt}");
    let mut terminal = Terminal::of(&place, &["discard", &job]);
    terminal.until("go on? [y/N]");
    assert_eq!(end(place.start(&["start", "-q", "--same-code", &job])).0, 3);
    terminal.types("y\n");
    assert_eq!(terminal.end(), Some(102), "{}", terminal.screen());
    assert!(
        terminal.screen().contains(&format!("began from a checkpoint of `{job}`")),
        "{}",
        terminal.screen()
    );
    let checkpoints = std::fs::read_dir(place.0.path().join(ROOT).join(&job).join("checkpoints"))
        .map(|entries| entries.count());
    assert!(checkpoints.is_ok_and(|count| count > 0), "it is there");
    place.nothing_is_left();
}
