//! `--then CMD` and `--then exit`: the last action of an agent that runs alone, instead of a
//! power-off.
//!
//! Not here: a power-off.

use std::process::Stdio;

use async_trait::async_trait;
use tokio::process::Command;

use crate::ports::{Power, PowerError, PowerOff};

/// Programs that run another program, which is checked too.
const RUNNERS: [&str; 5] = ["sudo", "doas", "exec", "nohup", "command"];

/// Whether a program exists. For a path, some shells accept any file.
const FIND: &str =
    r#"case "$1" in */*) test -x "$1" && ! test -d "$1" ;; *) command -v -- "$1" ;; esac"#;

/// Why a command cannot work, as far as this is known without running it.
#[derive(Debug, thiserror::Error)]
pub enum CannotWork {
    #[error("there is no program `{0}` that could be executed")]
    NoProgram(String),
    #[error("the shell does not understand `{command}`: {said}")]
    Syntax { command: String, said: String },
    #[error("a command is missing")]
    Empty,
}

/// Asks the shell, which knows its own words and the user's PATH.
///
/// # Errors
/// If the command is empty, has a syntax error, or begins with a missing program.
pub fn check(command: &str) -> Result<(), CannotWork> {
    if command.trim().is_empty() {
        return Err(CannotWork::Empty);
    }
    let shell = |words: &[&str]| {
        std::process::Command::new("/bin/sh").args(words).stdin(Stdio::null()).output()
    };
    // Without a shell there is no answer; the run itself will fail then.
    if let Ok(parsed) = shell(&["-n", "-c", command])
        && !parsed.status.success()
    {
        let said = String::from_utf8_lossy(&parsed.stderr).trim().replace('\n', "; ");
        return Err(CannotWork::Syntax { command: command.to_owned(), said });
    }
    for program in programs(command) {
        if shell(&["-c", FIND, "sh", program]).is_ok_and(|found| !found.status.success()) {
            return Err(CannotWork::NoProgram(program.to_owned()));
        }
    }
    Ok(())
}

/// The first program of a command, and the program that it runs if it is a runner. Words that the
/// shell expands (quotes, variables, redirections, lists) are not checked.
fn programs(command: &str) -> Vec<&str> {
    let assigns = |word: &str| {
        word.split_once('=').is_some_and(|(name, _)| {
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        })
    };
    let mut found = Vec::new();
    for word in command.split_whitespace().skip_while(|word| assigns(word)) {
        // `;` ends the first command; the word before it belongs to it.
        let bare = word.trim_end_matches(';');
        if bare.is_empty()
            || bare.starts_with('-')
            || bare.contains(|letter: char| "\"'$`\\(){}<>|&;*?[]~#!=".contains(letter))
        {
            break;
        }
        found.push(bare);
        if bare != word || !RUNNERS.contains(&bare) {
            break;
        }
    }
    found
}

/// `--then CMD`: runs the user's command in a shell, with the reason in `LAMP_REASON`.
#[derive(Clone, Debug)]
pub struct ThenCommand(pub String);

impl ThenCommand {
    fn failed(&self, how: String) -> PowerError {
        PowerError::Then { command: self.0.clone(), how }
    }
}

#[async_trait]
impl Power for ThenCommand {
    async fn off(&self, _how: PowerOff, why: &str) -> Result<(), PowerError> {
        let status = Command::new("/bin/sh")
            .args(["-c", &self.0])
            .env("LAMP_REASON", why)
            .stdin(Stdio::null())
            .status()
            .await;
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(self.failed(match status.code() {
                Some(code) => format!("ended with exit code {code}"),
                None => format!("was ended by a signal ({status})"),
            })),
            Err(error) => Err(self.failed(format!("did not start: {error}"))),
        }
    }
}

/// `--then exit`: the machine stays on.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThenExit;

#[async_trait]
impl Power for ThenExit {
    async fn off(&self, _how: PowerOff, why: &str) -> Result<(), PowerError> {
        tracing::info!(why, "done; the machine stays on");
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test reads what the commands wrote")]
mod tests {
    use super::*;

    #[test]
    fn command_that_cannot_work_is_found_before_it_is_needed() {
        for good in [
            "true",
            "exit 4",
            "sudo -n true",
            "A=1 true; nonsense",
            "if true; then :; fi",
            "\"$HOME/x\" y",
            "(true)",
            "echo \"$LAMP_REASON\" > f",
            "/bin/sh -c x",
        ] {
            // A machine without sudo cannot check these commands.
            if !good.starts_with("sudo") || check("sudo").is_ok() {
                assert!(check(good).is_ok(), "{good}: {:?}", check(good));
            }
        }
        for (bad, said) in [
            ("powerof", "there is no program `powerof` that could be executed"),
            ("./no-such-script --now", "there is no program `./no-such-script`"),
            ("exec powerrof", "there is no program `powerrof`"),
            ("/etc/passwd", "there is no program `/etc/passwd`"),
            ("echo 'x", "the shell does not understand `echo 'x`"),
            ("  ", "a command is missing"),
        ] {
            let problem = check(bad).expect_err(bad).to_string();
            assert!(problem.starts_with(said), "{problem}");
        }
    }

    #[tokio::test]
    async fn command_of_the_users_learns_the_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("why");
        let then = ThenCommand(format!("printf %s \"$LAMP_REASON\" > '{}'", file.display()));
        then.off(PowerOff::Stop, "idle for 15m").await.expect("it works");
        assert_eq!(std::fs::read_to_string(&file).expect("written"), "idle for 15m");
        let failed =
            ThenCommand("exit 3".into()).off(PowerOff::Stop, "x").await.expect_err("it fails");
        assert_eq!(
            failed.to_string(),
            "the command of `--then` failed: `exit 3` ended with exit code 3"
        );
        ThenExit.off(PowerOff::Terminate, "x").await.expect("nothing to fail");
    }
}
