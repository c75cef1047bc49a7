//! What it means for a verb that the job root did not answer, or that a record cannot be read.
//!
//! What must never live here: a read.

use super::{ExitCode, Fault};
use crate::job::JobId;
use crate::jobdir::{JobDirError, RecordError};
use crate::wire;

/// What an unreadable record or a silent store means for a verb.
pub fn record_fault(error: &JobDirError) -> Fault {
    match error {
        JobDirError::Record(RecordError::Newer { .. }) => {
            Fault::from_error(ExitCode::REFUSED, error).meaning("it was not touched").hint("a newer `lamp` wrote it; update this one")
        }
        JobDirError::Record(_) | JobDirError::Taken { .. } => Fault::from_error(ExitCode::INTERNAL, error),
        JobDirError::Store(_) => Fault::from_error(ExitCode::UNREACHABLE, error)
            .meaning("nothing was changed; what runs goes on, and its machine puts itself out when it is done")
            .or_hint(way_there(&wire::causes(error))),
        JobDirError::Unsure(_) => Fault::from_error(ExitCode::UNREACHABLE, error).meaning(UNSURE).or_hint(way_there(&wire::causes(error))),
    }
}

/// What it means that nobody has answered a write.
const UNSURE: &str = "whether it was written is not known";

/// What it means for a wish that it could not be left.
pub fn wish_fault(error: &JobDirError, job: &JobId) -> Fault {
    match error {
        JobDirError::Unsure(_) => record_fault(error)
            .meaning(format!("{UNSURE}: if it was, it is carried out, and to ask again asks twice"))
            .hint(format!("`lamp status {job}` shows how it stands, `lamp explain {job}` what was asked of it")),
        _ => record_fault(error),
    }
}

/// What to look at where a job root does not answer. Of a bucket in another region S3 says only that it is elsewhere.
fn way_there(causes: &[String]) -> &'static str {
    let is_elsewhere = |cause: &String| cause.contains("PermanentRedirect") || cause.contains("Received redirect without LOCATION");
    if causes.iter().any(is_elsewhere) {
        "the bucket is in another region: AWS_REGION says which, or the first of `[aws] regions` in the configuration"
    } else if causes.iter().any(|cause| cause.contains("NoSuchBucket")) {
        "there is no such bucket: `lamp init aws` makes one; else `job_root` in the configuration, LAMP_JOB_ROOT or --job-root says where the jobs are"
    } else {
        "`lamp doctor` looks at the way there"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_of_another_region_is_not_taken_for_a_line_that_is_down() {
        let bare = "Received redirect without LOCATION, this normally indicates an incorrectly configured region";
        let causes = ["cannot list `jobs`".to_owned(), format!("Generic S3 error: Error performing list request: {bare}")];
        assert!(way_there(&causes).contains("AWS_REGION"));
        assert!(way_there(&causes[..1]).contains("`lamp doctor`"));
    }
}
