//! What never becomes a job: `lamp run` and `lamp plan` refuse before anything is written or
//! started.

use crate::account::setup::User;
use crate::sandbox::Sandbox;

fn with_job(text: &str) -> Sandbox {
    let sandbox = Sandbox::with_script();
    sandbox.write("job.toml", text);
    sandbox
}

/// Whether anything was written to the job root.
fn is_untouched(sandbox: &Sandbox) -> bool {
    !sandbox.path().join("root/jobs").exists()
}

const RUN: [&str; 4] = ["run", "job.toml", "--job-root", "root"];

#[test]
fn job_with_errors_is_not_started() {
    let sandbox = with_job("command = ['sh', 'train.py']\nidle = 15\n[watch]\nidle = 15\n");
    let ended = sandbox.lamp(&RUN);
    assert_eq!((ended.code, ended.out.as_str()), (100, ""), "{ended:?}");
    assert!(
        ended.err.contains("job.toml:2: error: `idle`: is not a key of this file\n  hint: did you mean `idle` in `[on]` or `[watch]`?"),
        "{ended:?}"
    );
    assert!(ended.err.contains("job.toml:4: error: `watch.idle`: `15` has no unit"), "{ended:?}");
    assert!(is_untouched(&sandbox));
}

#[test]
fn secret_in_the_workdir_is_refused_with_its_own_code() {
    let sandbox = with_job("command = ['sh', 'train.py']\n");
    sandbox.write("hub.py", ["TOKEN = 'h", "f_", "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8bC3dF5'\n"].concat());
    let ended = sandbox.lamp(&RUN);
    assert_eq!((ended.code, ended.out.as_str()), (102, ""), "{ended:?}");
    assert_eq!(
        ended.err,
        "hub.py:1: error: looks like a Hugging Face token (rule huggingface-token)\n\
         \x20 hint: remove it, ignore the file in .lampignore, or allow it with `--allow-secret hub.py:huggingface-token`\n\
         error: the workdir of `job.toml` holds what looks like secrets\n\
         nothing was started or billed\n\
         hint: if they are meant to ship, acknowledge each with `--allow-secret PATH:RULE`\n"
    );
    assert!(is_untouched(&sandbox));
}

#[test]
fn with_json_the_refusal_carries_its_findings() {
    let sandbox = with_job("comand = 'x'\n");
    let ended = sandbox.lamp(&["run", "job.toml", "--job-root", "root", "-o", "json"]);
    assert_eq!((ended.code, ended.out.as_str()), (100, ""), "{ended:?}");
    let document: serde_json::Value =
        serde_json::from_str(&ended.err).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    assert_eq!(document["error"]["code"], 100);
    assert_eq!(document["error"]["file"], "job.toml");
    assert_eq!(document["error"]["findings"][0]["path"], "comand");
    assert_eq!(document["error"]["findings"][0]["hint"], "did you mean `command`?");
    assert!(is_untouched(&sandbox));
}

#[test]
fn missing_command_is_refused_before_it_costs_anything() {
    let sandbox = with_job("command = ['pyhton3', 'train.py']\n");
    let ended = sandbox.lamp(&RUN);
    assert_eq!(ended.code, 100, "{ended:?}");
    assert!(ended.err.contains("`pyhton3` is not on this machine"), "{ended:?}");
    assert!(is_untouched(&sandbox));
}

#[test]
fn job_root_that_cannot_be_written_says_so() {
    let sandbox = with_job("command = ['sh', 'train.py']\n");
    sandbox.write("root", "this is a file");
    let ended = sandbox.lamp(&RUN);
    assert_eq!((ended.code, ended.out.as_str()), (103, ""), "{ended:?}");
    assert!(ended.err.contains("error: ") && ended.err.contains("hint: "), "{ended:?}");
    assert_eq!(sandbox.read("root"), "this is a file");
    // A file is not a place without jobs, and neither is what would be below it.
    for (words, root) in
        [(["status"].as_slice(), "root"), (&["logs"], "root"), (&["status"], "root/below")]
    {
        let ended = sandbox.lamp(&[words, &["--job-root", root]].concat());
        assert_eq!((ended.code, ended.out.as_str()), (103, ""), "{ended:?}");
        assert!(ended.err.contains("cannot be the job root"), "{ended:?}");
    }
    let nowhere = sandbox.lamp(&["status", "--job-root", "nowhere"]);
    assert_eq!(nowhere.code, 0, "{nowhere:?}");
}

#[test]
fn without_a_home_folder_the_sentence_says_what_is_missing() {
    let sandbox = Sandbox::new();
    let ended = sandbox.end(sandbox.command(&["status"]).env_remove("HOME"));
    assert_eq!(ended.code, 100, "{ended:?}");
    assert!(
        ended.err.starts_with(
            "error: nothing says where the home folder is, and so where jobs are kept\n"
        ),
        "{ended:?}"
    );
    assert!(ended.err.contains("hint: set HOME"), "{ended:?}");
}

#[test]
fn plan_starts_nothing() {
    let sandbox = with_job(
        "command = ['sh', 'train.py']\nmachine.usd_per_hour = 0.5\nlimits.max_runtime = '2h'\n",
    );
    let (code, document) = sandbox.json(&["plan", "job.toml", "--job-root", "root", "-o", "json"]);
    assert_eq!(code, 0, "{document}");
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert_eq!(document["offer"]["vcpus"], cpus, "{document}");
    assert!(is_untouched(&sandbox));
}

/// It would be launched as soon as somebody made the account ready, unasked.
#[test]
fn no_job_is_applied_that_the_account_is_not_ready_for() {
    let Some(user) = User::new() else { return };
    user.sandbox.write("jobs/a.toml", "command = 'true'\nmachine = { cloud = 'aws', instance_types = ['t3.micro'] }\nlimits.budget = '$2'\n");
    let applied = user.lamp(&["apply", "jobs", "--unproven"]);
    let lacks = "the account is not ready for machines";
    assert!(
        applied.code == 102
            && applied.err.contains(lacks)
            && applied.err.contains("`a.toml` asks for one"),
        "{applied:?}"
    );
    assert!(
        applied.out.contains("$2.00") && applied.err.contains("nothing was changed"),
        "{applied:?}"
    );
    let dry = user.lamp(&["apply", "jobs", "--unproven", "--dry-run"]);
    assert!(
        dry.code == 102 && dry.err.contains(&format!("it would be refused: {lacks}")),
        "{dry:?}"
    );
    assert!(
        user.lamp(&["status"]).out.is_empty() && user.ec2.instances().is_empty(),
        "nothing is bought"
    );
}
