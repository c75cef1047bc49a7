//! Checks what an account lacks for a launch while the plan is made, and reports all at once.
//!
//! ```text
//!   plan ──────────────────┐
//!   bucket, profile ───────┴─ something lacks, or no plan? ── networks too ── one message
//! ```
//!
//! `lamp run` then starts nothing; `lamp plan` still shows what it can. Not here: what is lacking
//! (`policy::account::setup_plan`).

use std::collections::BTreeSet;

use super::first_plan;
use crate::app::session::Session;
use crate::app::{ExitCode, Fault};
use crate::controller::{Controller, Planned, Unready};
use crate::job::ResolvedSpec;
use crate::policy::account::setup_plan::Lack;

/// The plan of the first attempt, or why there is none; and what the account lacks.
pub async fn planned(
    session: &Session<'_>,
    controller: &Controller,
    spec: &ResolvedSpec,
) -> (Result<Planned, Fault>, Vec<Lack>) {
    #[cfg(feature = "aws")]
    if spec.spec.machine.cloud == crate::market::CloudKind::Aws {
        return asked::planned(session, controller, spec).await;
    }
    (first_plan::first(session, controller, spec).await, Vec::new())
}

fn sentence(lacks: &[Lack]) -> String {
    let words: Vec<&str> = lacks.iter().map(|lack| lack.what.as_str()).collect();
    format!("the account is not ready for machines: {}", words.join(", "))
}

/// The hints: one command for all that it makes, then the rest.
fn cures(lacks: &[Lack], region: Option<&str>) -> Vec<String> {
    let region = region.map(|region| format!(" --region {region}")).unwrap_or_default();
    let mends = lacks.iter().any(|lack| lack.cure.is_none());
    let init =
        mends.then(|| format!("`lamp init aws{region}` makes it and writes it into the configuration; with --dry-run it shows what it would do"));
    let mut cures: Vec<String> = init.into_iter().collect();
    cures.extend(
        lacks.iter().filter_map(|lack| Some(format!("{}: {}", lack.what, lack.cure.as_deref()?))),
    );
    cures
}

/// # Errors
/// Fails when anything lacks; then nothing is started.
pub fn refuse(lacks: &[Lack], spec: &ResolvedSpec) -> Result<(), Fault> {
    if lacks.is_empty() {
        return Ok(());
    }
    let cures = cures(lacks, spec.spec.machine.regions.first().map(String::as_str));
    Err(Fault::new(ExitCode::REFUSED, sentence(lacks))
        .meaning("nothing was started or billed")
        .hint(cures.join("; ")))
}

pub fn warn(session: &Session<'_>, lacks: &[Lack], region: Option<&str>) {
    if !lacks.is_empty() {
        session.warn(sentence(lacks));
        cures(lacks, region).into_iter().for_each(|cure| session.hint(cure));
    }
}

/// Warns about regions of the job that cannot be used: it uses the others.
pub fn warn_unready(session: &Session<'_>, unready: &[Unready]) {
    for Unready { region, because } in unready {
        session.warn(format!("{region} is passed over until it is ready: {because}"));
    }
    let home = session.workstation.aws.regions.first();
    let regions: BTreeSet<&str> = unready
        .iter()
        .map(|unready| unready.region.as_str())
        .filter(|region| home.is_none_or(|home| home != region))
        .collect();
    if !regions.is_empty() {
        let regions: Vec<String> = home
            .map(String::as_str)
            .into_iter()
            .chain(regions)
            .map(|region| format!("--region {region}"))
            .collect();
        session
            .hint(format!("`lamp init aws {}` makes what machines need there", regions.join(" ")));
    }
}

/// Whether AWS itself found something lacking. Without credentials, the user reads that first, not
/// about the folder.
pub fn was_seen(session: &Session<'_>, lacks: &[Lack]) -> bool {
    let of_the_folder = usize::from(!session.workstation.job_root.starts_with("s3://"));
    lacks.len() > of_the_folder
}

/// The plan. If there is none, what the account lacks is told first, as far as AWS said so.
///
/// # Errors
/// Fails when there is no plan.
pub fn plan_or_refusal(
    session: &Session<'_>,
    planned: Result<Planned, Fault>,
    lacks: &[Lack],
    spec: &ResolvedSpec,
) -> Result<Planned, Fault> {
    planned.or_else(|fault| {
        if was_seen(session, lacks) {
            refuse(lacks, spec)?;
        }
        Err(fault)
    })
}

/// # Errors
/// Fails with everything that lacks if the plan needs it.
pub fn refuse_planless(lacks: &[Lack], spec: &ResolvedSpec) -> Result<(), Fault> {
    if lacks.iter().any(|lack| lack.blocks_plan) { refuse(lacks, spec) } else { Ok(()) }
}

#[cfg(feature = "aws")]
mod asked {
    use super::{Controller, Fault, Lack, Planned, ResolvedSpec, Session, first_plan};
    use crate::account::setup::{GROUP, SetupNames, box_role, bucket_of};
    use crate::policy::account::setup_plan::{ReadyFound, lacking, lacking_for_gang};

    pub async fn planned(
        session: &Session<'_>,
        controller: &Controller,
        spec: &ResolvedSpec,
    ) -> (Result<Planned, Fault>, Vec<Lack>) {
        let workstation = session.workstation;
        let root = bucket_of(&workstation.job_root);
        let said = &workstation.aws;
        let profile = box_role(said.instance_profile.as_deref());
        let bucket = root.as_ref().map(|(bucket, _)| bucket.as_str());
        let (planned, (bucket, profile_found, role)) = tokio::join!(
            first_plan::first(session, controller, spec),
            workstation.aws_ready(bucket, profile)
        );
        let (name, prefix) = root.clone().unwrap_or_default();
        let mut names = SetupNames {
            owner: workstation.owner.clone(),
            regions: Vec::new(),
            bucket: name,
            bucket_is_ours_by_name: false,
            prefix,
            role: profile.to_owned(),
            group: said.security_group.clone().unwrap_or_else(|| GROUP.to_owned()),
            session_manager: false,
            gangs: false,
            secrets: workstation.secrets.clone(),
        };
        let mut found = ReadyFound {
            root_is_folder: root.is_none(),
            bucket,
            profile: profile_found,
            role,
            regions: Vec::new(),
        };
        if said.subnets.is_empty() && (planned.is_err() || !lacking(&names, &found).is_empty()) {
            (names.regions, found.regions) =
                workstation.aws_networks(&names.group, &spec.spec.machine.regions).await;
        }
        let mut lacks = lacking(&names, &found);
        if spec.spec.gang.is_some() {
            lacks.extend(lacking_for_gang(&names, &found));
        }
        if let Some(home) = said.regions.first() {
            beside_home(&mut lacks, home, &names.regions);
        }
        (planned, lacks)
    }

    /// For another region: the bucket is in the home region, so that one comes first in the
    /// command.
    fn beside_home(lacks: &mut [Lack], home: &str, regions: &[String]) {
        for region in regions.iter().filter(|region| *region != home) {
            let end = format!(" in {region}");
            for lack in
                lacks.iter_mut().filter(|lack| lack.cure.is_none() && lack.what.ends_with(&end))
            {
                lack.cure = Some(format!(
                    "`lamp init aws --region {home} --region {region}` makes it there too"
                ));
            }
        }
    }
}
