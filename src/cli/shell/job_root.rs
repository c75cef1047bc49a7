//! The job root for commands: opening it, and the workstation that asks.

use std::sync::Arc;

use crate::cli::{Context, ExitCode, Fault};
use crate::config::{AwsFile, CapsReader};
use crate::controller::CapsInForce;
use crate::wire::{self, AwsSettings, StoreHandle, Workstation};

/// Opens the job root of this call, and creates it if it is missing.
///
/// # Errors
/// Fails when it cannot be used.
pub async fn open(context: &Context) -> Result<StoreHandle, Fault> {
    workstation(context)?.open_root(false).await.map_err(|error| open_fault(context, &error))
}

/// Opens it for a command about existing jobs, without creating a missing folder.
///
/// # Errors
/// Fails when it cannot be used.
pub async fn open_existing(context: &Context) -> Result<StoreHandle, Fault> {
    workstation(context)?.open_root(true).await.map_err(|error| open_fault(context, &error))
}

pub fn open_fault(context: &Context, error: &wire::OpenError) -> Fault {
    Fault::from_error(ExitCode::UNREACHABLE, error).hint(format!(
        "the job root comes from the {}; name another with --job-root or LAMP_JOB_ROOT",
        context.roots.origin
    ))
}

/// The workstation of this call.
///
/// # Errors
/// Fails when the path of the state folder is unknown.
pub fn workstation(context: &Context) -> Result<Workstation, Fault> {
    workstation_of(context).cloned()
}

/// As [`workstation`], borrowed.
///
/// # Errors
/// As [`workstation`].
pub fn workstation_of(context: &Context) -> Result<&Workstation, Fault> {
    if let Some(known) = context.workstation.get() {
        return Ok(known);
    }
    let state = context.environment.state_dir().ok_or_else(|| {
        Fault::new(ExitCode::UNREACHABLE, "nothing says where the state folder is")
            .hint("set HOME, or XDG_STATE_HOME")
    })?;
    let mut workstation = Workstation::new(
        state,
        &context.roots.url,
        &context.config.user.owner,
        context.environment.user.as_deref(),
        &context.config.user.notify,
        aws_settings(context),
    );
    workstation.caps = Arc::new(caps_in_force(context));
    workstation.secrets = context.config.user.aws.secrets();
    workstation.agent_binary = context.environment.agent_binary.clone();
    Ok(context.workstation.get_or_init(|| workstation))
}

fn aws_settings(context: &Context) -> AwsSettings {
    let said: AwsFile = context.config.user.aws.clone();
    AwsSettings {
        profile: said.profile,
        regions: said.regions.unwrap_or_default(),
        endpoint_url: said.endpoint_url,
        box_endpoint_url: said.box_endpoint_url,
        instance_profile: said.instance_profile,
        security_group: said.security_group,
        subnets: said.subnets.unwrap_or_default(),
        key_name: said.key_name,
        cache: context.environment.cache_dir(),
    }
}

/// The caps as the configuration has them now, read again at each launch.
fn caps_in_force(context: &Context) -> CapsInForce {
    let reader = CapsReader::new(context.environment.clone(), &context.config.user);
    CapsInForce::read_by(context.config.user.caps, move || {
        reader.read().map_err(|error| error.in_a_line())
    })
}
