//! Exit codes: the workload's own, and a named block for the tool.
//!
//! `docs/exit-codes.md` lists them, and a test compares the two. Every number here needs a name.

use crate::job::{EndedBecause, ExitStatus, JobOutcome, Receipt};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExitCode(u8);

impl ExitCode {
    pub const SUCCESS: ExitCode = ExitCode(0);
    /// The command line is invalid. Every Unix tool uses 2.
    pub const USAGE: ExitCode = ExitCode(2);
    // Shells use 126 and up, and few programs use codes from 100; SkyPilot uses this block too.
    /// The job file or the configuration has errors; nothing was started.
    pub const FINDINGS: ExitCode = ExitCode(100);
    /// A job, a file or a record is missing.
    pub const NOT_FOUND: ExitCode = ExitCode(101);
    /// The tool refused: unconfirmed, another owner's, a secret in the workdir, a newer format.
    pub const REFUSED: ExitCode = ExitCode(102);
    /// The job root or the cloud is unreachable, or denies access.
    pub const UNREACHABLE: ExitCode = ExitCode(103);
    /// No machine was available.
    pub const LAUNCH_FAILED: ExitCode = ExitCode(104);
    /// The machine is gone and its agent left no outcome, or it was interrupted too often.
    pub const LOST: ExitCode = ExitCode(105);
    /// The machine ran, but preflight or `setup` failed.
    pub const PREPARE_FAILED: ExitCode = ExitCode(106);
    pub const IDLE_OR_STALLED: ExitCode = ExitCode(107);
    /// Stopped or cancelled at a user's request.
    pub const STOPPED: ExitCode = ExitCode(108);
    /// A proof failed: a rehearsal did not resume, or a machine kept running.
    pub const NOT_PROVED: ExitCode = ExitCode(109);
    /// A bug in the tool.
    pub const INTERNAL: ExitCode = ExitCode(110);
    /// This workstation may be off, and no recent proof shows that the machine ends by itself.
    pub const UNPROVEN: ExitCode = ExitCode(111);
    /// Stopped by a limit of the job: run time, budget or deadline. As in `timeout(1)`.
    pub const LIMIT: ExitCode = ExitCode(124);
    /// Ended by Ctrl-C; an attached job continues.
    pub const CTRL_C: ExitCode = ExitCode(130);

    /// Every named code, with its name in the documentation.
    pub const ALL: [(ExitCode, &'static str); 16] = [
        (ExitCode::SUCCESS, "success"),
        (ExitCode::USAGE, "usage"),
        (ExitCode::FINDINGS, "findings"),
        (ExitCode::NOT_FOUND, "not-found"),
        (ExitCode::REFUSED, "refused"),
        (ExitCode::UNREACHABLE, "unreachable"),
        (ExitCode::LAUNCH_FAILED, "launch-failed"),
        (ExitCode::LOST, "lost"),
        (ExitCode::PREPARE_FAILED, "prepare-failed"),
        (ExitCode::IDLE_OR_STALLED, "idle-or-stalled"),
        (ExitCode::STOPPED, "stopped"),
        (ExitCode::NOT_PROVED, "not-proved"),
        (ExitCode::INTERNAL, "internal"),
        (ExitCode::UNPROVEN, "unproven"),
        (ExitCode::LIMIT, "limit"),
        (ExitCode::CTRL_C, "ctrl-c"),
    ];

    pub const fn number(self) -> u8 {
        self.0
    }

    pub fn of_workload(shell_code: i32) -> Self {
        // A code outside 0..=255 cannot come from a process; truncation must not make it 0.
        ExitCode(u8::try_from(shell_code).unwrap_or(1))
    }

    /// The code of a whole job: its workload's own if that explains the end, else the tool's.
    pub fn of_end(because: EndedBecause, exit: Option<ExitStatus>) -> Self {
        match because {
            EndedBecause::Succeeded => ExitCode::SUCCESS,
            EndedBecause::Failed | EndedBecause::OutOfMemory => {
                ExitCode::of_workload(exit.map_or(1, |exit| exit.shell_code()).max(1))
            }
            EndedBecause::SetupFailed | EndedBecause::PreflightFailed => ExitCode::PREPARE_FAILED,
            EndedBecause::Interrupted
            | EndedBecause::HardwareLost
            | EndedBecause::Moved
            | EndedBecause::Lost => ExitCode::LOST,
            EndedBecause::Idle | EndedBecause::Stalled => ExitCode::IDLE_OR_STALLED,
            EndedBecause::MaxRuntime
            | EndedBecause::Budget
            | EndedBecause::Deadline
            | EndedBecause::HardEnd => ExitCode::LIMIT,
            EndedBecause::UserStopped | EndedBecause::UserCancelled => ExitCode::STOPPED,
            EndedBecause::LaunchFailed => ExitCode::LAUNCH_FAILED,
        }
    }

    /// The exit code of an ended job.
    pub fn of_receipt(receipt: &Receipt) -> Self {
        let last = receipt.attempts.last();
        match (receipt.outcome, receipt.because.or(last.map(|last| last.ended_because))) {
            (JobOutcome::Succeeded, _) => ExitCode::SUCCESS,
            (JobOutcome::Stopped | JobOutcome::Cancelled, _) => ExitCode::STOPPED,
            (JobOutcome::Failed | JobOutcome::Ended, Some(because)) => {
                ExitCode::of_end(because, last.and_then(|last| last.exit))
            }
            // Only in receipts of older versions: a limit ended the job before any launch.
            (JobOutcome::Failed | JobOutcome::Ended, None) => ExitCode::LIMIT,
        }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        std::process::ExitCode::from(code.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn workloads_own_code_passes_through() {
        let exit = |code| Some(ExitStatus { code: Some(code), ..ExitStatus::default() });
        assert_eq!(ExitCode::of_end(EndedBecause::Failed, exit(7)).number(), 7);
        assert_eq!(
            ExitCode::of_end(
                EndedBecause::OutOfMemory,
                Some(ExitStatus { signal: Some(9), oom: true, code: None })
            )
            .number(),
            137
        );
        assert_eq!(ExitCode::of_end(EndedBecause::Succeeded, exit(0)), ExitCode::SUCCESS);
    }

    #[test]
    fn a_failed_job_never_looks_like_success() {
        let codes = [0, 1, 256, -1]
            .map(|code| Some(ExitStatus { code: Some(code), ..ExitStatus::default() }));
        let exits = [
            &codes[..],
            &[
                None,
                Some(ExitStatus::default()),
                Some(ExitStatus { signal: Some(0), ..ExitStatus::default() }),
            ],
        ]
        .concat();
        // Serde's error names all known words, also of future variants.
        let unknown = serde_json::from_str::<EndedBecause>("\"?\"").unwrap_err().to_string();
        let all: Vec<EndedBecause> =
            unknown.split('`').filter_map(EndedBecause::from_word).collect();
        assert!(all.len() >= 18, "{unknown}");
        for because in all {
            let well = because == EndedBecause::Succeeded;
            assert_eq!(because.job_outcome() == JobOutcome::Succeeded, well, "{because:?}");
            for exit in &exits {
                assert_eq!(
                    ExitCode::of_end(because, *exit) == ExitCode::SUCCESS,
                    well,
                    "{because:?}, {exit:?}"
                );
            }
        }
    }

    #[test]
    fn numbers_and_names_are_unique() {
        for (at, (code, name)) in ExitCode::ALL.iter().enumerate() {
            assert!(
                ExitCode::ALL[..at].iter().all(|(other, word)| other != code && word != name),
                "{name}"
            );
        }
    }

    fn code(because: &Value, attempts: &Value) -> ExitCode {
        let receipt = json!({ "format": 1, "job": "x-222222", "name": "x", "outcome": "failed", "exit_code": null, "because": because,
            "reason": "r", "started": "2026-01-01T00:00:00Z", "ended": "2026-01-01T01:00:00Z", "attempts": attempts, "total_usd": 0.0,
            "useful_seconds": 0.0, "idle_seconds": 0.0, "checkpoints": 0 });
        ExitCode::of_receipt(&serde_json::from_value(receipt).unwrap())
    }

    #[test]
    fn limit_between_two_attempts_or_before_the_first_is_a_limit() {
        let interrupted = json!([{ "attempt": 1, "instance": "i", "instance_type": "t", "zone": "z", "market": "spot", "started": null,
            "ended": null, "billed_seconds": 0.0, "usd": 0.0, "ended_because": "interrupted" }]);
        assert_eq!(code(&json!("deadline"), &interrupted), ExitCode::LIMIT);
        assert_eq!(code(&json!("budget"), &json!([])), ExitCode::LIMIT);
        assert_eq!(code(&json!("interrupted"), &interrupted), ExitCode::LOST);
        assert_eq!(code(&Value::Null, &interrupted), ExitCode::LOST);
    }
}
