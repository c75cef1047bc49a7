//! What `lamp check` says of the market without asking it, and of a job that would buy without an
//! end.

use crate::account::check::findings;
use crate::sandbox::Sandbox;

/// Without a network, by what ships with the program: a slip of the finger costs no round trip to
/// be seen.
#[test]
fn what_the_shipped_catalogue_does_not_know_is_warned_of() {
    for (lines, expected) in [
        (
            "[limits]\nbudget = 5\n[machine]\ncloud = 'aws'\ngpus = 'A10'",
            "warning: `machine.gpus`: no machine of the shipped catalogue of 2026-10-27 has a GPU `A10`\n  hint: did you mean A100 or A10G?",
        ),
        (
            "[limits]\nbudget = 5\n[machine]\ncloud = 'aws'\nregions = ['us-eats-2']",
            "`us-eats-2` is no region that this version knows\n  hint: did you mean `us-east-2`?",
        ),
        (
            "[limits]\nbudget = 5\n[machine]\ncloud = 'aws'\ninstance_types = ['g5.xlrge']",
            "`g5.xlrge` is not in the shipped catalogue of 2026-10-27\n  hint: did you mean g5.xlarge?",
        ),
        (
            "[machine]\ncloud = 'aws'\ngpus = 'A10G:1'\n[limits]\nbudget = 0.01",
            "`limits.budget`: is $0.0100: g5.xlarge is the cheapest that fits",
        ),
        ("[machine]\ngpus = 'H1000'", "`H1000` is the name of no GPU that this version knows"),
    ] {
        let (code, out) = findings(lines);
        assert!(out.contains(expected), "{expected} in {out}");
        assert_eq!(code, 0, "regions and types are newer than this program: {out}");
    }
    let (_, out) =
        findings("[machine]\ncloud = 'aws'\ngpus = 'A10G:1'\n[limits]\nmax_runtime = '1h'");
    assert!(out.starts_with("job.toml: no findings"), "{out}");
}

/// Decision 24: every machine has a hard cap, and its user has said which.
#[test]
fn job_that_buys_machines_without_a_limit_is_refused_everywhere() {
    let (code, out) = findings("[machine]\ncloud = 'aws'");
    let said = "`limits`: has no `max_runtime`, no `budget` and no `deadline`: nothing would end a machine whose work never does, and none is bought";
    assert!(
        code == 100
            && out.contains(said)
            && out.contains(
                "hint: say how long it may run, or what it may cost: `--max-runtime 24h`"
            ),
        "{out}"
    );
    let sandbox = Sandbox::with_script();
    sandbox.write("jobs/a.toml", "command = 'true'\nmachine.cloud = 'aws'\n");
    for words in [
        &["plan", "--cloud", "aws", "--", "true"][..],
        &["run", "--cloud", "aws", "--", "true"],
        &["run", "--detach", "--unproven", "jobs/a.toml"],
        &["apply", "jobs"],
    ] {
        let ended = sandbox.lamp(words);
        assert!(
            ended.code == 100
                && ended.err.contains("no `budget` and no `deadline`")
                && ended.err.contains("nothing"),
            "{words:?}: {ended:?}"
        );
    }
    // One that was said and not understood is none that is missing, and what buys nothing asks for
    // none.
    for lines in
        ["[limits]\nbudget = '20 EUR'", "[limits]\nmax_runtime = '99999d'", "max_runtime = '3h'"]
    {
        let (code, out) = findings(&format!("{lines}\n[machine]\ncloud = 'aws'"));
        assert!(code == 100 && !out.contains("none is bought"), "{lines}: {out}");
    }
    let simulated = sandbox.lamp(&[
        "simulate",
        "--quick",
        "--work",
        "1h",
        "--spot-price",
        "0.4",
        "--on-demand-price",
        "1",
        "jobs/a.toml",
    ]);
    assert!(simulated.code == 0 && !simulated.err.contains("none is bought"), "{simulated:?}");
    // Once for all jobs.
    sandbox.write("home/.config/lamplighter/config.toml", "[limits]\nmax_runtime = '24h'\n");
    assert_eq!(sandbox.lamp(&["check", "jobs/a.toml"]).code, 0);
}
