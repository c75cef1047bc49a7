//! The checks and the setup of an account, for `lamp init aws`, `lamp uninit aws` and `lamp
//! doctor`.

use super::{StoreHandle, Workstation};
use crate::adapters::workstation::agent_files::AgentFiles;
use crate::market::Arch;
use crate::ports::Agents as _;

use crate::account::lookup::Found;
#[cfg(feature = "aws")]
use crate::account::lookup::{ProfileFound, RegionFound, RoleFound};
use crate::account::sweeper::{FunctionFound, ScheduleFound};
#[cfg(feature = "aws")]
use crate::adapters::aws::account::readiness;

#[cfg(feature = "aws")]
pub use crate::adapters::aws::account::doctor::{AwsCaller, AwsDoctor, CredentialsEnd};
#[cfg(feature = "aws")]
pub use crate::adapters::aws::account::setup::{AwsSetup, SetupWish};
#[cfg(feature = "aws")]
pub use crate::adapters::aws::account::setup_error::SetupError;
pub use crate::adapters::workstation::doctor::{UserUnit, daemon_unit, gpus};
pub use crate::adapters::workstation::user_file::{
    read as read_user_file, replace as replace_user_file,
};

impl Workstation {
    #[cfg(feature = "aws")]
    pub fn doctor(&self) -> AwsDoctor {
        AwsDoctor::new(self.aws_session())
    }

    /// The first needs of a launch: the bucket with this name, if there is one, and the instance
    /// profile.
    #[cfg(feature = "aws")]
    pub async fn aws_ready(
        &self,
        bucket: Option<&str>,
        profile: &str,
    ) -> (Found<()>, Found<ProfileFound>, Found<RoleFound>) {
        readiness::look(&self.aws_session(), bucket, profile).await
    }

    /// The regions where a machine may be bought, and their networks.
    #[cfg(feature = "aws")]
    pub async fn aws_networks(
        &self,
        group: &str,
        asked: &[String],
    ) -> (Vec<String>, Vec<RegionFound>) {
        let session = self.aws_session();
        let regions: Vec<String> =
            session.regions(asked).await.iter().map(ToString::to_string).collect();
        let found = readiness::networks(&session, group, &regions).await;
        (regions, found)
    }

    /// The account of the user's credentials, or why it is unknown.
    #[cfg(feature = "aws")]
    pub async fn aws_account(&self) -> Result<String, String> {
        match self.doctor().who().await.0 {
            AwsCaller::Known { account, .. } => Ok(account),
            AwsCaller::NoCredentials(nobody) => Err(nobody.sentence()),
            AwsCaller::Refused(why) | AwsCaller::Silent(why) => Err(why),
        }
    }

    #[cfg(not(feature = "aws"))]
    pub async fn aws_account(&self) -> Result<String, String> {
        Err("this `lamp` was built without cloud `aws`".into())
    }

    /// The state of the sweeper with this name, in the region where `lamp init aws --sweeper` makes
    /// it.
    #[cfg(feature = "aws")]
    pub async fn aws_sweeper(&self, name: &str) -> (Found<FunctionFound>, Found<ScheduleFound>) {
        self.doctor().sweeper(name).await
    }

    #[cfg(not(feature = "aws"))]
    pub async fn aws_sweeper(&self, _name: &str) -> (Found<FunctionFound>, Found<ScheduleFound>) {
        let why = "this `lamp` was built without cloud `aws`".to_owned();
        (Found::Unknown(why.clone()), Found::Unknown(why))
    }

    /// Where machines may be bought: the job's regions, else the user's, else the home region.
    #[cfg(feature = "aws")]
    pub async fn aws_regions(&self, asked: &[String]) -> Vec<String> {
        self.aws_session().regions(asked).await.iter().map(ToString::to_string).collect()
    }

    #[cfg(not(feature = "aws"))]
    pub async fn aws_regions(&self, asked: &[String]) -> Vec<String> {
        asked.to_vec()
    }

    /// The agent program for x86-64 machines, as text; or why there is none.
    pub fn agent_to_ship(&self) -> Result<String, String> {
        let found = AgentFiles::new(self.agent_binary.clone())
            .find(Arch::X86_64)
            .map_err(|error| error.why)?;
        let glibc = found.glibc.map_or_else(String::new, |glibc| format!(", needs glibc {glibc}"));
        Ok(format!("{} ({:.1} MB{glibc})", found.path.display(), found.bytes as f64 / 1e6))
    }
}

/// Whether the job root can be read as jobs read it.
pub async fn reads_job_root(store: &StoreHandle) -> Result<usize, String> {
    let found = crate::jobdir::jobs(store.as_ref()).await;
    found.map(|jobs| jobs.len()).map_err(|error| {
        let cause =
            std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{error}{cause}")
    })
}
