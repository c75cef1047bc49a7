//! How long an agent has been silent, and what the cloud says about its machine.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::app::text::local_time;
use crate::instance::InstanceState;
use crate::job::{JobState, Plan};
use crate::market::{CloudKind, Span};

/// An agent sends a heartbeat every 15 s. Shorter, and one slow store request makes a machine
/// silent; longer, and a lost one is called running.
pub const SILENT_AFTER: Duration = Duration::from_secs(2 * 60);

/// The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Silence {
    /// Since the last heartbeat, by this workstation's clock.
    pub seconds: f64,
    /// Longer than its lease: the job's controller ends the machine and starts another.
    pub is_lost: bool,
    /// `running`, `terminated` and so on, or `gone` if the cloud shows none. Null: it did not
    /// answer.
    #[cfg_attr(feature = "web", schema(value_type = Option<String>))]
    pub machine: Option<SeenMachine>,
    /// When it ended, by the cloud.
    pub ended: Option<Timestamp>,
}

impl Silence {
    /// `None`: its agent reported in time, or has ended.
    pub fn of(state: JobState, heard: Option<Duration>, lease: Duration) -> Option<Self> {
        let is_watched =
            matches!(state, JobState::Preparing | JobState::Running | JobState::Draining);
        let silent = heard.filter(|silent| is_watched && *silent >= SILENT_AFTER)?;
        Some(Silence {
            seconds: silent.as_secs_f64(),
            is_lost: silent >= lease,
            machine: None,
            ended: None,
        })
    }

    fn is_off(&self) -> bool {
        self.machine.is_some_and(|seen| match seen {
            SeenMachine::There(state) => !state.bills(),
            SeenMachine::Gone => true,
        })
    }

    /// Replaces the state in its records.
    pub fn state(&self) -> &'static str {
        match (self.is_off(), self.is_lost) {
            (true, _) => "gone",
            (false, true) => "lost",
            (false, false) => "silent",
        }
    }

    pub fn sentence(&self, plan: Option<&Plan>) -> String {
        let heard =
            format!("its agent was last heard {} ago", Span::from_secs(self.seconds as u64));
        let cloud = plan.map_or("the cloud", |plan| match plan.offer.cloud {
            CloudKind::Aws => "EC2",
            CloudKind::Local => "this workstation",
        });
        let ended =
            self.ended.map(|ended| format!(" since {}", local_time(ended))).unwrap_or_default();
        match self.machine {
            Some(SeenMachine::Gone) => format!("{heard}; {cloud} shows its machine no more"),
            Some(SeenMachine::There(state)) => {
                format!("{heard}; {cloud} says that its machine is {state}{ended}")
            }
            None => format!("{heard}; {cloud} does not say what its machine does"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenMachine {
    There(InstanceState),
    /// It shows no such machine.
    Gone,
}

impl Serialize for SeenMachine {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            SeenMachine::There(state) => to.collect_str(state),
            SeenMachine::Gone => to.serialize_str("gone"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30 * 60);

    #[test]
    fn machine_is_silent_after_two_minutes_and_lost_after_its_lease() {
        let of = |secs: u64| {
            Silence::of(JobState::Running, Some(Duration::from_secs(secs)), LEASE)
                .map(|silence| silence.state())
        };
        assert_eq!(
            (of(119), of(120), of(1799), of(1800)),
            (None, Some("silent"), Some("silent"), Some("lost"))
        );
        assert_eq!(
            Silence::of(JobState::Running, None, LEASE),
            None,
            "its agent has not said a word yet"
        );
        for over in
            [JobState::Held, JobState::Terminating, JobState::Succeeded, JobState::Interrupted]
        {
            assert_eq!(Silence::of(over, Some(LEASE), LEASE), None, "{over:?}");
        }
    }

    #[test]
    fn what_the_cloud_says_goes_before_the_guess() {
        let mut silence = Silence { seconds: 200.0, is_lost: false, machine: None, ended: None };
        assert_eq!(
            silence.sentence(None),
            "its agent was last heard 3m 20s ago; the cloud does not say what its machine does"
        );
        use InstanceState::{Running, Stopping, Terminated};
        let there = SeenMachine::There;
        for (machine, state) in [
            (there(Running), "silent"),
            (there(Terminated), "gone"),
            (there(Stopping), "gone"),
            (SeenMachine::Gone, "gone"),
        ] {
            silence.machine = Some(machine);
            assert_eq!(silence.state(), state, "{machine:?}");
        }
        assert_eq!(
            silence.sentence(None),
            "its agent was last heard 3m 20s ago; the cloud shows its machine no more"
        );
    }
}
