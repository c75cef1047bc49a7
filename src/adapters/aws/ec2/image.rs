//! The machine image of a launch: from the words of the job file to an id, a disk size and an
//! architecture.
//!
//! `dlami` and `ssm:...` become an id by GetParameter. `name:...;owner=...` takes the newest image.
//! DescribeImages then reads the image, and the session remembers it for minutes. Not here: the
//! words themselves (`job::ImageChoice`).

use aws_sdk_ec2::error::ProvideErrorMetadata;
use aws_sdk_ec2::types::{ArchitectureValues, DeviceType, Image as Described};

use super::describe::filter;
use super::errors::meaning;
use crate::adapters::aws::session::AwsSession;
use crate::adapters::aws::session_cache::{LaunchImage, TRUSTED};
use crate::job::{ImageChoice, Refusal};
use crate::market::{Arch, Offer, Region};
use crate::ports::CloudError;

/// How AWS names images with NVIDIA's open kernel modules. They drive no GPU older than Turing
/// (NVIDIA's README).
const OPEN_DRIVER: [&str; 2] = ["oss nvidia driver", "oss-nvidia-driver"];
const BEFORE_THE_OPEN_DRIVER: [&str; 4] = ["V100", "P100", "M60", "K80"];

impl LaunchImage {
    /// # Errors
    /// If the image has another architecture, or a driver that does not suit the GPUs. Another
    /// offer may fit.
    pub fn fits(&self, offer: &Offer) -> Result<(), CloudError> {
        let name = self.name.to_ascii_lowercase();
        let what = match offer
            .gpu_model
            .as_deref()
            .filter(|model| BEFORE_THE_OPEN_DRIVER.contains(model))
        {
            _ if self.arch != offer.arch => {
                format!(
                    "the image {} ({}) is for {}, and {} is {}",
                    self.name, self.id, self.arch, offer.instance_type, offer.arch
                )
            }
            Some(model) if OPEN_DRIVER.iter().any(|words| name.contains(words)) => {
                format!(
                    "the image {} ({}) has NVIDIA's open driver, which does not drive the {model} of {}",
                    self.name, self.id, offer.instance_type
                )
            }
            _ => return Ok(()),
        };
        Err(CloudError::NoCapacity { what, refusal: Refusal::NotSold })
    }
}

/// The image that the words name; `dlami` means the one for this architecture in the region.
///
/// # Errors
/// If AWS does not answer, or the image is missing.
pub async fn find(
    session: &AwsSession,
    words: &str,
    region: &Region,
    arch: Arch,
) -> Result<LaunchImage, CloudError> {
    let choice: ImageChoice = words.parse().map_err(|error: crate::job::ImageError| {
        CloudError::Invalid { what: format!("`machine.image`: {error}") }
    })?;
    let key = (region.clone(), choice, arch);
    if let Some(known) = session.memory.images.get(&key, TRUSTED) {
        return Ok(known);
    }
    let found = ask(session, &key.1, region, arch).await?;
    session.memory.images.put(key, found.clone());
    Ok(found)
}

/// The recent answer of [`find`].
pub fn remembered(
    session: &AwsSession,
    words: &str,
    region: &Region,
    arch: Arch,
) -> Option<LaunchImage> {
    session.memory.images.get(&(region.clone(), words.parse().ok()?, arch), TRUSTED)
}

async fn ask(
    session: &AwsSession,
    choice: &ImageChoice,
    region: &Region,
    arch: Arch,
) -> Result<LaunchImage, CloudError> {
    let described = match choice {
        ImageChoice::DeepLearning(system) => {
            let path = format!(
                "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-{}/latest/ami-id",
                arch,
                system.word()
            );
            by_id(session, region, &parameter(session, region, &path).await?).await?
        }
        ImageChoice::PyTorch(release) => {
            let path = format!(
                "/aws/service/deeplearning/ami/{}/oss-nvidia-driver-gpu-pytorch-{}/latest/ami-id",
                arch,
                release.word()
            );
            by_id(session, region, &parameter(session, region, &path).await?).await?
        }
        ImageChoice::Parameter(path) => {
            by_id(session, region, &parameter(session, region, path).await?).await?
        }
        ImageChoice::Id(id) => by_id(session, region, id).await?,
        ImageChoice::Name { pattern, owner } => {
            newest(session, region, arch, pattern, owner).await?
        }
    };
    image(&described, choice)
}

/// Where AWS publishes the ids of its images for deep learning.
const PUBLISHED: &str = "/aws/service/deeplearning/";

async fn parameter(
    session: &AwsSession,
    region: &Region,
    path: &str,
) -> Result<String, CloudError> {
    let told = session.ssm(region).await.get_parameter().name(path).send().await;
    let told = told.map_err(|error| match error.as_service_error() {
        Some(missing) if missing.is_parameter_not_found() => {
            no_parameter(format!("there is no parameter `{path}` in {region}"), path, region)
        }
        _ => meaning(&format!("read the parameter `{path}` in {region}"), error),
    })?;
    let value = told.parameter().and_then(|parameter| parameter.value()).unwrap_or_default().trim();
    if value.starts_with("ami-") {
        return Ok(value.to_owned());
    }
    let what = format!("the parameter `{path}` in {region} holds no image id");
    Err(no_parameter(what, path, region))
}

fn no_parameter(what: String, path: &str, region: &Region) -> CloudError {
    let is_published = path.starts_with(PUBLISHED);
    CloudError::NoImage { what, region: region.clone(), is_published }
}

async fn by_id(session: &AwsSession, region: &Region, id: &str) -> Result<Described, CloudError> {
    let told = session.ec2(region).await.describe_images().image_ids(id).send().await;
    let none = || CloudError::NoImage {
        what: format!("there is no image {id} in {region} that this account may use"),
        region: region.clone(),
        is_published: false,
    };
    let told = told.map_err(|error| match error.code() {
        Some("InvalidAMIID.NotFound" | "InvalidAMIID.Unavailable") => none(),
        _ => meaning(&format!("look at the image {id} in {region}"), error),
    })?;
    told.images.unwrap_or_default().into_iter().next().ok_or_else(none)
}

async fn newest(
    session: &AwsSession,
    region: &Region,
    arch: Arch,
    pattern: &str,
    owner: &str,
) -> Result<Described, CloudError> {
    let client = session.ec2(region).await;
    let filters = [("name", pattern), ("state", "available"), ("architecture", &arch.to_string())];
    let filters = filters.map(|(name, value)| filter(name, [value.to_owned()])).to_vec();
    let mut pages =
        client.describe_images().owners(owner).set_filters(Some(filters)).into_paginator().send();
    let mut found: Option<Described> = None;
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| meaning(&format!("look for images in {region}"), error))?;
        // All dates have the same form in UTC, so their texts are in order.
        found = found
            .into_iter()
            .chain(page.images.unwrap_or_default())
            .max_by(|a, b| a.creation_date().cmp(&b.creation_date()));
    }
    found.ok_or_else(|| CloudError::NoCapacity {
        what: format!("`machine.image`: `{owner}` has no image for {arch} in {region} with a name like `{pattern}`"),
        refusal: Refusal::NotSold,
    })
}

fn image(described: &Described, choice: &ImageChoice) -> Result<LaunchImage, CloudError> {
    let wrong = |what: &str| CloudError::Invalid {
        what: format!("`machine.image`: the image `{choice}` {what}"),
    };
    let id = described.image_id().ok_or_else(|| wrong("has no id"))?;
    if described.root_device_type() == Some(&DeviceType::InstanceStore) {
        return Err(wrong("starts from an instance store, not from a disk of its own"));
    }
    let arch = match described.architecture() {
        Some(ArchitectureValues::X8664) => Arch::X86_64,
        Some(ArchitectureValues::Arm64) => Arch::Arm64,
        other => {
            return Err(wrong(&format!(
                "is for {}",
                other.map_or("an unknown architecture", |arch| arch.as_str())
            )));
        }
    };
    let root = described.root_device_name().ok_or_else(|| wrong("names no root device"))?;
    if let Some(billed) = own_price(described) {
        return Err(wrong(&format!(
            "has a price of its own beside the machine's ({billed}), which no plan and no budget here reckons with: \
             choose one that EC2 bills as `{PLAIN}`, as those of Ubuntu, Debian, Amazon Linux and `dlami` are"
        )));
    }
    let further = further_disks(described, root);
    if !further.is_empty() {
        return Err(wrong(&format!(
            "brings further disks ({}), which would be billed beside the plan, without encryption and beyond the machine's end: \
             make an image of its root disk alone, and bring data with `workdir` or from a bucket",
            further.join(", ")
        )));
    }
    let of_root =
        described.block_device_mappings().iter().filter(|one| one.device_name() == Some(root));
    let size = of_root.filter_map(|one| one.ebs()?.volume_size()).max().unwrap_or(0);
    Ok(LaunchImage {
        id: id.to_owned(),
        name: described.name().unwrap_or(id).to_owned(),
        root_device: root.to_owned(),
        disk_gib_min: u32::try_from(size).unwrap_or(0),
        arch,
    })
}

/// EC2's words for an image that costs as much as the price list says for plain Linux, and for the
/// billing of its hours.
const PLAIN: &str = "Linux/UNIX";
const PLAIN_OPERATION: &str = "RunInstances";

/// How the image is billed, if it costs extra: Windows, Red Hat, SUSE, Ubuntu Pro, or a marketplace
/// product, even a free one. Our price list has no price for it. An emulator may not tell.
fn own_price(described: &Described) -> Option<String> {
    let platform =
        described.platform_details().or(described.platform().map(|platform| platform.as_str()));
    let platform = platform.filter(|said| *said != PLAIN).map(|said| format!("platform `{said}`"));
    let operation = described
        .usage_operation()
        .filter(|said| *said != PLAIN_OPERATION)
        .map(|said| format!("usage operation `{said}`"));
    let products = described
        .product_codes()
        .iter()
        .map(|code| format!("product code `{}`", code.product_code_id().unwrap_or("unknown")));
    let told: Vec<String> = platform.into_iter().chain(operation).chain(products).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// The EBS disks beside the root. A local disk (`ephemeral0`) costs nothing extra.
fn further_disks<'a>(described: &'a Described, root: &str) -> Vec<&'a str> {
    let others = described
        .block_device_mappings()
        .iter()
        .filter(|one| one.ebs().is_some() && one.device_name() != Some(root));
    others.map(|one| one.device_name().unwrap_or("one without a name")).collect()
}
