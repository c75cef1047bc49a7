//! Places that could not be looked at: one sentence for all with the same error.
//!
//! ```text
//!   warning: us-east-1 is unknown: not allowed to look at instances
//!   warning: 39 regions are unknown (af-south-1, ap-east-1, ap-northeast-1 and 36 more): no answer
//! ```
//!
//! Programs get each place by itself. Not here: the requests.

use crate::app::text::some_of;

const NAMED_MAX: usize = 3;

pub fn sentences(unknown: &[(String, String)]) -> Vec<String> {
    let mut alike: Vec<(String, Vec<&(String, String)>)> = Vec::new();
    for one in unknown {
        // Reasons that differ only in the place are equal.
        let (place, why) = one;
        let reason = why.replace(&format!(" in {place}"), "").replace(place, "it");
        match alike.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, places)) => places.push(one),
            None => alike.push((reason, vec![one])),
        }
    }
    alike.iter().map(|(reason, places)| sentence(reason, places)).collect()
}

fn sentence(reason: &str, places: &[&(String, String)]) -> String {
    if let [(place, why)] = places {
        return format!("{place} is unknown: {why}");
    }
    let names: Vec<&str> = places.iter().map(|(place, _)| place.as_str()).collect();
    format!("{} regions are unknown ({}): {reason}", names.len(), some_of(&names, NAMED_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_that_fail_alike_are_one_sentence() {
        let one = |place: &str, why: &str| (place.to_owned(), why.to_owned());
        let lost = |place: &str| {
            one(place, &format!("no answer to look at instances in {place}: a timeout"))
        };
        assert_eq!(sentences(&[]), [""; 0]);
        assert_eq!(
            sentences(&[lost("us-east-1")]),
            ["us-east-1 is unknown: no answer to look at instances in us-east-1: a timeout"]
        );
        let five = ["us-east-1", "us-east-2", "us-west-1", "us-west-2", "eu-west-1"].map(lost);
        let many = [&five[..2], &[one("local", "no folder")], &five[2..]].concat();
        assert_eq!(
            sentences(&many),
            [
                "5 regions are unknown (us-east-1, us-east-2, us-west-1 and 2 more): no answer to look at instances: a timeout",
                "local is unknown: no folder",
            ]
        );
        assert_eq!(
            sentences(&five[..2]),
            [
                "2 regions are unknown (us-east-1, us-east-2): no answer to look at instances: a timeout"
            ]
        );
    }
}
