//! The report of a failed command: the event, its meaning, and what to type next.
//!
//! ```text
//! error: no offer fits job `llama-ft`: 8 x H100 is not sold in eu-south-1
//! nothing was started or billed
//! hint: add `us-east-2` to `regions`
//! ```
//!
//! With `-o json` it is one JSON object on stderr. Not here: the printing (`printer`).

use std::error::Error;
use std::ops::{Deref, DerefMut};

use serde::Serialize;

use crate::app::exit_code::ExitCode;
use crate::job::Finding;
use crate::wire;

/// One failed command. A box keeps every `Result` small.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Fault(Box<Report>);

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub what: String,
    /// The error chain, outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// All errors in a file that the user wrote.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Other faults of the same call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Fault>,
    #[serde(serialize_with = "as_number")]
    pub code: ExitCode,
    /// Set if it failed for want of credentials.
    #[serde(skip)]
    pub credentials: Option<wire::CredentialsGap>,
}

impl Fault {
    pub fn new(code: ExitCode, what: impl Into<String>) -> Self {
        Fault(Box::new(Report {
            what: what.into(),
            causes: Vec::new(),
            meaning: None,
            hint: None,
            findings: Vec::new(),
            file: None,
            others: Vec::new(),
            code,
            credentials: None,
        }))
    }

    /// `what` is the error's own text; the causes are its sources.
    pub fn from_error(code: ExitCode, error: &(dyn Error + 'static)) -> Self {
        if let Some(nobody) = wire::NoCredentials::among(error) {
            let mut fault = Fault::new(code, nobody.to_string()).hint(&nobody.fix);
            fault.credentials = Some(nobody.gap);
            return fault;
        }
        let mut fault = Fault::new(code, error.to_string());
        fault.causes = error.source().map(wire::causes).unwrap_or_default();
        fault
    }

    #[must_use]
    pub fn also(mut self, sentence: impl Into<String>) -> Self {
        let sentence = sentence.into();
        self.meaning = Some(
            self.meaning
                .take()
                .map_or_else(|| sentence.clone(), |meaning| format!("{sentence}; {meaning}")),
        );
        self
    }

    #[must_use]
    pub fn because(mut self, error: &(dyn Error + 'static)) -> Self {
        self.causes.extend(wire::causes(error));
        self
    }

    #[must_use]
    pub fn meaning(mut self, meaning: impl Into<String>) -> Self {
        self.meaning = Some(meaning.into());
        self
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The hint, unless the error has one already.
    #[must_use]
    pub fn or_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }

    #[must_use]
    pub fn findings(mut self, file: impl Into<String>, findings: Vec<Finding>) -> Self {
        self.file = Some(file.into());
        self.findings = findings;
        self
    }

    /// The event and its causes in one line.
    pub fn sentence(&self) -> String {
        let causes = self.causes.iter().map(|cause| format!(": {cause}"));
        std::iter::once(self.what.clone()).chain(causes).collect()
    }
}

impl Deref for Fault {
    type Target = Report;
    fn deref(&self) -> &Report {
        &self.0
    }
}

impl DerefMut for Fault {
    fn deref_mut(&mut self) -> &mut Report {
        &mut self.0
    }
}

fn as_number<S: serde::Serializer>(code: &ExitCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u8(code.number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open the store")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn whole_chain_is_kept_once() {
        let error = Outer(std::io::Error::other("disk is on fire"));
        let fault = Fault::new(ExitCode::UNREACHABLE, "cannot list jobs").because(&error);
        assert_eq!(fault.causes, ["cannot open the store", "disk is on fire"]);
        assert_eq!(Fault::from_error(ExitCode::UNREACHABLE, &error).causes, ["disk is on fire"]);
    }

    #[test]
    fn json_has_the_code_as_a_number() {
        let json = serde_json::to_value(
            Fault::new(ExitCode::NOT_FOUND, "no job `x`").hint("`lamp status`"),
        )
        .unwrap();
        assert_eq!(
            json,
            serde_json::json!({"what": "no job `x`", "hint": "`lamp status`", "code": 101})
        );
    }
}
