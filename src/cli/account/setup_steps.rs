//! Shared by `lamp init aws` and `lamp uninit aws`: the table, the question, and the steps.

use std::io::IsTerminal;

use crate::account::setup::{SetupNames, bucket_of, with_slash};
use crate::app::launch::region_hint;
use crate::cli::output::printer::{Stream, Style};
use crate::cli::output::progress::with_progress;
use crate::cli::shell::ctrl_c;
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault, Give, render_table_within};
use crate::config::config_edit::{Edited, Setting};
use crate::policy::account::setup_plan::SetupLine;
use crate::wire::setup::{AwsSetup, SetupError, SetupWish, read_user_file, replace_user_file};

/// The flags of `init aws` and `uninit aws`.
#[derive(Clone, Debug, clap::Args)]
pub struct SetupArgs {
    /// The bucket [default: the bucket of the job root, else lamplighter-ACCOUNT-REGION]
    #[arg(long, value_name = "NAME")]
    pub bucket: Option<String>,

    /// Where in the bucket jobs are kept [default: at its top]
    #[arg(long, value_name = "PATH")]
    pub prefix: Option<String>,

    /// Where machines may be bought, several with commas; the bucket is in the first [default:
    /// `regions` in [aws] of the configuration, else AWS_REGION, else the region of the profile]
    #[arg(long, value_name = "REGION", value_delimiter = ',')]
    pub region: Vec<String>,

    /// Show what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

/// Why S3 refuses this bucket name; `None` for a valid one.
fn wrong_bucket(name: &str) -> Option<&'static str> {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if !(3..=63).contains(&name.len()) {
        Some("it has fewer than 3 or more than 63 characters")
    } else if name.chars().any(|c| !is_end(c) && c != '-' && c != '.') {
        Some("it has capitals, blanks or other signs")
    } else if !name.starts_with(is_end) || !name.ends_with(is_end) || name.contains("..") {
        Some("it begins or ends with a hyphen or a dot, or has two dots side by side")
    } else if name.parse::<std::net::Ipv4Addr>().is_ok() {
        Some("it is an address")
    } else if ["xn--", "sthree-", "amzn-s3-demo-"].iter().any(|first| name.starts_with(first))
        || ["-s3alias", "--ol-s3"].iter().any(|last| name.ends_with(last))
    {
        Some("S3 keeps its beginning or its end to itself")
    } else {
        None
    }
}

/// Asks AWS for the identity.
///
/// # Errors
/// Fails without credentials or a region, or when AWS does not answer.
pub async fn open(
    context: &Context,
    place: &SetupArgs,
    session_manager: bool,
    gangs: bool,
) -> Result<AwsSetup, Fault> {
    let (bucket, prefix) = bucket_of(&context.roots.url)
        .map_or((None, String::new()), |(bucket, prefix)| (Some(bucket), prefix));
    // The prefix of the job root applies only to its own bucket.
    let prefix =
        if place.bucket.is_some() && place.bucket != bucket { String::new() } else { prefix };
    let wish = SetupWish {
        owner: context.config.user.owner.clone(),
        bucket: place.bucket.clone().or(bucket),
        prefix: place.prefix.as_deref().map_or(prefix, with_slash),
        regions: place.region.clone(),
        session_manager,
        gangs,
        secrets: context.config.user.aws.secrets(),
        sweeper_binary: context.environment.sweeper_binary.clone(),
    };
    for unknown in place.region.iter().filter_map(|name| region_hint::unknown(name)) {
        context.printer.warn(unknown);
    }
    if let Some((name, wrong)) =
        wish.bucket.as_ref().and_then(|name| Some((name, wrong_bucket(name)?)))
    {
        return Err(Fault::new(ExitCode::USAGE, format!("`{name}` cannot be the name of a bucket: {wrong}"))
            .meaning("nothing was changed")
            .hint("3 to 63 small letters, digits, hyphens and dots, with a letter or a digit at both ends, as in `--bucket my-lamp-jobs`"));
    }
    let session = job_root::workstation(context)?.aws_session();
    let opened =
        with_progress(context, || "asking AWS who we are".to_owned(), AwsSetup::new(session, wish))
            .await;
    opened.map_err(|error| {
        let hint = match error.act.as_str() {
            _ if error.fix.is_some() => error.fix.as_deref().unwrap_or_default(),
            _ if error.unsaid => {
                "--region names one; so do AWS_REGION, and `regions` in [aws] of the configuration"
            }
            _ => "`aws sts get-caller-identity` must answer; `lamp doctor` says what is missing",
        };
        let slip = if error.fix.is_none() { region_hint::hint(&error.to_string()) } else { None };
        fault(&error).meaning("nothing was changed").hint(slip.unwrap_or_else(|| hint.to_owned()))
    })
}

pub fn fault(error: &SetupError) -> Fault {
    // A missing argument is a usage error, as in `lamp iam`.
    Fault::new(
        if error.unsaid { ExitCode::USAGE } else { ExitCode::UNREACHABLE },
        error.to_string(),
    )
}

pub fn show(context: &Context, setup: &AwsSetup, lines: &[SetupLine]) {
    if context.is_machine_output() {
        return;
    }
    let names = &setup.names;
    context.printer.line(format!(
        "account {}, owner {}, {}",
        setup.account,
        names.owner,
        names.regions.join(", ")
    ));
    let rows: Vec<Vec<String>> = lines
        .iter()
        .map(|line| vec![line.thing.clone(), line.found.clone(), line.will()])
        .collect();
    let table = table(context.printer.columns(Stream::Out), &rows);
    for (at, row) in table.lines().enumerate() {
        context.printer.line(if at == 0 {
            context.printer.paint(Stream::Out, Style::Bold, row)
        } else {
            row.to_owned()
        });
    }
    for line in lines {
        if let Some(remark) = &line.remark {
            context.printer.warn(format!("{}: {remark}", line.thing));
        }
    }
}

/// The column `what will be done` is cut last.
fn table(width: Option<usize>, rows: &[Vec<String>]) -> String {
    render_table_within(
        width,
        &["thing", "what is there", "what will be done"],
        rows,
        &[],
        Give { cut: &[1, 0, 2], go: &[] },
    )
}

/// # Errors
/// Fails when one line blocks all others.
pub fn refuse_blocked(lines: &[SetupLine]) -> Result<(), Fault> {
    let Some(line) = lines.iter().find(|line| line.blocks) else { return Ok(()) };
    let why = line.remark.clone().unwrap_or_default();
    let fault = Fault::new(ExitCode::REFUSED, format!("{}: {why}", line.thing))
        .meaning("nothing was changed");
    Err(match region_hint::hint(&line.thing) {
        Some(slip) => fault.hint(slip),
        None => fault,
    })
}

/// Asks on a terminal; without one, only `--yes` confirms. The user must type `word`.
///
/// # Errors
/// Fails without a terminal, or when the answer differs.
pub fn confirm(context: &Context, question: &str, word: &str) -> Result<(), Fault> {
    let refused = |what: &str| Fault::new(ExitCode::REFUSED, what).meaning("nothing was changed");
    if !std::io::stdin().is_terminal() {
        return Err(refused("nobody is here to ask")
            .hint("--yes does it without a question, --dry-run shows what it would do"));
    }
    let Some(answer) = ctrl_c::line_or_left(|| context.printer.raw_err(&format!("{question} ")))
    else {
        return Err(ctrl_c::left_at_the_question("nothing was changed"));
    };
    if answer.trim().eq_ignore_ascii_case(word) { Ok(()) } else { Err(refused("not confirmed")) }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carried {
    All,
    /// Another process made this thing after the look. The steps after it were not begun.
    Overtaken(String),
}

/// Runs the steps in order: each needs the one before.
///
/// # Errors
/// Fails when AWS refuses a step. The steps before it stay done.
pub async fn carry_out(
    context: &Context,
    setup: &AwsSetup,
    lines: &[SetupLine],
    again: &str,
) -> Result<Carried, Fault> {
    for line in lines {
        for step in &line.steps {
            let told = || format!("{}: {}", line.thing, step.words());
            let done = with_progress(context, told, setup.act(step)).await;
            if done.as_ref().is_err_and(|error| error.overtaken) {
                return Ok(Carried::Overtaken(line.thing.clone()));
            }
            done.map_err(|error| {
                fault(&error)
                    .meaning("what was done before it stays")
                    .hint(format!("`{again}` goes on where it stopped"))
            })?;
        }
        if !line.steps.is_empty() {
            context.printer.note(format!("{}: done ({})", line.thing, line.will()));
        }
    }
    Ok(Carried::All)
}

/// `adds_regions`: the user named regions, so they are added to the existing ones.
pub fn settings(names: &SetupNames, adds_regions: bool) -> Vec<Setting> {
    let regions: toml_edit::Array = names.regions.iter().collect();
    vec![
        Setting::new(None, "job_root", names.job_root()),
        Setting::new(Some("aws"), "regions", regions).adding(adds_regions),
        Setting::new(Some("aws"), "instance_profile", names.role.clone()),
        Setting::new(Some("aws"), "security_group", names.group.clone()),
    ]
}

/// The edited configuration. `None`: its path is unknown.
///
/// # Errors
/// Fails when it cannot be read or is not TOML.
pub fn edited(
    context: &Context,
    edit: impl FnOnce(&str) -> Result<Edited, toml_edit::TomlError>,
) -> Result<Option<Edited>, Fault> {
    let Some(path) = context.environment.user_config_path() else { return Ok(None) };
    let refused = |error: &(dyn std::error::Error + 'static)| {
        Fault::new(
            ExitCode::UNREACHABLE,
            format!("cannot read the configuration `{}`", path.display()),
        )
        .because(error)
        .meaning("nothing was changed")
    };
    let text = read_user_file(&path).map_err(|error| refused(&error))?;
    edit(&text).map(Some).map_err(|error| refused(&error))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigChange {
    Added,
    TakenOut,
}

/// Writes the configuration, or prints the lines that the user should write.
pub fn write(context: &Context, lines: ConfigChange, edited: Option<&Edited>, all: &[Setting]) {
    let printer = &context.printer;
    let shown = context
        .environment
        .user_config_path()
        .map(|path| path.display().to_string())
        .unwrap_or_default();
    let by_hand =
        |lines: &[String]| lines.iter().for_each(|line| printer.hint(format!("`{line}`")));
    let Some(edited) = edited else {
        if lines == ConfigChange::TakenOut {
            return;
        }
        printer.warn("nothing says where the configuration is; it should say");
        return by_hand(&all.iter().map(Setting::line).collect::<Vec<_>>());
    };
    if !edited.changed.is_empty() {
        let path = context.environment.user_config_path().unwrap_or_default();
        match replace_user_file(&path, &edited.text) {
            Ok(()) => printer.note(match lines {
                ConfigChange::Added => {
                    format!("written into {shown}: {}", edited.changed.join(", "))
                }
                ConfigChange::TakenOut => {
                    format!("taken out of {shown}: {}", edited.changed.join(", "))
                }
            }),
            Err(error) => {
                let should = if lines == ConfigChange::Added {
                    "it should say"
                } else {
                    "it should no longer say"
                };
                printer.warn(format!("cannot write `{shown}` ({error}); {should}"));
                by_hand(&edited.changed);
            }
        }
    }
    if !edited.kept.is_empty() {
        printer.warn(format!(
            "{shown} says otherwise, and stays as it is; for this set-up it would say"
        ));
        by_hand(&edited.kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_of_80_columns_holds_what_is_set_up() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [
            row([
                "bucket lamplighter-123456789012-us-east-1",
                "not there",
                "create, version, close, encrypt, tidy",
            ]),
            row(["service-linked roles", "of the whole account, free", "nothing"]),
        ];
        let text = table(Some(80), &rows);
        assert!(text.lines().all(|line| crate::cli::output::wrap::columns(line) <= 80), "{text}");
        assert!(text.contains("create, version, close, encrypt, tidy"), "{text}");
    }
}
