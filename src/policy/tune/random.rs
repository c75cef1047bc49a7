//! Random values that follow from a seed and the number of a trial: another controller gets the
//! same.

use std::collections::BTreeMap;

use crate::job::{ParamScale, ParamValue, ParamValues, TuneParam};
use crate::policy::split_mix::SplitMix;

/// The values of a trial.
pub fn values(params: &BTreeMap<String, TuneParam>, seed: u64, trial: u32) -> ParamValues {
    let mut numbers = SplitMix(seed ^ (u64::from(trial) << 32));
    params.iter().map(|(name, param)| (name.clone(), value(param, &mut numbers))).collect()
}

fn below(numbers: &mut SplitMix, count: usize) -> usize {
    ((numbers.unit() * count as f64) as usize).min(count.saturating_sub(1))
}

fn value(param: &TuneParam, numbers: &mut SplitMix) -> ParamValue {
    match param {
        TuneParam::Float { min, max, scale } => {
            let drawn = on_scale(*min, *max, *scale, numbers.unit());
            ParamValue::Float(rounded(drawn, *min, *max))
        }
        TuneParam::Int { min, max, scale } => {
            // Half a step on each side, so that the ends are as likely as the others.
            let (low, high) = (*min as f64 - 0.5, *max as f64 + 0.5);
            let drawn = on_scale(low, high, *scale, numbers.unit()).round();
            ParamValue::Int((drawn as i64).clamp(*min, *max))
        }
        TuneParam::Categorical { values } => {
            ParamValue::Text(values.get(below(numbers, values.len())).cloned().unwrap_or_default())
        }
        TuneParam::Discrete { values } => {
            ParamValue::Float(values.get(below(numbers, values.len())).copied().unwrap_or_default())
        }
    }
}

/// Ten digits: a command line that people read, and a number that every reader of JSON keeps.
pub fn rounded(value: f64, min: f64, max: f64) -> f64 {
    let short = format!("{value:.9e}").parse().unwrap_or(value);
    if short < min || short > max { value.clamp(min, max) } else { short }
}

/// The value at a part of the range, in [0, 1].
fn on_scale(min: f64, max: f64, scale: ParamScale, part: f64) -> f64 {
    match scale {
        ParamScale::Linear => min + (max - min) * part,
        ParamScale::Log => (min.ln() + (max.ln() - min.ln()) * part).exp(),
        ParamScale::ReverseLog => min + max - on_scale(min, max, ParamScale::Log, part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(param: &TuneParam) -> Vec<f64> {
        let params = BTreeMap::from([("x".to_owned(), param.clone())]);
        (1..=2000)
            .map(|trial| match &values(&params, 7, trial)["x"] {
                ParamValue::Int(number) => *number as f64,
                ParamValue::Float(number) => *number,
                ParamValue::Text(text) => text.len() as f64,
            })
            .collect()
    }

    fn below(drawn: &[f64], limit: f64) -> f64 {
        drawn.iter().filter(|value| **value < limit).count() as f64 / drawn.len() as f64
    }

    #[test]
    fn scale_says_where_values_lie() {
        let float = |scale| drawn(&TuneParam::Float { min: 1e-4, max: 1.0, scale });
        let (linear, log, reverse) =
            (float(ParamScale::Linear), float(ParamScale::Log), float(ParamScale::ReverseLog));
        assert!(log.iter().chain(&linear).chain(&reverse).all(|x| (1e-4..=1.0).contains(x)));
        assert!((below(&linear, 0.5) - 0.5).abs() < 0.05);
        assert!((below(&log, 1e-2) - 0.5).abs() < 0.05, "half of the decades");
        assert!((below(&reverse, 0.99) - 0.5).abs() < 0.05);
    }

    #[test]
    fn ends_of_integers_are_as_likely_and_a_seed_repeats() {
        let param = TuneParam::Int { min: 1, max: 4, scale: ParamScale::Linear };
        let all = drawn(&param);
        for end in 1..=4 {
            let part = all.iter().filter(|value| **value == f64::from(end)).count();
            assert!((400..600).contains(&part), "{end}: {part}");
        }
        assert_eq!(all, drawn(&param));
    }
}
