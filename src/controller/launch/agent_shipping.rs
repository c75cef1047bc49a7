//! Brings the agent to a machine that comes without it: into the job root once, and from there by a
//! signed URL.
//!
//! ```text
//!   agents.find(arch) ──> agents/<sha256>/lamp-agent, if it is not there ──> signed URL ──> user data, and until when to launch
//!                         agents/<sha256>/checked, once the sum of what was sent is the one in the key
//! ```
//! The URL lives as long as the credentials that sign it: they must last for the launch and the
//! boot, or nothing is bought. Not here: where the file is on this workstation (`ports::Agents`),
//! the words of the script (`bootstrap`).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use super::user_data::{Bootstrap, BootstrapError, BoxEndpoint};
use crate::jobdir::layout;
use crate::market::{Arch, Region, Span};
use crate::ports::{AgentFile, Agents, AgentsError, Glibc, Lives, SignedUrl, Store, StoreError};

/// How long the URL in the user data is good for, at most: it ends with the credentials that signed
/// it. A launch whose answer was lost is repeated with the same words, for hours at most; the
/// longest that S3 signs is a week. It gives nothing but a public program.
const URL_VALID: Duration = Duration::from_secs(24 * 3600);

/// The time that a launch may take after its words were signed, beside the boot that follows: its
/// answer may be lost, and the cloud may ask for fewer calls. Less, and such a launch is planned
/// anew; more, and a session of half an hour signs for nobody half of its time.
const LAUNCH_TAKES: Duration = Duration::from_secs(2 * 60);

/// Why a machine cannot be told how to begin.
#[derive(Debug, thiserror::Error)]
pub enum ShipError {
    #[error(transparent)]
    NoAgent(#[from] AgentsError),
    #[error(
        "the agent `{path}` needs glibc {needs}, and {image} has {has}: build one that runs there with `just agent-portable`, and put it beside `lamp`"
    )]
    TooNew { path: String, needs: Glibc, image: String, has: Glibc },
    #[error(
        "{image} has systemd {has}, and the agent needs {SYSTEMD_MIN}: choose an image with Amazon Linux 2023, Ubuntu 20.04, Debian 11 or newer"
    )]
    TooOld { image: String, has: u16 },
    #[error("the agent cannot be brought to the job root")]
    Store(#[source] StoreError),
    /// Its machine would boot for nothing.
    #[error(
        "the AWS credentials end in {left}, and so does the URL by which a machine fetches its agent: {needed} are needed, \
         two minutes to launch and `limits.boot` to boot"
    )]
    ShortLived { left: Span, needed: Span },
    #[error("the agent `{path}` changed while it was uploaded")]
    Changed { path: String },
    #[error("machines cannot reach the job root `{0}`: give one on S3, s3://bucket/prefix")]
    NotReachable(String),
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
}

impl From<StoreError> for ShipError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::ShortLived { left, needed } => ShipError::ShortLived { left, needed },
            error => ShipError::Store(error),
        }
    }
}

impl ShipError {
    /// Nobody answered; everything else waits for a person.
    pub fn is_silence(&self) -> bool {
        matches!(self, ShipError::Store(StoreError::Unavailable { .. }))
    }
}

/// What a machine runs first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstBoot {
    pub user_data: String,
    /// A machine that is launched later may boot when the agent can no longer be fetched.
    pub launch_by: Timestamp,
}

/// Ships for one controller.
pub struct Shipper {
    agents: Arc<dyn Agents>,
    box_endpoint: Option<String>,
    /// Whether that is an endpoint of S3 alone.
    of_s3: bool,
    /// What this process has seen in the job root, by SHA-256.
    there: Mutex<BTreeSet<String>>,
}

impl Shipper {
    /// `box_endpoint`: what machines use instead of the cloud's own endpoint, which is all of AWS,
    /// as an emulator is.
    pub fn new(agents: Arc<dyn Agents>, box_endpoint: Option<String>) -> Self {
        Shipper { agents, box_endpoint, of_s3: false, there: Mutex::default() }
    }

    /// That endpoint is one of S3 alone, as a VPC has one: the cloud's other services are where
    /// they always are.
    #[must_use]
    pub fn of_s3(self) -> Self {
        Shipper { of_s3: true, ..self }
    }

    /// The user data of a machine of this kind; uploads the agent when it is not in the job root
    /// yet. `image` is what is known of the image, for people: its name, or what the job file says.
    ///
    /// # Errors
    /// When there is no agent for it, the image is known to be too old for it, or the job root does
    /// not take it.
    pub async fn user_data(
        &self,
        store: &dyn Store,
        arch: Arch,
        region: &Region,
        image: &str,
        boot: Span,
    ) -> Result<FirstBoot, ShipError> {
        let file = self.agents.find(arch)?;
        check_image(&file, image)?;
        let key = layout::agent(&file.sha256);
        let signed = self.sign(store, &key, boot).await?;
        self.upload(store, &key, &file).await?;
        let bootstrap = Bootstrap {
            job_root: &store.url(),
            job_root_region: signed.region.as_deref(),
            region: region.as_str(),
            agent_url: &signed.url,
            agent_sha256: &file.sha256,
            box_endpoint: self.box_endpoint.as_deref().map(if self.of_s3 {
                BoxEndpoint::S3
            } else {
                BoxEndpoint::All
            }),
            boot,
        };
        let launch_by = signed.until.saturating_sub(boot.duration()).unwrap_or(Timestamp::MIN);
        Ok(FirstBoot { user_data: bootstrap.user_data()?, launch_by })
    }

    async fn sign(&self, store: &dyn Store, key: &str, boot: Span) -> Result<SignedUrl, ShipError> {
        let least = LAUNCH_TAKES + boot.duration();
        let lives = Lives { least, most: URL_VALID.max(least) };
        let signed = store.presign_get(key, lives, self.box_endpoint.as_deref()).await?;
        signed.ok_or_else(|| ShipError::NotReachable(store.url()))
    }

    /// Whether a machine could fetch its agent when it has booted, as far as that is known before
    /// its launch. Sends nothing, but may ask who we are.
    ///
    /// # Errors
    /// When there is no agent for it, machines cannot reach the job root, or the credentials end
    /// too soon.
    pub async fn could_fetch(
        &self,
        store: &dyn Store,
        arch: Arch,
        boot: Span,
    ) -> Result<(), ShipError> {
        let key = layout::agent(&self.agents.find(arch)?.sha256);
        self.sign(store, &key, boot).await.map(drop)
    }

    /// Whether a machine with this image could run the agent for such machines.
    ///
    /// # Errors
    /// When there is none, or the image is known to be too old for it.
    pub fn fits(&self, arch: Arch, image: &str) -> Result<(), ShipError> {
        check_image(&self.agents.find(arch)?, image)
    }

    /// The agent for these machines is in the job root.
    ///
    /// # Errors
    /// When there is none, or the job root does not take it.
    pub async fn bring(&self, store: &dyn Store, arch: Arch) -> Result<(), ShipError> {
        let file = self.agents.find(arch)?;
        self.upload(store, &layout::agent(&file.sha256), &file).await
    }

    async fn upload(
        &self,
        store: &dyn Store,
        key: &str,
        file: &AgentFile,
    ) -> Result<(), ShipError> {
        let there =
            || self.there.lock().expect("nobody panics while holding it: names are only put in");
        if there().contains(&file.sha256) {
            return Ok(());
        }
        let mark = layout::agent_checked(&file.sha256);
        let (found, checked) = tokio::try_join!(store.head(key), store.head(&mark))?;
        // The size alone does not tell right bytes from wrong ones, so an agent counts once its sum
        // was compared, and until somebody writes it again. Two uploads at once write the same
        // bytes; a torn one is no object at all.
        let good = found.zip(checked).is_some_and(|(found, checked)| {
            found.bytes == file.bytes && checked.modified >= found.modified
        });
        if !good {
            let (_, sent) = store.put_file(key, &file.path).await?;
            if sent != file.sha256 {
                // Where it cannot be taken back, it stays without its mark, and the next upload
                // replaces it.
                let _kept = store.delete(key).await;
                return Err(ShipError::Changed { path: file.path.display().to_string() });
            }
            store.put(&mark, Bytes::new()).await?;
        }
        there().insert(file.sha256.clone());
        Ok(())
    }
}

fn check_image(file: &AgentFile, image: &str) -> Result<(), ShipError> {
    let Some((glibc, systemd)) = known(image) else { return Ok(()) };
    let image = format!("`{image}`");
    if systemd < SYSTEMD_MIN {
        return Err(ShipError::TooOld { image, has: systemd });
    }
    match file.glibc {
        Some(needs) if needs > glibc => Err(ShipError::TooNew {
            path: file.path.display().to_string(),
            needs,
            image,
            has: glibc,
        }),
        _ => Ok(()),
    }
}

/// The oldest systemd that knows what the agent asks of it for a workload (`OOMPolicy=`), and
/// refuses nothing of it. The user data look at it too; tests/adapters/units.rs holds both to what
/// the units say.
pub const SYSTEMD_MIN: u16 = 243;

/// What the images that people train on have of the C library and of systemd, by what their names
/// hold. The first row that fits counts.
///
/// Of those older than the agent needs too: a plan says so before a machine of it is bought, which
/// would go out at its first boot.
const IMAGES: [(&str, Glibc, u16); 45] = [
    ("amazon linux 2023", Glibc(2, 34), 252),
    ("amazon-linux-2023", Glibc(2, 34), 252),
    ("al2023", Glibc(2, 34), 252),
    ("amazon linux 2", Glibc(2, 26), 219),
    ("amazon-linux-2", Glibc(2, 26), 219),
    ("amzn2", Glibc(2, 26), 219),
    // Its init is another (Upstart), beside some of systemd.
    ("ubuntu 14.04", Glibc(2, 19), 204),
    ("ubuntu-14.04", Glibc(2, 19), 204),
    ("ubuntu-trusty-14.04", Glibc(2, 19), 204),
    ("ubuntu/server/14.04", Glibc(2, 19), 204),
    ("ubuntu 16.04", Glibc(2, 23), 229),
    ("ubuntu-16.04", Glibc(2, 23), 229),
    ("ubuntu-xenial-16.04", Glibc(2, 23), 229),
    ("ubuntu/server/16.04", Glibc(2, 23), 229),
    ("ubuntu 18.04", Glibc(2, 27), 237),
    ("ubuntu-18.04", Glibc(2, 27), 237),
    ("ubuntu-bionic-18.04", Glibc(2, 27), 237),
    ("ubuntu/server/18.04", Glibc(2, 27), 237),
    ("ubuntu 20.04", Glibc(2, 31), 245),
    ("ubuntu-20.04", Glibc(2, 31), 245),
    ("ubuntu-focal-20.04", Glibc(2, 31), 245),
    ("ubuntu 22.04", Glibc(2, 35), 249),
    ("ubuntu-22.04", Glibc(2, 35), 249),
    ("ubuntu-jammy-22.04", Glibc(2, 35), 249),
    ("ubuntu 24.04", Glibc(2, 39), 255),
    ("ubuntu-24.04", Glibc(2, 39), 255),
    ("ubuntu-noble-24.04", Glibc(2, 39), 255),
    ("ubuntu/server/20.04", Glibc(2, 31), 245),
    ("ubuntu/server/22.04", Glibc(2, 35), 249),
    ("ubuntu/server/24.04", Glibc(2, 39), 255),
    ("debian-9", Glibc(2, 24), 232),
    ("debian-stretch", Glibc(2, 24), 232),
    ("debian-10", Glibc(2, 28), 241),
    ("debian-11", Glibc(2, 31), 247),
    ("debian-12", Glibc(2, 36), 252),
    // And what is built from its sources.
    ("rhel-7", Glibc(2, 17), 219),
    ("centos-7", Glibc(2, 17), 219),
    ("centos linux 7", Glibc(2, 17), 219),
    ("rhel-8", Glibc(2, 28), 239),
    ("centos-8", Glibc(2, 28), 239),
    ("centos linux 8", Glibc(2, 28), 239),
    ("centos-stream-8", Glibc(2, 28), 239),
    ("centos stream 8", Glibc(2, 28), 239),
    ("rocky-8", Glibc(2, 28), 239),
    ("almalinux os 8", Glibc(2, 28), 239),
];

fn known(image: &str) -> Option<(Glibc, u16)> {
    let image = image.to_lowercase();
    IMAGES
        .iter()
        .find(|(part, ..)| image.contains(part))
        .map(|(_, glibc, systemd)| (*glibc, *systemd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_is_known_to_be_older_is_refused() {
        let file = |glibc| AgentFile { path: "/a".into(), sha256: String::new(), bytes: 1, glibc };
        let new = file(Some(Glibc(2, 34)));
        let old = file(Some(Glibc(2, 26)));
        for (image, runs) in [
            ("Deep Learning Base OSS Nvidia Driver GPU AMI (Amazon Linux 2023) 20260101", true),
            (
                "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id",
                true,
            ),
            ("ubuntu/images/hvm-ssd/ubuntu-focal-20.04-amd64-server", false),
            ("ubuntu/images/hvm-ssd/ubuntu-jammy-22.04-amd64-server-20260101", true),
            ("debian-11-amd64-20260101-1000", false),
            ("my-own", true),
        ] {
            assert_eq!(check_image(&new, image).is_ok(), runs, "{image}");
            assert!(check_image(&old, image).is_ok(), "{image}");
            assert!(check_image(&file(None), image).is_ok(), "{image}");
        }
        let words = check_image(&new, "debian-11-amd64").unwrap_err().to_string();
        assert_eq!(
            words,
            "the agent `/a` needs glibc 2.34, and `debian-11-amd64` has 2.31: build one that runs there with `just agent-portable`, and put it beside `lamp`"
        );
    }

    #[test]
    fn an_image_whose_systemd_is_too_old_is_refused_whatever_the_agent() {
        let file = AgentFile { path: "/a".into(), sha256: String::new(), bytes: 1, glibc: None };
        for image in [
            "Deep Learning Base OSS Nvidia Driver GPU AMI (Amazon Linux 2) Version 65",
            "ubuntu/images/hvm-ssd/ubuntu-trusty-14.04-amd64-server-20170727",
            "ubuntu/images/hvm-ssd/ubuntu-xenial-16.04-amd64-server-20170721",
            "ubuntu/images/hvm-ssd/ubuntu-bionic-18.04-amd64-server",
            "Deep Learning AMI (Ubuntu 16.04) Version 26.0",
            "/aws/service/canonical/ubuntu/server/18.04/stable/current/amd64/hvm/ebs-gp2/ami-id",
            "debian-10-amd64-20240703-1797",
            "RHEL-7.9_HVM-20240213-x86_64-0-Hourly2-GP3",
            "RHEL-8.6.0_HVM-20220503-x86_64-2-Hourly2-GP2",
            "CentOS Linux 7 x86_64 HVM EBS ENA 2002_01",
            "Rocky-8-EC2-Base-8.9-20231119.0.x86_64",
        ] {
            assert!(matches!(check_image(&file, image), Err(ShipError::TooOld { .. })), "{image}");
        }
        for image in [
            "al2023-ami-2023.5.20240805.0-kernel-6.1-x86_64",
            "debian-12-amd64-20240102-1614",
            "RHEL-9.3.0_HVM-20231101-x86_64-5-Hourly2-GP2",
        ] {
            assert!(check_image(&file, image).is_ok(), "{image}");
        }
        let words = check_image(&file, "amzn2-ami-hvm").unwrap_err().to_string();
        let known = "`amzn2-ami-hvm` has systemd 219, and the agent needs 243: choose an image with Amazon Linux 2023, Ubuntu 20.04, Debian 11 or newer";
        assert_eq!(words, known);
    }
}
