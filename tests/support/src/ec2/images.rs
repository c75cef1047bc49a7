//! AWS's deep-learning base images, which moto does not have, and the public parameters that name
//! them; and images that are billed otherwise, or bring more than one disk.

use super::cloud::{Cloud, ec2_answer, numbered, refused};
use super::http::Answer;
use super::query;
use super::route::{Asked, among, passes};
use super::xml::Node;

struct Image {
    id: &'static str,
    name: &'static str,
    architecture: &'static str,
    root: &'static str,
    created: &'static str,
    /// The part of the parameter's name between the architecture and `/latest/ami-id`.
    parameter: &'static str,
    /// The size of its own disk.
    gib: &'static str,
    /// The system that it runs, and how EC2 bills that.
    platform: (&'static str, &'static str),
    /// Of the marketplace.
    product: Option<&'static str>,
    /// Beside its own disk: EBS with a snapshot, or what a machine has in itself.
    further: &'static [(&'static str, Further)],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Further {
    Disk,
    InstanceStore,
}

const fn image(
    id: &'static str,
    name: &'static str,
    architecture: &'static str,
    root: &'static str,
    parameter: &'static str,
) -> Image {
    let platform = ("Linux/UNIX", "RunInstances");
    Image {
        id,
        name,
        architecture,
        root,
        created: "2026-06-01T09:00:00.000Z",
        parameter,
        gib: "65",
        platform,
        product: None,
        further: &[],
    }
}

const UBUNTU_22: &str = "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20260601";
const UBUNTU_24: &str = "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 20260601";
const AMAZON: &str = "Deep Learning Base OSS Nvidia Driver GPU AMI (Amazon Linux 2023) 20260601";
const ARM: &str = "Deep Learning ARM64 Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20260601";
const PYTORCH: &str =
    "Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.10 (Ubuntu 24.04) 20260601";
const OLD: &str = "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20250301";

/// Amazon's own small image, and the parameter that names it.
const PLAIN: &str = "al2023-ami-2023.8.20260601.0-kernel-6.1-x86_64";
const PLAIN_PARAMETER: &str =
    "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64";

/// Canonical's plain image, which docs/aws.md begins with.
const UBUNTU: &str = "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20260601";
const UBUNTU_PARAMETER: &str =
    "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id";

/// As AWS's user guide lists them.
const RED_HAT: (&str, &str) = ("Red Hat Enterprise Linux", "RunInstances:0010");

const IMAGES: &[Image] = &[
    Image {
        gib: "10",
        platform: RED_HAT,
        ..image(
            "ami-0d15ea5e000000010",
            "RHEL-9.6.0_HVM-20260601-x86_64",
            "x86_64",
            "/dev/sda1",
            "",
        )
    },
    Image {
        product: Some("8v9ldxexample"),
        ..image("ami-0d15ea5e000000802", "trainer-of-the-marketplace", "x86_64", "/dev/sda1", "")
    },
    Image {
        further: &[("/dev/sdf", Further::Disk)],
        ..image("ami-0d15ea5e0000d15c2", "with-data", "x86_64", "/dev/sda1", "")
    },
    Image {
        gib: "8",
        further: &[("/dev/sdb", Further::InstanceStore)],
        ..image("ami-0d15ea5e000002404", UBUNTU, "x86_64", "/dev/sda1", UBUNTU_PARAMETER)
    },
    Image {
        gib: "8",
        ..image("ami-0d15ea5e0000a1023", PLAIN, "x86_64", "/dev/xvda", PLAIN_PARAMETER)
    },
    image(
        "ami-0d15ea5e000000022",
        UBUNTU_22,
        "x86_64",
        "/dev/sda1",
        "base-oss-nvidia-driver-gpu-ubuntu-22.04",
    ),
    image(
        "ami-0d15ea5e000000024",
        UBUNTU_24,
        "x86_64",
        "/dev/sda1",
        "base-oss-nvidia-driver-gpu-ubuntu-24.04",
    ),
    image(
        "ami-0d15ea5e000002023",
        AMAZON,
        "x86_64",
        "/dev/xvda",
        "base-oss-nvidia-driver-gpu-amazon-linux-2023",
    ),
    image(
        "ami-0d15ea5e0000000a4",
        ARM,
        "arm64",
        "/dev/sda1",
        "base-oss-nvidia-driver-gpu-ubuntu-22.04",
    ),
    image(
        "ami-0d15ea5e000000210",
        PYTORCH,
        "x86_64",
        "/dev/sda1",
        "oss-nvidia-driver-gpu-pytorch-2.10-ubuntu-24.04",
    ),
    Image {
        created: "2025-03-01T09:00:00.000Z",
        ..image("ami-0d15ea5e000000021", OLD, "x86_64", "/dev/sda1", "")
    },
];

/// The account that publishes them.
const OWNER: &str = "898082745236";

/// `/aws/service/deeplearning/ami/ARCHITECTURE/NAME/latest/ami-id`.
pub(super) fn of_parameter(name: &str) -> Option<&'static str> {
    if [PLAIN_PARAMETER, UBUNTU_PARAMETER].contains(&name) {
        return IMAGES.iter().find(|image| image.parameter == name).map(|image| image.id);
    }
    let rest =
        name.strip_prefix("/aws/service/deeplearning/ami/")?.strip_suffix("/latest/ami-id")?;
    let (architecture, named) = rest.split_once('/')?;
    IMAGES
        .iter()
        .find(|image| image.architecture == architecture && image.parameter == named)
        .map(|image| image.id)
}

pub(super) fn exists(cloud: &Cloud, region: &str, id: &str) -> bool {
    IMAGES.iter().any(|image| image.id == id)
        || cloud.moto_ec2(region, "DescribeImages", &numbered("ImageId", &[id.into()])).is_ok()
}

/// Ours; moto's where an id is asked for that is not.
pub(super) fn answer(_cloud: &Cloud, asked: &Asked, action: &str) -> Option<Answer> {
    let ids = query::list(&asked.params, "ImageId");
    if action != "DescribeImages" || ids.iter().any(|id| IMAGES.iter().all(|image| image.id != id))
    {
        return None;
    }
    let owners = query::list(&asked.params, "Owner");
    if owners.iter().any(|owner| owner == "self") {
        return None;
    }
    let (filters, mut shown) = (query::filters(&asked.params), Vec::new());
    for image in IMAGES.iter().filter(|image| ids.is_empty() || ids.iter().any(|id| id == image.id))
    {
        let facts = [
            ("image-id", image.id),
            ("name", image.name),
            ("architecture", image.architecture),
            ("owner-id", OWNER),
            ("owner-alias", "amazon"),
            ("state", "available"),
            ("is-public", "true"),
            ("image-type", "machine"),
            ("root-device-type", "ebs"),
            ("virtualization-type", "hvm"),
            ("root-device-name", image.root),
        ];
        let facts = facts.map(|(name, value)| (name, value.to_owned()));
        match passes(&filters, &[], among(&facts)) {
            Ok(true)
                if owners.is_empty()
                    || owners.iter().any(|owner| owner == "amazon" || owner == OWNER) =>
            {
                shown.push(item(image))
            }
            Ok(_) => {}
            Err(filter) => {
                return Some(refused(
                    "InvalidParameterValue",
                    format!("The filter '{filter}' is invalid"),
                ));
            }
        }
    }
    Some(ec2_answer(action, [Node::with("imagesSet", shown)]))
}

fn item(image: &Image) -> Node {
    let fields = [
        ("imageId", image.id),
        ("imageLocation", "amazon/deep-learning"),
        ("imageState", "available"),
        ("imageOwnerId", OWNER),
        ("imageOwnerAlias", "amazon"),
        ("creationDate", image.created),
        ("deprecationTime", "2028-06-01T09:00:00.000Z"),
        ("isPublic", "true"),
        ("architecture", image.architecture),
        ("imageType", "machine"),
        ("name", image.name),
        ("description", image.name),
        ("rootDeviceType", "ebs"),
        ("rootDeviceName", image.root),
        ("virtualizationType", "hvm"),
        ("hypervisor", "xen"),
        ("enaSupport", "true"),
        ("platformDetails", image.platform.0),
        ("usageOperation", image.platform.1),
    ];
    let disks = [mapping(image.root, disk(image.gib, "true"))].into_iter().chain(
        image.further.iter().map(|(device, further)| match further {
            Further::Disk => mapping(device, disk("500", "false")),
            Further::InstanceStore => mapping(device, Node::leaf("virtualName", "ephemeral0")),
        }),
    );
    let disks = Node::with("blockDeviceMapping", disks.collect::<Vec<_>>());
    let product = |code| {
        Node::with("item", [Node::leaf("productCode", code), Node::leaf("type", "marketplace")])
    };
    let products = image.product.map(|code| Node::with("productCodes", [product(code)]));
    Node::with(
        "item",
        fields
            .map(|(name, value)| Node::leaf(name, value))
            .into_iter()
            .chain([disks])
            .chain(products),
    )
}

fn mapping(device: &str, what: Node) -> Node {
    Node::with("item", [Node::leaf("deviceName", device), what])
}

fn disk(gib: &str, goes: &str) -> Node {
    let disk = [
        ("snapshotId", "snap-0d15ea5e"),
        ("volumeSize", gib),
        ("deleteOnTermination", goes),
        ("volumeType", "gp3"),
        ("encrypted", "false"),
    ];
    Node::with("ebs", disk.map(|(name, value)| Node::leaf(name, value)))
}
