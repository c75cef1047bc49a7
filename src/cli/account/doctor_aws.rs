//! The AWS checks of `lamp doctor`: the identity first, then all others in parallel.

use std::pin::Pin;

use crate::policy::account::doctor::Check;

/// A running check. The results are printed in the order of the list.
pub type RunningCheck<'a> = Pin<Box<dyn Future<Output = Vec<Check>> + 'a>>;

#[cfg(feature = "aws")]
mod asked {
    use std::rc::Rc;

    use jiff::SignedDuration;
    use tokio::sync::OnceCell;

    use super::RunningCheck;
    use crate::account::lookup::{Found, SubnetFound};
    use crate::account::setup::{GROUP, SetupNames, box_role, bucket_of};
    use crate::app::launch::region_hint;
    use crate::app::text::local_time;
    use crate::cli::Context;
    use crate::config::{AwsFile, MachineFile};
    use crate::job::{AlarmRule, MachineSpec};
    use crate::jobdir::{ProofDir, SweeperDir};
    use crate::market::{Arch, Catalog, PriceRule, Region};
    use crate::policy::account::doctor::{
        AFTER_CREDENTIALS, Check, DiskPrice, GpuQuota, Level, judge_alarm_role, judge_bucket,
        judge_clock, judge_disk_prices, judge_image, judge_network, judge_price_list, judge_quotas,
        judge_role, judge_spot_role, judge_stand_in, judge_writing,
    };
    use crate::policy::account::shutdown_proof;
    use crate::policy::account::subnet_egress::{judge_absent, judge_subnets};
    use crate::policy::account::sweeper_plan::{SweeperSeen, judge_sweeper};
    use crate::wire::setup::{AwsCaller, AwsDoctor, CredentialsEnd};
    use crate::wire::{ClockHandle, Workstation, causes};

    /// The checks share this. The identity is asked once; checks that need it wait.
    struct AwsChecks {
        doctor: AwsDoctor,
        /// The caller identity, and how many seconds the local clock is ahead of AWS's.
        who: OnceCell<(AwsCaller, Result<i64, String>)>,
        names: OnceCell<SetupNames>,
        said: AwsFile,
        machine: MachineFile,
        owner: String,
        armed: bool,
        bucket: Option<(String, String)>,
        workstation: Workstation,
        clock: ClockHandle,
    }

    impl AwsChecks {
        async fn met(&self) -> &(AwsCaller, Result<i64, String>) {
            self.who.get_or_init(|| self.doctor.who()).await
        }

        async fn who(&self) -> &AwsCaller {
            &self.met().await.0
        }

        /// The account. `None`: the identity is unknown, and the other checks do not ask AWS.
        async fn account(&self) -> Option<&str> {
            if let AwsCaller::Known { account, .. } = self.who().await {
                Some(account)
            } else {
                None
            }
        }

        async fn names(&self) -> &SetupNames {
            let make = async || {
                let (bucket, prefix) = self.bucket.clone().unwrap_or_default();
                SetupNames {
                    owner: self.owner.clone(),
                    regions: self.doctor.regions().await,
                    bucket,
                    bucket_is_ours_by_name: false,
                    prefix,
                    role: box_role(self.said.instance_profile.as_deref()).to_owned(),
                    group: self.said.security_group.clone().unwrap_or_else(|| GROUP.to_owned()),
                    session_manager: false,
                    gangs: false,
                    secrets: self.said.secrets(),
                }
            };
            self.names.get_or_init(make).await
        }

        /// The default architecture of jobs' machines. Arm64 is bought only when every named type
        /// is arm64.
        fn arch(&self) -> Arch {
            let named = self
                .machine
                .instance_types
                .iter()
                .flatten()
                .filter_map(|name| Catalog::shipped().machine_type(name));
            let mut archs = named.map(|kind| kind.arch);
            match archs.next() {
                Some(Arch::Arm64) if archs.all(|arch| arch == Arch::Arm64) => Arch::Arm64,
                _ => Arch::X86_64,
            }
        }

        fn is_meant(&self) -> bool {
            self.bucket.is_some() || self.said != AwsFile::default()
        }
    }

    async fn unasked(desk: &AwsChecks, name: &str) -> Vec<Check> {
        vec![match desk.who().await {
            AwsCaller::Silent(_) => {
                Check::new(name, Level::Unknown, "not asked: AWS does not answer")
                    .fix(AFTER_CREDENTIALS)
            }
            _ => Check::without_identity(name),
        }]
    }

    pub fn checks<'a>(
        context: &Context,
        workstation: &Workstation,
        agent: &'a dyn Fn() -> Result<String, String>,
    ) -> Vec<RunningCheck<'a>> {
        let desk = Rc::new(AwsChecks {
            doctor: workstation.doctor(),
            who: OnceCell::new(),
            names: OnceCell::new(),
            said: context.config.user.aws.clone(),
            machine: context.config.user.defaults.machine.clone().unwrap_or_default(),
            owner: context.config.user.owner.clone(),
            armed: context
                .config
                .user
                .defaults
                .watch
                .as_ref()
                .and_then(|watch| watch.alarm.as_ref())
                .is_none_or(|alarm| alarm.0 != AlarmRule::Off),
            bucket: bucket_of(&context.roots.url),
            workstation: workstation.clone(),
            clock: context.clock.clone(),
        });
        let d = || Rc::clone(&desk);
        vec![
            boxed(d(), async |desk| vec![credentials(desk).await]),
            boxed(d(), async |desk| match desk.met().await {
                (AwsCaller::NoCredentials(_), _) => unasked(desk, "clock").await,
                (_, ahead) => vec![judge_clock(ahead)],
            }),
            boxed(d(), async |desk| vec![region(desk).await, endpoint(desk).await]),
            boxed(d(), quotas),
            boxed(d(), async |desk| match desk.account().await {
                Some(_) => vec![judge_spot_role(&desk.doctor.spot_role().await)],
                None => unasked(desk, "spot role").await,
            }),
            boxed(d(), async |desk| match desk.account().await {
                Some(_) if !desk.armed => vec![judge_alarm_role(false, &Found::Nothing)],
                Some(_) => vec![judge_alarm_role(true, &desk.doctor.alarm_role().await)],
                None => unasked(desk, "alarm role").await,
            }),
            boxed(d(), bucket),
            boxed(d(), role),
            boxed(d(), sweeper),
            boxed(d(), proofs),
            boxed(d(), network),
            boxed(d(), subnets),
            boxed(d(), images),
            boxed(d(), price_lists),
            boxed(d(), disk_prices),
            boxed(d(), async move |_| vec![to_ship(agent())]),
        ]
    }

    fn boxed<'a>(
        desk: Rc<AwsChecks>,
        ask: impl AsyncFnOnce(&AwsChecks) -> Vec<Check> + 'a,
    ) -> RunningCheck<'a> {
        Box::pin(async move {
            let mut checks = ask(&desk).await;
            // A user without AWS settings gets warnings only.
            for check in
                checks.iter_mut().filter(|check| !desk.is_meant() && check.level >= Level::Unknown)
            {
                check.level = Level::Warning;
            }
            checks
        })
    }

    async fn credentials(desk: &AwsChecks) -> Check {
        let name = "credentials";
        match desk.who().await {
            AwsCaller::Known { account, arn } => match desk.doctor.ends().await {
                Some(CredentialsEnd::At(ends)) => Check::ok(name, format!("account {account}, {arn}; those at hand end at {}", local_time(ends))),
                Some(CredentialsEnd::Untold) => Check::warning(name, format!("account {account}, {arn}; they are of a session with an unknown end"))
                    .fix("AWS_CREDENTIAL_EXPIRATION says it: `eval \"$(aws configure export-credentials --format env)\"` sets it with the others"),
                Some(CredentialsEnd::Never) | None => Check::ok(name, format!("account {account}, {arn}")),
            },
            AwsCaller::NoCredentials(nobody) if !desk.is_meant() => {
                Check::warning(name, format!("{nobody}; nothing here uses AWS")).fix(format!("for `cloud = \"aws\"`: {}", nobody.fix))
            }
            AwsCaller::NoCredentials(nobody) => Check::failure(name, nobody.to_string()).fix(nobody.fix.clone()),
            AwsCaller::Silent(why) => Check::new(name, Level::Unknown, format!("AWS does not answer: {why}"))
                .fix("the network, and the line `endpoint` below; `aws sts get-caller-identity` must answer"),
            AwsCaller::Refused(why) => Check::failure(name, why).fix("`aws sts get-caller-identity` must answer; with single sign-on, `aws sso login`"),
        }
    }

    async fn region(desk: &AwsChecks) -> Check {
        let (home, known) = desk.doctor.home().await;
        let all = desk.doctor.regions().await;
        // AWS adds regions after a release, and an emulator has its own.
        let unknown = all.iter().find_map(|name| region_hint::unknown(name));
        match (known, unknown, all.len()) {
            (true, Some(unknown), _) => Check::warning("region", unknown)
                .fix("--region, `regions` in [aws] of the configuration, or AWS_REGION names it"),
            (false, ..) => {
                let fix =
                    "`regions = [\"us-east-2\"]` in [aws] of the configuration, or AWS_REGION";
                // A user without credentials and AWS settings needs no region.
                let is_idle =
                    !desk.is_meant() && matches!(desk.who().await, AwsCaller::NoCredentials(_));
                let level = if is_idle { Level::Skipped } else { Level::Warning };
                Check::new("region", level, format!("nothing names one: {home} is taken")).fix(fix)
            }
            (true, None, 0 | 1) => Check::ok("region", home),
            (true, None, _) => {
                Check::ok("region", format!("{home} is home; machines in {}", all.join(", ")))
            }
        }
    }

    async fn endpoint(desk: &AwsChecks) -> Check {
        match desk.doctor.endpoint().await {
            None => Check::ok("endpoint", "AWS's own"),
            Some(url) => judge_stand_in(&url),
        }
    }

    async fn quotas(desk: &AwsChecks) -> Vec<Check> {
        if desk.account().await.is_none() {
            return unasked(desk, "gpu quota").await;
        }
        let regions = &desk.names().await.regions;
        let each = regions.iter().map(|region| async move {
            let found = desk.doctor.quotas(region).await.into_iter();
            let found: Vec<GpuQuota> =
                found.map(|(kind, vcpus)| GpuQuota { kind, vcpus }).collect();
            judge_quotas(region, &found)
        });
        futures::future::join_all(each).await.concat()
    }

    async fn bucket(desk: &AwsChecks) -> Vec<Check> {
        let Some((name, prefix)) = &desk.bucket else {
            let said =
                "the job root is a folder of this workstation, which no machine of AWS can reach";
            return vec![
                Check::new("bucket", if desk.is_meant() { Level::Warning } else { Level::Skipped }, said)
                    .fix("`lamp init aws`; where nothing names a region, `lamp init aws --region us-east-1` or another"),
            ];
        };
        let Some(account) = desk.account().await else { return unasked(desk, "bucket").await };
        let found = desk.doctor.bucket(name, account).await;
        let mut checks = vec![judge_bucket(desk.names().await, &found)];
        if let Found::There(there) = &found {
            checks
                .push(judge_writing(name, &desk.doctor.writes(name, prefix, &there.region).await));
        }
        checks
    }

    async fn role(desk: &AwsChecks) -> Vec<Check> {
        if desk.account().await.is_none() {
            return unasked(desk, "role of the machines").await;
        }
        let names = desk.names().await;
        let (role, profile) = desk.doctor.role(&names.role).await;
        vec![judge_role(names, &role, &profile)]
    }

    async fn sweeper(desk: &AwsChecks) -> Vec<Check> {
        if desk.account().await.is_none() {
            return unasked(desk, "sweeper").await;
        }
        // The sweeper works only on a job root in a bucket.
        if desk.bucket.is_none() {
            return vec![Check::new(
                "sweeper",
                Level::Skipped,
                "it looks after a job root in a bucket",
            )];
        }
        let names = desk.names().await;
        let name = names.sweeper();
        let visit = async {
            let store =
                desk.workstation.open_root(true).await.map_err(|error| error.to_string())?;
            SweeperDir::new(store, &name)
                .newest_visit()
                .await
                .map_err(|error| causes(&error).join(": "))
        };
        let ((function, schedule), visit) = tokio::join!(desk.doctor.sweeper(&name), visit);
        // The time by AWS's clock.
        let ahead = desk.met().await.1.as_ref().copied().unwrap_or(0);
        let now = desk.clock.now() - SignedDuration::from_secs(ahead);
        let seen = SweeperSeen { name, function, schedule, visit };
        vec![judge_sweeper(&names.job_root(), env!("CARGO_PKG_VERSION"), &seen, now)]
    }

    async fn proofs(desk: &AwsChecks) -> Vec<Check> {
        let Some(account) = desk.account().await else { return unasked(desk, "proof").await };
        if desk.bucket.is_none() {
            return vec![Check::new(
                "proof",
                Level::Skipped,
                "it is kept in a job root in a bucket",
            )];
        }
        let found = async {
            let store =
                desk.workstation.open_root(true).await.map_err(|error| error.to_string())?;
            ProofDir::new(store, account).all().await.map_err(|error| causes(&error).join(": "))
        };
        let found = found.await;
        let regions = &desk.names().await.regions;
        regions
            .iter()
            .map(|region| {
                shutdown_proof::check(region, &desk.owner, found.as_deref(), desk.clock.now())
            })
            .collect()
    }

    async fn network(desk: &AwsChecks) -> Vec<Check> {
        if desk.account().await.is_none() {
            return unasked(desk, "network").await;
        }
        let names = desk.names().await;
        let each = names.regions.iter().map(|region| desk.doctor.network(&names.group, region));
        futures::future::join_all(each)
            .await
            .concat()
            .iter()
            .map(|found| judge_network(names, found))
            .collect()
    }

    /// Empty when no subnet is configured: default subnets reach the internet.
    async fn subnets(desk: &AwsChecks) -> Vec<Check> {
        let Some(named) = desk.said.subnets.as_ref().filter(|named| !named.is_empty()) else {
            return Vec::new();
        };
        if desk.account().await.is_none() {
            return unasked(desk, "subnets").await;
        }
        let regions = &desk.names().await.regions;
        let found =
            futures::future::join_all(regions.iter().map(|region| desk.doctor.subnets(region)))
                .await;
        let seen: Option<Vec<&[SubnetFound]>> =
            found.iter().map(|found| found.there().map(Vec::as_slice)).collect();
        // If one region did not answer, the subnet may be there.
        let absent = seen.map_or_else(Vec::new, |seen| {
            let is_there = |id: &String| {
                seen.iter().flat_map(|subnets| subnets.iter()).any(|subnet| subnet.id == *id)
            };
            named.iter().filter(|id| !is_there(id)).cloned().collect::<Vec<_>>()
        });
        let each =
            regions.iter().zip(&found).filter_map(|(region, found)| judge_subnets(region, found));
        each.chain(judge_absent(&absent)).collect()
    }

    async fn images(desk: &AwsChecks) -> Vec<Check> {
        if desk.account().await.is_none() {
            return unasked(desk, "image").await;
        }
        let configured = desk.machine.image.as_deref();
        let (words, arch) =
            (configured.map_or_else(|| MachineSpec::default().image, str::to_owned), desk.arch());
        let each = desk.names().await.regions.iter().map(|region| {
            let words = &words;
            async move {
                judge_image(region, configured, arch, &desk.doctor.image(words, region, arch).await)
            }
        });
        futures::future::join_all(each).await
    }

    async fn price_lists(desk: &AwsChecks) -> Vec<Check> {
        if desk.account().await.is_none() {
            return unasked(desk, "price list").await;
        }
        let in_dollars = desk
            .machine
            .max_price
            .as_ref()
            .is_some_and(|price| matches!(price.0, PriceRule::Fixed(_)));
        let each = desk.names().await.regions.iter().map(|region| async move {
            judge_price_list(region, in_dollars, &desk.doctor.prices(region).await)
        });
        futures::future::join_all(each).await
    }

    /// AWS is asked only when the catalogue has no disk price.
    async fn disk_prices(desk: &AwsChecks) -> Vec<Check> {
        if desk.account().await.is_none() {
            return unasked(desk, "disk price").await;
        }
        let each = desk.names().await.regions.iter().map(|region| async move {
            let shipped = Catalog::shipped().disk_gib_month(&Region::new(region)).is_some();
            let listed = if shipped { Ok(true) } else { desk.doctor.prices_disks(region).await };
            DiskPrice { region: region.clone(), shipped, listed }
        });
        vec![judge_disk_prices(&futures::future::join_all(each).await)]
    }

    fn to_ship(found: Result<String, String>) -> Check {
        match found {
            Ok(said) => Check::ok("agent to ship", said),
            Err(why) => Check::failure("agent to ship", why)
                .fix("`.ci/agent-portable x86_64` in the source builds it"),
        }
    }
}

#[cfg(feature = "aws")]
pub use asked::checks;

/// This `lamp` was built without AWS.
#[cfg(not(feature = "aws"))]
pub fn checks<'a>(
    _context: &crate::cli::Context,
    _workstation: &crate::wire::Workstation,
    _agent: &'a dyn Fn() -> Result<String, String>,
) -> Vec<RunningCheck<'a>> {
    use crate::policy::account::doctor::Level;
    vec![Box::pin(async {
        vec![Check::new("aws", Level::Skipped, "this `lamp` was built without it")]
    })]
}
