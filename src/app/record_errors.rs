//! Faults of commands for a silent job root or an unreadable record.
//!
//! Not here: reading.

use std::error::Error;

use crate::app::exit_code::ExitCode;
use crate::app::fault::Fault;
use crate::job::JobId;
use crate::jobdir::{JobDir, JobDirError, RecordError, layout};
use crate::wire;

pub fn record_fault(error: &JobDirError) -> Fault {
    match error {
        JobDirError::Record(RecordError::Newer { .. }) => {
            Fault::from_error(ExitCode::REFUSED, error).meaning("it was not touched").hint("a newer `lamp` wrote it; update this one")
        }
        JobDirError::Record(_) | JobDirError::Taken { .. } => Fault::from_error(ExitCode::INTERNAL, error),
        JobDirError::Store(_) => silence(error)
            .meaning("nothing was changed; what runs goes on, and its machine puts itself out when it is done")
            .or_hint(way_there(&wire::causes(error))),
        JobDirError::Unsure(_) => silence(error).meaning(UNSURE).or_hint(way_there(&wire::causes(error))),
    }
}

/// Why one job is left out of a list. `None`: the whole job root is unreachable.
///
/// A folder was listed before, so an error after that is about this job's own folder.
pub fn one_job_only(dir: &JobDir, error: &JobDirError) -> Option<String> {
    match error {
        JobDirError::Store(_) | JobDirError::Record(_) if dir.store().is_folder() => {
            let folder = dir
                .store()
                .url()
                .strip_prefix("file://")
                .map(|root| format!("{root}/{}", layout::job(dir.job())));
            let owner = folder.and_then(|folder| wire::owner_of_folder(folder.as_ref()));
            let whose =
                owner.map_or(String::new(), |owner| format!(" (its folder belongs to `{owner}`)"));
            Some(format!(
                "job `{}`{whose} cannot be read: {}",
                dir.job(),
                Fault::from_error(ExitCode::UNREACHABLE, error).sentence()
            ))
        }
        JobDirError::Record(error) => Some(error.to_string()),
        _ => None,
    }
}

/// S3 reports a missing bucket as a page of XML, which becomes one sentence here.
pub fn silence(error: &(dyn Error + 'static)) -> Fault {
    let causes = wire::causes(error);
    let Some(page) = causes.iter().find(|cause| cause.contains(NO_BUCKET)) else {
        return Fault::from_error(ExitCode::UNREACHABLE, error);
    };
    let name = page
        .split_once("<BucketName>")
        .and_then(|(_, rest)| rest.split_once("</BucketName>"))
        .map(|(name, _)| name);
    let what = name.map_or_else(
        || "the bucket of the job root is not there".to_owned(),
        |name| format!("there is no bucket `{name}`"),
    );
    Fault::new(ExitCode::UNREACHABLE, what).hint(MAKES_BUCKET)
}

/// Why a local job cannot reach its job root, before anything is packed. `from`: the source of
/// its URL.
pub fn unreached(root: &str, from: &str, error: &JobDirError) -> Fault {
    let fault = record_fault(error).meaning("nothing was started or billed");
    let Some(nobody) = wire::NoCredentials::among(error) else { return fault };
    Fault::new(fault.code, format!("the job root is {root} (from the {from}), and {nobody}"))
        .meaning("nothing was started or billed")
        .hint(format!("{}; or --job-root FOLDER keeps a job of this workstation in a folder, which asks nobody", nobody.fix))
}

const NO_BUCKET: &str = "NoSuchBucket";

const MAKES_BUCKET: &str = "`lamp init aws` makes a bucket; else `job_root` in the configuration, LAMP_JOB_ROOT or --job-root says where the jobs are";

/// The meaning of a write without an answer.
const UNSURE: &str = "whether it was written is not known";

/// The fault when a wish could not be written.
pub fn wish_fault(error: &JobDirError, job: &JobId) -> Fault {
    match error {
        JobDirError::Unsure(_) => record_fault(error)
            .meaning(format!("{UNSURE}: if it was, it is carried out, and to ask again asks twice"))
            .hint(format!(
                "`lamp status {job}` shows how it stands, `lamp explain {job}` what was asked of it"
            )),
        _ => record_fault(error),
    }
}

/// For a bucket in another region, S3 says only that it is elsewhere.
fn way_there(causes: &[String]) -> &'static str {
    let is_elsewhere = |cause: &String| {
        cause.contains("PermanentRedirect") || cause.contains("Received redirect without LOCATION")
    };
    if causes.iter().any(is_elsewhere) {
        "the bucket is in another region: AWS_REGION says which, or the first of `[aws] regions` in the configuration"
    } else {
        "`lamp doctor` looks at the way there"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_in_another_region_is_not_taken_for_a_lost_connection() {
        let bare = "Received redirect without LOCATION, this normally indicates an incorrectly configured region";
        let causes = [
            "cannot list `jobs`".to_owned(),
            format!("Generic S3 error: Error performing list request: {bare}"),
        ];
        assert!(way_there(&causes).contains("AWS_REGION"));
        assert!(way_there(&causes[..1]).contains("`lamp doctor`"));
    }

    #[test]
    fn bucket_that_is_not_there_is_said_in_a_sentence() {
        let page =
            "<Error><Code>NoSuchBucket</Code><BucketName>nosuch-bucket-x</BucketName></Error>";
        let error = |cause: String| {
            crate::jobdir::JobDirError::Store(wire::StoreError::Unavailable {
                act: "list",
                key: "jobs".into(),
                cause: cause.into(),
            })
        };
        let fault = record_fault(&error(format!("Generic S3 error: {page}")));
        assert_eq!(
            (fault.what.as_str(), fault.causes.len()),
            ("there is no bucket `nosuch-bucket-x`", 0)
        );
        assert!(fault.hint.as_deref().is_some_and(|hint| hint.contains("`lamp init aws`") && hint.contains("--job-root")), "{fault:?}");
        assert_eq!(
            record_fault(&error("NoSuchBucket".into())).what,
            "the bucket of the job root is not there"
        );
        assert_eq!(record_fault(&error("the line is down".into())).what, "cannot list `jobs`");
    }
}
