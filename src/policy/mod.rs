//! Decisions: functions of (facts, now) that give a verdict with its reasons and the numbers they used.
//!
//! ```text
//!   Rates ──> idle ──┐
//!   Rates ──> stall ─┤
//!   limits -> budget ┼──> supervise ──> Step      (the agent's one decision; the order of verdicts is written there)
//!   notice ──────────┤
//!   wishes ──────────┘
//!   records + cloud's answer ──> reconcile ──> Act (the controller's one decision), with relaunch inside
//!   what all jobs cost ──> cap                        (before each launch)
//!   looks at a zone -> spell -> horizon -> market_choice -> MarketVerdict  (spot, on-demand or wait, under a deadline)
//!   looks at many   -> spell -> zones ─────────┘            (which of them, and what the others are worth)
//!   cron, hours, price ──> schedule ──> DueVerdict  (the daemon)
//! ```
//! The agent and the controller call these with facts that they gathered, `lamp replay` with recorded ones. What must
//! never live here: a clock, a file, a call, a random number; those who read them hand them in.

pub mod account;
pub mod billing;
pub mod lifecycle;
pub mod market;
pub mod purchase;
pub mod schedule;
pub mod watch;

pub use billing::end_codes::{cloud_text, cloud_words};
pub use billing::settlement::may_be_by_an_alarm;
pub use lifecycle::requests::{EndWish, MoveWish, Wishes};
pub use lifecycle::stopped_machine::keeps_disk;
pub use watch::activity_signals::rate as rate_text;
pub use watch::checkpoint_interval::{
    Cadence, CadenceCost, CadenceFault, CadenceVerdict, cadence_cost, check_cadence, daly_interval, young_interval,
};
pub use watch::hardware::{HardwareFault, HardwareWatch};
pub use watch::idle::{IdleRhythm, IdleWatch, YoungWindow, young_window};
pub use watch::limits::{
    Account, Extension, LimitKind, LimitLevel, LimitPoint, LimitVerdict, NEARS as LIMIT_NEARS, judge_limits, limit_level, limit_points,
};
pub use watch::spot_notice::{NoticeFacts, NoticeStep, Saver, hurries, judge_notice, over_by};
pub use watch::stall::{StallRhythm, StallWatch};
pub use watch::supervise::{SERVICE, afterwards, standing, supervise};
pub use watch::supervise_facts::{Afterwards, Decision, End, Facts, Reached, Stage, Step, Warning, WorkloadFact};
pub use watch::verdict::{Standing, WatchAction, WatchVerdict};
