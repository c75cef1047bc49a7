//! Brings the agent to a machine that comes without it: once into the job root, and from there by a
//! signed URL.
//!
//! ```text
//!   agents.find(arch) ──> agents/<sha256>/lamp-agent, if absent ──> signed URL ──> user data
//!                         agents/<sha256>/checked, after its sum was compared
//! ```
//! The URL expires with the credentials that sign it. They must last for the launch and the boot;
//! otherwise no machine is bought. `ports::Agents` finds the file on this workstation, and
//! `user_data` has the script.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use super::user_data::{Bootstrap, BootstrapError, BoxEndpoint};
use crate::jobdir::layout;
use crate::market::{Arch, Region, Span};
use crate::ports::{AgentFile, Agents, AgentsError, Glibc, Lives, SignedUrl, Store, StoreError};

/// The longest validity of the URL in the user data; it also ends with the credentials that signed
/// it. A launch whose answer was lost is repeated with the same user data, for hours at most. S3
/// signs for a week at most. The URL gives only a public program.
const URL_VALID: Duration = Duration::from_secs(24 * 3600);

/// The time from the signature to the launch; the boot follows. An answer may be lost, and the
/// cloud may throttle. With less, such a launch is planned again. With more, a session of half an
/// hour is too short for half of its time.
const LAUNCH_TAKES: Duration = Duration::from_secs(2 * 60);

/// Why there is no user data for a machine.
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
    /// The store did not answer. Every other error waits for the user.
    pub fn is_silence(&self) -> bool {
        matches!(self, ShipError::Store(StoreError::Unavailable { .. }))
    }
}

/// The first boot of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstBoot {
    pub user_data: String,
    /// A machine that is launched later may be unable to fetch the agent.
    pub launch_by: Timestamp,
}

/// Ships for one controller.
pub struct Shipper {
    agents: Arc<dyn Agents>,
    box_endpoint: Option<String>,
    /// The endpoint serves S3 alone.
    of_s3: bool,
    /// The agents that this process has found in the job root, by SHA-256.
    there: Mutex<BTreeSet<String>>,
}

impl Shipper {
    /// `box_endpoint`: the endpoint for machines in place of the cloud's own. It serves all of AWS,
    /// like an emulator.
    pub fn new(agents: Arc<dyn Agents>, box_endpoint: Option<String>) -> Self {
        Shipper { agents, box_endpoint, of_s3: false, there: Mutex::default() }
    }

    /// The endpoint serves S3 alone, like the one of a VPC. The other services keep their usual
    /// endpoints.
    #[must_use]
    pub fn of_s3(self) -> Self {
        Shipper { of_s3: true, ..self }
    }

    /// The user data of a machine of this kind. Uploads the agent if the job root lacks it. `image`
    /// is for people: its name, or the entry of the job file.
    ///
    /// When there is no agent for it, the image is too old for it, or the job root refuses it.
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

    /// Whether a machine could fetch its agent after its boot, as far as this is known before the
    /// launch. Sends nothing, but may ask who we are.
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

    /// Puts the agent for these machines into the job root.
    ///
    /// When there is no agent, or the job root refuses it.
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
        let there = || self.there.lock().expect("the holder only adds names");
        if there().contains(&file.sha256) {
            return Ok(());
        }
        let mark = layout::agent_checked(&file.sha256);
        let (found, checked) = tokio::try_join!(store.head(key), store.head(&mark))?;
        // The size cannot show wrong bytes. So an agent counts after its sum was compared, and
        // until the object is written again. Two uploads at once write the same bytes. A torn
        // upload leaves no object.
        let good = found.zip(checked).is_some_and(|(found, checked)| {
            found.bytes == file.bytes && checked.modified >= found.modified
        });
        if !good {
            let (_, sent) = store.put_file(key, &file.path).await?;
            if sent != file.sha256 {
                // If the delete fails, the object stays without its mark, and the next upload
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

/// The oldest systemd with the agent's setting for a workload (`OOMPolicy=`). The user data check
/// it too. tests/adapters/units.rs compares both with the units.
pub const SYSTEMD_MIN: u16 = 243;

/// The C library and systemd of common images, by parts of their names. The first matching row
/// counts.
///
/// The table also has images that are too old: a plan must refuse one before a machine is bought,
/// which would power off at its first boot.
const IMAGES: [(&str, Glibc, u16); 45] = [
    ("amazon linux 2023", Glibc(2, 34), 252),
    ("amazon-linux-2023", Glibc(2, 34), 252),
    ("al2023", Glibc(2, 34), 252),
    ("amazon linux 2", Glibc(2, 26), 219),
    ("amazon-linux-2", Glibc(2, 26), 219),
    ("amzn2", Glibc(2, 26), 219),
    // Its init is Upstart, with some of systemd.
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
    fn image_with_old_glibc_is_refused() {
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
    fn image_with_old_systemd_is_refused() {
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
