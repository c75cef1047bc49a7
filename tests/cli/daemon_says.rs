//! What a daemon that stays in a terminal holds and says.

use std::io::{BufRead as _, BufReader};

use super::place::{Place, end, signal};

/// Waits for a file.
const WAITS: &str = "while [ ! -e GO ]; do sleep 0.1; done";

/// A job of a machine that costs something.
const PAID: &str = "workdir = '.'\ncommand = ['sh', 'job.sh']\nwatch.idle = 'off'\n[machine]\nusd_per_hour = 1\n";

#[test]
fn a_daemon_that_runs_holds_a_cap_that_is_written_later() {
    let place = Place::new(WAITS);
    place.0.write("paid.toml", PAID);
    let mut daemon = place.start(&["-v", "daemon"]);
    let mut words = BufReader::new(daemon.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
    assert!(words.any(|line| line.contains("driving the jobs of")), "it ended without that word");
    let run = |name: &str| place.0.lamp(&["run", "-d", "--name", name, "paid.toml"]);
    assert_eq!(run("first").code, 0);
    place.until("first", "running");
    place.0.write("home/.config/lamplighter/config.toml", "[caps]\nusd_per_hour = 1.5\n");
    let held = run("second");
    assert!(held.code == 0 && held.err.contains("it waits for the cap of $1.50 an hour"), "{held:?}");
    assert!(words.any(|line| line.contains("not launched: the cap of $1.50 an hour")), "the daemon launches it all the same");
    place.0.write("home/.config/lamplighter/config.toml", "[caps]\nusd_per_hour = 5\n");
    place.until("second", "running");
    for name in ["first", "second"] {
        assert_eq!(place.0.lamp(&["cancel", name, "--yes"]).code, 0);
        place.until(name, "cancelled");
    }
    signal(daemon.id(), "TERM");
    drop(words);
    let _ = end(daemon);
    place.nothing_is_left();
}
