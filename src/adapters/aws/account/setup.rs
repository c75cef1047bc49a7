//! Looks at the resources of an account that Lamplighter uses, and changes them.
//!
//! `look()` and `act()` call one file for each service: `bucket` for S3; `roles` for IAM roles and
//! the instance profile; `security_group` for networks and running machines; `sweeper` for the
//! sweeper in the cloud. Independent questions are asked at the same time. Not here: which step is
//! next (`policy::account::setup_plan`).

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::setup_error::SetupError;
use super::sweeper::CloudSweeper;
use super::sweeper_program::{self, SweeperProgram};
use super::{bucket, roles, security_group as group};
use crate::account::lookup::SetupFound;
use crate::account::setup::{BOX_ROLE, GROUP, InUse, SetupNames, SetupStep};
use crate::account::sweeper::{Sweeper, SweeperFound};
use crate::adapters::aws::credential_errors::lacking;
use crate::adapters::aws::service_error::said;
use crate::adapters::aws::session::AwsSession;
use crate::job::SecretSource;
use crate::market::Region;

/// The wishes of the user; the rest is looked up or has a default name.
#[derive(Clone, Debug, Default)]
pub struct SetupWish {
    pub owner: String,
    /// Bucket and prefix; without a bucket, the default name is used.
    pub bucket: Option<String>,
    pub prefix: String,
    pub regions: Vec<String>,
    /// Shells on the machines through Session Manager.
    pub session_manager: bool,
    /// The user runs gangs, which need a security group that lets their machines in.
    pub gangs: bool,
    /// The secrets that machines may read.
    pub secrets: Vec<SecretSource>,
    /// The program of the sweeper in the cloud; `None`: this program.
    pub sweeper_binary: Option<PathBuf>,
}

pub struct AwsSetup {
    session: Arc<AwsSession>,
    sweeper_binary: Option<PathBuf>,
    /// Read and packed on first use: most setups do not need it.
    program: OnceLock<Result<SweeperProgram, String>>,
    pub account: String,
    pub names: SetupNames,
}

impl AwsSetup {
    /// Asks for the account, and computes the names of all resources.
    ///
    /// # Errors
    /// If credentials or a region are missing, or AWS does not answer.
    pub async fn new(session: Arc<AwsSession>, wish: SetupWish) -> Result<Self, SetupError> {
        let (home, known) = session.home().await;
        if !known && wish.regions.is_empty() {
            return Err(SetupError {
                unsaid: true,
                ..SetupError::new("choose a region", "nothing names one")
            });
        }
        let regions: Vec<Region> = session.regions(&wish.regions).await;
        let home = regions.first().cloned().unwrap_or(home);
        let sts = aws_sdk_sts::Client::new(&session.config(&home).await);
        let identity = sts.get_caller_identity().send().await.map_err(|error| {
            let fix = lacking(&error).map(|nobody| nobody.fix);
            SetupError {
                fix,
                ..SetupError::new(format!("ask AWS in {home} who we are"), said(&error))
            }
        })?;
        let account = identity.account().unwrap_or_default().to_owned();
        let named = format!("lamplighter-{account}-{home}");
        let bucket = wish.bucket.unwrap_or_else(|| named.clone());
        let names = SetupNames {
            owner: wish.owner,
            regions: regions.iter().map(ToString::to_string).collect(),
            bucket_is_ours_by_name: bucket == named,
            bucket,
            prefix: wish.prefix,
            role: BOX_ROLE.to_owned(),
            group: GROUP.to_owned(),
            session_manager: wish.session_manager,
            gangs: wish.gangs,
            secrets: wish.secrets,
        };
        Ok(AwsSetup {
            session,
            sweeper_binary: wish.sweeper_binary,
            program: OnceLock::new(),
            account,
            names,
        })
    }

    pub async fn look(&self) -> SetupFound {
        let iam = self.session.iam(&self.home()).await;
        let s3 = self.session.s3(&self.home()).await;
        let (bucket, role, profile, spot_role, alarm_role, regions) = tokio::join!(
            bucket::look(&s3, &self.names.bucket, &self.account),
            roles::role(&iam, &self.names.role),
            roles::profile(&iam, &self.names.role),
            roles::linked(&iam, roles::SPOT_ROLE),
            roles::linked(&iam, roles::ALARM_ROLE),
            group::regions(&self.session, &self.names),
        );
        SetupFound { bucket, role, profile, regions, spot_role, alarm_role }
    }

    /// The existing sweeper of this owner.
    pub async fn look_at_sweeper(&self) -> SweeperFound {
        self.sweeper().look().await
    }

    /// The sweeper as it should be, with the program that was found.
    pub fn wanted_sweeper(&self) -> Sweeper {
        self.sweeper().wanted(self.program())
    }

    /// The sweeper's program and its size, for people; `None`: there is none.
    pub fn sweeper_program(&self) -> Option<(PathBuf, usize)> {
        self.program().as_ref().ok().map(|program| (program.path.clone(), program.archive.len()))
    }

    fn sweeper(&self) -> CloudSweeper<'_> {
        CloudSweeper { session: &self.session, account: &self.account, names: &self.names }
    }

    fn program(&self) -> &Result<SweeperProgram, String> {
        self.program.get_or_init(|| sweeper_program::find(self.sweeper_binary.as_deref()))
    }

    /// The losses of a removal: jobs in the bucket and running machines.
    ///
    /// # Errors
    /// If AWS does not answer.
    pub async fn in_use(&self, found: &SetupFound) -> Result<InUse, SetupError> {
        let s3 = self.session.s3(&self.home()).await;
        let contents = async {
            match found.bucket.there() {
                Some(_) => bucket::contents(&s3, &self.names).await,
                None => Ok(InUse::default()),
            }
        };
        let (contents, machines) =
            tokio::join!(contents, group::machines(&self.session, &self.names));
        let group::Machines { alive, odd, unasked } = machines?;
        Ok(InUse { machines: alive, odd_machines: odd, unasked_regions: unasked, ..contents? })
    }

    /// Our machines that are not terminated.
    ///
    /// # Errors
    /// If AWS does not answer.
    pub async fn machines(&self) -> Result<Vec<String>, SetupError> {
        Ok(group::machines(&self.session, &self.names).await?.alive)
    }

    /// # Errors
    /// If AWS refuses. A resource that exists already, or is gone already, counts as done. But a
    /// role that another run has just made is an error: it belongs to one job root, perhaps
    /// another.
    pub async fn act(&self, step: &SetupStep) -> Result<(), SetupError> {
        match step {
            SetupStep::CreateBucket
            | SetupStep::TagBucket
            | SetupStep::VersionBucket
            | SetupStep::CloseBucket
            | SetupStep::EncryptBucket
            | SetupStep::TidyBucket
            | SetupStep::EmptyRoot
            | SetupStep::ForgetHouse
            | SetupStep::DeleteBucket => {
                bucket::act(&self.session.s3(&self.home()).await, &self.names, step).await
            }
            SetupStep::CreateGroup { region, vpc } => {
                group::create(&self.session, &self.names, region, vpc).await
            }
            SetupStep::CreateGangGroup { region, vpc } => {
                group::create_for_gangs(&self.session, &self.names, region, vpc).await
            }
            SetupStep::OpenGangGroup { region, id } => {
                group::open_to_itself(&self.session, region, id).await
            }
            SetupStep::DeleteGroup { region, id } => group::delete(&self.session, region, id).await,
            SetupStep::Sweeper(step) if step.takes_away() => self.sweeper().take_away(*step).await,
            SetupStep::Sweeper(step) => self.sweeper().make(*step, self.program()).await,
            of_iam => roles::act(&self.session.iam(&self.home()).await, &self.names, of_iam).await,
        }
    }

    fn home(&self) -> Region {
        Region::new(self.names.home())
    }
}
