//! Suggestions for a mistyped name.
//!
//! The names with the fewest changed letters, as a hint after a failure, never to refuse a name.

/// How many names a hint may list.
pub(crate) const NEAR_MAX: usize = 3;

/// The closest names in order; none if all differ in more than a quarter of their letters.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = name.to_ascii_lowercase();
    let mut near: Vec<(usize, &str)> =
        known.map(|known| (distance(&wanted, &known.to_ascii_lowercase()), known)).collect();
    let best = near.iter().map(|(far, _)| *far).min().unwrap_or(usize::MAX);
    if best > wanted.chars().count().div_ceil(4) {
        return Vec::new();
    }
    near.retain(|(far, _)| *far == best);
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(NEAR_MAX).map(|(_, known)| known).collect()
}

/// `did you mean A100 or A10G?`; `None`: no name is close.
pub fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let near = nearest(name, known);
    (!near.is_empty()).then(|| format!("did you mean {}?", near.join(" or ")))
}

/// Levenshtein distance. `strsim` has it too, but the agent does not include that crate.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slip_is_near_and_another_word_is_not() {
        let models = ["A100", "A10G", "H100", "L4", "L40S", "T4", "V100"];
        let meant = |name: &str| nearest(name, models.into_iter());
        assert_eq!(meant("A10"), ["A100", "A10G"]);
        assert_eq!(meant("L40"), ["L4", "L40S"]);
        assert_eq!(meant("h100s"), ["H100"]);
        assert_eq!(meant("MI300X"), [""; 0]);
        let types = ["g5.xlarge", "g5.2xlarge", "g6.xlarge", "p4d.24xlarge"];
        assert_eq!(nearest("g5.xlrge", types.into_iter()), ["g5.xlarge"]);
        assert_eq!(
            did_you_mean("g5.xlrge", types.into_iter()).as_deref(),
            Some("did you mean g5.xlarge?")
        );
        assert_eq!(did_you_mean("t9.huge", types.into_iter()), None);
        assert_eq!(nearest("x", std::iter::empty()), [""; 0]);
    }
}
