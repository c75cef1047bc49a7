//! The keys of the job directory, relative to the job root. Nothing else spells a key.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::job::{AttemptNo, CheckpointNo, JobId};

pub const JOBS: &str = "jobs/";

/// What stands at the top of a job root and holds what was shipped.
pub const SHIPPED: [&str; 2] = ["jobs", "schedules"];

/// The program that machines run, one copy for all jobs of the root; named by what it is.
pub fn agent(sha256: &str) -> String {
    format!("agents/{sha256}/lamp-agent")
}

/// Written after it, by who has compared the sum of what was sent; empty. An agent that is newer than this is not known to be
/// right.
pub fn agent_checked(sha256: &str) -> String {
    format!("agents/{sha256}/checked")
}

/// Below the workdir and the outputs: what `$LAMP_OUTPUT_DIR` names.
pub const OUTPUT_DIR: &str = "lamp-output";

/// Written and looked at to learn the time by the store's clock; empty.
pub const CLOCK: &str = "clock";

/// Jobs of which nothing counts any more (`jobdir::finished_jobs`).
pub const JOBS_OVER: &str = "jobs-over.json";

/// What is new of jobs that are not over (`jobdir::change_markers`).
pub const NEWS: &str = "news/";

pub fn news(job: &JobId) -> String {
    format!("{NEWS}{job}/")
}

/// What the sweeper in the cloud leaves; each sweeper has its own name below it.
pub const SWEEPER: &str = "sweeper/";

/// Orphans by one look.
pub fn suspects(sweeper: &str) -> String {
    format!("{SWEEPER}{sweeper}/suspects.json")
}

/// What its newest visit came to.
pub fn visit(sweeper: &str) -> String {
    format!("{SWEEPER}{sweeper}/visit.json")
}

/// What `lamp apply` hands to a daemon.
pub const SCHEDULES: &str = "schedules/";

pub fn schedule_set(set: &str) -> String {
    format!("{SCHEDULES}{set}/")
}

pub fn schedule(set: &str, name: &str) -> String {
    format!("{}{name}.json", schedule_set(set))
}

/// The packed workdir, named by what it is.
pub fn schedule_code(set: &str, name: &str, sha256: &str) -> String {
    format!("{}{name}/code/{sha256}.tar.zst", schedule_set(set))
}

pub fn schedule_runs(set: &str, name: &str) -> String {
    format!("{}{name}/runs/", schedule_set(set))
}

/// How a due time stands in a key, in UTC, so that a listing is in order.
const DUE: &str = "%Y%m%dT%H%M%SZ";

/// The decision on one due time.
pub fn schedule_run(set: &str, name: &str, due: Timestamp) -> String {
    format!("{}{}.json", schedule_runs(set, name), due.strftime(DUE))
}

/// The due time that the name of a decision says.
pub fn due_of(file: &str) -> Option<Timestamp> {
    let local = jiff::civil::DateTime::strptime(DUE, file.strip_suffix(".json")?).ok()?;
    Some(local.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// Why a schedule that is due does not run yet.
pub fn schedule_waiting(set: &str, name: &str) -> String {
    format!("{}{name}/waiting.json", schedule_set(set))
}

/// Room for a whole key: they are made at every look, and grow by what is pushed.
const KEY_ROOM: usize = 96;

pub fn job(job: &JobId) -> String {
    let mut key = String::with_capacity(KEY_ROOM);
    key.extend([JOBS, job.as_str(), "/"]);
    key
}

fn in_folder(mut folder: String, name: &str) -> String {
    folder.push_str(name);
    folder
}

pub fn spec(id: &JobId) -> String {
    in_folder(job(id), "spec.json")
}

pub fn receipt(id: &JobId) -> String {
    in_folder(job(id), "receipt.json")
}

/// That what an ended job kept was given up.
pub fn given_up(id: &JobId) -> String {
    in_folder(job(id), "given-up.json")
}

/// Which kinds of what an ended job had stored were deleted.
pub fn discarded(id: &JobId) -> String {
    in_folder(job(id), "discarded.json")
}

/// The packed workdir, named by what it is: two that submit one job at once, each with its own, do not overwrite each other's.
pub fn code(id: &JobId, sha256: &str) -> String {
    in_folder(job(id), &format!("code/{sha256}.tar.zst"))
}

pub fn requests(id: &JobId) -> String {
    in_folder(job(id), "requests/")
}

pub fn request(id: &JobId, number: u32) -> String {
    in_folder(requests(id), &format!("{number:04}.json"))
}

pub fn attempts(id: &JobId) -> String {
    in_folder(job(id), "attempts/")
}

pub fn attempt(id: &JobId, no: AttemptNo) -> String {
    in_folder(in_folder(attempts(id), &no.to_string()), "/")
}

pub fn plan(id: &JobId, no: AttemptNo) -> String {
    in_folder(attempt(id, no), "plan.json")
}

pub fn settled(id: &JobId, no: AttemptNo) -> String {
    in_folder(attempt(id, no), "settled.json")
}

/// Why a controller or a sweep ends the machine, written before it does.
pub fn ending(id: &JobId, no: AttemptNo) -> String {
    in_folder(attempt(id, no), "ending.json")
}

pub fn lease(id: &JobId, no: AttemptNo) -> String {
    in_folder(attempt(id, no), "lease.json")
}

pub fn status(id: &JobId, no: AttemptNo) -> String {
    in_folder(attempt(id, no), "status.json")
}

pub fn outcome(id: &JobId, no: AttemptNo) -> String {
    in_folder(attempt(id, no), "outcome.json")
}

pub fn events(id: &JobId, no: AttemptNo) -> String {
    in_folder(attempt(id, no), "events/")
}

/// A batch of events, named by the sequence number of its first.
pub fn event_batch(id: &JobId, no: AttemptNo, first: u64) -> String {
    format!("{}{first:08}.jsonl", events(id, no))
}

pub fn samples(id: &JobId, no: AttemptNo) -> String {
    in_folder(attempt(id, no), "samples/")
}

/// A batch of samples: JSON lines of `instance::Rates`, compressed; named by a number that grows.
pub fn sample_batch(id: &JobId, no: AttemptNo, number: u64) -> String {
    format!("{}{number:08}.jsonl.zst", samples(id, no))
}

pub fn log(id: &JobId, no: AttemptNo) -> String {
    in_folder(attempt(id, no), "log/")
}

/// A piece of the workload's output, one zstd frame; named by a number that grows. The frames in order are the log.
pub fn log_piece(id: &JobId, no: AttemptNo, number: u64) -> String {
    format!("{}{number:08}.zst", log(id, no))
}

pub fn stacks(id: &JobId, no: AttemptNo, number: u64) -> String {
    format!("{}stacks/{number:04}.txt", attempt(id, no))
}

pub fn checkpoints(id: &JobId) -> String {
    in_folder(job(id), "checkpoints/")
}

pub fn checkpoint(id: &JobId, no: CheckpointNo) -> String {
    format!("{}{no}/", checkpoints(id))
}

/// Written last: only a checkpoint with a manifest exists.
pub fn manifest(id: &JobId, no: CheckpointNo) -> String {
    format!("{}manifest.json", checkpoint(id, no))
}

/// A file of a checkpoint, `path` relative to the checkpoint folder.
pub fn checkpoint_file(id: &JobId, no: CheckpointNo, path: &str) -> String {
    format!("{}files/{path}", checkpoint(id, no))
}

/// What somebody was told, once: `attention-<hash>` or `ended-<hash>`.
pub fn told(id: &JobId, name: &str) -> String {
    format!("{}told/{name}.json", job(id))
}

/// What stands in the way of a job and a person must know.
pub fn attention(id: &JobId) -> String {
    in_folder(job(id), "attention.json")
}

/// Why nothing is launched for a job just now.
pub fn waiting(id: &JobId) -> String {
    in_folder(job(id), "waiting.json")
}

/// Which market was decided on, `market = "auto"`.
pub fn market(id: &JobId) -> String {
    in_folder(job(id), "market.json")
}

/// What is known of the spot pools, for all jobs of the root.
pub const POOLS: &str = "market/";

pub fn pool(zone: &str, instance_type: &str) -> String {
    format!("{POOLS}{zone}/{instance_type}.json")
}

/// The zone and the type that the key of a pool says.
pub fn pool_of(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix(POOLS)?.strip_suffix(".json")?.split_once('/')
}

/// What was proven of an account: that machines end there when nobody watches them.
pub const PROOFS: &str = "proofs/";

pub fn proofs(account: &str) -> String {
    format!("{PROOFS}{account}/")
}

/// The newest of a region.
pub fn proof(account: &str, region: &str) -> String {
    format!("{}{region}.json", proofs(account))
}

pub fn outputs(id: &JobId) -> String {
    in_folder(job(id), "outputs/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_no_job_and_no_schedule_is_known_to_the_set_up() {
        use crate::account::setup::{is_of_the_house, is_of_the_root, job_of};
        let job: JobId = "toy-222222".parse().expect("an id");
        let (made, program, checked) = (format!("{}made", news(&job)), agent(&"0a".repeat(32)), agent_checked(&"0a".repeat(32)));
        for key in [CLOCK, JOBS_OVER, &made, &pool("us-east-1a", "g5.xlarge"), &proof("123456789012", "us-east-1"), &program, &checked] {
            assert!(is_of_the_house(key) && is_of_the_root(key), "{key}");
        }
        for key in [
            &spec(&job),
            &schedule("set", "name"),
            "notes.txt",
            "clocks",
            "market/prices.parquet",
            "news/today/paper.pdf",
            "agents/smith.json",
            "proofs/lemma.tex",
            &visit("sweeper"),
        ] {
            assert!(!is_of_the_house(key), "{key}");
        }
        let (no, saved): (AttemptNo, CheckpointNo) = (AttemptNo::FIRST, CheckpointNo::FIRST);
        for key in [
            &spec(&job),
            &receipt(&job),
            &given_up(&job),
            &discarded(&job),
            &code(&job, "0a"),
            &format!("jobs/{job}/code.tar.zst"),
            &request(&job, 1),
            &plan(&job, no),
            &log_piece(&job, no, 1),
            &manifest(&job, saved),
            &told(&job, "ended-0a"),
            &attention(&job),
            &waiting(&job),
            &market(&job),
            &format!("{}model.pt", outputs(&job)),
        ] {
            assert!(is_of_the_root(key) && job_of(key) == Some(job.as_str()), "{key}");
        }
        let due: Timestamp = "2026-11-20T21:00:00Z".parse().expect("a time");
        let (own, set_code) = (schedule("set", "name"), schedule_code("set", "name", "0a"));
        for key in [&own, &set_code, &schedule_run("set", "name", due), &schedule_waiting("set", "name"), &visit("sweeper"), &suspects("sweeper")] {
            assert!(is_of_the_root(key) && job_of(key).is_none(), "{key}");
            // Those of another job root, whatever its prefix is called.
            for prefix in ["a/", "jobs/", "jobs/team-a/", "schedules/", "sweeper/", "news/", "market/", "proofs/", "agents/"] {
                for inner in
                    [key, &spec(&job), &plan(&job, no), CLOCK, JOBS_OVER, &pool("us-east-1a", "g5.xlarge"), &proof("123456789012", "us-east-1")]
                {
                    assert!(!is_of_the_root(&format!("{prefix}{inner}")), "{prefix}{inner}");
                }
            }
        }
        for key in ["notes.txt", "clocks", "market/prices.parquet", "news/today/paper.pdf", "jobs/list.txt", "jobs/toy-222222/mine.txt"] {
            assert!(!is_of_the_root(key), "{key}");
        }
    }

    #[test]
    fn a_due_time_is_read_as_it_was_written() {
        let due: Timestamp = "2026-11-20T21:00:00Z".parse().unwrap();
        let key = schedule_run("jobs", "nightly", due);
        assert_eq!(key, "schedules/jobs/nightly/runs/20261120T210000Z.json");
        assert_eq!(due_of(key.rsplit('/').next().unwrap()), Some(due));
        assert_eq!(due_of("x.json"), None);
    }
}
