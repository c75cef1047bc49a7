//! `lamp` as AWS Lambda starts it: no arguments, terminal or home. The environment configures it
//! (docs/aws.md).

use crate::cli::{ExitCode, Fault};
use crate::config::Environment;
use crate::wire::sweeper::{SweeperSettings, serve};

/// # Errors
/// Fails whenever it returns: Lambda normally stops the process itself.
pub async fn run(api: &str, environment: &Environment) -> Result<ExitCode, Fault> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let settings = match (environment.job_root.clone(), environment.owner.clone()) {
        (Some(job_root), Some(owner)) if job_root.starts_with("s3://") => {
            Ok(SweeperSettings { job_root, owner, version })
        }
        _ => Err("LAMP_JOB_ROOT (a bucket, s3://...) and LAMP_OWNER must be set".to_owned()),
    };
    let Err(error) = serve(api, settings).await;
    Err(Fault::new(ExitCode::UNREACHABLE, "the sweeper has ended").because(&error))
}
