//! The keys of the job directory, relative to the job root. Only this file builds keys.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::job::{AttemptNo, CheckpointNo, JobId, ModelName};

pub const JOBS: &str = "jobs/";

/// The top folders of a job root that contain submitted code.
pub const SHIPPED: [&str; 3] = ["jobs", "schedules", "tunings"];

/// The agent program that machines run, one copy for all jobs of the root, named by its hash.
pub fn agent(sha256: &str) -> String {
    format!("agents/{sha256}/lamp-agent")
}

/// An empty object, written by the writer that checked the hash. A newer agent object is not
/// checked.
pub fn agent_checked(sha256: &str) -> String {
    format!("agents/{sha256}/checked")
}

/// The folder that `$LAMP_OUTPUT_DIR` names, below the workdir and the outputs.
pub const OUTPUT_DIR: &str = "lamp-output";

/// An empty object, written and read back to learn the store's time.
pub const CLOCK: &str = "clock";

/// Jobs that are over and cost nothing more (`jobdir::finished_jobs`).
pub const JOBS_OVER: &str = "jobs-over.json";

/// Markers for jobs that are not over (`jobdir::change_markers`).
pub const NEWS: &str = "news/";

pub fn news(job: &JobId) -> String {
    format!("{NEWS}{job}/")
}

/// Written by the sweepers in the cloud; each has its own name below it.
pub const SWEEPER: &str = "sweeper/";

/// The machines that one visit suspects.
pub fn suspects(sweeper: &str) -> String {
    format!("{SWEEPER}{sweeper}/suspects.json")
}

/// The result of its newest visit.
pub fn visit(sweeper: &str) -> String {
    format!("{SWEEPER}{sweeper}/visit.json")
}

/// The schedules that `lamp apply` hands to a daemon.
pub const SCHEDULES: &str = "schedules/";

pub fn schedule_set(set: &str) -> String {
    format!("{SCHEDULES}{set}/")
}

pub fn schedule(set: &str, name: &str) -> String {
    format!("{}{name}.json", schedule_set(set))
}

/// The packed workdir, named by its hash.
pub fn schedule_code(set: &str, name: &str, sha256: &str) -> String {
    format!("{}{name}/code/{sha256}.tar.zst", schedule_set(set))
}

pub fn schedule_runs(set: &str, name: &str) -> String {
    format!("{}{name}/runs/", schedule_set(set))
}

/// The format of a due time in a key, in UTC, so that listings are in order.
const DUE: &str = "%Y%m%dT%H%M%SZ";

/// The decision about one due time.
pub fn schedule_run(set: &str, name: &str, due: Timestamp) -> String {
    format!("{}{}.json", schedule_runs(set, name), due.strftime(DUE))
}

/// The due time in the file name of a decision.
pub fn due_of(file: &str) -> Option<Timestamp> {
    let local = jiff::civil::DateTime::strptime(DUE, file.strip_suffix(".json")?).ok()?;
    Some(local.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// Why a due schedule does not run yet.
pub fn schedule_waiting(set: &str, name: &str) -> String {
    format!("{}{name}/waiting.json", schedule_set(set))
}

/// The tunings that `lamp tune` makes.
pub const TUNINGS: &str = "tunings/";

pub fn tuning(name: &str) -> String {
    format!("{TUNINGS}{name}/tuning.json")
}

pub fn tuning_end(name: &str) -> String {
    format!("{TUNINGS}{name}/ended.json")
}

/// The packed workdir of its trials, named by its hash.
pub fn tuning_code(name: &str, sha256: &str) -> String {
    format!("{TUNINGS}{name}/code/{sha256}.tar.zst")
}

pub fn tuning_trials(name: &str) -> String {
    format!("{TUNINGS}{name}/trials/")
}

pub fn tuning_trial(name: &str, number: u32) -> String {
    format!("{}{number:05}.json", tuning_trials(name))
}

/// A further record of a trial: `ended` or `pruned`.
pub fn tuning_trial_part(name: &str, number: u32, part: &str) -> String {
    format!("{}{number:05}/{part}.json", tuning_trials(name))
}

/// Initial capacity of a key, to avoid reallocation: keys are built often, piece by piece.
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

/// The record that an ended job's resources were given up.
pub fn given_up(id: &JobId) -> String {
    in_folder(job(id), "given-up.json")
}

/// Which kinds of an ended job's stored data were deleted.
pub fn discarded(id: &JobId) -> String {
    in_folder(job(id), "discarded.json")
}

/// The packed workdir, named by its hash: two submissions of one job do not overwrite each other.
pub fn code(id: &JobId, sha256: &str) -> String {
    in_folder(job(id), &format!("code/{sha256}.tar.zst"))
}

pub fn requests(id: &JobId) -> String {
    in_folder(job(id), "requests/")
}

pub fn request(id: &JobId, number: u32) -> String {
    in_folder(requests(id), &format!("{number:04}.json"))
}

/// The epochs of a gang, in the directory of its rank 0.
pub fn gang(id: &JobId) -> String {
    in_folder(job(id), "gang/")
}

pub fn gang_end(id: &JobId) -> String {
    in_folder(gang(id), "end.json")
}

pub fn gang_epoch(id: &JobId, epoch: u32) -> String {
    format!("{}{epoch:04}/", gang(id))
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

/// A batch of events, named by its first sequence number.
pub fn event_batch(id: &JobId, no: AttemptNo, first: u64) -> String {
    format!("{}{first:08}.jsonl", events(id, no))
}

pub fn samples(id: &JobId, no: AttemptNo) -> String {
    in_folder(attempt(id, no), "samples/")
}

/// A batch of samples: compressed JSON lines of `instance::Rates`, numbered upward.
pub fn sample_batch(id: &JobId, no: AttemptNo, number: u64) -> String {
    format!("{}{number:08}.jsonl.zst", samples(id, no))
}

pub fn log(id: &JobId, no: AttemptNo) -> String {
    in_folder(attempt(id, no), "log/")
}

/// A piece of the workload's output, one zstd frame, numbered upward. The frames in order are the
/// log.
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

/// Written last: a checkpoint without a manifest is not complete.
pub fn manifest(id: &JobId, no: CheckpointNo) -> String {
    format!("{}manifest.json", checkpoint(id, no))
}

/// A file of a checkpoint, `path` relative to the checkpoint folder.
pub fn checkpoint_file(id: &JobId, no: CheckpointNo, path: &str) -> String {
    format!("{}files/{path}", checkpoint(id, no))
}

/// A message that the user got once: `<kind>-<hash>`, like `ended-<hash>`.
pub fn told(id: &JobId, name: &str) -> String {
    format!("{}told/{name}.json", job(id))
}

/// Problems of a job that a person must know.
pub fn attention(id: &JobId) -> String {
    in_folder(job(id), "attention.json")
}

/// Why nothing is launched for a job now.
pub fn waiting(id: &JobId) -> String {
    in_folder(job(id), "waiting.json")
}

/// The market decisions, with `market = "auto"`.
pub fn market(id: &JobId) -> String {
    in_folder(job(id), "market.json")
}

/// A message that tells of no job, once for all daemons.
pub fn told_of_account(name: &str) -> String {
    format!("told/{name}.json")
}

/// Facts about the spot pools, for all jobs of the root.
pub const POOLS: &str = "market/";

pub fn pool(zone: &str, instance_type: &str) -> String {
    format!("{POOLS}{zone}/{instance_type}.json")
}

/// The zone and the instance type in the key of a pool.
pub fn pool_of(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix(POOLS)?.strip_suffix(".json")?.split_once('/')
}

/// The shutdown proofs of an account: machines end there without supervision.
pub const PROOFS: &str = "proofs/";

pub fn proofs(account: &str) -> String {
    format!("{PROOFS}{account}/")
}

/// The newest proof of a region.
pub fn proof(account: &str, region: &str) -> String {
    format!("{}{region}.json", proofs(account))
}

/// Trained models, each with its versions.
pub const MODELS: &str = "models/";

pub fn model_folder(model: &ModelName) -> String {
    format!("{MODELS}{model}/")
}

pub fn model(model: &ModelName) -> String {
    format!("{MODELS}{model}/model.json")
}

/// The version that answers when none is named.
pub fn model_default(model: &ModelName) -> String {
    format!("{MODELS}{model}/default.json")
}

pub fn model_versions(model: &ModelName) -> String {
    format!("{MODELS}{model}/versions/")
}

/// Written last: a version without it is not complete.
pub fn model_version(model: &ModelName, version: &ModelName) -> String {
    format!("{}{version}.json", model_versions(model))
}

/// All uploads for one version.
pub fn model_uploads(model: &ModelName, version: &ModelName) -> String {
    format!("{MODELS}{model}/files/{version}/")
}

/// One upload. Two users who make the same version at once have different ones.
pub fn model_upload(model: &ModelName, version: &ModelName, upload: &str) -> String {
    format!("{}{upload}/", model_uploads(model, version))
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
        let (made, program, checked) = (
            format!("{}made", news(&job)),
            agent(&"0a".repeat(32)),
            agent_checked(&"0a".repeat(32)),
        );
        for key in [
            CLOCK,
            JOBS_OVER,
            &made,
            &pool("us-east-1a", "g5.xlarge"),
            &proof("123456789012", "us-east-1"),
            &told_of_account("foreign-0a1b2c3d4e5f"),
            &program,
            &checked,
        ] {
            assert!(is_of_the_house(key) && is_of_the_root(key), "{key}");
        }
        for key in [
            &spec(&job),
            &schedule("set", "name"),
            &tuning("digits"),
            "notes.txt",
            "clocks",
            "market/prices.parquet",
            "news/today/paper.pdf",
            "agents/smith.json",
            "told/story.json",
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
        let (digits, v1): (ModelName, ModelName) =
            ("digits".parse().expect("a name"), "v1".parse().expect("a name"));
        for key in [
            &model(&digits),
            &model_default(&digits),
            &model_version(&digits, &v1),
            &format!("{}variables/variables.index", model_upload(&digits, &v1, &"0a".repeat(6))),
            &own,
            &set_code,
            &schedule_run("set", "name", due),
            &schedule_waiting("set", "name"),
            &visit("sweeper"),
            &suspects("sweeper"),
        ] {
            assert!(is_of_the_root(key) && job_of(key).is_none(), "{key}");
            // Keys of another job root, under any prefix.
            for prefix in [
                "a/",
                "jobs/",
                "jobs/team-a/",
                "schedules/",
                "sweeper/",
                "news/",
                "market/",
                "proofs/",
                "agents/",
                "models/",
            ] {
                for inner in [
                    key,
                    &spec(&job),
                    &plan(&job, no),
                    CLOCK,
                    JOBS_OVER,
                    &pool("us-east-1a", "g5.xlarge"),
                    &proof("123456789012", "us-east-1"),
                ] {
                    assert!(!is_of_the_root(&format!("{prefix}{inner}")), "{prefix}{inner}");
                }
            }
        }
        for key in [
            "notes.txt",
            "clocks",
            "market/prices.parquet",
            "news/today/paper.pdf",
            "jobs/list.txt",
            "models/resnet.onnx",
            "models/resnet/weights.bin",
            "models/resnet/files/v1/weights/of.bin",
            "jobs/toy-222222/mine.txt",
        ] {
            assert!(!is_of_the_root(key), "{key}");
        }
    }

    #[test]
    fn due_time_is_read_as_it_was_written() {
        let due: Timestamp = "2026-11-20T21:00:00Z".parse().unwrap();
        let key = schedule_run("jobs", "nightly", due);
        assert_eq!(key, "schedules/jobs/nightly/runs/20261120T210000Z.json");
        assert_eq!(due_of(key.rsplit('/').next().unwrap()), Some(due));
        assert_eq!(due_of("x.json"), None);
    }
}
