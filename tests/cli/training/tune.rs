//! `lamp tune` from outside: trials as real jobs on this workstation.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::place::{Place, end};
use crate::sandbox::{PATIENCE, repository};
use lamp_test_support::skipped;

/// Its lowest value is 0, at x = 4. The first report is another value: the last one counts.
const SCRIPT: &str = "x=${1#--x=}\n\
    echo \"x $x, trial $LAMP_TRIAL $CLOUD_ML_TRIAL_ID, variable $LAMP_PARAM_X, $TF_CONFIG\"\n\
    echo \"{\\\"step\\\": 1, \\\"score\\\": 99}\" >> \"$LAMP_PROGRESS\"\n\
    echo \"{\\\"step\\\": 2, \\\"score\\\": $(( (x - 4) * (x - 4) ))}\" >> \"$LAMP_PROGRESS\"\n";

fn job_file(name: &str, tune: &str) -> String {
    format!(
        "name = '{name}'\ncommand = ['sh', 'job.sh']\n[limits]\nmax_runtime = '5m'\n\
         [tune]\nmetric = 'score'\n{tune}\n[tune.params.x]\ntype = 'int'\nmin = 1\nmax = 6\n"
    )
}

fn tuned(script: &str, tune: &str) -> Place {
    let place = Place::new(script);
    place.0.write("job.toml", job_file("walks", tune));
    place
}

fn status(place: &Place) -> Value {
    let (code, value) = place.0.json(&["tune", "status", "walks", "-o", "json"]);
    assert_eq!(code, 0, "{value}");
    value
}

fn values(view: &Value) -> Vec<i64> {
    let trials = view["trials"].as_array().expect("a tuning has trials");
    let mut all: Vec<i64> =
        trials.iter().filter_map(|trial| trial["params"]["x"].as_i64()).collect();
    all.sort_unstable();
    all
}

#[test]
fn grid_of_trials_at_once_finds_the_best_command() {
    let place = tuned(SCRIPT, "parallel = 3");
    let (code, out, err) = end(place.start(&["tune", "job.toml", "-o", "json"]));
    let view: Value = serde_json::from_slice(&out).unwrap_or_else(|error| panic!("{error}: {err}"));
    assert_eq!((code, &view["algorithm"], &view["wanted"]), (0, &json!("grid"), &json!(6)));
    assert_eq!(values(&view), [1, 2, 3, 4, 5, 6], "every combination once");
    assert_eq!(view["best"]["command"], "sh job.sh --x=4");
    let order: Vec<f64> = view["trials"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|trial| trial["value"].as_f64())
        .collect();
    assert_eq!(order, [0.0, 1.0, 1.0, 4.0, 4.0, 9.0], "the best first");
    // The program was told its values.
    let trial = view["best"]["number"].to_string();
    let job = view["trials"][0]["job"].as_str().expect("a trial has a job").to_owned();
    let log = place.0.lamp(&["logs", &job]).out;
    assert!(log.contains(&format!("x 4, trial {trial} {trial}, variable 4,")), "{log}");
    assert!(log.contains(&format!("\"trial\":\"{trial}\"")), "{log}");
    // For people.
    let best = place.0.lamp(&["tune", "best", "walks"]);
    assert_eq!((best.code, best.out.as_str()), (0, "sh job.sh --x=4\n"));
    let shown = place.0.lamp(&["tune", "status", "walks", "--plot"]).out;
    let titles = ["TRIAL", "the line is the best so far", "values of the complete trials"];
    assert!(titles.iter().all(|title| shown.contains(title)), "{shown}");
    let marks = shown.lines().find(|line| line.starts_with("x |")).expect("the row of x");
    assert!(marks.contains('#') && marks.contains('o') && marks.contains('.'), "{marks}");
    let listed = place.0.lamp(&["tune", "list"]).out;
    assert!(listed.contains("walks") && listed.contains("6 of 6"), "{listed}");
    // The same again has nothing to do; other files or settings are refused.
    let again = place.0.lamp(&["tune", "job.toml", "-o", "json"]);
    assert_eq!(again.code, 0, "{}", again.err);
    place.0.write("notes.txt", "");
    let other = place.0.lamp(&["tune", "job.toml"]);
    let told = other.err.contains("with other files in the workdir");
    assert!(other.code == 102 && told, "{}", other.err);
    place.0.write("job.toml", job_file("walks", "parallel = 2"));
    let other = place.0.lamp(&["tune", "job.toml"]);
    assert!(other.code == 102 && other.err.contains("with other settings"), "{}", other.err);
}

#[test]
fn killed_driver_is_followed_by_two_others_with_the_same_trials() {
    let slow = format!("until test -e GO; do sleep 0.05; done\n{SCRIPT}");
    let place = tuned(&slow, "parallel = 3\nalgorithm = 'random'\ntrials = 5");
    let mut first = place.start(&["tune", "job.toml"]);
    let until = Instant::now() + PATIENCE;
    let place_is_full = || {
        let shown = place.0.lamp(&["tune", "status", "walks", "-o", "json"]);
        serde_json::from_str::<Value>(&shown.out).is_ok_and(|view| view["counts"]["running"] == 3)
    };
    while !place_is_full() {
        assert!(Instant::now() < until, "three trials never run");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(status(&place)["driven_here"], true);
    // SIGKILL: nothing is handed over.
    first.kill().unwrap();
    first.wait().unwrap();
    let before = status(&place);
    assert_eq!((&before["driven_here"], &before["expected_end"]), (&json!(false), &json!(null)));
    let told = place.0.lamp(&["tune", "status", "walks"]).err;
    assert!(
        told.contains("no process drives it") && told.contains("`lamp tune drive walks`"),
        "{told}"
    );
    place.0.write("go", "");
    let two: Vec<Child> =
        (0..2).map(|_| place.start(&["tune", "drive", "walks", "-o", "json"])).collect();
    for driver in two {
        let (code, _, err) = end(driver);
        assert_eq!(code, 0, "{err}");
    }
    let view = status(&place);
    assert_eq!((&view["counts"]["complete"], &view["counts"]["running"]), (&json!(5), &json!(0)));
    let numbered = |view: &Value| -> BTreeSet<String> {
        let trials = view["trials"].as_array().into_iter().flatten();
        trials
            .map(|trial| json!([trial["number"], trial["job"], trial["params"]]).to_string())
            .collect()
    };
    assert!(numbered(&view).is_superset(&numbered(&before)), "{view:#}");
    let jobs = place.0.path().join("home/.local/state/lamplighter/jobs");
    let jobs = std::fs::read_dir(jobs).expect("the job root is there").count();
    assert_eq!((numbered(&view).len(), jobs), (5, 5), "each trial has one job");
}

#[test]
fn trial_without_metric_fails_and_one_with_nan_is_pruned() {
    let script = "x=${1#--x=}\n\
        test $x = 1 && exit 0\n\
        test $x = 2 && exit 3\n\
        test $x = 3 && echo '{\"score\": NaN}' >> \"$LAMP_PROGRESS\" && exit 0\n\
        echo \"{\\\"score\\\": $x}\" >> \"$LAMP_PROGRESS\"\n";
    let place = tuned(script, "parallel = 1\ngoal = 'maximize'");
    let (code, out, err) = end(place.start(&["tune", "job.toml", "-o", "json"]));
    assert_eq!(code, 0, "{err}");
    let view: Value = serde_json::from_slice(&out).unwrap();
    let trial = |x: i64| {
        let trials = view["trials"].as_array().into_iter().flatten();
        trials
            .filter(|trial| trial["params"]["x"] == x)
            .map(|trial| (trial["state"].clone(), trial["reason"].clone()))
            .next()
            .expect("it ran")
    };
    assert_eq!(trial(1), (json!("failed"), json!("it reported no `score`")));
    assert_eq!(trial(2).0, "failed");
    assert_eq!(trial(3), (json!("pruned"), json!("its last `score` is not a number")));
    assert_eq!(view["best"]["params"]["x"], 6);
    // Half of the trials fail: the program is wrong.
    place.0.write("job.sh", "exit 1\n");
    place.0.write("job.toml", job_file("falls", "parallel = 1"));
    let (code, out, _) = end(place.start(&["tune", "job.toml", "-o", "json"]));
    let view: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((code, &view["ended"]["because"], values(&view).len()), (124, &json!("failed"), 3));
}

#[test]
fn tune_reports_mistakes_and_missing_optuna_before_it_starts() {
    let place = tuned(SCRIPT, "algorithm = 'tpe'");
    place.0.write("plain.toml", "command = ['true']\n");
    let plain = place.0.lamp(&["tune", "plain.toml"]);
    assert!(plain.code == 100 && plain.err.contains("no [tune]"), "{}", plain.err);
    let gone = place.0.lamp(&["tune", "status", "nothing"]);
    assert!(gone.code == 101 && gone.err.contains("no tuning `nothing`"), "{}", gone.err);
    // An empty PATH has no Python.
    place.0.write("job.toml", job_file("walks", "algorithm = 'tpe'").replace("'sh'", "'/bin/sh'"));
    let mut command = place.0.command(&["tune", "job.toml"]);
    let ended = place.0.end(command.env("PATH", place.0.path().join("nothing")));
    assert_eq!(ended.code, 102, "{}", ended.err);
    assert!(ended.err.contains("`lamp tune setup`"), "{}", ended.err);
    assert!(!place.0.path().join("home/.local/state/lamplighter/tunings").exists());
}

/// The folder of a Python environment with Optuna and `cloudml-hypertune`, if there is one.
pub(crate) fn environment() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("LAMP_TEST_OPTUNA")?);
    let mut python = Command::new(folder.join("bin/python"));
    let has_both = python.args(["-c", "import optuna, hypertune"]).output();
    has_both.is_ok_and(|output| output.status.success()).then_some(folder)
}

/// The real Optuna chooses and stops, and the real library reports 150 times and keeps 100 lines.
#[test]
fn optuna_chooses_and_stops_trials_that_report_by_hypertune() {
    let Some(environment) = environment() else {
        return skipped(
            "optuna",
            "LAMP_TEST_OPTUNA names no environment with optuna and cloudml-hypertune",
        );
    };
    let place = Place::new("");
    place.0.write(
        "train.py",
        "import sys, time, hypertune\n\
         x = float(sys.argv[1].split('=')[1])\n\
         report = hypertune.HyperTune().report_hyperparameter_tuning_metric\n\
         for step in range(1, 151):\n    \
             report('acc', x, step)\n    \
             time.sleep(0.02)\n",
    );
    place.0.write(
        "job.toml",
        format!(
            "name = 'walks'\ncommand = ['{}', 'train.py']\n[limits]\nmax_runtime = '5m'\n\
             [tune]\nmetric = 'acc'\ngoal = 'maximize'\ntrials = 6\nparallel = 3\n\
             algorithm = 'tpe'\nearly_stop = 'median'\n[tune.params.x]\nmin = 0.0\nmax = 1.0\n",
            environment.join("bin/python").display()
        ),
    );
    let cache = tempfile::tempdir().unwrap();
    std::fs::create_dir(cache.path().join("lamplighter")).unwrap();
    std::os::unix::fs::symlink(&environment, cache.path().join("lamplighter/tuner")).unwrap();
    let lamp =
        |words: &[&str]| place.0.end(place.0.command(words).env("XDG_CACHE_HOME", cache.path()));
    let ended = lamp(&["tune", "job.toml", "-o", "json"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let view: Value = serde_json::from_str(&ended.out).unwrap();
    let complete = view["trials"].as_array().into_iter().flatten();
    for trial in complete.filter(|trial| trial["state"] == "complete") {
        let points = trial["points"].as_array().expect("it has points");
        // More than the library keeps at once; a busy workstation may miss some.
        assert!(points.len() > 100, "{trial}");
        assert_eq!(trial["step"], json!(150.0), "{trial}");
        assert_eq!(trial["value"], trial["params"]["x"]);
    }
    let seen = lamp(&["tune", "status", "walks", "--importance"]);
    assert!(seen.code == 0 && seen.out.contains("importance"), "{}", seen.err);
}

/// Asks the program that asks Optuna, as a driver does. Each line of the answer is one of its own.
fn ask_helper(environment: &Path, script: &str) -> String {
    let helper = repository().join("src/adapters/tuner/lamp_tuner.py");
    let source = std::fs::read_to_string(helper).expect("the program is in the repository");
    let whole = format!("{}\n{script}", source.replace("\nmain()\n", "\n"));
    let mut python = Command::new(environment.join("bin/python"));
    let ended = python.args(["-c", &whole]).output().expect("Python starts");
    let err = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{err}");
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

/// Nine trials have climbed. The tenth is asked about at each of its steps.
const CLIMB: &str = r#"
def trial(number, value, steps, state):
    points = [[step, value + 5.0 / step] for step in range(1, steps + 1)]
    return {"number": number, "state": state, "params": {"x": 0.5}, "points": points,
            "value": points[-1][1] if points else None}

def stops_at(early_stop, number, value, names="t"):
    others = [trial(n, n / 10.0, 81, "complete") for n in range(1, 9)]
    for steps in [1, 2, 3, 4, 9, 16, 27, 64, 81]:
        asked = {"params": {"x": {"type": "float", "min": 0.0, "max": 1.0}}, "goal": "minimize",
                 "algorithm": "random", "early_stop": early_stop, "tuning": names,
                 "number": number, "trials": others + [trial(number, value, steps, "running")]}
        # Every answer is JSON.
        if json.loads(json.dumps(prune(asked)))["prune"]:
            return steps
    return None

for early_stop in ["asha", "hyperband", "median"]:
    best = [stops_at(early_stop, 9, -1.0, name) for name in "abcdef"]
    worst = [stops_at(early_stop, 9, 9.0, name) for name in "abcdef"]
    print(early_stop, best.count(None), worst.count(None), min(step or 99 for step in worst))
"#;

#[test]
fn halving_keeps_the_best_trial_and_stops_the_worst_at_a_rung() {
    let Some(environment) = environment() else {
        return skipped("optuna", "LAMP_TEST_OPTUNA names no environment with optuna");
    };
    let told = ask_helper(&environment, CLIMB);
    let lines: Vec<&str> = told.lines().collect();
    // The best is never stopped, and the worst always, at the first rung of its bracket.
    assert_eq!(lines[0], "asha 6 0 1");
    assert!(lines[1].starts_with("hyperband 6 ") && !lines[1].ends_with(" 99"), "{told}");
    assert_eq!(lines[2], "median 6 0 1");
}

/// The function of `tune-toy`, 30 trials, 3 at a time, 20 times.
const TOY: &str = r#"
import statistics
PARAMS = {"rate": {"type": "float", "min": 1e-4, "max": 1.0, "scale": "log"},
          "shape": {"type": "categorical", "values": ["round", "flat"]},
          "x": {"type": "float", "min": -5.0, "max": 5.0}}

def loss(values):
    far = (values["x"] - 1) ** 2 + (math.log10(values["rate"]) + 2) ** 2
    return far + (1.0 if values["shape"] == "flat" else 0.0)

def by_tpe(trials, seed, name):
    return ask({"params": PARAMS, "trials": trials, "goal": "minimize", "algorithm": "tpe",
                "early_stop": "off", "seed": seed, "tuning": name})["params"]

def by_chance(trials, seed, name):
    chance = random.Random(seed)
    return {"rate": 10 ** chance.uniform(-4, 0), "x": chance.uniform(-5, 5),
            "shape": chance.choice(["round", "flat"])}

def best_of(choose, repetition):
    trials = []
    for number in range(1, 31):
        if number > 3:
            done = trials[number - 4]
            done["state"], done["value"] = "complete", loss(done["params"])
        values = choose(trials, repetition * 7919 + number, "toy-%d" % repetition)
        trials.append({"number": number, "state": "running", "params": values, "points": []})
    return min(loss(trial["params"]) for trial in trials)

tpe = [best_of(by_tpe, at) for at in range(20)]
chance = [best_of(by_chance, at) for at in range(20)]
print(json.dumps({
    "medians": [statistics.median(tpe), statistics.median(chance)],
    "means": [statistics.mean(tpe), statistics.mean(chance)],
    "near": [sum(best < 0.25 for best in tpe), sum(best < 0.25 for best in chance)],
    "nearest": [sum(best < 0.1 for best in tpe), sum(best < 0.1 for best in chance)],
    "better": sum(one < other for one, other in zip(tpe, chance)),
}))
"#;

#[test]
fn tpe_gets_near_the_lowest_point_and_beats_random_search() {
    let Some(environment) = environment() else {
        return skipped("optuna", "LAMP_TEST_OPTUNA names no environment with optuna");
    };
    let found: Value = serde_json::from_str(&ask_helper(&environment, TOY)).unwrap();
    let number = |key: &str, at: usize| found[key][at].as_f64().expect("a number");
    assert!(number("medians", 0) < 0.12 && number("medians", 1) > 0.3, "{found}");
    assert!(number("near", 0) >= 15.0 && number("near", 1) <= 6.0, "{found}");
    assert!(found["better"].as_u64() >= Some(16), "{found}");
}

#[test]
fn daemon_drives_a_tuning_beside_unreadable_and_newer_ones() {
    let place = tuned(SCRIPT, "parallel = 3");
    let root = "home/.local/state/lamplighter/tunings";
    place.0.write(&format!("{root}/damaged/tuning.json"), "{");
    place.0.write(&format!("{root}/zz-newer/tuning.json"), "{\"format\": 999}");
    let (mut daemon, _words) = place.driving(&["daemon"]);
    let (code, _, err) = end(place.start(&["tune", "job.toml", "--detach"]));
    assert!(code == 0 && err.contains("`lamp daemon` drives"), "{err}");
    let until = Instant::now() + PATIENCE;
    while status(&place)["ended"].is_null() {
        assert!(Instant::now() < until, "the daemon does not drive it");
        std::thread::sleep(Duration::from_millis(100));
    }
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert_eq!(status(&place)["counts"]["complete"], 6);
}
