//! The key that encrypts the disks of a region: AWS's own, or the customer's, which a launch may
//! not be able to use.
//!
//! AWS's own key needs no check. A customer's key that is disabled or will be deleted is refused:
//! every machine would end as it starts. If spot's role may not use the key, a note has the line
//! that allows it.
//!
//! Source: "Amazon EBS encryption requirements" and "Spot Instances: AWSServiceRoleForEC2Spot and
//! customer managed keys" of the EC2 user guide. A user without the right to look launches
//! unchecked. This module never launches.

use std::time::Duration;

use aws_sdk_ec2::config::retry::RetryConfig;
use aws_sdk_ec2::config::timeout::TimeoutConfig;
use serde_json::{Value, json};

use crate::adapters::aws::disk_cache::Ec2Cache;
use crate::adapters::aws::session::AwsSession;
use crate::adapters::aws::session_cache::{DiskKey, TRUSTED};
use crate::adapters::aws::signed_rest::{AwsCall, NoAnswer, once};
use crate::market::Region;
use crate::ports::{CloudError, chain};

/// The answer of `GetEbsDefaultKmsKeyId` for AWS's own key.
const AWS_OWN: &str = "alias/aws/ebs";

/// EC2 starts spot machines with this role.
const SPOT_ROLE: &str = "AWSServiceRoleForEC2Spot";

/// The timeout: this question only makes a refusal clearer, so a launch does not wait long for it.
const ANSWER_MAX: Duration = Duration::from_secs(10);

impl DiskKey {
    /// Whether any machine can start with it.
    ///
    /// # Errors
    /// If no machine can.
    pub fn check(&self, region: &Region) -> Result<(), CloudError> {
        let Some(state) = self.state.as_deref() else { return Ok(()) };
        let id = &self.id;
        let kms = |verb: &str| format!("`aws kms {verb} --region {region} --key-id {id}`");
        let cure = match state {
            "Disabled" => format!("{} enables it", kms("enable-key")),
            "PendingDeletion" | "PendingReplicaDeletion" => {
                format!(
                    "{} and then {} bring it back",
                    kms("cancel-key-deletion"),
                    kms("enable-key")
                )
            }
            "PendingImport" => format!("{} gives it its material", kms("import-key-material")),
            "Unavailable" => {
                "its key store must be connected again (`aws kms connect-custom-key-store`)"
                    .to_owned()
            }
            // `Enabled`, `Updating`, and future states of a usable key.
            _ => return Ok(()),
        };
        let what = format!(
            "disks in {region} are encrypted with your key {id}, which is {state}: no machine can start; {cure}, and \
             `aws ec2 reset-ebs-default-kms-key-id --region {region}` goes back to AWS's own"
        );
        Err(CloudError::Invalid { what })
    }

    /// The note for spot machines.
    pub fn spot_note(&self, region: &Region) -> Option<String> {
        let id = &self.id;
        let part = |n: usize, default| id.split(':').nth(n).unwrap_or(default);
        let (partition, account) = (part(1, "aws"), part(4, "ACCOUNT"));
        (self.serves_spot == Some(false)).then(|| {
            format!(
                "disks in {region} are encrypted with your key {id}, and the role {SPOT_ROLE} may not use it: a spot machine would die as it \
                 starts; `aws kms create-grant --region {region} --key-id {id} --grantee-principal \
                 arn:{partition}:iam::{account}:role/aws-service-role/spot.amazonaws.com/{SPOT_ROLE} --operations Decrypt Encrypt \
                 GenerateDataKey GenerateDataKeyWithoutPlaintext CreateGrant DescribeKey ReEncryptFrom ReEncryptTo` allows it"
            )
        })
    }
}

/// The default key of a region, if it is the customer's own. `None`: it is AWS's, or EC2 does not
/// say. Each question has ten seconds, because KMS may be out of reach.
pub async fn find(session: &AwsSession, region: &Region) -> Option<DiskKey> {
    if let Some(known) = session.memory.disk_keys.get(region, TRUSTED) {
        return known;
    }
    let cache = Ec2Cache::of(session, region).await;
    if let Some(known) = cache.get("disk-key", TRUSTED) {
        return known;
    }
    let patience = TimeoutConfig::builder().operation_timeout(ANSWER_MAX).build();
    let one_try = aws_sdk_ec2::config::Builder::new()
        .retry_config(RetryConfig::disabled())
        .timeout_config(patience);
    let told = session
        .ec2(region)
        .await
        .get_ebs_default_kms_key_id()
        .customize()
        .config_override(one_try)
        .send()
        .await;
    let told = told
        .inspect_err(|error| {
            tracing::debug!("the default key of disks in {region} is not known: {}", chain(error))
        })
        .ok()?;
    let key = match told.kms_key_id().filter(|id| !id.ends_with(AWS_OWN)) {
        Some(id) => described(session, region, id.to_owned()).await,
        None => None,
    };
    // A person repairs a key and tries again, so a bad key is not remembered.
    if key.as_ref().is_none_or(|key| key.check(region).is_ok() && key.serves_spot != Some(false)) {
        session.memory.disk_keys.put(region.clone(), key.clone());
        cache.put("disk-key", &key);
    }
    key
}

async fn described(session: &AwsSession, region: &Region, id: String) -> Option<DiskKey> {
    let ask = |target: &'static str, mut body: Value| {
        body["KeyId"] = json!(id);
        let call = AwsCall::named("kms", target, body);
        async move { once(session, region, &call, ANSWER_MAX).await }
    };
    let (key, grants, policy) = tokio::join!(
        ask("TrentService.DescribeKey", json!({})),
        ask("TrentService.ListGrants", json!({ "Limit": 100 })),
        ask("TrentService.GetKeyPolicy", json!({ "PolicyName": "default" })),
    );
    key_of(id, key, grants, policy)
}

fn key_of(
    id: String,
    key: Result<Value, NoAnswer>,
    grants: Result<Value, NoAnswer>,
    policy: Result<Value, NoAnswer>,
) -> Option<DiskKey> {
    let about = key.ok().map(|answer| answer["KeyMetadata"].clone());
    if about.as_ref().is_some_and(|about| about["KeyManager"] == "AWS") {
        return None;
    }
    let state = about.and_then(|about| about["KeyState"].as_str().map(str::to_owned));
    // The quote ends the name, since the name of spot fleets' role begins with it. A policy is a
    // text in the answer, so its quotes are escaped.
    let names = |answer: &Value| {
        [format!("{SPOT_ROLE}\""), format!("{SPOT_ROLE}\\\"")]
            .iter()
            .any(|end| answer.to_string().contains(end))
    };
    let serves_spot = match (grants, policy) {
        (Ok(grants), _) if names(&grants) => Some(true),
        (_, Ok(policy)) if names(&policy) => Some(true),
        (_, Ok(policy)) if lets_anybody(&policy) => None,
        // The page of a hundred may be incomplete.
        (Ok(grants), Ok(_)) if grants["Truncated"] != true => Some(false),
        _ => None,
    };
    Some(DiskKey { id, state, serves_spot })
}

/// Whether a statement of the policy names every principal, as AWS writes it for its own key. Its
/// conditions may include spot's role.
fn lets_anybody(answer: &Value) -> bool {
    let policy: Option<Value> =
        answer["Policy"].as_str().and_then(|policy| serde_json::from_str(policy).ok());
    let is_star = |value: &Value| {
        *value == "*" || value.as_array().is_some_and(|all| all.iter().any(|one| *one == "*"))
    };
    let statements = policy.as_ref().and_then(|policy| policy["Statement"].as_array());
    statements.is_some_and(|all| {
        all.iter().any(|one| is_star(&one["Principal"]) || is_star(&one["Principal"]["AWS"]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(
        state: &str,
        grants: Result<Value, NoAnswer>,
        policy: Result<Value, NoAnswer>,
    ) -> Option<DiskKey> {
        key_of(
            "k".into(),
            Ok(json!({ "KeyMetadata": { "KeyManager": "CUSTOMER", "KeyState": state } })),
            grants,
            policy,
        )
    }

    fn denied() -> Result<Value, NoAnswer> {
        Err(NoAnswer::Refused {
            status: 400,
            code: "AccessDeniedException".into(),
            message: "no".into(),
        })
    }

    #[test]
    fn unusable_disk_key_is_refused_and_an_unknown_one_is_not() {
        let region = Region::new("us-east-2");
        let none = || Ok(json!({ "Grants": [], "Truncated": false }));
        let open = || Ok(json!({ "Policy": "{}" }));
        assert!(key("Enabled", none(), open()).expect("their own").check(&region).is_ok());
        let disabled = key("Disabled", none(), open())
            .expect("their own")
            .check(&region)
            .expect_err("disabled")
            .to_string();
        assert!(
            disabled.contains("which is Disabled")
                && disabled.contains("enable-key --region us-east-2 --key-id k"),
            "{disabled}"
        );
        let leaving = key("PendingDeletion", none(), open())
            .expect("their own")
            .check(&region)
            .expect_err("leaves")
            .to_string();
        assert!(
            leaving
                .contains("`aws kms cancel-key-deletion --region us-east-2 --key-id k` and then"),
            "{leaving}"
        );
        assert!(
            key("Updating", none(), open()).expect("their own").check(&region).is_ok(),
            "it can be used meanwhile"
        );
        let unknown = key_of("k".into(), denied(), denied(), denied()).expect("their own");
        assert!(unknown.check(&region).is_ok() && unknown.spot_note(&region).is_none());
        assert_eq!(
            key_of(
                "k".into(),
                Ok(json!({ "KeyMetadata": { "KeyManager": "AWS" } })),
                none(),
                open()
            ),
            None
        );
    }

    #[test]
    fn spot_needs_its_role_in_a_grant_or_in_the_policy() {
        let region = Region::new("us-east-2");
        let granted = json!({ "Grants": [{ "GranteePrincipal": format!("arn:aws:iam::1:role/aws-service-role/spot.amazonaws.com/{SPOT_ROLE}") }] });
        let named = json!({ "Policy": format!("{{\"Principal\": \"arn:aws:iam::1:role/aws-service-role/spot.amazonaws.com/{SPOT_ROLE}\"}}") });
        let note =
            |grants, policy| key("Enabled", grants, policy).expect("their own").spot_note(&region);
        assert_eq!(note(Ok(granted), denied()), None);
        assert_eq!(note(Ok(json!({ "Grants": [] })), Ok(named)), None);
        assert_eq!(note(Ok(json!({ "Grants": [] })), denied()), None, "its policy may name it");
        let anybody = json!({ "Policy": "{\"Statement\": [{\"Principal\": {\"AWS\": \"*\"}, \"Condition\": {}}]}" });
        assert_eq!(note(Ok(json!({ "Grants": [] })), Ok(anybody)), None);
        let fleet = json!({ "Grants": [{ "GranteePrincipal": format!("arn:aws:iam::1:role/aws-service-role/spotfleet.amazonaws.com/{SPOT_ROLE}Fleet") }] });
        let root = "{\"Statement\": [{\"Principal\": {\"AWS\": \"arn:aws:iam::1:root\"}, \"Resource\": \"*\"}]}";
        assert!(
            note(Ok(json!({ "Grants": [] })), Ok(json!({ "Policy": root }))).is_some(),
            "the policy of every new key"
        );
        assert!(note(Ok(fleet), Ok(json!({ "Policy": "{}" }))).is_some());
        let told = note(Ok(json!({ "Grants": [] })), Ok(json!({ "Policy": "{}" })))
            .expect("nobody names it");
        assert!(told.contains("create-grant --region us-east-2 --key-id k"), "{told}");
    }
}
