//! The states of jobs in the words of the training service.

use crate::job::JobState;

/// The words of the training service for the state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingState {
    Queued,
    Preparing,
    Running,
    Succeeded,
    Failed,
    Cancelling,
    Cancelled,
}

impl TrainingState {
    pub fn word(self) -> &'static str {
        match self {
            TrainingState::Queued => "QUEUED",
            TrainingState::Preparing => "PREPARING",
            TrainingState::Running => "RUNNING",
            TrainingState::Succeeded => "SUCCEEDED",
            TrainingState::Failed => "FAILED",
            TrainingState::Cancelling => "CANCELLING",
            TrainingState::Cancelled => "CANCELLED",
        }
    }

    /// `is_end_asked`: a user has asked for the end, and the job still runs.
    pub fn of(state: JobState, is_end_asked: bool) -> TrainingState {
        match state {
            JobState::Succeeded => TrainingState::Succeeded,
            JobState::Failed => TrainingState::Failed,
            JobState::Stopped | JobState::Cancelled | JobState::Ended => TrainingState::Cancelled,
            _ if is_end_asked => TrainingState::Cancelling,
            JobState::Submitted | JobState::Interrupted => TrainingState::Queued,
            JobState::Provisioning | JobState::Preparing => TrainingState::Preparing,
            JobState::Running | JobState::Draining | JobState::Held | JobState::Terminating => {
                TrainingState::Running
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_words_of_the_training_service() {
        let cases = [
            (JobState::Submitted, false, "QUEUED"),
            (JobState::Provisioning, false, "PREPARING"),
            (JobState::Running, false, "RUNNING"),
            (JobState::Running, true, "CANCELLING"),
            (JobState::Draining, false, "RUNNING"),
            (JobState::Interrupted, false, "QUEUED"),
            (JobState::Succeeded, true, "SUCCEEDED"),
            (JobState::Stopped, false, "CANCELLED"),
            (JobState::Ended, false, "CANCELLED"),
            (JobState::Failed, false, "FAILED"),
        ];
        for (state, asked, word) in cases {
            assert_eq!(TrainingState::of(state, asked).word(), word, "{state:?}");
        }
    }
}
