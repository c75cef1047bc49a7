//! The names of AWS's regions, to recognise typing errors.
//!
//! Used only for hints after a failure, never to refuse a name: AWS opens new regions, and an
//! emulator may use any name. From botocore 1.44.5 (Apache-2.0).

use super::spelling::{NEAR_MAX, nearest};

/// Regions that every account can use or enable.
const REGIONS: &[&str] = &[
    "af-south-1",
    "ap-east-1",
    "ap-east-2",
    "ap-northeast-1",
    "ap-northeast-2",
    "ap-northeast-3",
    "ap-south-1",
    "ap-south-2",
    "ap-southeast-1",
    "ap-southeast-2",
    "ap-southeast-3",
    "ap-southeast-4",
    "ap-southeast-5",
    "ap-southeast-6",
    "ap-southeast-7",
    "ca-central-1",
    "ca-west-1",
    "cn-north-1",
    "cn-northwest-1",
    "eu-central-1",
    "eu-central-2",
    "eu-north-1",
    "eu-south-1",
    "eu-south-2",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "eusc-de-east-1",
    "il-central-1",
    "me-central-1",
    "me-south-1",
    "me-west-1",
    "mx-central-1",
    "sa-east-1",
    "sa-west-1",
    "us-east-1",
    "us-east-2",
    "us-gov-east-1",
    "us-gov-west-1",
    "us-west-1",
    "us-west-2",
];

/// `None`: the name is known. Otherwise the closest names by spelling, else by common beginning;
/// may be empty.
pub fn nearest_regions(name: &str) -> Option<Vec<&'static str>> {
    if REGIONS.contains(&name) {
        return None;
    }
    let near = nearest(name, REGIONS.iter().copied());
    Some(if near.is_empty() { that_begin_alike(name) } else { near })
}

fn that_begin_alike(name: &str) -> Vec<&'static str> {
    let plain = |text: &str| text.to_ascii_lowercase().replace(['-', '_', ' '], "");
    let wanted = plain(name);
    let likeness =
        |known: &str| plain(known).chars().zip(wanted.chars()).take_while(|(a, b)| a == b).count();
    let best = REGIONS.iter().map(|known| likeness(known)).max().unwrap_or(0);
    // The first two letters are a part of the world.
    if best < 2 {
        Vec::new()
    } else {
        REGIONS.iter().copied().filter(|known| likeness(known) == best).take(NEAR_MAX).collect()
    }
}

/// The first word that looks like a region but is unknown to this version.
pub fn unknown_region(text: &str) -> Option<&str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-')
        .find(|word| looks_like_one(word) && nearest_regions(word).is_some())
}

/// `us-east-9`: a part of the world of two to four letters, a word or two, a number.
fn looks_like_one(word: &str) -> bool {
    let parts: Vec<&str> = word.split('-').collect();
    let letters =
        |part: &&str| !part.is_empty() && part.chars().all(|letter| letter.is_ascii_lowercase());
    let [world, words @ .., number] = parts.as_slice() else { return false };
    let is_number = !number.is_empty()
        && number.len() <= 2
        && number.chars().all(|digit| digit.is_ascii_digit());
    (2..=4).contains(&world.len())
        && letters(world)
        && (1..=2).contains(&words.len())
        && words.iter().all(letters)
        && is_number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_least_or_begin_most_alike_are_near() {
        assert_eq!(nearest_regions("us-east-1"), None);
        assert_eq!(nearest_regions("us-west-2"), None);
        assert_eq!(nearest_regions("us-east-9"), Some(vec!["us-east-1", "us-east-2"]));
        assert_eq!(nearest_regions("useast1"), Some(vec!["us-east-1"]));
        assert_eq!(nearest_regions("eu-centrl-1"), Some(vec!["eu-central-1"]));
        assert_eq!(nearest_regions("us-eats-2"), Some(vec!["us-east-2"]));
        assert_eq!(nearest_regions("eu-nowhere-1"), Some(vec!["eu-north-1"]));
        assert_eq!(nearest_regions("mars"), Some(vec![]));
    }

    #[test]
    fn region_is_found_in_a_sentence() {
        let text = "no answer to list the instance types of us-east-9: dns error";
        assert_eq!(unknown_region(text), Some("us-east-9"));
        for text in [
            "no answer from us-gov-west-1",
            "job train-a-1 of a-b-c",
            "g5-xlarge i-0123-4",
            "lamplighter-us-east-1",
            "",
        ] {
            assert_eq!(unknown_region(text), None, "{text}");
        }
    }
}
