//! The place of each trial on the axis of a parameter.

use super::view::TrialRow;
use crate::job::ParamValue;

/// From 0 to 1, for each trial. Words stand in the order of the alphabet; numbers that span decades
/// by their logarithm.
pub fn param_places(name: &str, trials: &[&TrialRow]) -> Vec<f64> {
    let mut words: Vec<String> =
        trials.iter().filter_map(|trial| trial.params.get(name)).map(ToString::to_string).collect();
    words.sort_unstable();
    words.dedup();
    let plain = trials.iter().map(|trial| match trial.params.get(name) {
        Some(ParamValue::Int(number)) => *number as f64,
        Some(ParamValue::Float(number)) => *number,
        Some(ParamValue::Text(text)) => {
            words.iter().position(|word| word == text).unwrap_or_default() as f64
        }
        None => 0.0,
    });
    let mut plain: Vec<f64> = plain.collect();
    let least = |plain: &[f64]| plain.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |plain: &[f64]| plain.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if least(&plain) > 0.0 && most(&plain) > 100.0 * least(&plain) {
        plain.iter_mut().for_each(|value| *value = value.log10());
    }
    let (low, high) = (least(&plain), most(&plain));
    let place = |value: f64| if low < high { (value - low) / (high - low) } else { 0.5 };
    plain.into_iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::ParamValues;
    use crate::market::Usd;

    fn trial(number: u32, rate: f64, kind: &str, value: f64) -> TrialRow {
        let params = ParamValues::from([
            ("rate".to_owned(), ParamValue::Float(rate)),
            ("kind".to_owned(), ParamValue::Text(kind.into())),
        ]);
        TrialRow {
            number,
            job: "toy-222222".parse().expect("an id"),
            machines: 1,
            state: "complete",
            value: Some(value),
            step: None,
            params,
            usd: Usd::from_dollars(f64::from(number)).expect("dollars"),
            seconds: 1.0,
            reason: String::new(),
            points: Vec::new(),
        }
    }

    #[test]
    fn decades_are_placed_by_logarithm_and_words_by_alphabet() {
        let trials = [trial(0, 1e-4, "b", 1.0), trial(1, 1e-2, "a", 2.0), trial(2, 1.0, "c", 3.0)];
        let trials: Vec<&TrialRow> = trials.iter().collect();
        assert_eq!(param_places("rate", &trials), [0.0, 0.5, 1.0]);
        assert_eq!(param_places("kind", &trials), [0.5, 0.0, 1.0]);
        assert_eq!(param_places("none", &trials), [0.5; 3], "equal values stand in the middle");
    }
}
