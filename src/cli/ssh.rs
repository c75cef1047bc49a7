//! `lamp ssh`: a shell on the machine of a job, through Session Manager: no key, no open port.
//!
//! The session itself is the AWS CLI's (`aws ssm start-session` with its plugin): one more client of that protocol would be
//! one more to keep. What must never live here: a secret, or a port that is opened.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use clap::Args as ClapArgs;
use serde_json::json;

use super::{Context, ExitCode, Fault, job_root};
use crate::jobdir::JobDir;
use crate::market::{Cloud, Region};

/// Open a shell on the machine of a job, through Session Manager
///
/// No key and no open port. Needs the AWS CLI with its Session Manager plugin here, and the policy
/// AmazonSSMManagedInstanceCore on the machines' role (docs/aws.md).
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A job: its id, the beginning of it, or its name [default: the newest]
    pub job: Option<String>,

    /// Print the command instead of running it
    #[arg(long)]
    pub print: bool,

    /// A command for the machine, instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// The machine of the attempt under way.
struct Target {
    instance: String,
    region: Region,
}

/// # Errors
/// The job has no machine now, its machine is this workstation, or the AWS CLI is not here.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let dir = job_root::find(&store, args.job.as_deref()).await?;
    let target = target(&dir).await?;
    let argv = session(&target, context.user.aws.profile.as_deref(), &args.command);
    if context.is_machine_output() {
        context.printer.json(&json!({ "job": dir.job(), "instance": target.instance, "region": target.region, "argv": argv }));
        return Ok(ExitCode::SUCCESS);
    }
    if args.print {
        context.printer.line(argv.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" "));
        return Ok(ExitCode::SUCCESS);
    }
    context.printer.note(format!("a session on {} in {}; `exit` ends it, the job goes on", target.instance, target.region));
    let error = Command::new(&argv[0]).args(&argv[1..]).exec();
    Err(Fault::new(ExitCode::UNREACHABLE, "cannot start the AWS CLI")
        .because(&error)
        .meaning("the job was not touched")
        .hint("install it with its Session Manager plugin; `lamp ssh --print` shows what would be run"))
}

async fn target(dir: &JobDir) -> Result<Target, Fault> {
    let fault = |error| job_root::record_fault(&error);
    job_root::must_be_under_way(dir).await?;
    let none = || {
        Fault::new(ExitCode::NOT_FOUND, format!("job `{}` has no machine now", dir.job()))
            .hint(format!("`lamp status {0}` shows how it stands, `lamp explain {0}` why", dir.job()))
    };
    let attempt = dir.attempts().await.map_err(fault)?.pop().ok_or_else(none)?;
    let (plan, settled, lease) = tokio::join!(dir.plan(attempt), dir.settled(attempt), dir.lease(attempt));
    let plan = plan.map_err(fault)?.ok_or_else(none)?;
    if plan.offer.cloud == Cloud::Local {
        return Err(Fault::new(
            ExitCode::REFUSED,
            format!("job `{}` runs on a workstation, {}, not on a machine of its own", dir.job(), plan.offer.zone),
        )
        .hint(format!("`lamp logs -f {}` follows it", dir.job())));
    }
    if settled.map_err(fault)?.is_some() {
        return Err(none());
    }
    let lease = lease.map_err(fault)?.ok_or_else(|| {
        Fault::new(ExitCode::NOT_FOUND, format!("the machine of job `{}` has not said its name yet: it is booting", dir.job()))
            .hint("try again in a minute")
    })?;
    Ok(Target { instance: lease.instance, region: plan.offer.region })
}

/// The words of the session. A command runs as AWS's interactive-command document, which gives it a terminal too.
fn session(target: &Target, profile: Option<&str>, command: &[String]) -> Vec<String> {
    let mut argv: Vec<String> = ["aws", "ssm", "start-session", "--target"].map(str::to_owned).to_vec();
    argv.extend([target.instance.clone(), "--region".into(), target.region.to_string()]);
    argv.extend(profile.into_iter().flat_map(|profile| ["--profile".to_owned(), profile.to_owned()]));
    if !command.is_empty() {
        let line = command.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ");
        let parameters = json!({ "command": [line] }).to_string();
        argv.extend(["--document-name".into(), "AWS-StartInteractiveCommand".into(), "--parameters".into(), parameters]);
    }
    argv
}

/// One word for a shell.
fn shell_word(word: &str) -> String {
    let plain = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=@,+".contains(c));
    if plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_names_the_machine_and_carries_the_command_whole() {
        let target = Target { instance: "i-1".into(), region: Region::new("us-east-2") };
        assert_eq!(session(&target, None, &[]).join(" "), "aws ssm start-session --target i-1 --region us-east-2");
        let words = session(&target, Some("lab"), &["echo".into(), "it's \"it\"".into()]);
        assert_eq!(words[7..9], ["--profile".to_owned(), "lab".to_owned()]);
        let parameters: serde_json::Value = serde_json::from_str(words.last().unwrap()).unwrap();
        assert_eq!(parameters["command"][0], r#"echo 'it'\''s "it"'"#);
    }
}
