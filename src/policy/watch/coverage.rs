//! How much of an interval was really watched.
//!
//! A laptop may sleep, an agent may be stopped, a recorder may hang. Then two samples are far
//! apart, and the time between is unknown. The watching policies count only the part that a sample
//! can represent.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::market::Span;

/// Fifteen intervals: their median ignores seven outliers, and follows a new sampling rate within
/// fifteen.
const RECENT_MAX: usize = 15;

/// Twice the usual interval: its neighbours cover one missed sample, but not an hour.
const USUAL_TIMES: f64 = 2.0;

/// A third of the window: every verdict needs three samples, however slowly they come.
const WINDOW_SHARE: f64 = 1.0 / 3.0;

/// The usual sampling interval, learned from the series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pace {
    recent: VecDeque<f64>,
}

impl Pace {
    /// The seconds of an interval that count; also learns from it.
    pub(crate) fn counted(&mut self, interval_secs: f64, window_secs: f64) -> f64 {
        if !interval_secs.is_finite() || interval_secs <= 0.0 {
            return 0.0;
        }
        let most = self
            .usual_secs()
            .map_or(f64::INFINITY, |usual| usual * USUAL_TIMES)
            .min(window_secs * WINDOW_SHARE);
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(interval_secs);
        interval_secs.min(most)
    }

    /// Runs at every look, so it avoids an allocation.
    fn usual_secs(&self) -> Option<f64> {
        let mut room = [0.0; RECENT_MAX];
        let Some(values) = room.get_mut(..self.recent.len()) else {
            return median(self.recent.iter().copied());
        };
        values.iter_mut().zip(&self.recent).for_each(|(value, recent)| *value = *recent);
        middle(values)
    }
}

/// The median; for an even count the lower middle value. `None` if empty.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    middle(&mut values.collect::<Vec<f64>>())
}

fn middle(values: &mut [f64]) -> Option<f64> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// The newest values, with their cached median.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    values: VecDeque<f64>,
    median: Option<f64>,
}

impl Recent {
    pub(crate) fn of(values: VecDeque<f64>) -> Self {
        let median = median(values.iter().copied());
        Recent { values, median }
    }

    /// Adds a value and drops the oldest beyond `most`. A value that is not finite is skipped: it
    /// would spoil the median and cannot be recorded.
    pub(crate) fn keep(&mut self, value: f64, most: usize) {
        if !value.is_finite() {
            return;
        }
        if self.values.len() == most {
            self.values.pop_front();
        }
        self.values.push_back(value);
        self.median = median(self.values.iter().copied());
    }

    pub(crate) fn median(&self) -> Option<f64> {
        self.median
    }

    pub(crate) fn values(&self) -> &VecDeque<f64> {
        &self.values
    }
}

/// Whole seconds, for people.
pub(crate) fn span(secs: f64) -> Span {
    Span::from_secs(secs.max(0.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_of_the_newest_numbers() {
        let mut recent = Recent::of([4.0, 1.0].into());
        assert_eq!(recent.median(), Some(1.0));
        for value in [9.0, f64::NAN, 8.0, f64::INFINITY, 7.0] {
            recent.keep(value, 3);
        }
        assert_eq!(
            (recent.values(), recent.median()),
            (&VecDeque::from([9.0, 8.0, 7.0]), Some(8.0))
        );
        assert_eq!(Recent::default().median(), None);
    }

    #[test]
    fn gap_counts_as_two_intervals_and_at_most_a_third_of_a_window() {
        let mut pace = Pace::default();
        for _ in 0..20 {
            assert_eq!(pace.counted(10.0, 300.0), 10.0);
        }
        assert_eq!(pace.counted(8.0 * 3600.0, 300.0), 20.0);
        assert_eq!(pace.counted(10.0, 300.0), 10.0);
        assert_eq!(Pace::default().counted(600.0, 300.0), 100.0);
        assert_eq!(Pace::default().counted(0.0, 300.0), 0.0);
    }

    #[test]
    fn median_of_an_even_number_is_the_lower_middle() {
        assert_eq!(median([].into_iter()), None);
        assert_eq!(median([4.0, 1.0].into_iter()), Some(1.0));
        assert_eq!(median([4.0, 1.0, 9.0].into_iter()), Some(4.0));
    }
}
