//! How often it pays to save a checkpoint, and which cadence cannot work.
//!
//! How long the interval should be follows from what a save costs and how often the machine is taken away: J. W. Young, "A
//! first order approximation to the optimum checkpoint interval", CACM 17(9), 1974; J. T. Daly, "A higher order estimate of the optimum checkpoint interval for
//! restart dumps", Future Generation Computer Systems 22(3), 2006. What must never live here: how a checkpoint is made.

use serde::{Deserialize, Serialize};

use crate::market::Span;

/// What a cadence costs, as shares of the time that is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CadenceCost {
    /// Spent on saving.
    pub saving_share: f64,
    /// Expected to be lost to interruptions: half an interval and a restart each.
    pub lost_share: f64,
}

/// Young's interval between saves, √(2 · save · mean time between interruptions).
pub fn young_interval(save: Span, between_interruptions: Span) -> Span {
    secs((2.0 * save.secs_f64() * between_interruptions.secs_f64()).sqrt())
}

/// Daly's higher-order interval: √(2δM)·[1 + ⅓·√(δ/2M) + (δ/2M)/9] − δ where δ < 2M, else M.
///
/// `save` is the part of a save in which training stands still; an upload beside the training is not in it.
pub fn daly_interval(save: Span, between_interruptions: Span) -> Span {
    let (save, between) = (save.secs_f64(), between_interruptions.secs_f64());
    if between <= 0.0 {
        return Span::ZERO;
    }
    let ratio = save / (2.0 * between);
    if ratio >= 1.0 {
        return secs(between);
    }
    secs((2.0 * save * between).sqrt() * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - save)
}

/// What `interval` costs: the first-order terms of the same model.
pub fn cadence_cost(interval: Span, save: Span, restart: Span, between_interruptions: Span) -> CadenceCost {
    let (interval, save) = (interval.secs_f64(), save.secs_f64());
    let period = interval + save;
    let share = |part: f64, whole: f64| if whole > 0.0 { (part / whole).min(1.0) } else { 1.0 };
    CadenceCost { saving_share: share(save, period), lost_share: share(period / 2.0 + restart.secs_f64(), between_interruptions.secs_f64()) }
}

/// Why a cadence cannot work. Found before the launch where the save time is known, flagged while it runs otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CadenceFault {
    #[error("saving and uploading takes {save}, longer than the interval of {interval}: the next one would always be late")]
    LongerThanInterval { save: Span, interval: Span },
    #[error(
        "saving and uploading takes {save}, longer than the {notice} of notice: no final checkpoint fits, an interruption costs up to {interval}"
    )]
    LongerThanNotice { save: Span, notice: Span, interval: Span },
}

/// What is known of a job's saves, and of the machines that it runs on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cadence {
    pub interval: Span,
    /// For which training stands still.
    pub save: Span,
    /// Until it is uploaded, too: what must fit into the notice.
    pub whole: Span,
    /// From the loss of a machine to work on the next one.
    pub restart: Span,
    pub taken_every: Span,
    /// `None`: these machines are not taken away.
    pub notice: Option<Span>,
}

/// Whether a cadence can work, what it costs, and what would cost the least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CadenceVerdict {
    pub fault: Option<CadenceFault>,
    pub cost: CadenceCost,
    /// Daly's interval; never shorter than a save takes until it is uploaded.
    pub best: Span,
    pub best_cost: CadenceCost,
}

impl Cadence {
    pub fn judge(&self) -> CadenceVerdict {
        let cost = |interval: Span| cadence_cost(interval, self.save, self.restart, self.taken_every);
        let best = daly_interval(self.save, self.taken_every).max(self.whole);
        CadenceVerdict { fault: check_cadence(self.interval, self.whole, self.notice).err(), cost: cost(self.interval), best, best_cost: cost(best) }
    }
}

/// Whether a final save fits into the notice (less the manifest's margin) and saves fit between each other.
///
/// # Errors
/// The weightiest reason why it cannot.
pub fn check_cadence(interval: Span, save_p95: Span, notice: Option<Span>) -> Result<(), CadenceFault> {
    match notice {
        // The weightier fault: a late save is a save all the same.
        Some(notice) if save_p95.duration() + NOTICE_MARGIN.duration() > notice.duration() => {
            Err(CadenceFault::LongerThanNotice { save: save_p95, notice, interval: interval.max(save_p95) })
        }
        _ if save_p95 >= interval => Err(CadenceFault::LongerThanInterval { save: save_p95, interval }),
        _ => Ok(()),
    }
}

/// The manifest's margin before the end, as in `interruption`.
const NOTICE_MARGIN: Span = Span::from_secs(15);

fn secs(secs: f64) -> Span {
    Span::from_duration(std::time::Duration::from_millis((secs.max(0.0) * 1000.0).min(1e15).round() as u64))
}
