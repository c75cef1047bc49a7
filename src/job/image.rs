//! Which machine image a job asks for: `dlami`, `ami-...`, a parameter, a name.

use std::fmt;
use std::str::FromStr;

/// The words of `machine.image`, understood.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImageChoice {
    /// The cloud's own image for deep learning, with the GPU driver: `dlami`, `dlami:amazon-linux-2023`.
    DeepLearning(System),
    /// `ami-0123456789abcdef0`.
    Id(String),
    /// A public or own parameter that holds an id: `/my/image`, `ssm:/aws/service/...`.
    Parameter(String),
    /// `name:PATTERN` with an optional `;owner=`: an account's number, `amazon` or `self`. The newest wins.
    Name { pattern: String, owner: String },
}

/// The system of a deep learning image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum System {
    /// Its Python lets `pip install` write; the next one's does not.
    #[default]
    Ubuntu2204,
    Ubuntu2404,
    AmazonLinux2023,
}

/// Why a text names no image. The message teaches the syntax.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` names no image, write \"dlami\", \"dlami:ubuntu-24.04\", \"dlami:amazon-linux-2023\", \"ami-0123456789abcdef0\", \
     \"ssm:/path/of/a/parameter\" or \"name:my-image-*;owner=self\""
)]
pub struct ImageError {
    text: String,
}

impl System {
    pub const ALL: [System; 3] = [System::Ubuntu2204, System::Ubuntu2404, System::AmazonLinux2023];

    /// As AWS writes it in the names of its parameters.
    pub fn word(self) -> &'static str {
        match self {
            System::Ubuntu2204 => "ubuntu-22.04",
            System::Ubuntu2404 => "ubuntu-24.04",
            System::AmazonLinux2023 => "amazon-linux-2023",
        }
    }
}

impl FromStr for ImageChoice {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        let wrong = || ImageError { text: text.to_owned() };
        let said = text.trim();
        if said == "dlami" {
            return Ok(ImageChoice::DeepLearning(System::default()));
        }
        if let Some(system) = said.strip_prefix("dlami:") {
            return System::ALL.into_iter().find(|known| known.word() == system).map(ImageChoice::DeepLearning).ok_or_else(wrong);
        }
        if let Some(hex) = said.strip_prefix("ami-") {
            let is_id = hex.len() >= 8 && hex.chars().all(|letter| letter.is_ascii_hexdigit());
            return is_id.then(|| ImageChoice::Id(said.to_owned())).ok_or_else(wrong);
        }
        if let Some(path) = said.strip_prefix("ssm:").or_else(|| said.starts_with('/').then_some(said)) {
            return (!path.is_empty()).then(|| ImageChoice::Parameter(path.to_owned())).ok_or_else(wrong);
        }
        let rest = said.strip_prefix("name:").ok_or_else(wrong)?;
        let (pattern, owner) = rest.rsplit_once(";owner=").unwrap_or((rest, "self"));
        let known = matches!(owner, "self" | "amazon" | "aws-marketplace") || (owner.len() == 12 && owner.chars().all(|c| c.is_ascii_digit()));
        let chosen = ImageChoice::Name { pattern: pattern.trim().to_owned(), owner: owner.to_owned() };
        if pattern.trim().is_empty() || !known { Err(wrong()) } else { Ok(chosen) }
    }
}

impl fmt::Display for ImageChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageChoice::DeepLearning(system) => write!(f, "dlami:{}", system.word()),
            ImageChoice::Id(id) => f.write_str(id),
            ImageChoice::Parameter(path) => write!(f, "ssm:{path}"),
            ImageChoice::Name { pattern, owner } => write!(f, "name:{pattern};owner={owner}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_named_in_four_ways() {
        let read = |text: &str| text.parse::<ImageChoice>().map(|choice| choice.to_string());
        for (text, shown) in [
            ("dlami", "dlami:ubuntu-22.04"),
            ("dlami:amazon-linux-2023", "dlami:amazon-linux-2023"),
            ("ami-0123456789abcdef0", "ami-0123456789abcdef0"),
            ("/aws/service/x/ami-id", "ssm:/aws/service/x/ami-id"),
            ("ssm:my-image", "ssm:my-image"),
            ("name:my image-*", "name:my image-*;owner=self"),
            ("name:ubuntu/images/*;owner=099720109477", "name:ubuntu/images/*;owner=099720109477"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(shown), "{text}");
        }
        for text in
            ["", "ubuntu", "dlami:ubuntu", "ami-", "ami-xyz12345", "ssm:", "name:", "name:x;owner=", "name:x;owner=canonical", "name:;owner=self"]
        {
            assert!(read(text).is_err(), "{text}");
        }
        let error = read("ubuntu").unwrap_err().to_string();
        assert!(error.contains("`ubuntu`") && error.contains("ssm:/path"), "{error}");
    }
}
