//! `lamp start` on this workstation: on the kept disk, from the checkpoint, once, and refused in
//! words.

use serde_json::Value;

use crate::place::{Place, end};

/// Counts its begins in a file that nobody ships, and ends as the file `code` of the sandbox says.
const COUNTS: &str = "echo x >> begins; wc -l < begins | tr -d ' '; exit $(cat CODE)";

/// Saves a number, and then waits.
const SAVES: &str = r#"n=$(cat "$LAMP_CHECKPOINT_DIR/n" 2>/dev/null || echo 0); echo "from $n"
echo $((n + 1)) > "$LAMP_CHECKPOINT_DIR/n.new"; mv "$LAMP_CHECKPOINT_DIR/n.new" "$LAMP_CHECKPOINT_DIR/n"
echo "{\"checkpoint\": \"n\", \"step\": $((n + 1))}" >> "$LAMP_PROGRESS"
trap 'exit 5' TERM; while :; do sleep 0.1; done"#;

fn stops_on_failure(more: &str) -> Place {
    let place = Place::new("");
    place.0.write(
        "job.sh",
        COUNTS.replace("CODE", &place.0.path().join("code").display().to_string()),
    );
    place.0.write("code", "3");
    place.0.write(".lampignore", "code\nhome\n");
    place.0.write("lamp.toml", format!("name = 'kept'\ncommand = ['sh', 'job.sh']\n[on]\nfailure = 'stop'\n[machine]\nusd_per_hour = 36\n{more}"));
    place
}

pub(crate) fn jobs(place: &Place) -> Vec<String> {
    let (code, status) = place.0.json(&["status", "-o", "json"]);
    assert_eq!(code, 0);
    status["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["job"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn job_goes_on_on_the_disk_that_was_kept() {
    let place = stops_on_failure("[limits]\nbudget = 1\n");
    assert_eq!(end(place.start(&["run", "-q"])).0, 3);
    let first = place.receipt("kept");
    place.0.write("code", "0");
    let (code, plan) = place.0.json(&["start", "--dry-run", "-o", "json"]);
    let (machine, spent) =
        (&first["attempts"][0]["instance"], first["total_usd"].as_f64().unwrap());
    assert_eq!(
        (code, &plan["instance"], &plan["continues"]),
        (0, machine, &first["job"]),
        "{plan}"
    );
    assert!(
        (plan["limits"]["budget"].as_f64().unwrap() - (1.0 - spent)).abs() < 1e-9,
        "what is left: {plan}"
    );
    assert_eq!(jobs(&place).len(), 1, "a dry run makes nothing");
    let (code, out, err) = end(place.start(&["start"]));
    assert_eq!(
        (code, String::from_utf8_lossy(&out).lines().next()),
        (0, Some("2")),
        "its file is still there: {err}"
    );
    assert!(err.contains("costs at most $") && err.contains("on the kept disk of"), "{err}");
    let second = place.receipt(plan["job"].as_str().unwrap());
    assert_eq!(
        (&second["outcome"], &second["attempts"][0]["instance"]),
        (&Value::from("succeeded"), machine),
        "{second}"
    );
    // The second run is the second receipt's, and no word of the first has changed.
    assert!(second["attempts"][0]["started"].as_str() > first["attempts"][0]["ended"].as_str());
    let old = first["job"].as_str().unwrap();
    assert_eq!(place.receipt(old), first);
    let again = place.0.lamp(&["start", old]);
    assert_eq!((again.code, again.err.contains("went on as")), (102, true), "{}", again.err);
    // What has succeeded ended its machine: nothing is left of it.
    let next = place.0.lamp(&["start", plan["job"].as_str().unwrap()]);
    assert_eq!((next.code, next.err.contains("has succeeded")), (102, true), "{}", next.err);
    place.nothing_is_left();
}

/// As `lamp run`: nobody is left to wait for what never comes, and no job is made that does.
#[test]
fn what_a_cap_could_never_let_through_is_not_started_either() {
    let place = stops_on_failure("");
    assert_eq!(end(place.start(&["run", "-q"])).0, 3);
    place.0.write("home/.config/lamplighter/config.toml", "[caps]\nusd_per_hour = 0.01\n");
    let why = "it would wait for ever for the cap of $0.0100 an hour: no machine runs, and this one costs up to $36.00/h, more than the cap allows";
    for words in [&["start"][..], &["start", "--detach"], &["start", "--dry-run"]] {
        let refused = place.0.lamp(words);
        assert!(
            refused.code == 102
                && refused.err.contains(why)
                && refused.err.contains("hint: a higher cap in [caps]"),
            "{words:?}: {refused:?}"
        );
    }
    let (code, dry) = place.0.json(&["start", "--dry-run", "-o", "json"]);
    assert!(
        code == 102 && dry["refusal"].as_str().is_some_and(|refused| refused.contains(why)),
        "{dry}"
    );
    assert_eq!(jobs(&place).len(), 1, "none was made");
    // And what it would have started is kept for when it may.
    place.0.write("home/.config/lamplighter/config.toml", "");
    place.0.write("code", "0");
    assert_eq!(end(place.start(&["start", "-q"])).0, 0);
    place.nothing_is_left();
}

#[test]
fn two_that_start_a_job_start_it_once() {
    let place = stops_on_failure("");
    assert_eq!(end(place.start(&["run", "-q"])).0, 3);
    place.0.write("code", "0");
    // By its id: without one it is the newest job, which the first of the two has just made.
    let old = jobs(&place).remove(0);
    let both = [place.start(&["start", "-q", &old]), place.start(&["start", "-q", &old])];
    for (code, _, err) in both.map(end) {
        // Whoever came after the end of what the other had started is told so.
        assert!(code == 0 || (code == 102 && err.contains("went on as")), "{code}: {err}");
    }
    assert_eq!(jobs(&place).len(), 2);
    place.nothing_is_left();
}

#[test]
fn what_was_stopped_goes_on_from_its_checkpoint() {
    let place = Place::new(SAVES);
    place.0.write("lamp.toml", "name = 'saves'\ncommand = ['sh', 'job.sh']\n[checkpoint]\npath = 'ck'\ninterval = '1s'\n[watch]\nidle = 'off'\n");
    assert_eq!(place.0.lamp(&["run", "-d"]).code, 0);
    let saved = || place.status("saves")["checkpoints"].as_u64();
    crate::place::wait_until("it saves", || (saved() == Some(1)).then_some(()));
    let under_way = place.0.lamp(&["start", "saves"]);
    assert_eq!(
        (under_way.code, under_way.err.contains("is under way")),
        (102, true),
        "{}",
        under_way.err
    );
    let stopped = place.0.lamp(&["stop", "--wait", "saves"]);
    assert!(stopped.code == 0 && stopped.err.contains("`lamp start saves-"), "{}", stopped.err);
    let old = jobs(&place).remove(0);
    let started = place.0.lamp(&["start", "-d", &old]);
    assert_eq!(started.code, 0, "{}", started.err);
    let next = started.out.trim().to_owned();
    let again = place.0.lamp(&["start", "-d", &old]);
    assert_eq!((again.code, again.out.trim()), (0, next.as_str()), "the same job: {}", again.err);
    place.until(&next, "running");
    crate::place::wait_until("it saves again", || {
        (place.status(&next)["checkpoints"].as_u64() == Some(1)).then_some(())
    });
    assert_eq!(place.0.lamp(&["stop", "--wait", &next]).code, 0);
    let receipt = place.receipt(&next);
    assert_eq!(
        (&receipt["attempts"][0]["resumed_from"]["number"], &receipt["last_checkpoint"]["number"]),
        (&1.into(), &2.into()),
        "{receipt}"
    );
    assert!(place.0.lamp(&["logs", &next]).out.starts_with("from 1\n"));
    place.nothing_is_left();
}

#[test]
fn where_nothing_is_kept_it_is_said_what_to_type() {
    let place = Place::new("exit 3");
    assert_eq!(end(place.start(&["run", "-q", "--name", "gone", "--", "sh", "job.sh"])).0, 3);
    let refused = place.0.lamp(&["start", "gone"]);
    assert_eq!(
        (
            refused.code,
            refused.err.contains("nothing is kept of job `gone-"),
            refused.err.contains("`lamp run")
        ),
        (102, true, true),
        "{}",
        refused.err
    );
    let place = stops_on_failure("");
    let _ = end(place.start(&["run", "-q"]));
    let spent = place.0.lamp(&["start", "kept", "--budget", "0"]);
    assert_eq!((spent.code, spent.err.contains("--budget 5")), (102, true), "{}", spent.err);
    let late = place.0.lamp(&["start", "kept", "--deadline", "2020-01-01 00:00", "--budget", "5"]);
    assert_eq!((late.code, late.err.contains("--deadline")), (102, true), "{}", late.err);
    assert_eq!(jobs(&place).len(), 1);
}

/// Writes what it is, and goes on from where it was.
const TELLS: &str = r#"n=$(cat "$LAMP_CHECKPOINT_DIR/n" 2>/dev/null || echo 0)
echo "$(cat version) $* from $n, left: $(cat left 2>/dev/null || echo nothing)"
echo "$(cat version)" > left; echo $((n + 1)) > "$LAMP_CHECKPOINT_DIR/n.new"; mv "$LAMP_CHECKPOINT_DIR/n.new" "$LAMP_CHECKPOINT_DIR/n"
echo "{\"checkpoint\": \"n\", \"step\": $((n + 1))}" >> "$LAMP_PROGRESS"; sleep 1; exit 3"#;

fn tells(on: &str) -> Place {
    let place = Place::new(TELLS);
    place.0.write("version", "one");
    place.0.write(".lampignore", "home\n");
    place.0.write(
        "lamp.toml",
        format!("name = 'tells'\ncommand = ['sh', 'job.sh', 'a']\n[checkpoint]\npath = 'ck'\n{on}"),
    );
    place
}

fn printed(place: &Place, words: &[&str]) -> (i32, String, String) {
    let (code, out, err) = end(place.start(words));
    (code, String::from_utf8_lossy(&out).trim().to_owned(), err)
}

#[test]
fn start_with_changed_code_asks_which_code_is_meant() {
    let place = tells("[on]\nfailure = 'stop'\n");
    let first = printed(&place, &["run", "-q"]);
    assert_eq!((first.0, first.1.as_str()), (3, "one a from 0, left: nothing"), "{}", first.2);
    place.0.write("version", "one");
    place.0.write("empty/.gitignore", "*");
    let untouched = place.0.lamp(&["start", "--dry-run"]);
    assert!(
        untouched.code == 0 && !untouched.err.contains("has changed"),
        "a date and a folder are no change: {}",
        untouched.err
    );
    place.0.write("version", "two");
    let refused = place.0.lamp(&["start"]);
    assert_eq!(refused.code, 102, "{}", refused.err);
    assert!(
        refused.err.contains("has changed since job `tells-") && refused.err.contains("(version)"),
        "{}",
        refused.err
    );
    assert!(
        refused.err.contains("--code` goes on") && refused.err.contains("`--same-code`"),
        "{}",
        refused.err
    );
    let dry = place.0.lamp(&["start", "--dry-run"]);
    assert!(dry.code == 0 && dry.err.contains("has changed since"), "{}", dry.err);
    assert_eq!(jobs(&place).len(), 1, "none was made");
    let same = printed(&place, &["start", "-q", "--same-code"]);
    assert_eq!((same.0, same.1.as_str()), (3, "one a from 1, left: one"), "{}", same.2);
    let unchanged = place.0.lamp(&["start", "--dry-run"]);
    assert!(
        unchanged.err.contains("has changed since"),
        "it is compared with what ran: {}",
        unchanged.err
    );
    place.nothing_is_left();
}

#[test]
fn start_with_code_lays_it_over_the_kept_disk() {
    let place = tells("[on]\nfailure = 'stop'\n");
    assert_eq!(end(place.start(&["run", "-q"])).0, 3);
    let first = jobs(&place).remove(0);
    place.0.write("version", "two");
    place.0.write("lamp.toml", place.0.read("lamp.toml").replace("'a'", "'b'"));
    let new = printed(&place, &["start", "-q", "--code"]);
    assert_eq!(
        (new.0, new.1.as_str()),
        (3, "two b from 1, left: one"),
        "mended code and words, and the disk as it was left: {}",
        new.2
    );
    let late = place.0.lamp(&["start", &first, "--code"]);
    assert!(late.code == 102 && late.err.contains("which has ended"), "{}", late.err);
    let other = printed(&place, &["start", "-q", "--", "sh", "job.sh", "c"]);
    assert_eq!((other.0, other.1.as_str()), (3, "two c from 2, left: two"), "{}", other.2);
    place.nothing_is_left();
}

#[test]
fn run_from_begins_other_words_from_the_newest_checkpoint() {
    let place = tells("");
    assert_eq!(end(place.start(&["run", "-q"])).0, 3);
    place.0.write("version", "two");
    let next = printed(&place, &["run", "-q", "--from", "tells", "--", "sh", "job.sh", "b"]);
    assert_eq!(
        (next.0, next.1.as_str()),
        (3, "two b from 1, left: nothing"),
        "the job file of before, a new machine: {}",
        next.2
    );
    let dry = place.0.lamp(&["run", "--from", "tells", "--dry-run"]);
    assert!(dry.code == 0 && dry.err.contains("begins from checkpoint 2 (step 2)"), "{}", dry.err);
    let bare = place.0.lamp(&["run", "-q", "--name", "bare", "--", "true"]);
    assert_eq!(bare.code, 0, "{}", bare.err);
    let none = place.0.lamp(&["run", "--from", "bare", "lamp.toml"]);
    assert!(none.code == 102 && none.err.contains("has saved no checkpoint"), "{}", none.err);
    place.nothing_is_left();
}
