//! The machine image that a job asks for: `dlami`, `ami-...`, a parameter, a name.

use std::fmt;
use std::str::FromStr;

/// The parsed words of `machine.image`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImageChoice {
    /// The cloud's own image for deep learning, with the GPU driver: `dlami`,
    /// `dlami:amazon-linux-2023`.
    DeepLearning(System),
    /// The same with PyTorch: `dlami:pytorch`, `dlami:pytorch-2.7`.
    PyTorch(Release),
    /// `ami-0123456789abcdef0`.
    Id(String),
    /// A parameter, public or the account's own, that holds an id: `/my/image`,
    /// `ssm:/aws/service/...`.
    Parameter(String),
    /// `name:PATTERN`, optional `;owner=` with an account number, `amazon` or `self`. The newest
    /// wins.
    Name { pattern: String, owner: String },
}

/// The system of a deep learning image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum System {
    /// Its Python allows `pip install`; Ubuntu 24.04's does not.
    #[default]
    Ubuntu2204,
    Ubuntu2404,
    AmazonLinux2023,
}

/// A release of PyTorch, `2.10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    major: u32,
    minor: u32,
}

impl Release {
    /// The release for `dlami:pytorch`, from AWS's release notes and public scripts; not checked in
    /// an account. An older one loses its updates sooner; a newer one may lack its parameter in
    /// some regions.
    const DEFAULT: Release = Release { major: 2, minor: 10 };
    /// AWS builds it on Ubuntu 24.04 from this release on, by parameter names in public scripts;
    /// before on 22.04.
    const FIRST_ON_2404: Release = Release { major: 2, minor: 8 };

    fn read(text: &str) -> Option<Release> {
        let (major, minor) = text.split_once('.')?;
        let number = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
        };
        Some(Release { major: number(major)?, minor: number(minor)? })
    }

    /// As in the names of AWS's parameters.
    pub fn word(self) -> String {
        let system =
            if self < Release::FIRST_ON_2404 { System::Ubuntu2204 } else { System::Ubuntu2404 };
        format!("{self}-{}", system.word())
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The contents of an AWS deep learning image, by its name; `None`: another image.
pub fn contents(name: &str) -> Option<String> {
    let rest = name.strip_prefix("Deep Learning")?;
    if let Some((_, release)) = rest.split_once("PyTorch ") {
        let release = release.split(' ').next().unwrap_or_default();
        return Some(format!(
            "it has NVIDIA's driver and PyTorch {release} in /opt/pytorch, which `python` is"
        ));
    }
    let is_base = rest.contains("Base");
    is_base.then(|| "it has NVIDIA's driver and CUDA, and no PyTorch: `setup` installs it, or `image = \"dlami:pytorch\"` has it".to_owned())
}

/// Why a text names no image. The message teaches the syntax.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` names no image, write \"dlami\", \"dlami:pytorch\", \"dlami:ubuntu-24.04\", \"dlami:amazon-linux-2023\", \"ami-0123456789abcdef0\", \
     \"ssm:/path/of/a/parameter\" or \"name:my-image-*;owner=self\""
)]
pub struct ImageError {
    text: String,
}

impl System {
    pub const ALL: [System; 3] = [System::Ubuntu2204, System::Ubuntu2404, System::AmazonLinux2023];

    /// As in the names of AWS's parameters.
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
        if let Some(release) = said.strip_prefix("dlami:pytorch") {
            let known = if release.is_empty() {
                Some(Release::DEFAULT)
            } else {
                release.strip_prefix('-').and_then(Release::read)
            };
            return known.map(ImageChoice::PyTorch).ok_or_else(wrong);
        }
        if let Some(system) = said.strip_prefix("dlami:") {
            return System::ALL
                .into_iter()
                .find(|known| known.word() == system)
                .map(ImageChoice::DeepLearning)
                .ok_or_else(wrong);
        }
        if let Some(hex) = said.strip_prefix("ami-") {
            let is_id = hex.len() >= 8 && hex.chars().all(|letter| letter.is_ascii_hexdigit());
            return is_id.then(|| ImageChoice::Id(said.to_owned())).ok_or_else(wrong);
        }
        if let Some(path) =
            said.strip_prefix("ssm:").or_else(|| said.starts_with('/').then_some(said))
        {
            return (!path.is_empty())
                .then(|| ImageChoice::Parameter(path.to_owned()))
                .ok_or_else(wrong);
        }
        let rest = said.strip_prefix("name:").ok_or_else(wrong)?;
        let (pattern, owner) = rest.rsplit_once(";owner=").unwrap_or((rest, "self"));
        let known = matches!(owner, "self" | "amazon" | "aws-marketplace")
            || (owner.len() == 12 && owner.chars().all(|c| c.is_ascii_digit()));
        let chosen =
            ImageChoice::Name { pattern: pattern.trim().to_owned(), owner: owner.to_owned() };
        if pattern.trim().is_empty() || !known { Err(wrong()) } else { Ok(chosen) }
    }
}

impl fmt::Display for ImageChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageChoice::DeepLearning(system) => write!(f, "dlami:{}", system.word()),
            ImageChoice::PyTorch(release) => write!(f, "dlami:pytorch-{release}"),
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
    fn plan_says_what_an_image_for_deep_learning_has() {
        let with = contents(
            "Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.10 (Ubuntu 24.04) 20261009",
        );
        assert!(with.is_some_and(|said| said.contains("PyTorch 2.10 in /opt/pytorch")));
        let base = contents("Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20260601");
        assert!(
            base.is_some_and(|said| said.contains("no PyTorch") && said.contains("dlami:pytorch"))
        );
        assert_eq!(
            contents("ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20260601"),
            None
        );
    }

    #[test]
    fn images_are_named_in_four_ways() {
        let read = |text: &str| text.parse::<ImageChoice>().map(|choice| choice.to_string());
        for (text, shown) in [
            ("dlami", "dlami:ubuntu-22.04"),
            ("dlami:amazon-linux-2023", "dlami:amazon-linux-2023"),
            ("dlami:pytorch", "dlami:pytorch-2.10"),
            ("dlami:pytorch-2.7", "dlami:pytorch-2.7"),
            ("ami-0123456789abcdef0", "ami-0123456789abcdef0"),
            ("/aws/service/x/ami-id", "ssm:/aws/service/x/ami-id"),
            ("ssm:my-image", "ssm:my-image"),
            ("name:my image-*", "name:my image-*;owner=self"),
            ("name:ubuntu/images/*;owner=099720109477", "name:ubuntu/images/*;owner=099720109477"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(shown), "{text}");
        }
        for text in [
            "",
            "ubuntu",
            "dlami:ubuntu",
            "dlami:pytorch-",
            "dlami:pytorch-2",
            "dlami:pytorch2.7",
            "dlami:pytorch-2.x",
            "ami-",
            "ami-xyz12345",
            "ssm:",
            "name:",
            "name:x;owner=",
            "name:x;owner=canonical",
            "name:;owner=self",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        let words = |text: &str| match text.parse() {
            Ok(ImageChoice::PyTorch(release)) => release.word(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            (words("dlami:pytorch-2.7").as_str(), words("dlami:pytorch-2.8").as_str()),
            ("2.7-ubuntu-22.04", "2.8-ubuntu-24.04")
        );
        let error = read("ubuntu").unwrap_err().to_string();
        assert!(error.contains("`ubuntu`") && error.contains("ssm:/path"), "{error}");
    }
}
