//! How often to save a checkpoint, and which interval cannot work.
//!
//! The best interval follows from the cost of a save and the rate of interruptions: J. W. Young, "A
//! first order approximation to the optimum checkpoint interval", CACM 17(9), 1974; J. T. Daly, "A
//! higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation
//! Computer Systems 22(3), 2006.

use serde::{Deserialize, Serialize};

use crate::market::Span;

/// The cost of a cadence, as shares of the paid time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CadenceCost {
    pub saving_share: f64,
    /// Expected loss through interruptions: half an interval and a restart each.
    pub lost_share: f64,
}

/// Young's interval between saves, √(2 · save · mean time between interruptions).
pub fn young_interval(save: Span, between_interruptions: Span) -> Span {
    secs((2.0 * save.secs_f64() * between_interruptions.secs_f64()).sqrt())
}

/// Daly's higher-order interval: √(2δM)·[1 + ⅓·√(δ/2M) + (δ/2M)/9] − δ if δ < 2M, else M.
///
/// `save` is the part of a save that blocks the training; an upload in the background is excluded.
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

/// The cost of `interval`: the first-order terms of the same model.
pub fn cadence_cost(
    interval: Span,
    save: Span,
    restart: Span,
    between_interruptions: Span,
) -> CadenceCost {
    let (interval, save) = (interval.secs_f64(), save.secs_f64());
    let period = interval + save;
    let share = |part: f64, whole: f64| if whole > 0.0 { (part / whole).min(1.0) } else { 1.0 };
    CadenceCost {
        saving_share: share(save, period),
        lost_share: share(period / 2.0 + restart.secs_f64(), between_interruptions.secs_f64()),
    }
}

/// Why a cadence cannot work. Found before the launch if the save time is known, otherwise during
/// the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CadenceFault {
    #[error(
        "saving and uploading takes {save}, longer than the interval of {interval}: the next one would always be late"
    )]
    LongerThanInterval { save: Span, interval: Span },
    #[error(
        "saving and uploading takes {save}, longer than the {notice} of notice: no final checkpoint fits, an interruption costs up to {interval}"
    )]
    LongerThanNotice { save: Span, notice: Span, interval: Span },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cadence {
    pub interval: Span,
    /// Time that a save blocks the training.
    pub save: Span,
    /// The same with the upload; it must fit into the notice.
    pub whole: Span,
    /// Time from the loss of a machine to work on the next.
    pub restart: Span,
    pub taken_every: Span,
    /// `None`: these machines are never interrupted.
    pub notice: Option<Span>,
}

/// Whether a cadence works, its cost, and the cheapest one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CadenceVerdict {
    pub fault: Option<CadenceFault>,
    pub cost: CadenceCost,
    /// Daly's interval, at least the time of a save with its upload.
    pub best: Span,
    pub best_cost: CadenceCost,
}

impl Cadence {
    pub fn judge(&self) -> CadenceVerdict {
        let cost =
            |interval: Span| cadence_cost(interval, self.save, self.restart, self.taken_every);
        let best = daly_interval(self.save, self.taken_every).max(self.whole);
        CadenceVerdict {
            fault: check_cadence(self.interval, self.whole, self.notice).err(),
            cost: cost(self.interval),
            best,
            best_cost: cost(best),
        }
    }
}

/// Checks that a final save fits into the notice (less the manifest's margin), and saves fit into
/// the interval.
///
/// # Errors
/// The most serious fault.
pub fn check_cadence(
    interval: Span,
    save_p95: Span,
    notice: Option<Span>,
) -> Result<(), CadenceFault> {
    match notice {
        // Checked first, because a late save still counts as a save.
        Some(notice) if save_p95.duration() + NOTICE_MARGIN.duration() > notice.duration() => {
            Err(CadenceFault::LongerThanNotice {
                save: save_p95,
                notice,
                interval: interval.max(save_p95),
            })
        }
        _ if save_p95 >= interval => {
            Err(CadenceFault::LongerThanInterval { save: save_p95, interval })
        }
        _ => Ok(()),
    }
}

/// The manifest's margin before the end, as in `spot_notice`.
const NOTICE_MARGIN: Span = Span::from_secs(15);

fn secs(secs: f64) -> Span {
    Span::from_duration(std::time::Duration::from_millis(
        (secs.max(0.0) * 1000.0).min(1e15).round() as u64,
    ))
}
