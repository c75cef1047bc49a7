//! The role of the machines, its instance profile, and the service-linked roles of EC2 and
//! CloudWatch.

use std::error::Error as StdError;

use aws_sdk_iam::Client;
use aws_sdk_iam::types::Tag;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use serde_json::Value;

use super::setup_error::SetupError;
use crate::account::lookup::{Found, ProfileFound, RoleFound};
use crate::account::permissions::PolicyName;
use crate::account::setup::{BOX_POLICY, BOX_SESSION_POLICY, SetupNames, SetupStep};
use crate::adapters::aws::service_error::{found, is_gone, said};
use crate::instance::OWNER_TAG;

pub(crate) const SPOT_ROLE: &str = "AWSServiceRoleForEC2Spot";
pub(crate) const ALARM_ROLE: &str = "AWSServiceRoleForCloudWatchEvents";

pub(crate) async fn role(iam: &Client, name: &str) -> Found<RoleFound> {
    let (role, policy, session_policy) = tokio::join!(
        iam.get_role().role_name(name).send(),
        policy(iam, name, BOX_POLICY),
        policy(iam, name, BOX_SESSION_POLICY)
    );
    let role = match found(role) {
        Found::There(answer) => answer,
        Found::Nothing => return Found::Nothing,
        Found::Unknown(why) => return Found::Unknown(why),
    };
    match (policy, session_policy) {
        (Ok(policy), Ok(session_policy)) => Found::There(RoleFound {
            owner: role.role().and_then(|role| owner(role.tags())),
            policy,
            session_policy,
        }),
        (Err(why), _) | (_, Err(why)) => Found::Unknown(why),
    }
}

/// A role, with its inline policy of this name.
pub(crate) async fn role_with(iam: &Client, name: &str, policy_name: &str) -> Found<RoleFound> {
    let (role, policy) =
        tokio::join!(iam.get_role().role_name(name).send(), policy(iam, name, policy_name));
    match (found(role), policy) {
        (Found::There(answer), Ok(policy)) => Found::There(RoleFound {
            owner: answer.role().and_then(|role| owner(role.tags())),
            policy,
            session_policy: None,
        }),
        (Found::Nothing, _) => Found::Nothing,
        (Found::Unknown(why), _) | (_, Err(why)) => Found::Unknown(why),
    }
}

/// Creates a role that a service may assume.
pub(crate) async fn create(
    iam: &Client,
    of: &str,
    name: &str,
    trust: &Value,
    about: &str,
) -> Result<(), SetupError> {
    let tag = Tag::builder()
        .key(OWNER_TAG)
        .value(of)
        .build()
        .expect("both the key and the value are given");
    let call = iam
        .create_role()
        .role_name(name)
        .assume_role_policy_document(trust.to_string())
        .description(about)
        .tags(tag);
    done(call.send().await, &format!("create the role {name}"))
}

/// Writes its only policy, which has the role's name.
pub(crate) async fn write(iam: &Client, name: &str, policy: &Value) -> Result<(), SetupError> {
    let call =
        iam.put_role_policy().role_name(name).policy_name(name).policy_document(policy.to_string());
    done(call.send().await, &format!("write the policy of the role {name}"))
}

/// Deletes a role with its only policy.
pub(crate) async fn delete(iam: &Client, name: &str) -> Result<(), SetupError> {
    ended(
        iam.delete_role_policy().role_name(name).policy_name(name).send().await,
        &format!("delete the policy of the role {name}"),
    )?;
    ended(iam.delete_role().role_name(name).send().await, &format!("delete the role {name}"))
}

/// An inline policy of a role, or why it cannot be read.
async fn policy(iam: &Client, role: &str, name: &str) -> Result<Option<Value>, String> {
    match found(iam.get_role_policy().role_name(role).policy_name(name).send().await) {
        Found::There(answer) => {
            Ok(serde_json::from_str::<Value>(&percent_decoded(answer.policy_document())).ok())
        }
        Found::Nothing => Ok(None),
        Found::Unknown(why) => Err(why),
    }
}

pub(crate) async fn profile(iam: &Client, name: &str) -> Found<ProfileFound> {
    match found(iam.get_instance_profile().instance_profile_name(name).send().await) {
        Found::There(answer) => {
            let (owner, roles) = answer.instance_profile().map_or((None, Vec::new()), |profile| {
                (
                    owner(profile.tags()),
                    profile.roles().iter().map(|role| role.role_name().to_owned()).collect(),
                )
            });
            Found::There(ProfileFound { owner, roles })
        }
        Found::Nothing => Found::Nothing,
        Found::Unknown(why) => Found::Unknown(why),
    }
}

/// Whether a service-linked role exists.
pub(crate) async fn linked(iam: &Client, name: &str) -> Found<()> {
    match found(iam.get_role().role_name(name).send().await) {
        Found::There(_) => Found::There(()),
        Found::Nothing => Found::Nothing,
        Found::Unknown(why) => Found::Unknown(why),
    }
}

pub(crate) async fn act(
    iam: &Client,
    names: &SetupNames,
    step: &SetupStep,
) -> Result<(), SetupError> {
    let (role, permissions) = (names.role.as_str(), names.permissions());
    let tag = || {
        Tag::builder()
            .key(OWNER_TAG)
            .value(&names.owner)
            .build()
            .expect("both the key and the value are given")
    };
    match step {
        SetupStep::CreateRole => {
            let about = "What a machine that Lamplighter launched may do: its job directory, and its own metrics";
            let trust = permissions.trust().to_string();
            let call = iam
                .create_role()
                .role_name(role)
                .assume_role_policy_document(trust)
                .description(about)
                .tags(tag());
            match call.send().await {
                // Another run has just made the role, and writes its policy. If both wrote,
                // machines would reach only the last job root.
                Err(error) if is_there(&error) => Err(SetupError::overtaken("create the role")),
                answer => done(answer, "create the role"),
            }
        }
        SetupStep::WriteRolePolicy => {
            let policy = permissions.policy(PolicyName::Box).to_string();
            done(
                iam.put_role_policy()
                    .role_name(role)
                    .policy_name(BOX_POLICY)
                    .policy_document(policy)
                    .send()
                    .await,
                "write the role's policy",
            )
        }
        SetupStep::WriteSessionPolicy => {
            let policy = permissions.policy(PolicyName::BoxSession).to_string();
            let call = iam
                .put_role_policy()
                .role_name(role)
                .policy_name(BOX_SESSION_POLICY)
                .policy_document(policy);
            done(call.send().await, "write the role's policy for shells")
        }
        SetupStep::CreateProfile => done(
            iam.create_instance_profile().instance_profile_name(role).tags(tag()).send().await,
            "create the instance profile",
        ),
        SetupStep::PutRoleInProfile => {
            let call =
                iam.add_role_to_instance_profile().instance_profile_name(role).role_name(role);
            match call.send().await {
                // It holds one role, and refuses even the same one a second time.
                Err(error) if error.code() == Some("LimitExceeded") && holds(iam, role).await => {
                    Ok(())
                }
                answer => done(answer, "put the role in the instance profile"),
            }
        }
        SetupStep::CreateSpotRole => link(iam, "spot.amazonaws.com").await,
        SetupStep::CreateAlarmRole => link(iam, "events.amazonaws.com").await,
        SetupStep::TakeRoleFromProfile => {
            let call =
                iam.remove_role_from_instance_profile().instance_profile_name(role).role_name(role);
            ended(call.send().await, "take the role out of the instance profile")
        }
        SetupStep::DeleteProfile => ended(
            iam.delete_instance_profile().instance_profile_name(role).send().await,
            "delete the instance profile",
        ),
        SetupStep::DeleteRolePolicy => ended(
            iam.delete_role_policy().role_name(role).policy_name(BOX_POLICY).send().await,
            "delete the role's policy",
        ),
        SetupStep::DeleteSessionPolicy => {
            let call = iam.delete_role_policy().role_name(role).policy_name(BOX_SESSION_POLICY);
            ended(call.send().await, "delete the role's policy for shells")
        }
        SetupStep::DeleteRole => {
            ended(iam.delete_role().role_name(role).send().await, "delete the role")
        }
        other => Err(SetupError::new(other.words(), "that is not of IAM")),
    }
}

/// Whether this instance profile holds this role.
async fn holds(iam: &Client, role: &str) -> bool {
    profile(iam, role)
        .await
        .there()
        .is_some_and(|profile| profile.roles.iter().any(|held| held == role))
}

async fn link(iam: &Client, service: &str) -> Result<(), SetupError> {
    let answer = iam.create_service_linked_role().aws_service_name(service).send().await;
    match answer {
        // AWS answers `InvalidInput` if another run was faster.
        Err(error) if error.message().is_some_and(|message| message.contains("has been taken")) => {
            Ok(())
        }
        answer => done(answer, &format!("create the service-linked role of {service}")),
    }
}

fn done<T, E>(answer: Result<T, SdkError<E, HttpResponse>>, act: &str) -> Result<(), SetupError>
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    match answer {
        Ok(_) => Ok(()),
        Err(error) if is_there(&error) => Ok(()),
        Err(error) => Err(SetupError::new(act, said(&error))),
    }
}

fn is_there<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    error.code().is_some_and(|code| code.starts_with("EntityAlreadyExists"))
}

fn ended<T, E>(answer: Result<T, SdkError<E, HttpResponse>>, act: &str) -> Result<(), SetupError>
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    match answer {
        Err(error) if is_gone(&error) => Ok(()),
        answer => done(answer, act),
    }
}

fn owner(tags: &[Tag]) -> Option<String> {
    tags.iter().find(|tag| tag.key() == OWNER_TAG).map(|tag| tag.value().to_owned())
}

/// IAM returns its documents percent-encoded.
fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let hex = |at: usize| {
        bytes
            .get(at)
            .and_then(|byte| char::from(*byte).to_digit(16))
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        match (bytes[at], hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(high * 16 + low);
                at += 3;
            }
            (byte, _, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read_as_iam_sends_them() {
        assert_eq!(percent_decoded("%7B%22a%22%3A%20%22%C3%A9%25%22%7D"), "{\"a\": \"\u{e9}%\"}");
        assert_eq!(percent_decoded("{\"plain\": \"100%\"}"), "{\"plain\": \"100%\"}");
    }
}
