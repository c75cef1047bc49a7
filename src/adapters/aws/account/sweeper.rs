//! The sweeper in an account: looks at its two roles, log, function and schedule, and creates and
//! removes them.
//!
//! IAM is called through its SDK, the other three services through `aws::signed_rest`. Not here:
//! which step is next (`policy::account::sweeper_plan`).

use std::sync::Arc;
use std::time::Duration;

use aws_smithy_types::base64;
use reqwest::Method;
use serde_json::{Value, json};

use super::setup_error::SetupError;
use super::sweeper_program::SweeperProgram;
use super::{bucket, roles};
use crate::account::lookup::Found;
use crate::account::permissions::{PolicyName, partition};
use crate::account::setup::SetupNames;
use crate::account::sweeper::{
    EACH, FunctionFound, FunctionSettings, LOG_DAYS, MEMORY_MIB, RUNTIME, ScheduleFound, Sweeper,
    SweeperFound, SweeperStep, TIMEOUT_SECS,
};
use crate::adapters::aws::session::AwsSession;
use crate::adapters::aws::signed_rest::{AwsCall, NoAnswer, found, send};
use crate::adapters::host::system_clock::SystemClock;
use crate::instance::OWNER_TAG;
use crate::market::{Arch, Region};
use crate::ports::Clock as _;

/// Lambda and the scheduler accept a new role after some seconds. A function with a new program
/// refuses new settings meanwhile.
const SETTLES_WITHIN: Duration = Duration::from_secs(90);
const ASK_AGAIN: Duration = Duration::from_secs(3);

/// The sweeper of one owner in one account.
pub(crate) struct CloudSweeper<'a> {
    pub session: &'a Arc<AwsSession>,
    pub account: &'a str,
    pub names: &'a SetupNames,
}

impl CloudSweeper<'_> {
    fn home(&self) -> Region {
        Region::new(self.names.home())
    }

    fn arn(&self, service: &str, region: &str, what: &str) -> String {
        format!("arn:{}:{service}:{region}:{}:{what}", partition(self.names.home()), self.account)
    }

    async fn send(&self, call: &AwsCall) -> Result<Value, NoAnswer> {
        send(self.session, &self.home(), call).await
    }

    /// The sweeper as it should be with this program, or the reason why it cannot be.
    pub fn wanted(&self, program: &Result<SweeperProgram, String>) -> Sweeper {
        let name = self.names.sweeper();
        let role = |name: &str| self.arn("iam", "", &format!("role/{name}"));
        let said =
            [("LAMP_JOB_ROOT", self.names.job_root()), ("LAMP_OWNER", self.names.owner.clone())];
        Sweeper {
            program: program.as_ref().map(SweeperProgram::sha256).map_err(Clone::clone),
            settings: FunctionSettings {
                runtime: RUNTIME.to_owned(),
                role: role(&name),
                arch: program.as_ref().ok().map(|program| program.arch),
                timeout_secs: TIMEOUT_SECS,
                memory_mib: MEMORY_MIB,
                environment: said.map(|(key, value)| (key.to_owned(), value)).into(),
            },
            schedule: ScheduleFound {
                enabled: true,
                each: EACH.to_owned(),
                function: self.arn("lambda", self.names.home(), &format!("function:{name}")),
                role: role(&Sweeper::schedule_role(&name)),
            },
            name,
        }
    }

    pub async fn look(&self) -> SweeperFound {
        let (home, name) = (self.home(), self.names.sweeper());
        let iam = self.session.iam(&home).await;
        let call_role = Sweeper::schedule_role(&name);
        let (role, schedule_role, log, function, schedule) = tokio::join!(
            roles::role_with(&iam, &name, &name),
            roles::role_with(&iam, &call_role, &call_role),
            self.log(&name),
            function_of(self.session, &home, &name),
            schedule_of(self.session, &home, &name),
        );
        SweeperFound { role, schedule_role, log, function, schedule }
    }

    async fn log(&self, name: &str) -> Found<()> {
        let group = Sweeper::log(name);
        let call = AwsCall::named(
            "logs",
            "Logs_20140328.DescribeLogGroups",
            json!({ "logGroupNamePrefix": group }),
        );
        match found(self.send(&call).await) {
            Found::There(answer) => {
                let groups = answer["logGroups"].as_array().into_iter().flatten();
                groups
                    .into_iter()
                    .find(|known| known["logGroupName"] == group.as_str())
                    .map_or(Found::Nothing, |_| Found::There(()))
            }
            Found::Nothing => Found::Nothing,
            Found::Unknown(why) => Found::Unknown(why),
        }
    }

    pub async fn make(
        &self,
        step: SweeperStep,
        program: &Result<SweeperProgram, String>,
    ) -> Result<(), SetupError> {
        let wanted = self.wanted(program);
        let name = wanted.name.as_str();
        let call_role = Sweeper::schedule_role(name);
        let (iam, permissions) = (self.session.iam(&self.home()).await, self.names.permissions());
        let program =
            || program.as_ref().map_err(|why| SetupError::new("find a program for it", why));
        match step {
            SweeperStep::CreateRole => {
                let about = "What the sweeper of Lamplighter may do: end machines of its owner's that no job needs";
                roles::create(&iam, &self.names.owner, name, &permissions.sweeper_trust(), about)
                    .await
            }
            SweeperStep::WriteRolePolicy => {
                roles::write(&iam, name, &permissions.policy(PolicyName::Sweeper)).await
            }
            SweeperStep::CreateScheduleRole => {
                let about = "What the schedule of Lamplighter's sweeper may do: call it";
                roles::create(
                    &iam,
                    &self.names.owner,
                    &call_role,
                    &permissions.schedule_trust(self.account),
                    about,
                )
                .await
            }
            SweeperStep::WriteSchedulePolicy => {
                roles::write(&iam, &call_role, &permissions.policy(PolicyName::SweeperSchedule))
                    .await
            }
            SweeperStep::CreateLog => self.create_log(name).await,
            SweeperStep::CreateFunction => self.create_function(&wanted, program()?).await,
            SweeperStep::SendProgram => self.send_program(name, program()?).await,
            SweeperStep::SetFunction => {
                let path = format!("{FUNCTIONS}/{name}/configuration");
                self.settled(
                    "set the function",
                    &AwsCall::rest("lambda", Method::PUT, path, settings(&wanted.settings)),
                )
                .await
            }
            SweeperStep::CreateSchedule => self.put_schedule(Method::POST, &wanted).await,
            SweeperStep::SetSchedule => self.put_schedule(Method::PUT, &wanted).await,
            other => Err(SetupError::new(other.words(), "that makes nothing")),
        }
    }

    pub async fn take_away(&self, step: SweeperStep) -> Result<(), SetupError> {
        let name = self.names.sweeper();
        let delete =
            |service, path: String| AwsCall::rest(service, Method::DELETE, path, Value::Null);
        match step {
            SweeperStep::DeleteSchedule => {
                self.gone("delete the schedule", delete("scheduler", format!("/schedules/{name}")))
                    .await
            }
            SweeperStep::DeleteFunction => {
                self.gone("delete the function", delete("lambda", format!("{FUNCTIONS}/{name}")))
                    .await
            }
            SweeperStep::DeleteLog => {
                let call = AwsCall::named(
                    "logs",
                    "Logs_20140328.DeleteLogGroup",
                    json!({ "logGroupName": Sweeper::log(&name) }),
                );
                self.gone("delete the log", call).await
            }
            SweeperStep::DeleteScheduleRole => {
                roles::delete(&self.session.iam(&self.home()).await, &Sweeper::schedule_role(&name))
                    .await
            }
            SweeperStep::DeleteRole => {
                roles::delete(&self.session.iam(&self.home()).await, &name).await
            }
            SweeperStep::DeleteRecords => {
                bucket::forget_sweeper(&self.session.s3(&self.home()).await, self.names).await
            }
            other => Err(SetupError::new(other.words(), "that takes nothing away")),
        }
    }

    async fn create_log(&self, name: &str) -> Result<(), SetupError> {
        let group = Sweeper::log(name);
        let made = json!({ "logGroupName": group, "tags": { OWNER_TAG: self.names.owner } });
        self.there(
            "create the log",
            "ResourceAlreadyExistsException",
            AwsCall::named("logs", "Logs_20140328.CreateLogGroup", made),
        )
        .await?;
        let kept = json!({ "logGroupName": group, "retentionInDays": LOG_DAYS });
        let call = AwsCall::named("logs", "Logs_20140328.PutRetentionPolicy", kept);
        self.send(&call)
            .await
            .map(drop)
            .map_err(|error| SetupError::new("bound the log", error.to_string()))
    }

    async fn create_function(
        &self,
        wanted: &Sweeper,
        program: &SweeperProgram,
    ) -> Result<(), SetupError> {
        let mut body = settings(&wanted.settings);
        body["FunctionName"] = wanted.name.as_str().into();
        body["Code"] = json!({ "ZipFile": base64::encode(&program.archive) });
        body["Architectures"] = json!([program.arch.to_string()]);
        body["Tags"] = json!({ OWNER_TAG: self.names.owner });
        self.settled("create the function", &AwsCall::rest("lambda", Method::POST, FUNCTIONS, body))
            .await
    }

    async fn send_program(&self, name: &str, program: &SweeperProgram) -> Result<(), SetupError> {
        let body = json!({ "ZipFile": base64::encode(&program.archive), "Architectures": [program.arch.to_string()] });
        self.settled(
            "send the program",
            &AwsCall::rest("lambda", Method::PUT, format!("{FUNCTIONS}/{name}/code"), body),
        )
        .await
    }

    async fn put_schedule(&self, method: Method, wanted: &Sweeper) -> Result<(), SetupError> {
        let ScheduleFound { each, function, role, .. } = &wanted.schedule;
        // A late call is useless, because the next visit finds the same things.
        let retry = json!({ "MaximumEventAgeInSeconds": 240, "MaximumRetryAttempts": 2 });
        let body = json!({
            "ScheduleExpression": each, "FlexibleTimeWindow": { "Mode": "OFF" }, "State": "ENABLED",
            "Description": "Lamplighter's sweeper looks for machines that no job needs",
            "Target": { "Arn": function, "RoleArn": role, "Input": "{}", "RetryPolicy": retry },
        });
        self.settled(
            "set the schedule",
            &AwsCall::rest("scheduler", method, format!("/schedules/{}", wanted.name), body),
        )
        .await
    }

    /// Repeats the call until the new role is accepted, or the previous change is complete. A
    /// resource that exists already counts as done.
    async fn settled(&self, act: &str, call: &AwsCall) -> Result<(), SetupError> {
        let until = SystemClock.mono() + SETTLES_WITHIN;
        loop {
            match self.send(call).await {
                Ok(_) => return Ok(()),
                Err(error) if is_settling(&error) && SystemClock.mono() < until => {
                    SystemClock.sleep(ASK_AGAIN).await
                }
                // The codes of Lambda and of the scheduler.
                Err(error)
                    if ["ResourceConflictException", "ConflictException"]
                        .iter()
                        .any(|code| error.is(code))
                        && error.speaks_of("already exist") =>
                {
                    return Ok(());
                }
                Err(error) => return Err(SetupError::new(act, error.to_string())),
            }
        }
    }

    async fn there(&self, act: &str, code: &str, call: AwsCall) -> Result<(), SetupError> {
        match self.send(&call).await {
            Err(error) if !error.is(code) => Err(SetupError::new(act, error.to_string())),
            _ => Ok(()),
        }
    }

    async fn gone(&self, act: &str, call: AwsCall) -> Result<(), SetupError> {
        match self.send(&call).await {
            Err(error) if !error.is_gone() => Err(SetupError::new(act, error.to_string())),
            _ => Ok(()),
        }
    }
}

/// The only version of Lambda's API.
const FUNCTIONS: &str = "/2015-03-31/functions";

/// An error that ends by itself within a minute.
fn is_settling(error: &NoAnswer) -> bool {
    let role = (error.is("InvalidParameterValueException") || error.is("ValidationException"))
        && error.speaks_of("assume");
    let busy = error.is("ResourceConflictException")
        && (error.speaks_of("in progress") || error.speaks_of("Pending"));
    role || busy
}

fn settings(wanted: &FunctionSettings) -> Value {
    json!({
        "Description": "Ends machines of Lamplighter that no job needs, every five minutes",
        "Runtime": wanted.runtime, "Handler": "bootstrap", "Role": wanted.role, "Timeout": wanted.timeout_secs, "MemorySize": wanted.memory_mib,
        "Environment": { "Variables": wanted.environment },
    })
}

/// The function and the schedule of this name in the home region.
pub(crate) async fn installed(
    session: &Arc<AwsSession>,
    home: &Region,
    name: &str,
) -> (Found<FunctionFound>, Found<ScheduleFound>) {
    tokio::join!(function_of(session, home, name), schedule_of(session, home, name))
}

async fn function_of(session: &Arc<AwsSession>, home: &Region, name: &str) -> Found<FunctionFound> {
    let call = AwsCall::rest("lambda", Method::GET, format!("{FUNCTIONS}/{name}"), Value::Null);
    match found(send(session, home, &call).await) {
        Found::There(answer) => Found::There(function(&answer)),
        Found::Nothing => Found::Nothing,
        Found::Unknown(why) => Found::Unknown(why),
    }
}

async fn schedule_of(session: &Arc<AwsSession>, home: &Region, name: &str) -> Found<ScheduleFound> {
    let call = AwsCall::rest("scheduler", Method::GET, format!("/schedules/{name}"), Value::Null);
    match found(send(session, home, &call).await) {
        Found::There(answer) => Found::There(ScheduleFound {
            enabled: answer["State"] == "ENABLED",
            each: text(&answer["ScheduleExpression"]),
            function: text(&answer["Target"]["Arn"]),
            role: text(&answer["Target"]["RoleArn"]),
        }),
        Found::Nothing => Found::Nothing,
        Found::Unknown(why) => Found::Unknown(why),
    }
}

fn function(answer: &Value) -> FunctionFound {
    let it = &answer["Configuration"];
    let number =
        |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
    let variables = it["Environment"]["Variables"].as_object().into_iter().flatten();
    let arch = match it["Architectures"][0].as_str() {
        Some("arm64") => Some(Arch::Arm64),
        Some("x86_64") => Some(Arch::X86_64),
        _ => None,
    };
    FunctionFound {
        owner: answer["Tags"][OWNER_TAG].as_str().map(str::to_owned),
        program: text(&it["CodeSha256"]),
        settings: FunctionSettings {
            runtime: text(&it["Runtime"]),
            role: text(&it["Role"]),
            arch,
            timeout_secs: number(&it["Timeout"]),
            memory_mib: number(&it["MemorySize"]),
            environment: variables.map(|(key, value)| (key.clone(), text(value))).collect(),
        },
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_by_itself_is_waited_for_and_nothing_else() {
        let no = |code: &str, message: &str| NoAnswer::Refused {
            status: 400,
            code: code.into(),
            message: message.into(),
        };
        for (code, message) in [
            (
                "InvalidParameterValueException",
                "The role defined for the function cannot be assumed by Lambda.",
            ),
            (
                "ValidationException",
                "The execution role you provide must allow AWS EventBridge Scheduler to assume the role.",
            ),
            (
                "ResourceConflictException",
                "The operation cannot be performed at this time. An update is in progress for resource: x",
            ),
            (
                "ResourceConflictException",
                "The function is currently in the following state: Pending",
            ),
        ] {
            assert!(is_settling(&no(code, message)), "{message}");
        }
        assert!(!is_settling(&no("ResourceConflictException", "Function already exist: x")));
        assert!(!is_settling(&no(
            "InvalidParameterValueException",
            "Unzipped size must be smaller than 262144000 bytes"
        )));
    }
}
