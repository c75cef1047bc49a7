//! What a daemon that stays in a terminal holds and says.

use crate::place::{Place, end, signal, wait_until};

/// Waits for a file.
const WAITS: &str = "while [ ! -e GO ]; do sleep 0.1; done";

/// A job of a machine that costs something.
const PAID: &str =
    "workdir = '.'\ncommand = ['sh', 'job.sh']\nwatch.idle = 'off'\n[machine]\nusd_per_hour = 1\n";

#[test]
fn daemon_that_runs_holds_a_cap_that_is_written_later() {
    let place = Place::new(WAITS);
    place.0.write("paid.toml", PAID);
    let (daemon, words) = place.driving(&["-v", "daemon"]);
    let run = |name: &str| place.0.lamp(&["run", "-d", "--name", name, "paid.toml"]);
    assert_eq!(run("first").code, 0);
    place.until("first", "running");
    place.0.write("home/.config/lamplighter/config.toml", "[caps]\nusd_per_hour = 1.5\n");
    let held = run("second");
    assert!(
        held.code == 0 && held.err.contains("it waits for the cap of $1.50 an hour"),
        "{held:?}"
    );
    words.until("not launched: the cap of $1.50 an hour");
    place.0.write("home/.config/lamplighter/config.toml", "[caps]\nusd_per_hour = 5\n");
    place.until("second", "running");
    for name in ["first", "second"] {
        assert_eq!(place.0.lamp(&["cancel", name, "--yes"]).code, 0);
        place.until(name, "cancelled");
    }
    signal(daemon.id(), "TERM");
    drop(words);
    assert_eq!(end(daemon).0, 0, "a daemon that is ended ends well");
    place.nothing_is_left();
}

/// Jobs that were handed over to it are not left in silence.
#[test]
fn daemon_that_is_ended_names_what_nobody_drives_any_more() {
    let place = Place::new(WAITS);
    let (mut idle, words) = place.driving(&["daemon"]);
    signal(idle.id(), "TERM");
    let rest = words.rest();
    assert!(wait_until("it ends", || idle.try_wait().expect("it was started here")).success());
    assert!(
        !rest.iter().any(|line| line.contains("no process on this workstation")),
        "there is no job: {rest:?}"
    );
    let (mut daemon, words) = place.driving(&["daemon"]);
    let run =
        place.0.lamp(&["run", "-d", "-q", "--name", "left", "--idle", "off", "--", "sh", "job.sh"]);
    assert_eq!(run.code, 0, "{run:?}");
    let job = run.out.trim().to_owned();
    place.until(&job, "running");
    signal(daemon.id(), "INT");
    let said = format!(
        "1 job is under way that no process on this workstation drives now: {job}; `lamp daemon --job {job} --until-done` drives that one"
    );
    assert!(wait_until("it ends", || daemon.try_wait().expect("it was started here")).success());
    // Its machine has inherited where the daemon speaks to: that is heard to its end once the
    // machine is gone.
    place.0.write("go", "");
    let rest = words.rest();
    assert!(rest.iter().any(|line| line.starts_with(&said)), "{rest:?}");
    let (code, _, err) = end(place.start(&["daemon", "--job", &job, "--until-done"]));
    assert!(code == 0 && !err.contains("no process on this workstation"), "{err}");
    place.nothing_is_left();
}

/// Of one job root it is plain which is meant.
#[test]
fn daemon_of_several_job_roots_says_which_one_a_warning_is_of() {
    let place = Place::new("true");
    let roots = ["one", "other"].map(|name| place.0.path().join(name).display().to_string());
    let (daemon, words) =
        place.driving(&["--job-root", &roots[0], "--job-root", &roots[1], "daemon"]);
    // A job that no version of this program has written.
    place.0.write("other/jobs/odd-222222/spec.json", "{ \"format\": 99 }");
    let warned = words.until("WARN");
    assert!(
        warned.contains("odd-222222") && warned.contains(&format!("job_root=file://{}", roots[1])),
        "{warned}"
    );
    signal(daemon.id(), "TERM");
    drop(words);
    assert_eq!(end(daemon).0, 0, "a daemon that is ended ends well");
}
