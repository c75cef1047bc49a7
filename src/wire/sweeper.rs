//! `lamp` as the sweeper in the cloud: an AWS Lambda function, one visit for each call.
//!
//! Each visit has its own session, store and controller: Lambda freezes the process between calls,
//! and open connections break. Not here: a decision about a machine.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use super::clock;
use crate::account::sweeper;
use crate::account::sweeper_visit::Visit;
use crate::adapters::aws::account::lambda_runtime::LambdaRuntime;
use crate::adapters::aws::ec2::cloud::AwsCloud;
use crate::adapters::aws::session::{AwsSession, bucket_access};
use crate::adapters::aws::settings::AwsSettings;
use crate::adapters::store::open::{self, OpenError};
use crate::controller::Controller;
use crate::market::{self, Zone};
use crate::ports;

pub use crate::adapters::aws::account::lambda_runtime::RuntimeError;

/// The part of a call's time that is kept for its answer.
const FOR_THE_ANSWER: Duration = Duration::from_secs(5);

/// The owner of the machines, and where their jobs are.
#[derive(Clone, Debug)]
pub struct SweeperSettings {
    pub job_root: String,
    pub owner: String,
    pub version: String,
}

/// Serves calls until Lambda ends this process.
///
/// # Errors
/// When the runtime API no longer answers.
pub async fn serve(
    api: &str,
    settings: Result<SweeperSettings, String>,
) -> Result<Infallible, RuntimeError> {
    let runtime = LambdaRuntime::new(api)?;
    let settings = match settings {
        Ok(settings) => settings,
        Err(why) => {
            runtime.cannot_begin("Settings", &why).await?;
            return Err(RuntimeError::Untold("whose machines these are"));
        }
    };
    loop {
        let call = runtime.next().await?;
        match visit(&settings, call.left().saturating_sub(FOR_THE_ANSWER)).await {
            Ok(visit) if visit.is_sick() => runtime.fail(&call, "Sick", said(&visit)).await?,
            Ok(visit) => {
                runtime.answer(&call, &serde_json::to_value(&visit).unwrap_or_default()).await?
            }
            Err(error) => runtime.fail(&call, "JobRoot", error).await?,
        }
    }
}

async fn visit(settings: &SweeperSettings, room: Duration) -> Result<Visit, OpenError> {
    let session = AwsSession::new(AwsSettings::default());
    let store = open::open_through(&settings.job_root, true, bucket_access(&session).await)?;
    let aws: Arc<dyn ports::Cloud> = Arc::new(AwsCloud::new(session));
    let clouds = BTreeMap::from([(market::CloudKind::Aws, aws)]);
    let name = sweeper::name(&settings.owner);
    let controller = Controller::new(
        store,
        clouds,
        clock(),
        settings.owner.clone(),
        name.clone(),
        Zone::new(name.clone()),
    );
    let visit = controller.visit(&name, &settings.version, room).await;
    tell(&visit);
    Ok(visit)
}

/// Always logs one line: an empty log would look as if the sweeper never ran.
fn tell(visit: &Visit) {
    for ended in &visit.ended {
        tracing::warn!(machine = %ended.machine, job = %ended.job, "ended: {}", ended.why);
    }
    for suspect in &visit.suspects {
        tracing::warn!(machine = %suspect.machine, since = %suspect.since, "suspected: {}", suspect.why);
    }
    for kept in &visit.kept {
        tracing::warn!(machine = %kept.machine, job = %kept.job, since = %kept.since, "stopped, and its disk bills; `lamp cancel {}` gives it up", kept.job);
    }
    for trouble in &visit.trouble {
        tracing::error!("{}: {}", trouble.what, trouble.why);
    }
    for unknown in &visit.unknown {
        tracing::warn!("{} is unknown: {}", unknown.what, unknown.why);
    }
    let (regions, machines) = (visit.regions, visit.machines);
    tracing::info!(
        regions,
        machines,
        suspects = visit.suspects.len(),
        ended = visit.ended.len(),
        "looked"
    );
}

fn said(visit: &Visit) -> String {
    let all = if visit.trouble.is_empty() { &visit.unknown } else { &visit.trouble };
    all.iter()
        .map(|trouble| format!("{}: {}", trouble.what, trouble.why))
        .collect::<Vec<_>>()
        .join("; ")
}
