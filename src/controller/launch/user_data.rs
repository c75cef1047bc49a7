//! The user data of a launched machine: the shell script of its first boot. Pure.
//!
//! ```text
//!   the settings, quoted ──> dead-man's switch ──> agent.env ──> the agent, fetched and checked
//!                                                           ──> its unit, enabled and started
//! ```
//! cloud-init runs it once, as root. A machine that is started again boots with the units that the
//! script left. A failure goes to the console and powers the machine off, and the dead-man's switch
//! is behind that. The script is POSIX shell, because images differ in `/bin/sh`. Every process of
//! the machine can read user data, so they hold no secret.

use crate::job::{Switch, Trial};
use crate::market::Span;
use crate::policy::account::shutdown_proof;

/// The limit of EC2, before encoding.
pub const USER_DATA_BYTES_MAX: usize = 16 * 1024;

/// The part that arms the switch, and the part that follows.
const SWITCH: &str = include_str!("../bootstrap.sh");
const AGENT: &str = include_str!("../bootstrap_agent.sh");
const DEADMAN_SERVICE: &str = include_str!("../../../systemd/lamp-deadman.service");
const DEADMAN_TIMER: &str = include_str!("../../../systemd/lamp-deadman.timer");
const BOOT_SERVICE: &str = include_str!("../../../systemd/lamp-boot.service");
const AGENT_SERVICE: &str = include_str!("../../../systemd/lamp-agent.service");
const AGENT_TMP_SERVICE: &str = include_str!("../../../systemd/lamp-agent-tmp.service");

/// The settings of one launch.
#[derive(Clone, Copy, Debug)]
pub struct Bootstrap<'a> {
    pub job_root: &'a str,
    /// The region of the bucket, which may differ from the region of the machine.
    pub job_root_region: Option<&'a str>,
    /// The region of the machine.
    pub region: &'a str,
    /// A presigned URL of the agent, for a plain GET.
    pub agent_url: &'a str,
    /// Lower-case hex.
    pub agent_sha256: &'a str,
    /// The endpoint in place of the cloud's own.
    pub box_endpoint: Option<BoxEndpoint<'a>>,
    /// The time for the agent to take the lease.
    pub boot: Span,
}

/// Where machines reach the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxEndpoint<'a> {
    /// An endpoint of S3 alone, as a VPC has one.
    S3(&'a str),
    /// An emulator, which is all of AWS.
    All(&'a str),
}

impl<'a> BoxEndpoint<'a> {
    pub fn url(self) -> &'a str {
        match self {
            BoxEndpoint::S3(url) | BoxEndpoint::All(url) => url,
        }
    }

    /// The variable that every SDK of AWS reads.
    fn variable(self) -> &'static str {
        match self {
            BoxEndpoint::S3(_) => "AWS_ENDPOINT_URL_S3",
            BoxEndpoint::All(_) => "AWS_ENDPOINT_URL",
        }
    }
}

/// Why there is no user data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapError {
    #[error(
        "the user data would be {bytes} bytes, and a machine takes {USER_DATA_BYTES_MAX}: credentials with a shorter session token, which is in the URL of the agent, or a shorter job root or endpoint are needed"
    )]
    TooLong { bytes: usize },
    #[error("the {what} holds a control character, which the machine's settings cannot carry")]
    ControlCharacter { what: &'static str },
    #[error("`{0}` is not a SHA-256 in lower-case hex")]
    NotASum(String),
}

impl Bootstrap<'_> {
    /// The script. Equal settings give equal bytes, so a repeated launch sends the same ones.
    ///
    /// When a setting holds a control character, or the script is too long for a machine.
    pub fn user_data(&self) -> Result<String, BootstrapError> {
        self.check()?;
        let mut text = String::from(
            "#!/bin/sh\n# Lamplighter makes this machine ready and starts its agent.\n",
        );
        text.push_str(&switch_words(self.boot));
        let mut assign = |name: &str, value: &str| text.push_str(&assigned(name, value));
        assign("agent_url", self.agent_url);
        assign("agent_sha256", self.agent_sha256);
        assign("agent_env", self.environment().trim_end());
        assign("unit_agent", &unit(AGENT_SERVICE));
        assign("unit_agent_tmp", &unit(AGENT_TMP_SERVICE));
        text.push_str(SWITCH);
        text.push_str(AGENT);
        if text.len() > USER_DATA_BYTES_MAX {
            return Err(BootstrapError::TooLong { bytes: text.len() });
        }
        Ok(text)
    }

    fn check(&self) -> Result<(), BootstrapError> {
        let words = [
            ("job root", self.job_root),
            ("region", self.region),
            ("job root's region", self.job_root_region.unwrap_or("")),
            ("agent's URL", self.agent_url),
            ("endpoint", self.box_endpoint.map_or("", BoxEndpoint::url)),
        ];
        if let Some((what, _)) =
            words.into_iter().find(|(_, word)| word.chars().any(char::is_control))
        {
            return Err(BootstrapError::ControlCharacter { what });
        }
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if self.agent_sha256.len() != 64 || !self.agent_sha256.bytes().all(hex) {
            return Err(BootstrapError::NotASum(self.agent_sha256.to_owned()));
        }
        Ok(())
    }

    /// `/etc/lamplighter/agent.env`, as systemd reads an `EnvironmentFile` and as a shell would.
    fn environment(&self) -> String {
        let endpoint = self.box_endpoint.map_or(("AWS_ENDPOINT_URL", None), |endpoint| {
            (endpoint.variable(), Some(endpoint.url()))
        });
        let lines = [
            ("LAMP_JOB_ROOT", Some(self.job_root)),
            ("LAMP_JOB_ROOT_REGION", self.job_root_region),
            ("AWS_REGION", Some(self.region)),
            endpoint,
        ];
        lines
            .iter()
            .filter_map(|(name, value)| Some(format!("{name}={}\n", environment_quoted((*value)?))))
            .collect()
    }
}

/// The user data of a machine without an agent, for a proof of the power-off. The switch of a
/// sweep's machine fires after every try of the sweep. Without it the machine would bill on if no
/// sweep came. `patience` is the plan's `boot`.
pub fn of_trial(trial: &Trial, patience: Span) -> String {
    let text =
        "#!/bin/sh\n# Lamplighter tries on this machine whether it ends when nobody watches it.\n";
    let said = match trial.switch {
        Switch::DeadlineUnit => "the switch is armed, and nothing else works here",
        Switch::Sweep => "a sweep must end this machine; the switch is armed for when none comes",
    };
    format!(
        "{text}{}{SWITCH}say \"{said}\"\n",
        switch_words(shutdown_proof::armed(trial, patience))
    )
}

/// The variables of the part that arms the switch.
fn switch_words(boot: Span) -> String {
    let words = [
        ("boot_secs", boot.duration().as_secs().to_string()),
        ("unit_deadman_service", unit(DEADMAN_SERVICE)),
        ("unit_deadman_timer", unit(DEADMAN_TIMER)),
        ("unit_boot", unit(BOOT_SERVICE)),
    ];
    words.iter().map(|(name, value)| assigned(name, value)).collect()
}

fn assigned(name: &str, value: &str) -> String {
    format!("{name}={}\n", shell_quoted(value))
}

/// One quoted word for a POSIX shell.
fn shell_quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// One value for an `EnvironmentFile`: in double quotes, with the four special characters escaped.
fn environment_quoted(value: &str) -> String {
    let escaped = value.chars().flat_map(|one| {
        matches!(one, '"' | '\\' | '`' | '$').then_some('\\').into_iter().chain([one])
    });
    format!("\"{}\"", escaped.collect::<String>())
}

/// A unit file without its comments: a machine takes 16 KB in all.
fn unit(text: &str) -> String {
    let kept = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    kept.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bootstrap() -> Bootstrap<'static> {
        Bootstrap {
            job_root: "s3://bucket/jobs",
            job_root_region: Some("us-east-1"),
            region: "eu-west-1",
            agent_url: "https://bucket.s3.eu-west-1.amazonaws.com/agents/a/lamp-agent?X-Amz-Signature=0",
            agent_sha256: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            box_endpoint: None,
            boot: crate::job::BOOT,
        }
    }

    #[test]
    fn script_fits_a_machine() {
        // Temporary credentials make a presigned URL long: their session token is in it.
        let url = format!(
            "https://bucket.s3.eu-west-1.amazonaws.com/agents/a/lamp-agent?X-Amz-Security-Token={}",
            "A".repeat(2500)
        );
        let text = Bootstrap {
            agent_url: &url,
            box_endpoint: Some(BoxEndpoint::All("http://169.254.169.253:5000")),
            ..bootstrap()
        }
        .user_data()
        .unwrap();
        assert!(text.len() <= 14 * 1024, "{} bytes: leave some room", text.len());
        assert!(text.starts_with("#!/bin/sh\n") && text.contains("Description=Lamplighter agent"));
        let long = "s3://b/".to_owned() + &"x".repeat(USER_DATA_BYTES_MAX);
        assert!(matches!(
            Bootstrap { job_root: &long, ..bootstrap() }.user_data(),
            Err(BootstrapError::TooLong { .. })
        ));
    }

    #[test]
    fn equal_settings_give_equal_bytes() {
        assert_eq!(bootstrap().user_data(), bootstrap().user_data());
    }

    #[test]
    fn invalid_setting_is_refused() {
        let control = |bootstrap: Bootstrap<'_>| bootstrap.user_data().unwrap_err();
        assert_eq!(
            control(Bootstrap { job_root: "s3://b/a\nb", ..bootstrap() }),
            BootstrapError::ControlCharacter { what: "job root" }
        );
        assert_eq!(
            control(Bootstrap { agent_url: "http://a\0", ..bootstrap() }),
            BootstrapError::ControlCharacter { what: "agent's URL" }
        );
        assert!(matches!(
            control(Bootstrap { agent_sha256: "ABC", ..bootstrap() }),
            BootstrapError::NotASum(_)
        ));
    }

    /// The switch is armed before anything is fetched, and the agent is checked before it may run.
    #[test]
    fn switch_is_armed_before_the_download() {
        let text = bootstrap().user_data().unwrap();
        let at = |needle: &str| text.find(needle).unwrap_or_else(|| panic!("no `{needle}`"));
        let steps = [
            "put \"$deadline\"",
            "enable --now lamp-deadman.timer",
            "put /etc/lamplighter/agent.env",
            "if ! fetch",
            "elif is_agent \"$new\"",
        ];
        let after = ["chmod 755 \"$new\"", "enable lamp-agent.service"];
        let places: Vec<usize> = steps.iter().chain(&after).map(|step| at(step)).collect();
        assert!(places.is_sorted(), "{places:?}");
    }

    /// It is the beginning of the whole script, and has no text about the agent.
    #[test]
    fn trial_arms_the_switch_and_fetches_nothing() {
        let of =
            |switch| of_trial(&Trial { switch, lease: Span::from_secs(120) }, Span::from_secs(840));
        let (unit, sweep) = (of(Switch::DeadlineUnit), of(Switch::Sweep));
        for (text, armed) in [(&unit, "boot_secs='120'"), (&sweep, "boot_secs='1440'")] {
            assert!(
                text.contains(armed) && text.contains("enable --now lamp-deadman.timer"),
                "{text}"
            );
        }
        assert!(
            bootstrap().user_data().unwrap().contains(SWITCH),
            "it is the switch of every machine"
        );
        for word in ["curl", "agent_url", "agent_env", "fetch"] {
            assert!(!unit.contains(word) && !sweep.contains(word), "{word}");
        }
    }

    /// Comments go, settings stay; a line that continues is whole.
    #[test]
    fn units_match_their_files() {
        for text in [DEADMAN_SERVICE, DEADMAN_TIMER, BOOT_SERVICE, AGENT_SERVICE] {
            let told = |text: &str| {
                text.lines()
                    .filter(|line| !line.starts_with('#') && !line.is_empty())
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            assert_eq!(told(&unit(text)), told(text));
            assert!(
                !text
                    .lines()
                    .any(|line| line.trim_start().starts_with('#') && !line.starts_with('#')),
                "an indented comment would stay"
            );
        }
    }
}
