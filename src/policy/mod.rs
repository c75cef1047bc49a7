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

pub mod apply;
pub mod auto;
pub mod bid;
pub mod bid_backtest;
pub mod billing;
mod billing_end;
mod budget;
pub mod cap;
mod checkpointing;
mod cloud_words;
pub mod continuation;
#[cfg(feature = "lamp")]
mod cron_field;
pub mod discard;
pub mod doctor;
pub mod driven_here;
pub mod fallback;
pub mod go_back;
mod guard;
pub mod hard_end;
mod hardware;
mod horizon;
mod idle;
pub mod idle_cost;
mod interruption;
pub mod job_most;
pub mod kept;
pub mod market_choice;
pub mod market_run;
mod missing;
mod no_offer;
mod offer_words;
pub mod orphan;
mod pace;
pub mod placement;
pub mod pool;
pub mod proof;
pub mod proof_sweeper;
pub mod ranking;
pub mod reconcile;
pub mod refusals;
pub mod relaunch;
#[cfg(feature = "lamp")]
pub mod schedule;
pub mod settlement;
pub mod setup;
mod signals;
pub mod spell;
mod stall;
mod stand;
mod stopped;
mod supervise;
mod supervise_facts;
pub mod sweeper;
mod unheeded;
mod verdict;
mod watched;
#[cfg(feature = "lamp")]
pub mod way_out;
mod wishes;
pub mod work;
pub mod zones;

pub use budget::{
    Account, Extension, LimitKind, LimitLevel, LimitPoint, LimitVerdict, NEARS as LIMIT_NEARS, judge_limits, limit_level, limit_points,
};
pub use checkpointing::{Cadence, CadenceCost, CadenceFault, CadenceVerdict, cadence_cost, check_cadence, daly_interval, young_interval};
pub use cloud_words::{cloud_text, cloud_words};
pub use hardware::{HardwareFault, HardwareWatch};
pub use idle::{IdleRhythm, IdleWatch, YoungWindow, young_window};
pub use interruption::{NoticeFacts, NoticeStep, Saver, hurries, judge_notice, over_by};
pub use settlement::may_be_by_an_alarm;
pub use signals::rate as rate_text;
pub use stall::{StallRhythm, StallWatch};
pub use stopped::keeps_disk;
pub use supervise::{SERVICE, afterwards, standing, supervise};
pub use supervise_facts::{Afterwards, Decision, End, Facts, Reached, Stage, Step, Warning, WorkloadFact};
pub use verdict::{Standing, WatchAction, WatchVerdict};
pub use wishes::{EndWish, MoveWish, Wishes};
