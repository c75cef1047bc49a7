//! Hints about a region that may not exist.
//!
//! An unknown region has no address, so the error only mentions DNS. Not here: a refusal before the
//! request (regions appear after a release, and emulators have their own), and the names
//! (`market`).

use crate::market::{nearest_regions, unknown_region};

/// The hint for a failure that names an unknown region.
pub fn hint(sentence: &str) -> Option<String> {
    hint_of(unknown_region(sentence)?)
}

/// The same for a region; `None`: it is known.
pub fn hint_of(name: &str) -> Option<String> {
    let said = unknown(name)?;
    Some(format!(
        "{said}; --region names another, as do `regions` in [aws] of the configuration, and AWS_REGION"
    ))
}

/// `None`: it is known.
pub fn unknown(name: &str) -> Option<String> {
    let near: Vec<String> =
        nearest_regions(name)?.iter().map(|known| format!("`{known}`")).collect();
    let meant = if near.is_empty() {
        String::new()
    } else {
        format!(" (did you mean {}?)", near.join(" or "))
    };
    Some(format!("`{name}` is no region that this version knows{meant}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slip_is_named_with_what_was_meant() {
        let text = hint("no answer to list the instance types of us-east-9: dns error").unwrap();
        assert!(text.starts_with("`us-east-9` is no region that this version knows (did you mean `us-east-1` or `us-east-2`?); --region"), "{text}");
        assert_eq!(hint("no answer to list the instance types of us-east-1: dns error"), None);
    }
}
