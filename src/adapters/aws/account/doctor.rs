//! The questions of `lamp doctor` to AWS, one method for each; they change nothing.
//!
//! Not here: whether an answer is good (`policy::account::doctor`).

use std::sync::{Arc, OnceLock};

use aws_credential_types::provider::ProvideCredentials;
use aws_sdk_pricing::types::{Filter, FilterType};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::BeforeDeserializationInterceptorContextRef;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;
use futures::future::join_all;
use jiff::Timestamp;
use jiff::fmt::rfc2822;

use super::sweeper::installed;
use super::{bucket, roles, security_group};
use crate::account::lookup::{
    BucketFound, Found, ImageFound, ProfileFound, RegionFound, RoleFound,
};
use crate::account::sweeper::{FunctionFound, ScheduleFound};
pub use crate::adapters::aws::credential_cache::CredentialsEnd;
use crate::adapters::aws::credential_errors;
use crate::adapters::aws::ec2::image as ec2_image;
use crate::adapters::aws::service_error::{found, said};
use crate::adapters::aws::session::AwsSession;
use crate::adapters::aws::session_cache::LaunchImage;
use crate::market::{Arch, QuotaKind, Region, gpu_quotas};
use crate::ports::{CloudError, NoCredentials, chain};

/// A quota of GPU machines, in vCPUs.
pub type QuotaFound = (&'static QuotaKind, Result<f64, String>);

/// The identity that AWS sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AwsCaller {
    Known {
        account: String,
        arn: String,
    },
    /// This workstation has no usable credentials; nothing was sent.
    NoCredentials(NoCredentials),
    Refused(String),
    /// AWS did not answer, for this reason.
    Silent(String),
}

pub struct AwsDoctor {
    session: Arc<AwsSession>,
}

impl AwsDoctor {
    pub fn new(session: Arc<AwsSession>) -> Self {
        AwsDoctor { session }
    }

    pub(crate) fn session(&self) -> &AwsSession {
        &self.session
    }

    /// The identity, and by how many seconds this workstation's clock is ahead of AWS's. Even a
    /// refusal tells the time.
    pub async fn who(&self) -> (AwsCaller, Result<i64, String>) {
        let untold = || Err("AWS was not asked".to_owned());
        let Some(credentials) = self.session.base().await.credentials_provider() else {
            return (AwsCaller::NoCredentials(credential_errors::missing()), untold());
        };
        if let Err(error) = credentials.provide_credentials().await {
            return (AwsCaller::NoCredentials(credential_errors::why(&error)), untold());
        }
        let ahead = AwsClockOffset::default();
        let asked = self
            .session
            .sts()
            .await
            .get_caller_identity()
            .customize()
            .interceptor(ahead.clone())
            .send()
            .await;
        let who = match asked {
            Ok(identity) => {
                let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
                AwsCaller::Known { account: text(identity.account()), arn: text(identity.arn()) }
            }
            Err(error) if error.raw_response().is_none() => AwsCaller::Silent(said(&error)),
            Err(error) => AwsCaller::Refused(said(&error)),
        };
        (who, ahead.secs().ok_or_else(|| "no answer had a date".to_owned()))
    }

    /// When the credentials expire; `None`: there are none.
    pub async fn ends(&self) -> Option<CredentialsEnd> {
        self.session.identity().await?.ends().await.ok()
    }

    /// The home region, and whether a setting names it.
    pub async fn home(&self) -> (String, bool) {
        let (region, known) = self.session.home().await;
        (region.to_string(), known)
    }

    pub async fn endpoint(&self) -> Option<String> {
        self.session.endpoint().await
    }

    pub async fn regions(&self) -> Vec<String> {
        self.session.regions(&[]).await.iter().map(ToString::to_string).collect()
    }

    pub async fn quotas(&self, region: &str) -> Vec<QuotaFound> {
        let client = self.session.quotas(&Region::new(region)).await;
        let client = &client;
        join_all(gpu_quotas().map(|kind| async move { (kind, quota(client, kind.code).await) }))
            .await
    }

    /// The image that a launch would find for the words of `machine.image`.
    pub async fn image(&self, words: &str, region: &str, arch: Arch) -> ImageFound {
        match ec2_image::find(&self.session, words, &Region::new(region), arch).await {
            Ok(LaunchImage { id, name, arch, .. }) => ImageFound::There { id, name, arch },
            Err(
                CloudError::Invalid { what }
                | CloudError::NoImage { what, .. }
                | CloudError::NoCapacity { what, .. },
            ) => ImageFound::Refused(what),
            Err(error) => ImageFound::Unknown(chain(&error)),
        }
    }

    /// Whether the price list knows any machine of a region: no type is sold in all of them.
    pub async fn prices(&self, region: &str) -> Found<()> {
        let any = [
            ("regionCode", region),
            ("operatingSystem", "Linux"),
            ("tenancy", "Shared"),
            ("capacitystatus", "Used"),
        ];
        match self.is_listed(&any).await {
            Ok(true) => Found::There(()),
            Ok(false) => Found::Nothing,
            Err(why) => Found::Unknown(why),
        }
    }

    /// Whether AWS's price list has the price of a disk in a region.
    pub async fn prices_disks(&self, region: &str) -> Result<bool, String> {
        self.is_listed(&[
            ("regionCode", region),
            ("productFamily", "Storage"),
            ("volumeApiName", "gp3"),
        ])
        .await
    }

    async fn is_listed(&self, fields: &[(&str, &str)]) -> Result<bool, String> {
        let is = |(field, value): &(&str, &str)| {
            let filter =
                Filter::builder().field(*field).r#type(FilterType::TermMatch).value(*value).build();
            filter.expect("the field, the type and the value are given")
        };
        let filters: Vec<Filter> = fields.iter().map(is).collect();
        let call = self
            .session
            .pricing()
            .await
            .get_products()
            .service_code("AmazonEC2")
            .set_filters(Some(filters))
            .max_results(1);
        let answer = call.send().await.map_err(|error| said(&error))?;
        Ok(!answer.price_list().is_empty())
    }

    pub async fn bucket(&self, bucket: &str, account: &str) -> Found<BucketFound> {
        let (home, _) = self.session.home().await;
        bucket::look(&self.session.s3(&home).await, bucket, account).await
    }

    /// Begins an upload and aborts it: that tests the right to write and leaves nothing.
    pub async fn writes(&self, bucket: &str, prefix: &str, region: &str) -> Result<(), String> {
        let s3 = self.session.s3(&Region::new(region)).await;
        let key = format!("{prefix}doctor");
        let begun = s3
            .create_multipart_upload()
            .bucket(bucket)
            .key(&key)
            .send()
            .await
            .map_err(|error| said(&error))?;
        let id = begun.upload_id().unwrap_or_default();
        s3.abort_multipart_upload()
            .bucket(bucket)
            .key(key)
            .upload_id(id)
            .send()
            .await
            .map(drop)
            .map_err(|error| said(&error))
    }

    /// IAM calls go to one region, wherever the machines are.
    async fn iam(&self) -> aws_sdk_iam::Client {
        self.session.iam(&self.session.home().await.0).await
    }

    pub async fn role(&self, name: &str) -> (Found<RoleFound>, Found<ProfileFound>) {
        let iam = self.iam().await;
        tokio::join!(roles::role(&iam, name), roles::profile(&iam, name))
    }

    pub async fn spot_role(&self) -> Found<()> {
        roles::linked(&self.iam().await, roles::SPOT_ROLE).await
    }

    pub async fn alarm_role(&self) -> Found<()> {
        roles::linked(&self.iam().await, roles::ALARM_ROLE).await
    }

    /// The sweeper of this name, and its schedule: both are in the first region, where the bucket
    /// is.
    pub async fn sweeper(&self, name: &str) -> (Found<FunctionFound>, Found<ScheduleFound>) {
        let regions = self.session.regions(&[]).await;
        installed(&self.session, &regions[0], name).await
    }

    pub async fn network(&self, group: &str, region: &str) -> Vec<RegionFound> {
        security_group::look(&self.session, group, region).await
    }
}

/// Reads the date of the first answer; after it, the SDK corrects its own clock.
#[derive(Clone, Debug, Default)]
struct AwsClockOffset(Arc<OnceLock<i64>>);

impl AwsClockOffset {
    fn secs(&self) -> Option<i64> {
        self.0.get().copied()
    }
}

impl Intercept for AwsClockOffset {
    fn name(&self) -> &'static str {
        "Ahead"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _settings: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        #[expect(clippy::disallowed_methods, reason = "an adapter compares the two clocks")]
        let now = Timestamp::now();
        // HTTP writes `GMT` where mail writes `+0000`.
        let date = context
            .response()
            .headers()
            .get("date")
            .and_then(|date| rfc2822::parse(&date.replace("GMT", "+0000")).ok());
        if let Some(date) = date {
            // Only the first date counts.
            let _kept = self.0.set(now.as_second() - date.timestamp().as_second());
        }
        Ok(())
    }
}

/// An account that never asked for a quota has AWS's default.
async fn quota(client: &aws_sdk_servicequotas::Client, code: &str) -> Result<f64, String> {
    let applied = client.get_service_quota().service_code("ec2").quota_code(code).send().await;
    let vcpus = match found(applied) {
        Found::There(answer) => answer.quota().and_then(|quota| quota.value()),
        Found::Unknown(why) => return Err(why),
        Found::Nothing => {
            let default = client
                .get_aws_default_service_quota()
                .service_code("ec2")
                .quota_code(code)
                .send()
                .await;
            default.map_err(|error| said(&error))?.quota().and_then(|quota| quota.value())
        }
    };
    vcpus.ok_or_else(|| format!("AWS names no value for {code}"))
}
