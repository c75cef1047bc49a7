//! `lamp check` of `watch.alarm`: what ends a machine from outside, beside what the rest of the job
//! file asks for.

use crate::account::check::findings;

/// The alarm of the job file knows nothing of a machine that is held for a look, and nobody works
/// on it.
#[test]
fn cpu_alarm_that_may_end_a_held_machine_is_a_warning() {
    let cpu = "[machine]\ncloud = 'aws'\n[limits]\nmax_runtime = '1h'\n[watch]\nalarm = 'cpu<=0.3 for 5m'";
    for (lines, warns) in [
        (format!("{cpu}\n[on]\nfailure = 'keep 2h'"), true),
        (format!("{cpu}\n[on]\nfailure = 'stop'"), false),
    ] {
        let (code, out) = findings(&lines);
        assert_eq!(
            (code, out.contains("`watch.alarm`: may end the machine that `on.failure = \"keep 2h\"` holds for a look")),
            (0, warns),
            "{lines}\n{out}"
        );
    }
    let (_, out) = findings(
        "[machine]\ncloud = 'aws'\n[limits]\nmax_runtime = '1h'\n[watch]\nalarm = 'heartbeat'\n[on]\nfailure = 'keep 2h'",
    );
    assert!(!out.contains("holds for a look"), "{out}");
}

/// Somebody raises the lease for a site with a bad line, and the alarm beside it would end the
/// machine before.
#[test]
fn alarm_that_is_shorter_than_the_lease_is_a_warning() {
    let warning = "`watch.alarm`: ends a machine that is silent for 15m, and its lease of";
    for (lines, warns) in [
        ("lease = '3h'\n[watch]\nalarm = 'heartbeat for 15m'", true),
        ("[watch]\nalarm = 'heartbeat for 15m'", true),
        ("lease = '15m'\n[watch]\nalarm = 'heartbeat for 15m'", false),
        ("lease = '3h'\n[watch]\nalarm = 'heartbeat'", false),
        ("lease = '3h'", false),
        // Nothing is published, which has a warning of its own.
        ("lease = '3h'\n[watch]\nmetrics = false\nalarm = 'heartbeat for 15m'", false),
    ] {
        let (code, out) =
            findings(&format!("[machine]\ncloud = 'aws'\n[limits]\nmax_runtime = '12h'\n{lines}"));
        assert_eq!((code, out.contains(warning)), (0, warns), "{lines}\n{out}");
    }
}
