//! Every combination of values, in order.

use std::collections::BTreeMap;

use crate::job::{ParamValue, ParamValues, TuneParam};

/// The combination of a trial, from 0: the last parameter by name changes fastest. `None`: there
/// are fewer combinations, or a parameter is a range of real numbers.
pub fn combination(params: &BTreeMap<String, TuneParam>, index: u64) -> Option<ParamValues> {
    let mut rest = index;
    let mut values = ParamValues::new();
    for (name, param) in params.iter().rev() {
        let count = param.count()?;
        values.insert(name.clone(), nth(param, rest.checked_rem(count)?)?);
        rest /= count;
    }
    (rest == 0).then_some(values)
}

fn nth(param: &TuneParam, index: u64) -> Option<ParamValue> {
    let at = usize::try_from(index).ok()?;
    match param {
        TuneParam::Float { .. } => None,
        TuneParam::Int { min, .. } => min.checked_add_unsigned(index).map(ParamValue::Int),
        TuneParam::Categorical { values } => values.get(at).cloned().map(ParamValue::Text),
        TuneParam::Discrete { values } => values.get(at).copied().map(ParamValue::Float),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::job::ParamScale;

    #[test]
    fn every_combination_comes_once() {
        let params = BTreeMap::from([
            ("a".to_owned(), TuneParam::Int { min: -1, max: 1, scale: ParamScale::Linear }),
            ("b".to_owned(), TuneParam::Categorical { values: vec!["x".into(), "y".into()] }),
            ("c".to_owned(), TuneParam::Discrete { values: vec![0.5, 1.0] }),
        ]);
        let all: BTreeSet<String> = (0..12)
            .map(|index| serde_json::to_string(&combination(&params, index)).unwrap())
            .collect();
        assert_eq!(all.len(), 12);
        assert!(all.contains(r#"{"a":-1,"b":"x","c":0.5}"#));
        assert_eq!(combination(&params, 12), None);
        let real = TuneParam::Float { min: 0.0, max: 1.0, scale: ParamScale::Linear };
        assert_eq!(combination(&BTreeMap::from([("r".to_owned(), real)]), 0), None);
    }
}
