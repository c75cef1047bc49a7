//! Computes steps from the output of stock programs: one number that only grows.
//!
//! ```text
//!   `epoch 3/10`, `Epoch 3: 10/20` ──> epochs and steps within one: (epoch - 1) x steps + step
//!   one bar, or `step 120`         ──> its count; after a restart from zero it continues
//!   a second bar                   ──> a sign of activity, until the first is full
//! ```
//! A total is given only if it was shown: a bar may restart, and its total is then not the end of
//! the work. Not here: a file, or a clock.

use super::progress_lines::{Count, PrintedLine};

/// A counter with a smaller total may be the steps of a build.
const TOTAL_MIN: f64 = 20.0;
/// The most counters that are told apart. A script with more creates new names all the time.
const COUNTERS_MAX: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PrintedProgress {
    pub step: f64,
    pub total: Option<f64>,
}

#[derive(Debug, Default)]
pub(crate) struct Steps {
    epoch: Option<Count>,
    /// Epochs are counted from 0.
    from_zero: bool,
    counters: Vec<StepCounter>,
    main: Option<usize>,
    /// The main counter covers the whole training.
    is_whole: bool,
    best: Option<f64>,
}

#[derive(Debug)]
struct StepCounter {
    name: String,
    is_bar: bool,
    of: Option<f64>,
    at: f64,
    /// Its count before it restarted.
    base: f64,
    grew: u32,
    /// The epoch at its last count, whether it restarts with each epoch, and whether it continued
    /// over one.
    epoch: Option<f64>,
    begins_with_epoch: bool,
    spans_epochs: bool,
}

impl Steps {
    pub(crate) fn take(&mut self, line: &PrintedLine) -> Option<PrintedProgress> {
        if let Some(epoch) = line.epoch {
            self.from_zero |= epoch.at == 0.0;
            let of = epoch.of.or(self.epoch.and_then(|before| before.of));
            if self.epoch.is_none_or(|before| epoch.at >= before.at)
                && of.is_none_or(|of| epoch.at <= of)
            {
                self.epoch = Some(Count { at: epoch.at, of });
            }
        }
        if line.is_trainer
            && let Some(main) = self.main
        {
            self.is_whole |= self.counters[main].is_bar && self.counters[main].name.is_empty();
        }
        let stand = match line.count {
            Some(count) => self.counted(count, line),
            // With a counter, an epoch only tells what the counter counts within.
            None if self.main.is_none() => {
                line.epoch.map(|epoch| PrintedProgress { step: epoch.at, total: epoch.of })
            }
            None => None,
        }?;
        if self.best.is_some_and(|best| stand.step < best) {
            return None;
        }
        self.best = Some(stand.step);
        Some(stand)
    }

    fn counted(&mut self, count: Count, line: &PrintedLine) -> Option<PrintedProgress> {
        let index = self.counter(count, line)?;
        let main = *self.main.get_or_insert(index);
        let (best, epoch) = (self.best, self.epoch.map(|epoch| epoch.at));
        let is_full = |counter: &StepCounter| counter.of.is_some_and(|of| counter.at >= of);
        if index != main {
            // A counter that restarts with each epoch stays the main one; another after it is an
            // evaluation.
            if self.is_whole
                || self.counters[main].begins_with_epoch
                || !is_full(&self.counters[main])
            {
                self.counters[index].count(count.at, epoch);
                return None;
            }
            self.counters[index].base = best.unwrap_or(0.0);
            self.main = Some(index);
            if count.at < self.counters[index].at {
                self.counters[index].at = 0.0;
            }
        }
        let counter = &mut self.counters[index];
        counter.count(count.at, epoch);
        // A number that occurs once may be a setting.
        if !counter.is_bar && counter.grew == 0 {
            return None;
        }
        Some(self.stand(index))
    }

    fn stand(&self, index: usize) -> PrintedProgress {
        let counter = &self.counters[index];
        let counted = counter.base + counter.at;
        let Some((epoch, of)) = self
            .epoch
            .zip(counter.of)
            .filter(|_| counter.begins_with_epoch && !counter.spans_epochs && !self.is_whole)
        else {
            let is_told = !counter.is_bar
                && counter.grew >= 3
                && counter.base == 0.0
                && (counter.spans_epochs || self.epoch.is_none());
            let total = counter.of.filter(|of| self.is_whole || (is_told && *of >= TOTAL_MIN));
            return PrintedProgress { step: counted, total };
        };
        let before = if self.from_zero { epoch.at } else { epoch.at - 1.0 };
        // With epochs from 0, some programs print the last epoch as the total, others the number of
        // epochs.
        PrintedProgress {
            step: (before.floor() * of + counter.at).max(0.0),
            total: epoch.of.filter(|_| !self.from_zero).map(|epochs| epochs * of),
        }
    }

    fn counter(&mut self, count: Count, line: &PrintedLine) -> Option<usize> {
        let known = self.counters.iter().position(|counter| {
            counter.name == line.name && counter.of == count.of && counter.is_bar == line.is_bar
        });
        if known.is_some() {
            return known;
        }
        (self.counters.len() < COUNTERS_MAX).then(|| {
            let (name, is_bar, of) = (line.name.clone(), line.is_bar, count.of);
            let (base, grew, epoch) = (0.0, 0, self.epoch.map(|epoch| epoch.at));
            self.counters.push(StepCounter {
                name,
                is_bar,
                of,
                at: count.at,
                base,
                grew,
                epoch,
                begins_with_epoch: false,
                spans_epochs: false,
            });
            self.counters.len() - 1
        })
    }
}

impl StepCounter {
    fn count(&mut self, at: f64, epoch: Option<f64>) {
        let next_epoch =
            epoch.zip(self.epoch).is_some_and(|(now, before)| now.floor() > before.floor());
        if at < self.at {
            self.base += self.at;
            self.begins_with_epoch |= next_epoch;
        } else if at > self.at {
            self.grew = self.grew.saturating_add(1);
            self.spans_epochs |= next_epoch && !self.begins_with_epoch;
        }
        (self.at, self.epoch) = (at, epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::log::progress_lines::Reader;

    fn shown(lines: &[&str]) -> Vec<(f64, Option<f64>)> {
        let (reader, mut steps) = (Reader::new(), Steps::default());
        lines
            .iter()
            .filter_map(|line| steps.take(&reader.read(line)?))
            .map(|stand| (stand.step, stand.total))
            .collect()
    }

    fn bar(name: &str, at: u32, of: u32) -> String {
        format!("{name} {}%|███   | {at}/{of} [00:01<00:01,  8.5it/s]", at * 100 / of)
    }

    #[test]
    fn new_bar_continues_count_without_total() {
        let lines: Vec<String> = [5, 10, 4, 10, 3].iter().map(|at| bar("", *at, 10)).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(
            shown(&lines),
            [(5.0, None), (10.0, None), (14.0, None), (20.0, None), (23.0, None)]
        );
    }

    #[test]
    fn epochs_and_inner_bar_make_one_count() {
        let lines = [
            "Epoch 1/3",
            "10/20 ━━━━ 1s 20ms/step",
            "20/20 ━━━━ 1s 20ms/step",
            "Epoch 2/3",
            " 5/20 ━━━━ 1s 20ms/step",
            "20/20 ━━━━ 1s 20ms/step",
        ];
        assert_eq!(
            shown(&lines),
            [(1.0, Some(3.0)), (10.0, None), (20.0, None), (25.0, Some(60.0)), (40.0, Some(60.0))]
        );
        let lines: Vec<String> = [(0, 10), (0, 20), (1, 2), (2, 7)]
            .iter()
            .map(|(epoch, at)| bar(&format!("Epoch {epoch}:"), *at, 20))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(shown(&lines), [(10.0, None), (20.0, None), (22.0, None), (47.0, None)]);
    }

    #[test]
    fn trainer_bar_counts_after_its_loss_line() {
        let said = "{'loss': '1.9', 'learning_rate': '4e-05', 'epoch': '0.4'}";
        let lines = [
            bar("", 10, 75),
            said.to_owned(),
            bar("", 20, 75),
            bar("", 3, 10),
            bar("", 10, 10),
            bar("", 26, 75),
            bar("", 75, 75),
            bar("", 9, 10),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(
            shown(&lines),
            [(10.0, None), (20.0, Some(75.0)), (26.0, Some(75.0)), (75.0, Some(75.0))]
        );
    }

    #[test]
    fn total_steps_are_not_steps_within_epoch() {
        let lines = [
            "epoch 1 step 100/900",
            "epoch 1 step 200/900",
            "epoch 1 step 300/900",
            "epoch 2 step 400/900",
            "epoch 2 step 500/900",
        ];
        assert_eq!(
            shown(&lines),
            [(200.0, None), (300.0, None), (400.0, Some(900.0)), (500.0, Some(900.0))]
        );
        assert_eq!(
            shown(&["Step 1/4 : FROM x", "Step 2/4 : RUN y", "Step 3/4 : RUN z", "Step 4/4 : CMD"])
                .last(),
            Some(&(4.0, None))
        );
        assert_eq!(shown(&["will stop at step 100"]), []);
    }

    /// Real terminal output of tqdm 4.70, Lightning 2.6, transformers 5.24, Keras 3 and Ultralytics
    /// 8.4.
    #[test]
    fn recorded_programs_reach_last_step() {
        type Recording = (&'static str, &'static [u8], usize, (f64, Option<f64>));
        let cases: [Recording; 5] = [
            ("tqdm", include_bytes!("../../../tests/data/printed/tqdm.txt"), 40, (143.0, None)),
            (
                "Lightning",
                include_bytes!("../../../tests/data/printed/lightning.txt"),
                15,
                (60.0, None),
            ),
            (
                "Trainer",
                include_bytes!("../../../tests/data/printed/trainer.txt"),
                8,
                (75.0, Some(75.0)),
            ),
            (
                "Keras",
                include_bytes!("../../../tests/data/printed/keras.txt"),
                20,
                (60.0, Some(60.0)),
            ),
            (
                "Ultralytics",
                include_bytes!("../../../tests/data/printed/ultralytics.txt"),
                20,
                (60.0, Some(60.0)),
            ),
        ];
        for (name, bytes, least, last) in cases {
            let text = String::from_utf8_lossy(bytes);
            let lines: Vec<&str> = text.split(['\r', '\n']).collect();
            let shown = shown(&lines);
            assert!(
                shown.len() >= least && shown.is_sorted_by(|before, after| before.0 <= after.0),
                "{name}: {shown:?}"
            );
            assert_eq!(shown.last(), Some(&last), "{name}: {shown:?}");
        }
    }

    #[test]
    fn printed_progress_never_decreases() {
        let mut state = 7_u32;
        let mut lines = Vec::new();
        for _ in 0..3000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (kind, at) = (state >> 29, (state >> 8) % 50);
            lines.push(match kind {
                0 => format!("epoch {}/9", at % 10),
                1 => format!("step {at}"),
                2 => bar("", at, 50),
                3 => bar("train", at, 60),
                4 => bar(&format!("Epoch {}/9", at % 10), at, 50),
                _ => format!("step {at}/100 epoch {}", at % 7),
            });
        }
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let shown = shown(&lines);
        assert!(shown.len() > 10 && shown.is_sorted_by(|before, after| before.0 <= after.0));
        assert!(
            shown.iter().all(|(step, total)| total.is_none_or(|total| total >= *step)),
            "{shown:?}"
        );
    }
}
