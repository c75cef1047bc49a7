//! Planned faults: a rule names calls, how often, and their result.

use std::time::Duration;

use super::query::{Params, like};

#[derive(Clone, Debug)]
pub(super) enum Meets {
    /// It is answered with this code and status.
    Code(String, u16, String),
    /// The connection ends without an answer.
    Cut,
    /// Nothing but the delay.
    Nothing,
}

/// `Fault::code("RunInstances", "InsufficientInstanceCapacity").times(2).when("InstanceType", "p5*")`.
#[derive(Clone, Debug)]
pub struct Fault {
    action: String,
    pub(super) meets: Meets,
    pub(super) delay: Duration,
    /// The call is carried out and its answer lost.
    pub(super) after: bool,
    left: Option<u32>,
    skip: u32,
    when: Vec<(String, String)>,
}

impl Fault {
    /// Calls of this action (or `PUT /bucket/*`; wildcards) meet what is said next, once unless
    /// `times` or `always` says otherwise.
    fn new(action: &str, meets: Meets) -> Self {
        Fault {
            action: action.into(),
            meets,
            delay: Duration::ZERO,
            after: false,
            left: Some(1),
            skip: 0,
            when: Vec::new(),
        }
    }

    /// A documented code, with the status that AWS gives it.
    pub fn code(action: &str, code: &str) -> Self {
        Fault::new(action, Meets::Code(code.into(), status(code), message(code).into()))
    }

    /// The connection is closed before anything is done.
    pub fn cut(action: &str) -> Self {
        Fault::new(action, Meets::Cut)
    }

    /// The call takes effect, and its answer is lost.
    pub fn lost(action: &str) -> Self {
        Fault::new(action, Meets::Cut).after()
    }

    pub fn slow(action: &str, delay: Duration) -> Self {
        Fault { delay, ..Fault::new(action, Meets::Nothing) }
    }

    pub fn status(mut self, status: u16) -> Self {
        if let Meets::Code(_, old, _) = &mut self.meets {
            *old = status;
        }
        self
    }

    pub fn saying(mut self, message: &str) -> Self {
        if let Meets::Code(_, _, old) = &mut self.meets {
            *old = message.into();
        }
        self
    }

    pub fn times(self, times: u32) -> Self {
        Fault { left: Some(times), ..self }
    }

    pub fn always(self) -> Self {
        Fault { left: None, ..self }
    }

    /// The first calls pass.
    pub fn skip(self, skip: u32) -> Self {
        Fault { skip, ..self }
    }

    /// The call is carried out, and then answered so.
    pub fn after(self) -> Self {
        Fault { after: true, ..self }
    }

    pub fn delay(self, delay: Duration) -> Self {
        Fault { delay, ..self }
    }

    /// Only if this parameter matches. Beside parameters of the call: `zone`, `market` (`spot`,
    /// `on-demand`), `region`, `key` (the access key).
    pub fn when(mut self, parameter: &str, pattern: &str) -> Self {
        self.when.push((parameter.into(), pattern.into()));
        self
    }

    /// Takes one of its times, if it is meant.
    pub(super) fn takes(&mut self, action: &str, params: &Params, facts: &[(&str, &str)]) -> bool {
        let fits = |(name, pattern): &(String, String)| {
            let fact = facts.iter().find(|(fact, _)| fact == name).map(|(_, value)| *value);
            like(pattern, fact.or_else(|| params.get(name).map(String::as_str)).unwrap_or_default())
        };
        if self.left == Some(0) || !like(&self.action, action) || !self.when.iter().all(fits) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.left = self.left.map(|left| left - 1);
        true
    }

    pub(super) fn asks_for_the_zone(&self) -> bool {
        self.when.iter().any(|(name, _)| name == "zone")
    }
}

pub(super) fn status(code: &str) -> u16 {
    match code {
        "InsufficientInstanceCapacity"
        | "InsufficientHostCapacity"
        | "InternalError"
        | "InternalFailure" => 500,
        "RequestLimitExceeded"
        | "Throttling"
        | "EC2ThrottledException"
        | "SlowDown"
        | "Unavailable"
        | "ServiceUnavailable" => 503,
        "UnauthorizedOperation"
        | "OptInRequired"
        | "Blocked"
        | "AccessDenied"
        | "AuthFailure.ServiceLinkedRoleCreationNotPermitted" => 403,
        "AuthFailure" | "SignatureDoesNotMatch" => 401,
        "DryRunOperation" => 412,
        _ => 400,
    }
}

/// In AWS's words, where they are known.
pub(super) fn message(code: &str) -> &str {
    match code {
        "InsufficientInstanceCapacity" => {
            "We currently do not have sufficient capacity in the Availability Zone you requested. Our system will be working on provisioning additional capacity."
        }
        "RequestLimitExceeded" => "Request limit exceeded.",
        "VcpuLimitExceeded" => {
            "You have requested more vCPU capacity than your current vCPU limit of 0 allows for the instance bucket that the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit."
        }
        "MaxSpotInstanceCountExceeded" => "Max spot instance count exceeded",
        "UnauthorizedOperation" => "You are not authorized to perform this operation.",
        "AuthFailure" => "AWS was not able to validate the provided access credentials",
        "RequestExpired" => "Request has expired.",
        "InvalidParameterValue" => {
            "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
        }
        "Unsupported" => {
            "The requested configuration is currently not supported. Please check the documentation for supported configurations."
        }
        "DryRunOperation" => "Request would have succeeded, but DryRun flag is set.",
        "InternalError" => "An internal error has occurred",
        "Unavailable" => "The server is overloaded and can't handle the request.",
        other => other,
    }
}
