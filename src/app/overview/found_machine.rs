//! A machine that a sweep found: its verdict in a word, and what it has cost.
//!
//! Not here: the verdict itself (`policy::lifecycle::orphan`).

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controller::Judged;
use crate::instance::InstanceView;
use crate::market::{Catalog, CloudKind, Usd, UsdPerHour, elapsed};
use crate::policy::lifecycle::orphan::OrphanVerdict;

/// No job needs it.
pub fn is_orphan(judged: &Judged) -> bool {
    matches!(judged.verdict, OrphanVerdict::Orphan { .. })
}

/// Its job is unknown here.
pub fn is_stray(judged: &Judged) -> bool {
    matches!(judged.verdict, OrphanVerdict::Stray { .. })
}

/// A machine with an unknown job is always shown, because its disk bills.
pub fn is_shown(judged: &Judged) -> bool {
    judged.view.state.bills() || is_stray(judged)
}

/// The verdict in a word, and its reason.
pub fn words(verdict: &OrphanVerdict) -> (&'static str, &str) {
    match verdict {
        OrphanVerdict::Keep { why } | OrphanVerdict::Unknown { why } => ("keep", why),
        OrphanVerdict::Stray { why } => ("stray", why),
        OrphanVerdict::Orphan { why } => ("orphan", why),
    }
}

/// On demand, by the shipped catalogue: a spot machine costs less. `None`: it bills nothing, or its
/// price is unknown.
pub fn hour(view: &InstanceView) -> Option<UsdPerHour> {
    match view.cloud {
        _ if !view.state.bills() => None,
        CloudKind::Local => Some(UsdPerHour::new(Usd::ZERO)),
        CloudKind::Aws => Catalog::shipped().on_demand(&view.instance_type, &view.region),
    }
}

/// The bill so far, at the on-demand price; `None` when that is unknown.
pub fn so_far(view: &InstanceView, now: Timestamp) -> Option<Usd> {
    hour(view).map(|hour| hour.cost_of(elapsed(view.launched, now)))
}

pub fn figures(view: &InstanceView, now: Timestamp) -> [(&'static str, Value); 3] {
    [
        ("kill_at", json!(view.tags.kill_at)),
        ("usd_per_hour", json!(hour(view))),
        ("usd_so_far", json!(so_far(view, now))),
    ]
}
