//! The GPUs that a job asks for: `A10G:1`, `H100`, `at least 24GiB`, `2 x 24GiB`, `none`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The GPUs that a job needs. `count = 0` means none.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct GpuRequirement {
    pub count: u32,
    /// The model as the cloud names it; case is ignored.
    pub model: Option<String>,
    /// The least memory of each GPU, in MiB.
    pub memory_mib_min: Option<u64>,
}

/// Why a text is not a GPU requirement. The message teaches the syntax.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a GPU requirement, write \"A10G:1\", \"H100:8\", \"at least 24GiB\", \"2 x 24GiB\" or \"none\""
)]
pub struct RequirementError {
    text: String,
}

/// No machine has more GPUs; a larger number is a typing error.
const GPUS_MAX: u32 = 64;

impl GpuRequirement {
    pub const NONE: GpuRequirement = GpuRequirement { count: 0, model: None, memory_mib_min: None };

    /// Whether a GPU has the wanted model. `A10G` matches `NVIDIA A10G`, but `A10` does not.
    /// `A100-80GB` matches `NVIDIA A100-SXM4-80GB`, and `RTX4090` matches `GeForce RTX 4090`. Each
    /// wanted part must equal one part of the GPU's name, or several in a row. Without a wanted
    /// model, every GPU matches.
    pub fn is_model(&self, name: &str) -> bool {
        self.model.as_ref().is_none_or(|wanted| is_gpu_model(wanted, name))
    }
}

/// See [`GpuRequirement::is_model`].
pub(super) fn is_gpu_model(wanted: &str, name: &str) -> bool {
    let parts = |text: &str| -> Vec<String> {
        text.split([' ', '-', '_']).map(str::to_ascii_lowercase).collect()
    };
    let has = parts(name);
    let in_a_row = |part: &String| {
        (0..has.len()).any(|from| (from..has.len()).any(|to| has[from..=to].concat() == *part))
    };
    parts(wanted).iter().all(in_a_row)
}

impl FromStr for GpuRequirement {
    type Err = RequirementError;

    fn from_str(text: &str) -> Result<Self, RequirementError> {
        let wrong = || RequirementError { text: text.to_owned() };
        let text_trimmed = text.trim();
        if text_trimmed.eq_ignore_ascii_case("none") || text_trimmed == "0" {
            return Ok(GpuRequirement::NONE);
        }
        let (count, rest) = match text_trimmed.split_once(" x ") {
            Some((count, rest)) => (count.trim().parse().map_err(|_| wrong())?, rest.trim()),
            None => (1, text_trimmed),
        };
        let memory = rest.strip_prefix("at least ").unwrap_or(rest).trim();
        let required =
            if let Some(gib) = memory.strip_suffix("GiB").or_else(|| memory.strip_suffix("GB")) {
                let gib: f64 = gib.trim().parse().map_err(|_| wrong())?;
                if !(gib > 0.0 && gib < 4096.0) {
                    return Err(wrong());
                }
                GpuRequirement { count, model: None, memory_mib_min: Some((gib * 1024.0) as u64) }
            } else {
                let (model, count) = match rest.split_once(':') {
                    Some((model, count)) => (model, count.trim().parse().map_err(|_| wrong())?),
                    None => (rest, count),
                };
                let plain = !model.is_empty()
                    && model.chars().next().is_some_and(char::is_alphabetic)
                    && model.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
                if !plain {
                    return Err(wrong());
                }
                GpuRequirement { count, model: Some(model.to_owned()), memory_mib_min: None }
            };
        if required.count == 0 || required.count > GPUS_MAX { Err(wrong()) } else { Ok(required) }
    }
}

impl fmt::Display for GpuRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.model, self.memory_mib_min) {
            (Some(model), _) => write!(f, "{model}:{}", self.count),
            (None, Some(mib)) => write!(f, "{} x {}GiB", self.count, mib as f64 / 1024.0),
            (None, None) if self.count == 0 => f.write_str("none"),
            (None, None) => write!(f, "{} x 1GiB", self.count),
        }
    }
}

impl Serialize for GpuRequirement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GpuRequirement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_read_as_people_write_them() {
        let model = |model: &str, count| GpuRequirement {
            count,
            model: Some(model.to_owned()),
            memory_mib_min: None,
        };
        assert_eq!("A10G:1".parse(), Ok(model("A10G", 1)));
        assert_eq!("H100".parse(), Ok(model("H100", 1)));
        assert_eq!("8 x H100".parse(), Ok(model("H100", 8)));
        assert_eq!("none".parse(), Ok(GpuRequirement::NONE));
        let memory = GpuRequirement { count: 2, model: None, memory_mib_min: Some(24 * 1024) };
        assert_eq!("2 x 24GiB".parse(), Ok(memory));
        assert_eq!(
            "at least 24GiB".parse::<GpuRequirement>().unwrap().memory_mib_min,
            Some(24 * 1024)
        );
        for wrong in ["", ":", "A10G:", "A10G:0", "24", "-1 x 8GiB", "1000 x H100", "a b c"] {
            assert!(wrong.parse::<GpuRequirement>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_record_reads_back() {
        for text in ["A10G:1", "2 x 24GiB", "none"] {
            let gpus: GpuRequirement = text.parse().unwrap();
            assert_eq!(gpus.to_string().parse::<GpuRequirement>(), Ok(gpus));
        }
    }
}
