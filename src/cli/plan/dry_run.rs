//! The results of EC2 dry runs: for the planned machine, and for each other region and market of
//! the job.
//!
//! An unknown result is not a refusal. Not here: a refusal to launch (`run`).

use serde::Serialize;

use crate::cli::{Context, ExitCode, Fault};
use crate::controller::{ActError, Controller, Planned};
use crate::job::Spec;
use crate::market::{CloudKind, Market, Offer, Region};

/// For one region and market; the field names are an interface.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct LaunchPermission {
    #[cfg_attr(feature = "web", schema(value_type = String))]
    region: Region,
    market: Market,
    /// Why the cloud would not launch it.
    pub forbidden: Option<String>,
    /// Why that is unknown.
    pub unanswered: Option<String>,
}

impl LaunchPermission {
    fn of(offer: &Offer, answer: Result<(), ActError>) -> Self {
        let none = LaunchPermission {
            region: offer.region.clone(),
            market: offer.market,
            forbidden: None,
            unanswered: None,
        };
        let Err(error) = answer else { return none };
        let why = Some(Fault::from_error(ExitCode::LAUNCH_FAILED, &error).sentence());
        if error.is_refusal() {
            LaunchPermission { forbidden: why, ..none }
        } else {
            LaunchPermission { unanswered: why, ..none }
        }
    }

    fn place(&self) -> String {
        format!("{} ({})", self.region, self.market)
    }
}

pub struct LaunchPermissions {
    pub planned: LaunchPermission,
    others: Vec<LaunchPermission>,
    is_local: bool,
}

impl LaunchPermissions {
    pub async fn asked(controller: &Controller, spec: &Spec, planned: &Planned) -> Self {
        let (answer, others) = controller.permissions(spec, planned).await;
        let offer = &planned.plan.offer;
        LaunchPermissions {
            planned: LaunchPermission::of(offer, answer),
            others: others
                .into_iter()
                .map(|(offer, answer)| LaunchPermission::of(offer, answer))
                .collect(),
            is_local: offer.cloud == CloudKind::Local,
        }
    }

    pub fn all(&self) -> Vec<&LaunchPermission> {
        std::iter::once(&self.planned).chain(&self.others).collect()
    }

    pub fn tell(&self, context: &Context) {
        let others = self
            .others
            .iter()
            .map(|other| (format!("what is tried next in {}", other.place()), other));
        for (what, one) in std::iter::once(("it".to_owned(), &self.planned)).chain(others) {
            if let Some(because) = &one.forbidden {
                context.printer.warn(format!("the cloud would not launch {what}: {because}"));
            }
            if let Some(because) = &one.unanswered {
                context
                    .printer
                    .warn(format!("whether the cloud would launch {what} is not known: {because}"));
            }
        }
        let proved = self
            .all()
            .into_iter()
            .filter(|one| one.forbidden.is_none() && one.unanswered.is_none());
        let proved: Vec<String> = proved.map(LaunchPermission::place).collect();
        if !self.is_local && !proved.is_empty() {
            context.printer.note(format!(
                "a dry run each says that you may launch it in {}",
                proved.join(", ")
            ));
        }
    }
}
