//! The bucket of the job root: its settings, its contents, and its removal.

use std::collections::BTreeSet;
use std::error::Error as StdError;

use aws_sdk_s3::Client;
use aws_sdk_s3::types::{
    AbortIncompleteMultipartUpload, BucketLifecycleConfiguration, BucketLocationConstraint,
    BucketVersioningStatus, CreateBucketConfiguration, Delete, ExpirationStatus,
    LifecycleExpiration, LifecycleRule, LifecycleRuleFilter, NoncurrentVersionExpiration,
    ObjectIdentifier, PublicAccessBlockConfiguration, ServerSideEncryption,
    ServerSideEncryptionByDefault, ServerSideEncryptionConfiguration, ServerSideEncryptionRule,
    Tag, Tagging, VersioningConfiguration,
};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;

use super::setup_error::SetupError;
use crate::account::lookup::{BucketFound, Found};
use crate::account::setup::{
    InUse, PLACES, SetupNames, SetupStep, is_of_the_house, is_of_the_root, job_of, not_ours,
    place_of,
};
use crate::adapters::aws::service_error::{found, is_gone, said};
use crate::instance::OWNER_TAG;

/// Unfinished uploads are deleted after this: longer than any upload takes, and short enough to
/// cost little. AWS's own example says seven days.
const BROKEN_UPLOADS_DAYS: i32 = 7;

/// Old versions of objects are kept for this long. A user notices a mistake within a month; each
/// further month costs storage.
const OLD_VERSIONS_DAYS: i32 = 30;

/// The SSE-KMS key that AWS manages; the console writes it as the end of an ARN.
const AWS_KEY: &str = "alias/aws/s3";

/// The region of an answer that names none: the oldest one, which takes no location.
const FIRST_REGION: &str = "us-east-1";

pub(crate) async fn look(s3: &Client, bucket: &str, account: &str) -> Found<BucketFound> {
    // It must belong to this account: a stranger may own a bucket of this name, and must not
    // receive our jobs.
    let head = s3.head_bucket().bucket(bucket).expected_bucket_owner(account).send();
    let (head, versioning, access, encryption, lifecycle, tags) = tokio::join!(
        head,
        s3.get_bucket_versioning().bucket(bucket).send(),
        s3.get_public_access_block().bucket(bucket).send(),
        s3.get_bucket_encryption().bucket(bucket).send(),
        s3.get_bucket_lifecycle_configuration().bucket(bucket).send(),
        s3.get_bucket_tagging().bucket(bucket).send(),
    );
    let region = match head {
        Ok(answer) => answer.bucket_region().unwrap_or(FIRST_REGION).to_owned(),
        Err(error) => match error.raw_response().map(|response| {
            (response.status().as_u16(), response.headers().get("x-amz-bucket-region"))
        }) {
            Some((404, _)) => return Found::Nothing,
            // The bucket is in another region, which the answer names.
            Some((301 | 400, Some(region))) => {
                return Found::There(BucketFound {
                    region: region.to_owned(),
                    ..BucketFound::default()
                });
            }
            Some((403, _)) => {
                return Found::Unknown(format!("{}; choose another --bucket", not_ours(bucket)));
            }
            _ => return Found::Unknown(said(&error)),
        },
    };
    let settings = || -> Result<BucketFound, String> {
        let closed = known(access)?
            .and_then(|answer| answer.public_access_block_configuration)
            .is_some_and(|is| {
                [
                    is.block_public_acls,
                    is.ignore_public_acls,
                    is.block_public_policy,
                    is.restrict_public_buckets,
                ]
                .iter()
                .all(|on| *on == Some(true))
            });
        let rules = known(lifecycle)?.and_then(|answer| answer.rules).unwrap_or_default();
        let on = |rule: &&LifecycleRule| *rule.status() == ExpirationStatus::Enabled;
        let aborts =
            rules.iter().filter(on).any(|rule| rule.abort_incomplete_multipart_upload().is_some());
        let expires =
            rules.iter().filter(on).any(|rule| rule.noncurrent_version_expiration().is_some());
        let unmark = |rule: &LifecycleRule| {
            rule.expiration().and_then(LifecycleExpiration::expired_object_delete_marker)
                == Some(true)
        };
        let unmarks = rules.iter().filter(on).any(unmark);
        let encryption =
            known(encryption)?.and_then(|answer| answer.server_side_encryption_configuration);
        let tags = known(tags)?.map(|answer| answer.tag_set).unwrap_or_default();
        Ok(BucketFound {
            owner: tags.iter().find(|tag| tag.key() == OWNER_TAG).map(|tag| tag.value().to_owned()),
            region,
            versioned: known(versioning)?
                .is_some_and(|answer| answer.status() == Some(&BucketVersioningStatus::Enabled)),
            private: closed,
            encrypted: encryption.is_some(),
            own_key: encryption.as_ref().and_then(own_key),
            tidy: aborts && expires && unmarks,
        })
    };
    settings().map_or_else(Found::Unknown, Found::There)
}

/// The key that encrypts new objects, if it is the customer's own. Otherwise S3 uses AWS's key,
/// whose policy allows every user of the account.
fn own_key(encryption: &ServerSideEncryptionConfiguration) -> Option<String> {
    let keys = encryption
        .rules()
        .iter()
        .filter_map(|rule| rule.apply_server_side_encryption_by_default()?.kms_master_key_id());
    keys.filter(|key| !key.is_empty() && !key.ends_with(AWS_KEY)).map(str::to_owned).next()
}

/// `None`: the bucket has no such setting.
fn known<T, E>(answer: Result<T, SdkError<E, HttpResponse>>) -> Result<Option<T>, String>
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    match found(answer) {
        Found::There(answer) => Ok(Some(answer)),
        Found::Nothing => Ok(None),
        Found::Unknown(why) => Err(why),
    }
}

pub(crate) async fn act(
    s3: &Client,
    names: &SetupNames,
    step: &SetupStep,
) -> Result<(), SetupError> {
    let bucket = names.bucket.as_str();
    match step {
        SetupStep::CreateBucket => create(s3, names).await,
        SetupStep::TagBucket => tag(s3, names).await,
        SetupStep::VersionBucket => {
            let enabled =
                VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
            done(
                s3.put_bucket_versioning()
                    .bucket(bucket)
                    .versioning_configuration(enabled)
                    .send()
                    .await,
                "keep the versions of the bucket",
            )
        }
        SetupStep::CloseBucket => {
            let closed = PublicAccessBlockConfiguration::builder()
                .block_public_acls(true)
                .ignore_public_acls(true)
                .block_public_policy(true)
                .restrict_public_buckets(true)
                .build();
            let call = s3
                .put_public_access_block()
                .bucket(bucket)
                .public_access_block_configuration(closed);
            done(call.send().await, "block public access to the bucket")
        }
        SetupStep::EncryptBucket => {
            let by = ServerSideEncryptionByDefault::builder()
                .sse_algorithm(ServerSideEncryption::Aes256)
                .build();
            let by = by.expect("the algorithm is given");
            let rule = ServerSideEncryptionRule::builder()
                .apply_server_side_encryption_by_default(by)
                .build();
            let rules = ServerSideEncryptionConfiguration::builder()
                .rules(rule)
                .build()
                .expect("a rule is given");
            let call = s3
                .put_bucket_encryption()
                .bucket(bucket)
                .server_side_encryption_configuration(rules);
            done(call.send().await, "encrypt the bucket")
        }
        SetupStep::TidyBucket => tidy(s3, bucket).await,
        SetupStep::EmptyRoot => forget(s3, names, &names.prefix, is_of_the_root).await,
        SetupStep::ForgetHouse => forget(s3, names, &names.prefix, is_of_the_house).await,
        SetupStep::DeleteBucket => match s3.delete_bucket().bucket(bucket).send().await {
            Err(error) if is_gone(&error) => Ok(()),
            answer => done(answer, "delete the bucket"),
        },
        other => Err(SetupError::new(other.words(), "that is not of S3")),
    }
}

async fn create(s3: &Client, names: &SetupNames) -> Result<(), SetupError> {
    let mut call = s3.create_bucket().bucket(&names.bucket);
    if names.home() != FIRST_REGION {
        let place = BucketLocationConstraint::from(names.home());
        call = call.create_bucket_configuration(
            CreateBucketConfiguration::builder().location_constraint(place).build(),
        );
    }
    match call.send().await {
        Err(error) if error.code() == Some("BucketAlreadyOwnedByYou") => Ok(()),
        answer => done(answer, &format!("create the bucket {}", names.bucket)),
    }
}

/// The call replaces all tags, so other tags are read first and kept.
async fn tag(s3: &Client, names: &SetupNames) -> Result<(), SetupError> {
    let (bucket, act) = (names.bucket.as_str(), "tag the bucket");
    let there = known(s3.get_bucket_tagging().bucket(bucket).send().await)
        .map_err(|why| SetupError::new(act, why))?;
    let mut tags = there.map(|there| there.tag_set).unwrap_or_default();
    // Another owner has tagged it since the first look.
    if tags.iter().any(|tag| tag.key() == OWNER_TAG && tag.value() != names.owner) {
        return Err(SetupError::overtaken(act));
    }
    tags.retain(|tag| tag.key() != OWNER_TAG);
    tags.push(
        Tag::builder()
            .key(OWNER_TAG)
            .value(&names.owner)
            .build()
            .expect("both the key and the value are given"),
    );
    let tagging = Tagging::builder().set_tag_set(Some(tags)).build().expect("a tag is given");
    done(s3.put_bucket_tagging().bucket(bucket).tagging(tagging).send().await, act)
}

/// The call replaces all rules, so other rules are read first and kept.
async fn tidy(s3: &Client, bucket: &str) -> Result<(), SetupError> {
    let act = "give the bucket a lifecycle";
    let there = known(s3.get_bucket_lifecycle_configuration().bucket(bucket).send().await)
        .map_err(|why| SetupError::new(act, why))?;
    let (theirs, least) = there
        .map(|there| {
            (there.rules.unwrap_or_default(), there.transition_default_minimum_object_size)
        })
        .unwrap_or_default();
    let call = s3
        .put_bucket_lifecycle_configuration()
        .bucket(bucket)
        .lifecycle_configuration(lifecycle(theirs));
    done(call.set_transition_default_minimum_object_size(least).send().await, act)
}

/// S3 refuses rules with a prefix of the old form beside rules with a filter.
#[expect(deprecated, reason = "the bucket of a user may have such a rule")]
fn filtered(mut rule: LifecycleRule) -> LifecycleRule {
    if rule.filter.is_none() {
        rule.filter =
            rule.prefix.take().map(|prefix| LifecycleRuleFilter::builder().prefix(prefix).build());
    }
    rule
}

/// Our three rules, then the other ones. A delete marker stays for ever after its last version is
/// gone, and S3 reads it at each listing; one rule removes those.
fn lifecycle(theirs: Vec<LifecycleRule>) -> BucketLifecycleConfiguration {
    let everything = || LifecycleRuleFilter::builder().prefix("").build();
    let rule = |id: &str| {
        LifecycleRule::builder().id(id).filter(everything()).status(ExpirationStatus::Enabled)
    };
    let uploads = AbortIncompleteMultipartUpload::builder()
        .days_after_initiation(BROKEN_UPLOADS_DAYS)
        .build();
    let versions =
        NoncurrentVersionExpiration::builder().noncurrent_days(OLD_VERSIONS_DAYS).build();
    let rules = [
        rule("broken-uploads").abort_incomplete_multipart_upload(uploads).build(),
        rule("old-versions").noncurrent_version_expiration(versions).build(),
        rule("marks-of-the-deleted")
            .expiration(LifecycleExpiration::builder().expired_object_delete_marker(true).build())
            .build(),
    ];
    let mut rules = rules.map(|rule| rule.expect("a rule has a status")).to_vec();
    let ours: Vec<Option<String>> = rules.iter().map(|rule| rule.id.clone()).collect();
    rules.extend(theirs.into_iter().filter(|rule| !ours.contains(&rule.id)).map(filtered));
    BucketLifecycleConfiguration::builder().set_rules(Some(rules)).build().expect("rules are given")
}

fn done<T, E>(answer: Result<T, SdkError<E, HttpResponse>>, act: &str) -> Result<(), SetupError>
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    answer.map(|_| ()).map_err(|error| SetupError::new(act, said(&error)))
}

/// The number of jobs, the size of all versions, and the objects outside of the job root.
pub(crate) async fn contents(s3: &Client, names: &SetupNames) -> Result<InUse, SetupError> {
    let (bucket, prefix, sweeper) = (names.bucket.as_str(), names.prefix.as_str(), sweepers(names));
    let refused = |why| SetupError::new(format!("see what is in the bucket {bucket}"), why);
    let (mut used, mut jobs) = (InUse::default(), BTreeSet::new());
    let mut marker = None;
    loop {
        let (page, next) = versions(s3, bucket, "", marker).await.map_err(refused)?;
        for object in &page {
            let key = object.id.key();
            match key.strip_prefix(prefix) {
                _ if key.starts_with(&sweeper) => used.sweeper_objects += 1,
                Some(own) if is_of_the_root(own) => {
                    used.objects += 1;
                    used.house_objects += u64::from(is_of_the_house(own));
                    jobs.extend(job_of(own).filter(|_| object.is_current).map(str::to_owned));
                }
                _ => {
                    used.other_objects += 1;
                    let place = place_of(prefix, key);
                    if used.others.len() < PLACES && !used.others.contains(&place) {
                        used.others.push(place);
                    }
                    continue;
                }
            }
            used.bytes += object.bytes;
        }
        if next.is_none() {
            return Ok(InUse { jobs: jobs.len() as u64, ..used });
        }
        marker = next;
    }
}

type Marker = (Option<String>, Option<String>);

/// One version of an object, or a delete marker.
struct Version {
    id: ObjectIdentifier,
    bytes: u64,
    is_current: bool,
}

/// A page of object versions, and where the next page begins.
async fn versions(
    s3: &Client,
    bucket: &str,
    prefix: &str,
    marker: Option<Marker>,
) -> Result<(Vec<Version>, Option<Marker>), String> {
    let (key, version) = marker.unwrap_or_default();
    let call = s3
        .list_object_versions()
        .bucket(bucket)
        .prefix(prefix)
        .set_key_marker(key)
        .set_version_id_marker(version);
    let page = call.send().await.map_err(|error| said(&error))?;
    let one = |key: Option<&str>, version: Option<&str>, bytes: Option<i64>, is_current| {
        let id = ObjectIdentifier::builder()
            .key(key.unwrap_or_default())
            .set_version_id(version.map(str::to_owned))
            .build();
        let bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0);
        Version { id: id.expect("a key is given"), bytes, is_current }
    };
    let objects = page.versions().iter().map(|object| {
        one(object.key(), object.version_id(), object.size(), object.is_latest() == Some(true))
    });
    let deleted = page
        .delete_markers()
        .iter()
        .map(|marker| one(marker.key(), marker.version_id(), None, false));
    let all = objects.chain(deleted).collect();
    let next = page
        .is_truncated()
        .unwrap_or(false)
        .then_some((page.next_key_marker, page.next_version_id_marker));
    Ok((all, next))
}

/// The prefix of this owner's sweeper records.
fn sweepers(names: &SetupNames) -> String {
    format!("{}sweeper/{}/", names.prefix, names.sweeper())
}

/// Deletes the records of this owner's sweeper.
pub(crate) async fn forget_sweeper(s3: &Client, names: &SetupNames) -> Result<(), SetupError> {
    forget(s3, names, &sweepers(names), |_| true).await
}

/// Deletes all versions of the objects below `prefix` whose remaining key `is_meant` accepts. A
/// page has at most a thousand, the most that one call deletes. Objects that are written meanwhile
/// keep the bucket.
async fn forget(
    s3: &Client,
    names: &SetupNames,
    below: &str,
    is_meant: impl Fn(&str) -> bool,
) -> Result<(), SetupError> {
    let bucket = names.bucket.as_str();
    let refused =
        |why| SetupError::new(format!("delete what is lamp's in the bucket {bucket}"), why);
    let mut marker = None;
    loop {
        let (page, next) = versions(s3, bucket, below, marker).await.map_err(refused)?;
        let is_meant = |id: &ObjectIdentifier| id.key().strip_prefix(below).is_some_and(&is_meant);
        let ids: Vec<ObjectIdentifier> =
            page.into_iter().map(|version| version.id).filter(is_meant).collect();
        if !ids.is_empty() {
            delete(s3, bucket, ids).await.map_err(refused)?;
        }
        if next.is_none() {
            return Ok(());
        }
        marker = next;
    }
}

/// Deletes at most a thousand. It returns one of the first errors: otherwise the caller would
/// repeat the call for ever.
async fn delete(s3: &Client, bucket: &str, ids: Vec<ObjectIdentifier>) -> Result<(), String> {
    let delete =
        Delete::builder().set_objects(Some(ids)).quiet(true).build().expect("objects are given");
    let answer = s3
        .delete_objects()
        .bucket(bucket)
        .delete(delete)
        .send()
        .await
        .map_err(|error| said(&error))?;
    answer.errors().first().map_or(Ok(()), |error| {
        Err(error.message().unwrap_or("an object cannot be deleted").to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_ones_own_is_known_from_those_of_aws() {
        let found = |algorithm, key: Option<&str>| {
            let by = ServerSideEncryptionByDefault::builder()
                .sse_algorithm(algorithm)
                .set_kms_master_key_id(key.map(str::to_owned));
            let rule = ServerSideEncryptionRule::builder()
                .apply_server_side_encryption_by_default(by.build().unwrap())
                .build();
            own_key(&ServerSideEncryptionConfiguration::builder().rules(rule).build().unwrap())
        };
        assert_eq!(found(ServerSideEncryption::Aes256, None), None);
        assert_eq!(found(ServerSideEncryption::AwsKms, None), None);
        assert_eq!(
            found(ServerSideEncryption::AwsKms, Some("arn:aws:kms:us-east-2:1:alias/aws/s3")),
            None
        );
        let own = "arn:aws:kms:us-east-2:1:key/0a1b";
        assert_eq!(found(ServerSideEncryption::AwsKms, Some(own)).as_deref(), Some(own));
        assert_eq!(
            found(ServerSideEncryption::AwsKmsDsse, Some("alias/team")).as_deref(),
            Some("alias/team")
        );
    }

    #[test]
    #[expect(deprecated, reason = "the bucket of a user may have such a rule")]
    fn rule_with_a_deprecated_prefix_is_kept_as_a_filter() {
        let old = LifecycleRule::builder()
            .id("archive")
            .prefix("old/")
            .status(ExpirationStatus::Enabled)
            .build()
            .unwrap();
        let rules = lifecycle(vec![old]).rules().to_vec();
        let theirs = rules.iter().find(|rule| rule.id() == Some("archive")).unwrap();
        assert_eq!(
            (theirs.prefix(), theirs.filter().and_then(|filter| filter.prefix())),
            (None, Some("old/"))
        );
        assert!(rules.iter().all(|rule| rule.prefix().is_none()));
    }

    #[test]
    fn lifecycle_takes_no_current_object_away() {
        let lifecycle = lifecycle(Vec::new());
        assert_eq!(lifecycle.rules().len(), 3);
        // With neither a date nor days, an expiration takes marks alone.
        let takes = |rule: &LifecycleRule| {
            rule.expiration().is_some_and(|takes| takes.days().is_some() || takes.date().is_some())
        };
        assert!(
            lifecycle.rules().iter().all(|rule| !takes(rule) && rule.transitions().is_empty()),
            "jobs are kept for ever"
        );
        assert_eq!(lifecycle.rules().iter().filter(|rule| rule.expiration().is_some()).count(), 1);
    }
}
