//! Reads the sequence number of a heartbeat, and nothing else of it.

use serde::Deserialize;

/// The part of a heartbeat that the judge needs.
#[derive(Deserialize)]
pub(crate) struct Beat {
    pub sequence: u64,
}

impl Beat {
    /// In a heartbeat of our programs the number is on its own line in front, and no text in a
    /// record looks like that. Other forms are parsed as JSON. To parse each one costs as much as
    /// to write it.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        const NUMBER: &[u8] = b"\n  \"sequence\": ";
        let front = &body[..body.len().min(256)];
        let at = front
            .windows(NUMBER.len())
            .position(|window| window[0] == b'\n' && window == NUMBER)
            .filter(|_| body.ends_with(b"\n}\n"));
        let digits =
            at.and_then(|at| front[at + NUMBER.len()..].split(|byte| *byte == b',').next());
        let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        number.map(|sequence| Beat { sequence }).or_else(|| serde_json::from_slice(body).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeat_number_equals_the_number_of_its_record() {
        let ours = "{\n  \"format\": 1,\n  \"instance\": \"i-1\",\n  \"sequence\": 17,\n  \"attention\": [\n    \"\\n  \\\"sequence\\\": 3,\"\n  ]\n}\n";
        let late = "{\n  \"instance\": \"\\n  \\\"sequence\\\": 3,\",\n  \"sequence\": 17\n}\n";
        for whole in [
            ours,
            late,
            "{\"sequence\":17}",
            "{\n  \"sequence\": 17,\n  \"x\": {\n    \"sequence\": 3\n  }\n}\n",
        ] {
            assert_eq!(Beat::read(whole.as_bytes()).map(|beat| beat.sequence), Some(17), "{whole}");
        }
        for broken in [&ours[..ours.len() - 1], "{\n  \"sequence\": x,\n}\n", "{}", ""] {
            let as_read = serde_json::from_str::<Beat>(broken).ok().map(|beat| beat.sequence);
            assert_eq!(
                Beat::read(broken.as_bytes()).map(|beat| beat.sequence),
                as_read,
                "{broken}"
            );
        }
    }
}
