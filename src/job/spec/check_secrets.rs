//! Checks of the names and places of secrets.

use super::secret::is_variable;
use crate::job::{Finding, Spec, is_launchers};
use crate::market::CloudKind;

/// Findings about the names and places of the secrets.
pub(crate) fn check_secrets(spec: &Spec, found: &mut Vec<Finding>) {
    for (name, source) in &spec.secrets {
        let path = format!("secrets.{name}");
        if !is_variable(name) {
            found.push(Finding::error(
                &path,
                "is not a name that a variable of the environment can have",
            ));
        } else if name.starts_with("LAMP_") || is_launchers(name) {
            found.push(Finding::error(
                &path,
                "is set by the agent or by a launcher: a secret cannot have this name",
            ));
        } else if spec.env.contains_key(name) {
            let finding = Finding::error(
                &path,
                format!(
                    "stands in `env` too, where its value would be kept in records: `env.{name}`"
                ),
            );
            found.push(finding.hint("leave it out there"));
        } else if spec.machine.cloud == CloudKind::Aws && !source.is_at_aws() {
            let message = format!(
                "is `{source}`, which a machine at AWS cannot read: no secret is put into a record or into user data"
            );
            let hint = format!(
                "keep it in Parameter Store, `aws ssm put-parameter --type SecureString --name /secrets/{name} --value \"${name}\"`, \
                 and say {name} = \"ssm:/secrets/{name}\""
            );
            found.push(Finding::error(&path, message).hint(hint));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_that_cannot_reach_the_machine_is_an_error() {
        let mut spec = Spec::bare();
        spec.env.insert("BOTH".into(), "x".into());
        spec.secrets = [
            ("HF_TOKEN", "env"),
            ("OK", "ssm:/a"),
            ("BOTH", "ssm:/b"),
            ("LAMP_JOB", "ssm:/c"),
            ("RANK", "ssm:/d"),
            ("a b", "ssm:/e"),
        ]
        .map(|(name, source)| (name.to_owned(), source.parse().unwrap()))
        .into();
        spec.machine.cloud = CloudKind::Aws;
        let mut found = Vec::new();
        check_secrets(&spec, &mut found);
        let paths: Vec<&str> = found.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(
            paths,
            ["secrets.BOTH", "secrets.HF_TOKEN", "secrets.LAMP_JOB", "secrets.RANK", "secrets.a b"]
        );
        assert!(found[1].hint.as_deref().unwrap().contains("put-parameter"), "{found:?}");
        spec.machine.cloud = CloudKind::Local;
        let mut here = Vec::new();
        check_secrets(&spec, &mut here);
        assert_eq!(here.len(), 4, "the environment of this workstation is at hand here: {here:?}");
    }
}
