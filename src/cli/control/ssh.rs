//! `lamp ssh`: opens a shell on a job's machine through Session Manager, without a key or an open
//! port. If a key is named, it uses the key.
//!
//! ```text
//!   the machine has a key pair, its file is here, it has a public address ──> ssh -i FILE
//!   else ──────────────────────────────────────────────────────────────────> aws ssm start-session
//! ```
//!
//! The AWS CLI (with its plugin) or OpenSSH runs the session: a client of our own would need
//! upkeep. This module must never read a secret or open a port.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use clap::Args as ClapArgs;
use serde_json::json;

use crate::app::find_job;
use crate::app::gang::gang_jobs::find_rank;
use crate::app::record_errors;
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault};
use crate::job::LaunchRequest;
use crate::jobdir::JobDir;
use crate::market::{CloudKind, Region};

/// Open a shell on the machine of a job, through Session Manager
///
/// Works without a key or an open port. Needs the AWS CLI with its Session Manager plugin here,
/// once `lamp init aws --session-manager`, and for a user who is no administrator the policy that
/// `lamp iam session` prints (docs/aws.md). Where `aws.key_name` named a key pair when the machine
/// was launched, and its file is here, `ssh` is used instead: that needs port 22 open to you.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A job: its id, the beginning of it, or its name [default: the newest]
    pub job: Option<String>,

    /// The machine of this rank of several [default: rank 0]
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,

    /// Print the command instead of running it
    #[arg(long)]
    pub print: bool,

    /// The key pair's private key [default: ~/.ssh/NAME.pem, or ~/.ssh/NAME]
    #[arg(long, value_name = "FILE", conflicts_with = "session_manager")]
    pub key: Option<PathBuf>,

    /// The user name on the machine, with a key [default: by its image]
    #[arg(long, value_name = "NAME", conflicts_with = "session_manager")]
    pub user: Option<String>,

    /// Through Session Manager, also where a key is named
    #[arg(long)]
    pub session_manager: bool,

    /// A command for the machine, instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

struct SshTarget {
    instance: String,
    region: Region,
    launch: Option<LaunchRequest>,
}

#[derive(Debug)]
struct ByKey {
    file: PathBuf,
    user: String,
    address: String,
}

/// TCP itself would wait longer for a machine that does not answer.
const CONNECT_SECS: u32 = 10;

/// # Errors
/// Fails when the job has no machine now, its machine is this workstation, or the AWS CLI is
/// missing.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let dir = match args.rank {
        Some(_) => find_rank(&store, args.job.as_deref(), args.rank).await?,
        None => find_job::find(&store, args.job.as_deref()).await?,
    };
    let target = target(context, &dir).await?;
    let by_key = by_key(args, context, &target).await?;
    let argv = match &by_key {
        Some(by_key) => secure_shell(&target, by_key, &args.command),
        None => session(&target, context.config.user.aws.profile.as_deref(), &args.command),
    };
    if context.is_machine_output() {
        context.printer.json(&json!({ "job": dir.job(), "instance": target.instance, "region": target.region, "argv": argv }));
        return Ok(ExitCode::SUCCESS);
    }
    if args.print {
        context
            .printer
            .line(argv.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" "));
        return Ok(ExitCode::SUCCESS);
    }
    context.printer.note(format!(
        "a session on {} in {}; `exit` ends it, the job goes on",
        target.instance, target.region
    ));
    if by_key.is_some() {
        context.printer.hint("if nothing answers: port 22 of its security group must be open to you; --session-manager needs no port");
    } else {
        context.printer.hint("if it is not connected: `lamp init aws --session-manager` lets shells in, once, and the image needs the SSM agent");
    }
    let error = Command::new(&argv[0]).args(&argv[1..]).exec();
    if by_key.is_some() {
        return Err(Fault::new(ExitCode::UNREACHABLE, "cannot start `ssh`")
            .because(&error)
            .meaning("the job was not touched")
            .hint("install OpenSSH's client, or say --session-manager"));
    }
    Err(Fault::new(ExitCode::UNREACHABLE, "cannot start the AWS CLI")
        .because(&error)
        .meaning("the job was not touched")
        .hint("install it with its Session Manager plugin; `lamp ssh --print` shows what would be run"))
}

async fn target(context: &Context, dir: &JobDir) -> Result<SshTarget, Fault> {
    let fault = |error| record_errors::record_fault(&error);
    find_job::must_be_under_way(dir).await?;
    let none = || {
        Fault::new(ExitCode::NOT_FOUND, format!("job `{}` has no machine now", dir.job())).hint(
            format!("`lamp status {0}` shows how it stands, `lamp explain {0}` why", dir.job()),
        )
    };
    let attempt = dir.attempts().await.map_err(fault)?.pop().ok_or_else(none)?;
    let (plan, settled, lease) =
        tokio::join!(dir.plan(attempt), dir.settled(attempt), dir.lease(attempt));
    let plan = plan.map_err(fault)?.ok_or_else(none)?;
    if plan.offer.cloud == CloudKind::Local {
        let what = format!(
            "job `{}` runs on a workstation, {}, not on a machine of its own",
            dir.job(),
            plan.offer.zone
        );
        let follow = format!("`lamp logs -f {}` follows it", dir.job());
        let instance = lease.ok().flatten().map(|lease| lease.instance);
        let folder = instance
            .and_then(|instance| job_root::workstation(context).ok()?.work_folder(&instance));
        let hint = folder.map_or_else(
            || follow.clone(),
            |folder| format!("its work is here, in {}; {follow}", folder.display()),
        );
        return Err(Fault::new(ExitCode::REFUSED, what).hint(hint));
    }
    if settled.map_err(fault)?.is_some() {
        return Err(none());
    }
    let lease = lease.map_err(fault)?.ok_or_else(|| {
        Fault::new(
            ExitCode::NOT_FOUND,
            format!("the machine of job `{}` has not said its name yet: it is booting", dir.job()),
        )
        .hint("try again in a minute")
    })?;
    Ok(SshTarget { instance: lease.instance, region: plan.offer.region, launch: plan.launch })
}

/// The connection with a key. `None`: without a named key, or if it does not fit this machine,
/// which is reported.
async fn by_key(
    args: &Args,
    context: &Context,
    target: &SshTarget,
) -> Result<Option<ByKey>, Fault> {
    let named = target.launch.as_ref().and_then(|launch| launch.key_name.as_deref());
    if args.session_manager || (named.is_none() && args.key.is_none()) {
        return Ok(None);
    }
    let Some(file) = args.key.clone().or_else(|| key_file(context, named?)) else {
        let name = named.unwrap_or_default();
        context
            .printer
            .note(format!("the key pair `{name}` has no file ~/.ssh/{name}.pem here, so this goes through Session Manager; --key names a file"));
        return Ok(None);
    };
    let workstation = job_root::workstation(context)?;
    let address =
        workstation.ec2_address(&target.region, &target.instance).await.map_err(|error| {
            Fault::new(
                ExitCode::UNREACHABLE,
                format!("the address of {} is not known", target.instance),
            )
            .because(&*error)
            .meaning("the job was not touched")
            .hint("--session-manager needs no address")
        })?;
    let Some(address) = address else {
        context.printer.note(format!(
            "{} has no public address, so this goes through Session Manager",
            target.instance
        ));
        return Ok(None);
    };
    let image = target.launch.as_ref().and_then(|launch| launch.image_name.as_deref());
    let user = args.user.clone().unwrap_or_else(|| login(image).to_owned());
    Ok(Some(ByKey { file, user, address }))
}

/// Where EC2's documentation says to keep it.
fn key_file(context: &Context, name: &str) -> Option<PathBuf> {
    let folder = context.environment.home.as_ref()?.join(".ssh");
    [format!("{name}.pem"), name.to_owned()]
        .into_iter()
        .map(|name| folder.join(name))
        .find(|path| path.is_file())
}

/// The user that the makers of an image install the key for.
fn login(image: Option<&str>) -> &'static str {
    let is = |word: &str| image.is_some_and(|image| image.to_lowercase().contains(word));
    if is("ubuntu") {
        "ubuntu"
    } else if is("debian") {
        "admin"
    } else {
        "ec2-user"
    }
}

/// The address may have been another machine's, so the host key is stored under the instance id.
fn secure_shell(target: &SshTarget, by_key: &ByKey, command: &[String]) -> Vec<String> {
    let mut argv = vec!["ssh".to_owned(), "-i".into(), by_key.file.display().to_string()];
    let connect = format!("ConnectTimeout={CONNECT_SECS}");
    let alias = format!("HostKeyAlias={}", target.instance);
    for option in ["IdentitiesOnly=yes", "StrictHostKeyChecking=accept-new", &connect, &alias] {
        argv.extend(["-o".into(), option.to_owned()]);
    }
    argv.push(format!("{}@{}", by_key.user, by_key.address));
    if !command.is_empty() {
        argv.push(command.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" "));
    }
    argv
}

/// The arguments of the session. A command runs as AWS's interactive-command document, which gives
/// it a terminal too.
fn session(target: &SshTarget, profile: Option<&str>, command: &[String]) -> Vec<String> {
    let mut argv: Vec<String> =
        ["aws", "ssm", "start-session", "--target"].map(str::to_owned).to_vec();
    argv.extend([target.instance.clone(), "--region".into(), target.region.to_string()]);
    argv.extend(
        profile.into_iter().flat_map(|profile| ["--profile".to_owned(), profile.to_owned()]),
    );
    if !command.is_empty() {
        let line = command.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ");
        let parameters = json!({ "command": [line] }).to_string();
        argv.extend([
            "--document-name".into(),
            "AWS-StartInteractiveCommand".into(),
            "--parameters".into(),
            parameters,
        ]);
    }
    argv
}

fn shell_word(word: &str) -> String {
    let plain = !word.is_empty()
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=@,+".contains(c));
    if plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_names_the_machine_and_carries_the_command_whole() {
        let target =
            SshTarget { instance: "i-1".into(), region: Region::new("us-east-2"), launch: None };
        assert_eq!(
            session(&target, None, &[]).join(" "),
            "aws ssm start-session --target i-1 --region us-east-2"
        );
        let words = session(&target, Some("lab"), &["echo".into(), "it's \"it\"".into()]);
        assert_eq!(words[7..9], ["--profile".to_owned(), "lab".to_owned()]);
        let by_key = ByKey {
            file: "/k.pem".into(),
            user: login(Some("Ubuntu 22.04")).into(),
            address: "1.2.3.4".into(),
        };
        let words = secure_shell(&target, &by_key, &["echo".into(), "a b".into()]);
        assert_eq!(words[..3], ["ssh", "-i", "/k.pem"].map(str::to_owned));
        assert_eq!(words[words.len() - 2..], ["ubuntu@1.2.3.4", "echo 'a b'"].map(str::to_owned));
        assert_eq!([login(None), login(Some("al2023-ami"))], ["ec2-user"; 2]);
        let words = session(&target, Some("lab"), &["echo".into(), "it's \"it\"".into()]);
        let parameters: serde_json::Value = serde_json::from_str(words.last().unwrap()).unwrap();
        assert_eq!(parameters["command"][0], r#"echo 'it'\''s "it"'"#);
    }
}
