//! `lamp plan -o json`: one document, by the prices of AWS or of the shipped catalogue.

use jiff::Timestamp;
use serde::Serialize;

use super::bid_text::BidExceeded;
use super::dry_run::LaunchPermission;
use super::forecast::Forecast;
use crate::app::costs::hours_cost::HoursCost;
use crate::app::launch::checkpoint_cadence::CadenceShown;
use crate::app::launch::gang_cost::GangCost;
use crate::app::launch::limit_check::OutOfReach;
use crate::cli::apply::caps_view::CapsShown;
use crate::controller::Unready;
use crate::job::{LaunchRequest, RejectedOffer};
use crate::market::{Offer, Quota, Usd, UsdPerHour};
use crate::policy::account::setup_plan::Lack;
use crate::policy::purchase::job_cost_bound::MostBy;
use crate::policy::purchase::ranking::Ranked;
use crate::policy::tune::tuning_cost::TuningCost;

/// What `lamp plan -o json` prints. The field names are an interface (docs/cli-json.md).
#[derive(Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct PlanDocument<'a> {
    pub source: PlanSource,
    pub offer: &'a Offer,
    /// Why this offer, in sentences.
    pub reasons: Vec<&'a String>,
    pub rejected: &'a [RejectedOffer],
    /// The most that an attempt can cost, also on a fallback. Null: no limit.
    pub most_usd: Option<Usd>,
    /// The most that an attempt can cost on this offer.
    pub most_usd_offer: Option<Usd>,
    /// The most that the whole job can cost.
    pub most_job_usd: Option<Usd>,
    /// What limits it.
    pub most_job_by: MostBy,
    pub most_job_machines: Option<u32>,
    /// With `--hours`: what they cost.
    pub hours: Option<HoursCost>,
    /// The hard end of the machine, if it were launched now.
    pub kill_at: Option<Timestamp>,
    pub bid: Option<UsdPerHour>,
    pub bid_exceeded: Option<BidExceeded<'a>>,
    pub launch: Option<&'a LaunchRequest>,
    /// The next choices if there is no capacity, in order.
    pub fallbacks: &'a [Offer],
    /// Figures of the offer and of the fallbacks, in this order.
    pub ranking: &'a [Ranked],
    pub quotas: &'a [Quota],
    /// Offers that were excluded early, each with the reason.
    pub refused: &'a [String],
    /// Regions that are skipped until the user mends them.
    pub unready: &'a [Unready],
    /// Why the cloud would not launch it.
    pub forbidden: Option<&'a str>,
    /// Why that is unknown.
    pub unanswered: Option<&'a str>,
    /// The same for each region and market of the job.
    pub permissions: Vec<&'a LaunchPermission>,
    /// Things that the account lacks.
    pub lacks: &'a [Lack],
    /// Why the machine could not run the agent.
    pub agent: Option<&'a str>,
    /// Why the clock of this workstation forbids a launch.
    pub clock: Option<&'a str>,
    pub workdir_files: u64,
    pub workdir_bytes: u64,
    pub caps: Option<CapsShown>,
    /// The cap or price that delays the launch.
    pub waits_for: Option<&'a str>,
    pub waits_until: Option<Timestamp>,
    /// The next run of its schedule.
    pub next: Option<Timestamp>,
    /// With `market = "auto"`: the forecast.
    pub market: Option<&'a Forecast>,
    /// How often it should save, from earlier runs of this name.
    pub cadence: Option<&'a CadenceShown>,
    /// A limit that ends the job before its work is done.
    pub out_of_reach: Option<&'a OutOfReach>,
    /// With [tune]: all trials together.
    pub tuning: Option<&'a TuningCost>,
    /// All machines of a gang. The other figures are of one rank.
    pub gang: Option<&'a GangCost>,
}

/// Where the prices come from.
#[derive(Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct PlanSource {
    /// `ec2`, `local` or `catalogue`.
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub name: &'static str,
    /// The time of the answer, or the date of the catalogue.
    pub as_of: String,
    /// Why it is the catalogue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
