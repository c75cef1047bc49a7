//! The user's own tags of a job: a key with a value, as EC2 takes them.
//!
//! The machine reads its tags from the metadata service. EC2 then allows fewer letters in a key.

use std::collections::BTreeMap;

use super::finding::Finding;

/// EC2 takes 50 tags for a resource. Ours and its own need a few.
pub const USER_TAGS_MAX: usize = 40;

/// The longest key and value that EC2 takes.
const KEY_CHARS_MAX: usize = 128;
const VALUE_CHARS_MAX: usize = 256;

/// What is wrong with a key, if anything.
fn key_problem(key: &str) -> Option<&'static str> {
    let is_fit = |letter: char| letter.is_ascii_alphanumeric() || "+-=.,_:@".contains(letter);
    let lower = key.to_ascii_lowercase();
    if key.is_empty() || key.chars().count() > KEY_CHARS_MAX {
        Some("is not a key of 1 to 128 letters")
    } else if lower.starts_with("aws:") || lower.starts_with("lamplighter:") {
        Some("begins with a word that is reserved")
    } else if key == "." || key == ".." || key == "_index" || !key.chars().all(is_fit) {
        Some("is not a key that EC2 takes: letters, digits and + - = . , _ : @")
    } else if key == "Name" {
        Some("is the tag of the job's own name")
    } else {
        None
    }
}

/// What is wrong with a value, if anything.
fn value_problem(value: &str) -> Option<&'static str> {
    let is_fit =
        |letter: char| letter.is_alphanumeric() || letter == ' ' || "+-=._:/@".contains(letter);
    if value.chars().count() > VALUE_CHARS_MAX {
        Some("has a value of more than 256 letters")
    } else if !value.chars().all(is_fit) {
        Some("has a value that EC2 does not take: letters, digits, spaces and + - = . _ : / @")
    } else {
        None
    }
}

/// The errors of all tags.
pub(crate) fn check_tags(tags: &BTreeMap<String, String>, found: &mut Vec<Finding>) {
    if tags.len() > USER_TAGS_MAX {
        let problem = format!("has {} tags, at most {USER_TAGS_MAX} are possible", tags.len());
        found.push(Finding::error("tags", problem));
    }
    for (key, value) in tags {
        for problem in [key_problem(key), value_problem(value)].into_iter().flatten() {
            found.push(Finding::error(&format!("tags.{key}"), problem));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tags_that_ec2_takes_pass() {
        let errors = |key: &str, value: &str| {
            let mut found = Vec::new();
            check_tags(&BTreeMap::from([(key.to_owned(), value.to_owned())]), &mut found);
            found.len()
        };
        for (key, value) in [("team", "vision"), ("cost:center", "a/b @ 1"), ("a", "")] {
            assert_eq!(errors(key, value), 0, "{key}={value}");
        }
        for key in ["", "a b", "a/b", "aws:x", "Lamplighter:job", "Name", "_index", "é"] {
            assert_eq!(errors(key, "x"), 1, "{key}");
        }
        assert_eq!(errors(&"k".repeat(129), "x"), 1);
        assert_eq!((errors("k", &"v".repeat(257)), errors("k", "a\nb")), (1, 1));
    }
}
