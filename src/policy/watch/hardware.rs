//! Has the machine lost a GPU that the work needs?
//!
//! ```text
//!   a GPU off the bus, or in need of a reset ─┐
//!   none at all, but the job needs one ───────┼─> a fault
//!   Xid 79 or 48 ─────────────────────────────┘
//!
//!   a fault ─┬─ the workload fails ────────────────────> the machine is the cause
//!            ├─ no step, line or checkpoint for a while ─> the same
//!            └─ work goes on ───────────────────────────> the Xid is forgotten, nothing is ended
//! ```
//! A fault alone ends nothing: the job may use another GPU, or have contained the error.
//! `supervise` decides the action.

use serde::{Deserialize, Serialize};

use super::coverage::{Pace, span};
use crate::instance::{GpuSample, Rates, Reading};
use crate::job::GpuSelection;
use crate::market::Span;

/// Xid errors after which a GPU is unusable for its process: 79, off the bus; 48, an uncontained
/// double-bit error.
const FATAL_XIDS: [u64; 2] = [48, 79];

/// Longest silence of a workload on a machine with a fault before it counts as hung. A collective
/// times out after ten minutes, also the bound in row 43 of docs/promises.md; most programs fail
/// within seconds. With less, a long step on the other GPUs counts as a hang.
const SILENT_SECS: f64 = 180.0;

/// Twice the longest earlier silence of this workload, up to the maximum below. The save and the
/// uploads then still fit into ten minutes.
const TIMES_SILENCE: f64 = 2.0;
const SILENT_SECS_MAX: f64 = 420.0;

/// A workload with progress this long after an Xid has survived it.
const SURVIVED_SECS: f64 = 60.0;

/// The fault, for the decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HardwareFault {
    /// The sentence for people: which GPU, and the fault.
    pub text: String,
    /// Time without progress since the fault.
    pub silent: Span,
    /// The silence that counts as a hang.
    pub needed: Span,
}

impl HardwareFault {
    pub fn hangs(&self) -> bool {
        self.silent >= self.needed
    }
}

#[derive(Clone, Debug, Default)]
pub struct HardwareWatch {
    pace: Pace,
    /// Fatal Xids of each GPU by index, at the last look.
    xids: Vec<usize>,
    fault: Option<OpenFault>,
    /// Time since the last progress, and the longest such time without a fault.
    silent_secs: f64,
    silent_secs_max: f64,
    asked: bool,
    /// Whether it reports steps or checkpoints. If so, log output alone is no progress, because
    /// errors are logged too.
    marks: bool,
}

#[derive(Clone, Debug)]
struct OpenFault {
    text: String,
    since_secs: f64,
    silent_secs: f64,
}

impl HardwareWatch {
    /// `asked`: the job asks for a GPU.
    pub fn new(asked: bool) -> Self {
        HardwareWatch { asked, ..HardwareWatch::default() }
    }

    /// Continues with a fault of an earlier watch: the driver reports an Xid once.
    pub fn remember(&mut self, fault: Option<&HardwareFault>) {
        self.fault = fault.map(|fault| OpenFault {
            text: fault.text.clone(),
            since_secs: 0.0,
            silent_secs: 0.0,
        });
    }

    /// The workload was restarted; a fault remains.
    pub fn started_again(&mut self) {
        self.silent_secs = 0.0;
        if let Some(fault) = &mut self.fault {
            fault.silent_secs = 0.0;
        }
    }

    /// Reads the GPUs' current state, and the workload's activity in the last interval.
    pub fn step(
        &mut self,
        gpus: &Reading<Vec<GpuSample>>,
        selection: &GpuSelection,
        rates: Option<&Rates>,
    ) {
        let lost = self.look(gpus, selection);
        let Some(rates) = rates else { return };
        let counted = self.pace.counted(rates.interval_secs, SILENT_SECS);
        let known = |reading: &Reading<f64>| reading.known().is_some_and(|value| *value > 0.0);
        let marked = known(&rates.progress_marks) || known(&rates.checkpoint_marks);
        self.marks |= marked;
        let progress = marked || (!self.marks && known(&rates.log_bytes));
        self.silent_secs = if progress { 0.0 } else { self.silent_secs + counted };
        let Some(fault) = &mut self.fault else {
            self.silent_secs_max = self.silent_secs_max.max(self.silent_secs);
            return;
        };
        fault.since_secs += counted;
        fault.silent_secs = if progress { 0.0 } else { fault.silent_secs + counted };
        if progress && !lost && fault.since_secs >= SURVIVED_SECS {
            self.fault = None;
        }
    }

    pub fn fault(&self) -> Option<HardwareFault> {
        let fault = self.fault.as_ref()?;
        let needed = (TIMES_SILENCE * self.silent_secs_max).clamp(SILENT_SECS, SILENT_SECS_MAX);
        Some(HardwareFault {
            text: fault.text.clone(),
            silent: span(fault.silent_secs),
            needed: span(needed),
        })
    }

    /// Records new faults; returns whether a GPU is lost now.
    fn look(&mut self, gpus: &Reading<Vec<GpuSample>>, selection: &GpuSelection) -> bool {
        // If the driver does not answer, the state is unknown.
        let Reading::Known(gpus) = gpus else { return false };
        if gpus.is_empty() && self.asked {
            self.found("the job asks for a GPU, and the driver shows none".to_owned());
            return true;
        }
        let mut any_lost = false;
        for (at, gpu) in gpus.iter().enumerate() {
            if matches!(selection, GpuSelection::Indices(indices) if !indices.contains(&gpu.index))
            {
                continue;
            }
            if self.xids.len() <= at {
                self.xids.resize(at + 1, 0);
            }
            let fatal = gpu.xids.iter().rev().find(|xid| FATAL_XIDS.contains(xid));
            let count = gpu.xids.iter().filter(|xid| FATAL_XIDS.contains(xid)).count();
            let grown = count > std::mem::replace(&mut self.xids[at], count);
            if let Some(why) = &gpu.lost {
                any_lost = true;
                let xid = fatal.map(|xid| format!(" (Xid {xid})")).unwrap_or_default();
                self.found(format!("GPU {}: {why}{xid}", gpu.index));
            } else if let (true, Some(xid)) = (grown, fatal) {
                self.found(format!("GPU {}: the driver reported Xid {xid}", gpu.index));
            }
        }
        any_lost
    }

    fn found(&mut self, text: String) {
        self.fault.get_or_insert(OpenFault { text, since_secs: 0.0, silent_secs: 0.0 });
    }
}
