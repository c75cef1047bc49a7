//! The controller's side: this workstation, its jobs and its clouds.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
#[cfg(feature = "aws")]
use sha2::{Digest as _, Sha256};

use super::handles::{StoreHandle, clock};
#[cfg(feature = "aws")]
use crate::adapters::aws::ec2::cloud::AwsCloud;
#[cfg(feature = "aws")]
use crate::adapters::aws::ec2::describe;
#[cfg(feature = "aws")]
use crate::adapters::aws::ec2::offers;
#[cfg(feature = "aws")]
use crate::adapters::aws::ec2::spot_prices;
#[cfg(feature = "aws")]
use crate::adapters::aws::session::{AwsSession, bucket_access};
use crate::adapters::host::service_manager::Notify;
use crate::adapters::local::cloud::LocalCloud;
use crate::adapters::local::file_reads;
use crate::adapters::local::machine_folder::{LocalAws, LocalFolder};
use crate::adapters::notify::{Channel, ChannelError, Message, NotifyChannels};
use crate::adapters::store::open::{self, OpenError};
use crate::adapters::store::upload_resume::Unsent;
use crate::adapters::workstation::agent_files::AgentFiles;
use crate::adapters::workstation::catalog_cloud::ShippedCloud;
use crate::adapters::workstation::cloud_look_file;
use crate::adapters::workstation::driver_process;
use crate::adapters::workstation::kept_filters;
use crate::adapters::workstation::launch_lock::LaunchTurns;
use crate::adapters::workstation::page_token;
use crate::adapters::workstation::process_env;
use crate::controller::{CapsInForce, Controller, Shipper};
use crate::job::{JobId, MachineSpec, NotifySpec, SecretSource};
use crate::market::{self, Offer, PriceHistory, Region, Span, Supply, Zone};
use crate::ports;

pub use crate::adapters::aws::settings::AwsSettings;
pub use crate::adapters::local::file_reads::FileRead;
pub use crate::adapters::workstation::driver_process::{DaemonLock, DrivingLock};
pub use crate::adapters::workstation::page_token::random_token;
pub use crate::adapters::workstation::private_files::{can_be_made, owner as owner_of_folder};
/// For job names.
pub use crate::adapters::workstation::process_env::random as random_letters;

/// The credentials of a call last longer than this, so a driver this young still has valid ones.
const DRIVEN_ANEW: Duration = Duration::from_secs(600);

/// The workstation and the user that a controller works for. Clones share one AWS session.
#[derive(Clone)]
pub struct Workstation {
    /// `~/.local/state/lamplighter`.
    pub state: PathBuf,
    pub job_root: String,
    /// The owner in the tags of machines.
    pub owner: String,
    /// `user@host`, for people.
    pub name: String,
    /// The user's channels. Without one: no notifications.
    pub notify: NotifySpec,
    pub aws: AwsSettings,
    /// The spending caps over all jobs, in any job root.
    pub caps: Arc<CapsInForce>,
    /// The program for machines, instead of the one beside this program.
    pub agent_binary: Option<PathBuf>,
    /// The secrets that machines may read.
    pub secrets: Vec<SecretSource>,
    #[cfg(feature = "aws")]
    session: Arc<AwsSession>,
}

impl Workstation {
    pub fn new(
        state: PathBuf,
        job_root: &str,
        owner: &str,
        user: Option<&str>,
        notify: &NotifySpec,
        aws: AwsSettings,
    ) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = format!("{}@{host}", user.unwrap_or("unknown"));
        Workstation {
            state,
            job_root: job_root.to_owned(),
            owner: owner.to_owned(),
            name,
            notify: notify.clone(),
            #[cfg(feature = "aws")]
            session: AwsSession::new(aws.clone()),
            aws,
            caps: Arc::default(),
            agent_binary: None,
            secrets: Vec::new(),
        }
    }

    /// The same workstation for another job root.
    #[must_use]
    pub fn at(&self, job_root: &str) -> Workstation {
        let mut other = self.clone();
        other.job_root = job_root.to_owned();
        other
    }

    /// The same workstation with the first of these regions as home: a bucket is only reached
    /// through its own region.
    #[must_use]
    pub fn in_regions(&self, regions: &[String]) -> Workstation {
        let mut other = self.clone();
        other.aws.regions = regions.to_vec();
        #[cfg(feature = "aws")]
        {
            other.session = AwsSession::new(other.aws.clone());
        }
        other
    }

    /// # Errors
    /// When this program cannot find itself, or the state folder cannot be written.
    pub fn controller(&self, store: &StoreHandle) -> io::Result<Controller> {
        let program = std::env::current_exe()?.display().to_string();
        let aws = LocalAws {
            profile: self.aws.profile.clone(),
            region: self.aws.regions.first().cloned(),
            endpoint_url: self.aws.endpoint_url.clone(),
        };
        let cloud = LocalCloud::new(&self.state, &self.job_root, vec![program, "agent".into()])
            .reaching(aws);
        let here = cloud.zone()?;
        let mut clouds =
            BTreeMap::from([(market::CloudKind::Local, Arc::new(cloud) as Arc<dyn ports::Cloud>)]);
        self.add_aws(&mut clouds);
        let controller = Controller::new(
            Arc::clone(store),
            clouds,
            clock(),
            self.owner.clone(),
            self.name.clone(),
            here,
        );
        let controller = controller.shipping(self.shipper()).capped_by(Arc::clone(&self.caps));
        let controller =
            controller.taking_turns(Arc::new(LaunchTurns::new(&self.state, &self.job_root)));
        if self.notify.channels.is_empty() {
            return Ok(controller);
        }
        Ok(controller.notifying(Arc::new(NotifyChannels::new(&self.notify))))
    }

    /// Sends a test message through a channel, once.
    ///
    /// # Errors
    /// A setting is wrong, or the service refuses or does not answer.
    pub async fn test_channel(
        &self,
        channel: &Channel,
        now: Timestamp,
    ) -> Result<(), ChannelError> {
        NotifyChannels::try_once(channel, &Message::test(&self.notify, now)).await
    }

    /// A controller that plans for AWS from the shipped catalogue when AWS does not answer. It
    /// cannot launch.
    ///
    /// # Errors
    /// When the state folder cannot be written.
    pub fn by_the_catalogue(
        &self,
        store: &StoreHandle,
        regions: Vec<Region>,
    ) -> io::Result<Controller> {
        let shipped: Arc<dyn ports::Cloud> = Arc::new(ShippedCloud { regions });
        let clouds = BTreeMap::from([(market::CloudKind::Aws, shipped)]);
        Ok(Controller::new(
            Arc::clone(store),
            clouds,
            clock(),
            self.owner.clone(),
            self.name.clone(),
            self.here()?,
        )
        .capped_by(Arc::clone(&self.caps)))
    }

    /// Ships the agent to machines, which download it from the configured endpoint, or from ours.
    fn shipper(&self) -> Shipper {
        let aws = &self.aws;
        let ours = aws.endpoint_url.clone().or_else(|| {
            process_env::variable("AWS_ENDPOINT_URL").and_then(|url| url.into_string().ok())
        });
        let agents = Arc::new(AgentFiles::new(self.agent_binary.clone()));
        match (&aws.box_endpoint_url, ours) {
            // This workstation uses AWS itself, so the setting is the machines' own endpoint for
            // the job root.
            (Some(of_s3), None) => Shipper::new(agents, Some(of_s3.clone())).of_s3(),
            (theirs, ours) => Shipper::new(agents, theirs.clone().or(ours)),
        }
    }

    #[cfg(feature = "aws")]
    fn add_aws(&self, clouds: &mut BTreeMap<market::CloudKind, Arc<dyn ports::Cloud>>) {
        clouds.insert(market::CloudKind::Aws, Arc::new(AwsCloud::new(self.aws_session())));
    }

    #[cfg(not(feature = "aws"))]
    fn add_aws(&self, _clouds: &mut BTreeMap<market::CloudKind, Arc<dyn ports::Cloud>>) {}

    #[cfg(feature = "aws")]
    pub fn aws_session(&self) -> Arc<AwsSession> {
        Arc::clone(&self.session)
    }

    /// The state of unfinished uploads to this job root. Another root's bucket does not know them.
    #[cfg(feature = "aws")]
    fn uploads(&self) -> PathBuf {
        let root = hex::encode(&Sha256::digest(self.job_root.trim_end_matches('/'))[..8]);
        self.state.join("uploads").join(root)
    }

    /// Opens the job root as this user. `existing`: do not create a missing folder. Sends nothing
    /// to S3 yet.
    ///
    /// # Errors
    /// As `open::open`.
    pub async fn open_root(&self, existing: bool) -> Result<StoreHandle, OpenError> {
        #[cfg(feature = "aws")]
        if self.job_root.starts_with("s3://") {
            let access = bucket_access(&self.aws_session()).await;
            return open::open_through(
                &self.job_root,
                existing,
                open::S3Access { uploads: Some(self.uploads()), ..access },
            );
        }
        if existing { open::open_existing(&self.job_root) } else { open::open(&self.job_root) }
    }

    /// The offers of EC2 now, with the spot prices of the last `back`.
    ///
    /// # Errors
    /// When every region fails to answer, or AWS is missing in this build.
    #[cfg(feature = "aws")]
    pub async fn ec2_supply(
        &self,
        machine: &MachineSpec,
        back: Span,
    ) -> Result<Supply, Box<dyn Error>> {
        Ok(offers::survey(&self.aws_session(), machine, Some(back)).await?)
    }

    /// # Errors
    /// Always: this program was built without AWS.
    #[cfg(not(feature = "aws"))]
    pub async fn ec2_supply(
        &self,
        _machine: &MachineSpec,
        _back: Span,
    ) -> Result<Supply, Box<dyn Error>> {
        Err("this `lamp` was built without cloud `aws`".into())
    }

    /// The spot prices of this offer's pool from a moment on, with the price at that moment.
    ///
    /// # Errors
    /// When EC2 fails to answer, or AWS is missing in this build.
    #[cfg(feature = "aws")]
    pub async fn ec2_spot_prices(
        &self,
        offer: &Offer,
        from: Timestamp,
    ) -> Result<PriceHistory, Box<dyn Error + Send + Sync>> {
        Ok(spot_prices::pool_history(&self.aws_session(), offer, from).await?)
    }

    /// # Errors
    /// Always: this program was built without AWS.
    #[cfg(not(feature = "aws"))]
    pub async fn ec2_spot_prices(
        &self,
        _offer: &Offer,
        _from: Timestamp,
    ) -> Result<PriceHistory, Box<dyn Error + Send + Sync>> {
        Err("this `lamp` was built without cloud `aws`".into())
    }

    /// The public address of a machine. `None`: it has none.
    ///
    /// # Errors
    /// When EC2 fails to answer, or AWS is missing in this build.
    #[cfg(feature = "aws")]
    pub async fn ec2_address(
        &self,
        region: &Region,
        instance: &str,
    ) -> Result<Option<String>, Box<dyn Error>> {
        let found = describe::one(&self.aws_session(), region, instance).await?;
        Ok(found.and_then(|machine| machine.public_ip_address().map(str::to_owned)))
    }

    /// # Errors
    /// Always: this program was built without AWS.
    #[cfg(not(feature = "aws"))]
    pub async fn ec2_address(
        &self,
        _region: &Region,
        _instance: &str,
    ) -> Result<Option<String>, Box<dyn Error>> {
        Err("this `lamp` was built without cloud `aws`".into())
    }

    /// The name of this workstation among all that share a job root.
    ///
    /// # Errors
    /// When the state folder cannot be written.
    pub fn here(&self) -> io::Result<Zone> {
        LocalCloud::new(&self.state, &self.job_root, Vec::new()).zone()
    }

    /// Whether a daemon drives this job root here.
    pub fn daemon_runs(&self) -> bool {
        driver_process::daemon_runs(&self.state, &self.job_root)
    }

    /// # Errors
    /// When the state folder cannot be written.
    pub fn lock_daemon(&self) -> io::Result<Option<DaemonLock>> {
        driver_process::lock_daemon(&self.state, &self.job_root)
    }

    /// Marks a job as driven by this process until the returned lock is dropped.
    pub fn lock_driving(&self, job: &str) -> Option<DrivingLock> {
        driver_process::lock_driving(&self.state, &self.job_root, job)
    }

    /// Whether a process of this workstation other than a daemon drives a job.
    pub fn is_driven(&self, job: &str) -> bool {
        driver_process::is_driven(&self.state, &self.job_root, job)
    }

    /// Whether a process of this workstation, or a daemon, drives a tuning.
    pub fn is_tuned(&self, tuning: &str) -> bool {
        self.daemon_runs() || self.is_driven(&driver_process::tuning_lock(tuning))
    }

    /// Marks that this process drives a tuning.
    pub fn lock_tuning(&self, tuning: &str) -> Option<DrivingLock> {
        self.lock_driving(&driver_process::tuning_lock(tuning))
    }

    /// The jobs of this job root that a process of this workstation other than a daemon drives.
    pub fn driven(&self) -> Vec<String> {
        driver_process::driven(&self.state, &self.job_root)
    }

    /// Whether a background process that drives this job was started just now: it has the same
    /// credentials as this one.
    pub fn is_driven_anew(&self, job: &str) -> bool {
        driver_process::is_driven_anew(&self.state, &self.job_root, job, &self.owner, DRIVEN_ANEW)
    }

    /// Starts a process that drives one job to its end. Returns its log file.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start_driver(&self, job: &str) -> io::Result<PathBuf> {
        let log = self.state.join("drivers").join(format!("{job}.log"));
        let words = ["--job-root", &self.job_root, "daemon", "--job", job, "--until-done"]
            .map(str::to_owned);
        driver_process::start_detached(&words, &log, self.lock_driving(job))?;
        Ok(log)
    }

    /// Starts a process that drives one tuning to its end. Returns its log file.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start_tuner(&self, tuning: &str) -> io::Result<PathBuf> {
        let log = self.state.join("drivers").join(format!("tune-{tuning}.log"));
        let words = ["--job-root", &self.job_root, "tune", "drive", tuning].map(str::to_owned);
        driver_process::start_detached(&words, &log, self.lock_tuning(tuning))?;
        Ok(log)
    }

    /// The job id of an interrupted upload of this workdir for a job of the same name: see
    /// [`Unsent::take`].
    ///
    /// # Errors
    /// As [`Unsent::take`].
    pub fn take_unsent(&self, workdir: &Path, job: &JobId) -> io::Result<Option<Unsent>> {
        Unsent::take(&self.state, &self.job_root, workdir, job)
    }

    /// A file for the packed workdir. The caller removes it.
    pub fn scratch_file(&self, name: &str) -> io::Result<PathBuf> {
        driver_process::scratch_file(&self.state.join("tmp"), name)
    }

    /// The work folder of a local machine, while it exists.
    pub fn work_folder(&self, instance: &str) -> Option<PathBuf> {
        Some(self.state.join("local").join(instance).join("work")).filter(|folder| folder.is_dir())
    }

    /// The first and the last step that the workload on a local machine reported, while the machine
    /// exists.
    pub fn steps(&self, instance: &str) -> Option<(f64, f64)> {
        LocalFolder::new(self.state.join("local").join(instance)).steps()
    }

    /// The files below a folder in the workdir of a local machine, with the time each was read.
    /// `None`: unknown.
    pub fn reads(&self, instance: &str, path: &str) -> Option<Vec<FileRead>> {
        file_reads::reads(&self.work_folder(instance)?.join(path))
    }

    /// The token that the page asks for.
    ///
    /// # Errors
    /// When the state folder cannot be used.
    pub fn page_token(&self) -> io::Result<String> {
        page_token::page_token(&self.state)
    }

    /// The filters that this person keeps for `lamp top`.
    pub fn kept_filters(&self) -> Vec<String> {
        kept_filters::read(&self.state)
    }

    /// # Errors
    /// When the state folder cannot be written.
    pub fn keep_filters(&self, filters: &[String]) -> io::Result<()> {
        kept_filters::write(&self.state, filters)
    }

    /// The last look at the clouds for this job root, as it was kept.
    pub fn kept_look(&self) -> Option<Vec<u8>> {
        cloud_look_file::read(&self.state, &self.look_key())
    }

    /// # Errors
    /// When the state folder cannot be written.
    pub fn keep_look(&self, look: &[u8]) -> io::Result<()> {
        cloud_look_file::write(&self.state, &self.look_key(), look)
    }

    /// Another owner, profile or endpoint has other machines, so it has another look.
    fn look_key(&self) -> String {
        let AwsSettings { profile, endpoint_url, .. } = &self.aws;
        let (root, owner) = (&self.job_root, &self.owner);
        format!("{root} of {owner} {profile:?} {endpoint_url:?}")
    }

    /// A lock that one launch of a coding agent holds while its cost is compared with the purse.
    /// `None`: another process holds it for longer than `patience`.
    pub async fn take_purse_turn(&self, patience: Duration) -> Option<ports::Turn> {
        let name = format!("purse of {}", self.job_root);
        ports::Turns::take(&LaunchTurns::new(&self.state, &name), patience).await
    }

    /// The service manager that started this program, if one did.
    pub fn service(&self) -> Box<dyn ports::Service> {
        Box::new(Notify)
    }
}

/// Removes a scratch file. It may be gone already.
pub fn remove_scratch(path: &Path) {
    #[expect(clippy::disallowed_methods, reason = "a scratch file of our own")]
    let _ = std::fs::remove_file(path);
}
