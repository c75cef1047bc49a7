//! Decisions: functions of facts and `now` that return a verdict with its reasons and numbers.
//!
//! ```text
//!   Rates ──> idle ──┐
//!   Rates ──> stall ─┤
//!   limits ──────────┼──> supervise ──> SuperviseStep  (the agent's one decision)
//!   notice ──────────┤
//!   wishes ──────────┘
//!   records + cloud's answer ──> reconcile ──> Act  (the controller's one decision)
//!   cost of all jobs ──> spending_cap  (before each launch)
//!   one zone ───> capacity_periods ──> remaining_cost ─┬─> deadline_choice ──> a market, or wait
//!   many zones ─> capacity_periods ──> zones ──────────┘
//!   cron, hours, price ──> calendar ──> DueVerdict  (the daemon)
//! ```
//! The agent and the controller pass current facts, `lamp replay` recorded ones. These modules use
//! no clock, file, call or random number; the caller passes them in.

pub mod account;
pub mod billing;
pub mod gang;
pub mod lifecycle;
pub mod market;
pub mod purchase;
pub mod schedule;
pub mod split_mix;
#[cfg(feature = "lamp")]
pub mod tune;
pub mod watch;

pub use billing::end_codes::{cloud_text, cloud_words};
pub use billing::end_evidence::may_be_by_an_alarm;
pub use lifecycle::forgotten_disk::keeps_disk;
pub use lifecycle::requests::{EndWish, MoveWish, Wishes};
pub use watch::activity_signals::rate as rate_text;
pub use watch::checkpoint_interval::{
    Cadence, CadenceCost, CadenceFault, CadenceVerdict, cadence_cost, check_cadence, daly_interval,
    young_interval,
};
pub use watch::hardware::{HardwareFault, HardwareWatch};
pub use watch::idle::{IdleRhythm, IdleWatch, YoungWindow, young_window};
pub use watch::limits::{
    Extension, LimitFacts, LimitKind, LimitLevel, LimitPoint, LimitVerdict, NEARS as LIMIT_NEARS,
    judge_limits, limit_level, limit_points,
};
pub use watch::spot_notice::{NoticeFacts, NoticeStep, Saver, hurries, judge_notice, over_by};
pub use watch::stall::{StallRhythm, StallWatch};
pub use watch::supervise::{SERVICE, afterwards, standing, supervise};
pub use watch::supervise_facts::{
    Afterwards, Decision, End, Reached, SuperviseFacts, SuperviseStep, Warning, WorkloadFact,
    WorkloadStage,
};
pub use watch::verdict::{Activity, WatchAction, WatchVerdict};
