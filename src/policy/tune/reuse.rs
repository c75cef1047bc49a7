//! Which trial begins on the stopped machine of an ended one, and which machines are given up.
//!
//! ```text
//!   a trial succeeds ─> its machine is stopped, and kept by its job
//!   kept, and no trial took it ──────────────> free: the next trial takes it, or it is given up
//!   taken by a trial that runs ──────────────> theirs, if they start it
//!   taken by a trial that ended ─┬─ started ─> handed on: it is the other job's
//!                                └─ not ─────> free again; its tags say which job has it
//! ```
//! A trial takes a machine in its own record, which is written once. So two drivers give one
//! machine to one trial. Each run on the machine has its own start, bill and hard end. Between two
//! runs it stands still, and only its disk bills. A killed driver leaves no machine running.

/// A trial as far as it matters for its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReuseTrial {
    pub number: u32,
    /// Its ended job may keep a stopped machine, as far as its records say.
    pub keeps: bool,
    /// The trial whose machine it took.
    pub took: Option<u32>,
    /// Whether it started that machine; `None`: it has not ended.
    pub started: Option<bool>,
}

/// The owner of a kept machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptStand {
    Free,
    /// A trial that runs has taken it.
    Taken,
    /// A trial started it, so its job keeps it no more.
    HandedOn,
}

/// The machine that this trial keeps.
pub fn stand_of(number: u32, trials: &[ReuseTrial]) -> KeptStand {
    let last = trials.iter().rev().find(|trial| trial.took == Some(number));
    match last.map(|trial| trial.started) {
        None | Some(Some(false)) => KeptStand::Free,
        Some(None) => KeptStand::Taken,
        Some(Some(true)) => KeptStand::HandedOn,
    }
}

/// Whether a later trial took it. The machine may carry the name of that one since.
pub fn was_taken(number: u32, trials: &[ReuseTrial]) -> bool {
    trials.iter().any(|trial| trial.took == Some(number))
}

/// The trials whose machines are free, in the order of their numbers.
pub fn free_machines(trials: &[ReuseTrial]) -> Vec<u32> {
    let kept = trials.iter().filter(|trial| trial.keeps).map(|trial| trial.number);
    kept.filter(|number| stand_of(*number, trials) == KeptStand::Free).collect()
}

/// The free machines that no further trial will begin on. `to_start`: how many may still start.
pub fn spare_machines(trials: &[ReuseTrial], to_start: usize) -> Vec<u32> {
    free_machines(trials).into_iter().skip(to_start).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(number: u32, keeps: bool, took: Option<u32>, started: Option<bool>) -> ReuseTrial {
        ReuseTrial { number, keeps, took, started }
    }

    #[test]
    fn kept_machine_is_free_until_a_trial_takes_it() {
        let mut all = vec![trial(1, true, None, Some(false)), trial(2, false, None, None)];
        assert_eq!(free_machines(&all), [1]);
        all.push(trial(3, false, Some(1), None));
        assert_eq!((stand_of(1, &all), free_machines(&all)), (KeptStand::Taken, vec![]));
        all[2].started = Some(true);
        assert_eq!(stand_of(1, &all), KeptStand::HandedOn);
        all[2].keeps = true;
        assert_eq!(free_machines(&all), [3], "the trial that started it keeps it now");
    }

    #[test]
    fn machine_that_a_trial_took_and_never_started_is_free_again() {
        let mut all =
            vec![trial(1, true, None, Some(false)), trial(2, false, Some(1), Some(false))];
        assert_eq!(free_machines(&all), [1]);
        assert!(was_taken(1, &all) && !was_taken(2, &all));
        all.push(trial(3, false, Some(1), None));
        assert_eq!(stand_of(1, &all), KeptStand::Taken, "the newest that took it counts");
    }

    #[test]
    fn machines_that_no_trial_will_begin_on_are_spare() {
        let all: Vec<ReuseTrial> = (1..=3).map(|n| trial(n, true, None, Some(false))).collect();
        assert_eq!(spare_machines(&all, 3), [] as [u32; 0]);
        assert_eq!(spare_machines(&all, 1), [2, 3]);
        assert_eq!(spare_machines(&all, 0), [1, 2, 3], "the tuning has ended");
    }
}
