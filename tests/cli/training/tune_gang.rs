//! `lamp tune` with several machines a trial: each trial is a gang of real agents.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::place::{Place, end, wait_until};
use crate::training::tune::environment;
use lamp_test_support::skipped;

/// Only the value of rank 0 counts: the lowest is 0, at x = 4. No rank reports before both are at
/// work.
const SCRIPT: &str = "x=${1#--x=}\n\
    here=HERE/met-$LAMP_TRIAL; mkdir -p $here; touch $here/$LAMP_RANK\n\
    until test -e $here/0 && test -e $here/1; do sleep 0.05; done\n\
    echo \"rank $LAMP_RANK of $LAMP_NODES: x $x, variable $LAMP_PARAM_X, $TF_CONFIG\"\n\
    score=1000; test $LAMP_RANK = 1 || score=$(( (x - 4) * (x - 4) ))\n\
    echo \"{\\\"step\\\": 1, \\\"score\\\": $score}\" >> \"$LAMP_PROGRESS\"\n";

/// It works until the test lets it end, or the agent ends it.
const WAITS: &str = "until test -e GO; do sleep 0.05; done\n";

fn tuned(script: &str, tune: &str) -> Place {
    let place = Place::new("");
    let (here, go) = (place.0.path().display().to_string(), place.0.path().join("go"));
    let script = script.replace("HERE", &here).replace("GO", &go.display().to_string());
    place.0.write("w/job.sh", script);
    place.0.write(
        "job.toml",
        format!(
            "name = 'walks'\nworkdir = 'w'\ncommand = ['sh', 'job.sh']\nnodes = 2\n[gang]\nengine = 'env'\n\
             [limits]\nmax_runtime = '5m'\n[tune]\nmetric = 'score'\n{tune}\n\
             [tune.params.x]\ntype = 'int'\nmin = 3\nmax = 5\n"
        ),
    );
    place
}

fn status(place: &Place) -> Value {
    let (code, value) = place.0.json(&["tune", "status", "walks", "-o", "json"]);
    assert_eq!(code, 0, "{value}");
    value
}

fn trials(view: &Value) -> &[Value] {
    view["trials"].as_array().expect("a tuning has trials")
}

/// The jobs of the job root.
fn jobs(place: &Place) -> BTreeSet<String> {
    let jobs = place.0.path().join("home/.local/state/lamplighter/jobs");
    let entries = std::fs::read_dir(jobs).expect("the job root is there").flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Whether the agents of all ranks of as many trials are at work.
fn both_work(place: &Place, trials: usize) -> Option<()> {
    let met = |trial: &usize| {
        (0..2).all(|rank| place.0.path().join(format!("met-{trial}/{rank}")).exists())
    };
    (1..=trials).all(|trial| met(&trial)).then_some(())
}

#[test]
fn trial_is_a_gang_whose_first_rank_gives_the_metric() {
    let place = tuned(SCRIPT, "parallel = 2");
    let (code, out, err) = end(place.start(&["tune", "job.toml", "-o", "json"]));
    let view: Value = serde_json::from_slice(&out).unwrap_or_else(|error| panic!("{error}: {err}"));
    assert_eq!((code, &view["counts"]["complete"]), (0, &json!(3)), "{err}");
    assert_eq!((&view["best"]["value"], &view["best"]["params"]["x"]), (&json!(0.0), &json!(4)));
    let all = jobs(&place);
    assert_eq!(all.len(), 6, "each rank has a job: {all:?}");
    for job in &all {
        assert_eq!(place.receipt(job)["outcome"], "succeeded", "{job}");
    }
    for trial in trials(&view) {
        let (job, x) = (trial["job"].as_str().expect("a job"), &trial["params"]["x"]);
        assert_eq!(trial["machines"], 2, "{trial:#}");
        for rank in ["0", "1"] {
            let log = place.0.lamp(&["logs", "--rank", rank, job]).out;
            assert!(log.contains(&format!("rank {rank} of 2: x {x}, variable {x}, ")), "{log}");
            assert!(log.contains(&format!("\"trial\":\"{}\"", trial["number"])), "{log}");
        }
        let listed = place.status(job);
        assert_eq!(listed["gang"]["ranks"].as_array().map(Vec::len), Some(2), "{listed:#}");
    }
    let shown = place.0.lamp(&["tune", "status", "walks"]).out;
    let head = shown.lines().next().expect("a table");
    assert!(head.trim_end().ends_with("MACHINES"), "{shown}");
    assert_eq!(shown.lines().filter(|line| line.trim_end().ends_with(" 2")).count(), 3, "{shown}");
    // The same again has nothing to do.
    let again = place.0.lamp(&["tune", "job.toml"]);
    assert_eq!(again.code, 0, "{}", again.err);
    assert_eq!(jobs(&place), all);
    place.nothing_is_left();
}

#[test]
fn stop_of_a_tuning_ends_all_ranks_of_its_trials() {
    let place = tuned(&format!("{SCRIPT}{WAITS}"), "parallel = 2");
    let begun = place.0.lamp(&["tune", "job.toml", "--detach"]);
    assert_eq!(begun.code, 0, "{}", begun.err);
    wait_until("two trials work", || both_work(&place, 2));
    let stopped = place.0.lamp(&["tune", "stop", "walks"]);
    assert_eq!(stopped.code, 0, "{}", stopped.err);
    assert_eq!(stopped.err.matches("to stop").count(), 4, "each rank is asked: {}", stopped.err);
    let view = wait_until("all trials have ended", || {
        let view = status(&place);
        (view["counts"]["running"] == 0).then_some(view)
    });
    assert_eq!(view["counts"]["stopped"], 2, "{view:#}");
    let all = jobs(&place);
    assert_eq!(all.len(), 4, "{all:?}");
    for job in &all {
        assert_eq!(place.receipt(job)["outcome"], "stopped", "{job}");
    }
    place.nothing_is_left();
}

/// A trial has ended when its last rank has. Until then its jobs are driven.
#[test]
fn killed_driver_of_gangs_is_followed_by_another() {
    let place = tuned(&format!("{SCRIPT}{WAITS}"), "algorithm = 'random'\ntrials = 2");
    let mut first = place.start(&["tune", "job.toml"]);
    wait_until("the trial works", || both_work(&place, 1));
    // SIGKILL: nothing is handed over.
    first.kill().unwrap();
    first.wait().unwrap();
    let before = jobs(&place);
    for rank in ["walks-1-", "walks-1-r1-"] {
        assert!(before.iter().any(|job| job.starts_with(rank)), "{before:?}");
    }
    place.0.write("go", "");
    let (code, _, err) = end(place.start(&["tune", "drive", "walks"]));
    assert_eq!(code, 0, "{err}");
    let view = status(&place);
    assert_eq!(view["counts"]["complete"], 2, "{view:#}");
    let all = jobs(&place);
    assert!(all.len() == 4 && all.is_superset(&before), "{before:?} {all:?}");
    for job in &all {
        assert_eq!(place.receipt(job)["outcome"], "succeeded", "{job}");
    }
    place.nothing_is_left();
}

/// Optuna looks at the metric of rank 0. Its stop ends all ranks.
#[test]
fn early_stop_ends_all_ranks_of_a_trial() {
    let Some(environment) = environment() else {
        return skipped("optuna", "LAMP_TEST_OPTUNA names no environment with optuna");
    };
    // Six trials report at once. The seventh is worse at each step, and would never end.
    let reports = "step=1; until test $x -lt 7 && test $step = 300; do\n\
        step=$((step + 1)); test $x -lt 7 || sleep 0.2\n\
        echo \"{\\\"step\\\": $step, \\\"score\\\": $x}\" >> \"$LAMP_PROGRESS\"\n\
        done\n";
    let script = SCRIPT.replace("$(( (x - 4) * (x - 4) ))", "$x");
    let place = tuned(&format!("{script}{reports}"), "parallel = 3\nearly_stop = 'median'");
    let job = place.0.read("job.toml").replace("min = 3\nmax = 5", "min = 1\nmax = 7");
    place.0.write("job.toml", job);
    let cache = tempfile::tempdir().unwrap();
    std::fs::create_dir(cache.path().join("lamplighter")).unwrap();
    std::os::unix::fs::symlink(&environment, cache.path().join("lamplighter/tuner")).unwrap();
    let mut command = place.0.command(&["tune", "job.toml", "-o", "json"]);
    let ended = place.0.end(command.env("XDG_CACHE_HOME", cache.path()));
    assert_eq!(ended.code, 0, "{}", ended.err);
    let view: Value = serde_json::from_str(&ended.out).unwrap();
    let counts = (&view["counts"]["complete"], &view["counts"]["pruned"]);
    assert_eq!(counts, (&json!(6), &json!(1)), "{view:#}");
    let pruned = trials(&view).iter().find(|trial| trial["state"] == "pruned").expect("one");
    assert_eq!(pruned["params"]["x"], 7);
    let job = pruned["job"].as_str().expect("a job");
    assert_eq!(place.receipt(job)["outcome"], "stopped");
    place.nothing_is_left();
}

/// The program of rank 1 fails in two trials of three.
#[test]
fn failed_rank_fails_its_trial_and_not_the_others() {
    let fails = "test $LAMP_RANK = 0 || test $x = 4 || exit 3\n";
    let place = tuned(&format!("{SCRIPT}{fails}"), "failed = 3");
    let (code, out, err) = end(place.start(&["tune", "job.toml", "-o", "json"]));
    assert_eq!(code, 0, "{err}");
    let view: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(
        (&view["counts"]["complete"], &view["counts"]["failed"]),
        (&json!(1), &json!(2)),
        "{view:#}"
    );
    let failed = trials(&view).iter().find(|trial| trial["state"] == "failed");
    let receipt = place.receipt(failed.expect("one failed")["job"].as_str().expect("a job"));
    assert_eq!(receipt["exit_code"], 3, "of the rank that failed: {receipt:#}");
    place.nothing_is_left();
}

#[test]
fn pausing_trials_of_several_machines_are_refused() {
    let place = tuned(SCRIPT, "early_stop = 'pausing-asha'");
    let refused = place.0.lamp(&["tune", "job.toml"]);
    assert!(
        refused.code == 100 && refused.err.contains("a trial of several machines cannot pause"),
        "{}",
        refused.err
    );
}
