//! The command line of `lamp-agent` (and of `lamp agent`): parses arguments to a [`Call`].
//!
//! Parsed with lexopt, because the agent must stay small. `wire` carries the call out.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use crate::job::{GpuSelection, ListenAddress};
use crate::market::Span;

#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    Help,
    Version,
    /// The agent of a machine that a controller launched.
    Boot(BootSource),
    /// A user's own workload, without a controller.
    Run(Alone),
    /// This machine, whatever runs on it.
    Watch(Alone),
    /// Internal: the process that holds a workload.
    Holder {
        dir: PathBuf,
        machine_pid: Option<u32>,
        /// The environment that the command inherits, in a file.
        environment: Option<PathBuf>,
    },
    /// Internal: one rank of a gang.
    Rank {
        source: RankSource,
        command: Vec<String>,
    },
    /// Internal: the process that acts as the machine on the local cloud.
    Machine {
        dir: PathBuf,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootSource {
    /// The folder of a machine of the local cloud.
    Local(PathBuf),
    /// This machine, identified by its metadata service; and what to do afterwards.
    Machine(Then),
}

/// Where a rank finds the records of its gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankSource {
    /// The folder of a machine of the local cloud names the job root.
    Local(PathBuf),
    JobRoot {
        url: String,
        region: Option<String>,
        endpoint: Option<String>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Alone {
    pub argv: Vec<String>,
    pub name: Option<String>,
    /// `None`: off.
    pub idle: Option<Span>,
    pub idle_grace: Option<Span>,
    pub stall: Option<Span>,
    pub max_runtime: Option<Span>,
    pub grace: Span,
    pub gpus: GpuSelection,
    pub log_pattern: Option<String>,
    /// Where it serves OpenMetrics; `None`: nowhere.
    pub metrics_listen: Option<ListenAddress>,
    pub then: Then,
    pub dry_run: bool,
    /// Where the run's records go; the default is under the user's state folder.
    pub state: Option<PathBuf>,
}

/// The action after the end. Only `--then poweroff` powers a machine off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    Exit,
    Poweroff,
    Command(String),
}

#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    #[error(transparent)]
    Syntax(#[from] lexopt::Error),
    #[error("{0}")]
    Wrong(String),
}

pub const HELP: &str = "\
lamp-agent: runs a command, watches it and the machine, and puts the machine out when the work is over

Usage:
  lamp-agent run [OPTIONS] -- COMMAND [ARG]...    run COMMAND; when it ends, idles or hangs, do what --then says
  lamp-agent watch [OPTIONS]                      watch this machine; when it idles, do what --then says
  lamp-agent boot                                 the agent of a machine that a controller launched: takes its job
                                                  from the machine's tags and LAMP_JOB_ROOT, and powers off at the end

Options:
  --idle SPAN|off         idle window: every known signal quiet this long (default 15m, `watch` 30m), and longer
                          while little is seen or known of the work: up to an hour, or three of its own pauses
  --idle-grace SPAN       no idle verdict before this time, unless the work was seen earlier (default 15m, `watch` 0s)
  --stall SPAN|off        no step, log line or checkpoint for this long (default 20m, `watch` off)
  --max-runtime SPAN      the most the run may take (default: no limit)
  --grace SPAN            from SIGTERM to SIGKILL (default 30s)
  --gpus LIST|all         which GPUs count, like 0,1 (default: those that COMMAND uses)
  --log-pattern REGEX     log lines that are progress; its first group is the step
  --metrics-listen ADDR   serve measurements as OpenMetrics at http://ADDR/metrics: a port of this machine, or an
                          address (default: nowhere)
  --then exit|poweroff|CMD  after the end: exit, power the machine off, or run CMD in the shell (default exit)
  --name NAME             a name for the run's records
  --state DIR             where the records go (default: lamplighter/agent in the user's state folder)
  --dry-run               say what would be done, and do nothing
  -h, --help              this text
  -V, --version           the version

A signal (Ctrl-C, SIGTERM) ends the run or the watching, and then --then is not done; a closed terminal ends nothing.
SPAN is a number with its unit: 30s, 15m, 2h, 3d.
`run` ends with COMMAND's own exit code, or 124 when it was ended for idling, stalling or a limit; with 2 when these words
are not understood, 102 when a run of this --name is alive, 1 when it cannot start. CMD finds the reason in LAMP_REASON.
";

/// # Errors
/// When an argument is not understood; the message says which.
pub fn parse(args: Vec<OsString>) -> Result<Call, UsageError> {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(args);
    let verb = match parser.next()? {
        None | Some(Short('h') | Long("help")) => return Ok(Call::Help),
        Some(Short('V') | Long("version")) => return Ok(Call::Version),
        Some(Value(verb)) => verb.string()?,
        Some(other) => return Err(other.unexpected().into()),
    };
    match verb.as_str() {
        "help" => Ok(Call::Help),
        "boot" => boot(parser),
        "run" => alone(parser, Alone::for_run()).and_then(|(alone, help)| match help {
            true => Ok(Call::Help),
            false if alone.argv.is_empty() => {
                Err(UsageError::Wrong("nothing to run: put the command after `--`".into()))
            }
            false => Ok(Call::Run(alone)),
        }),
        "watch" => alone(parser, Alone::for_watch()).and_then(|(alone, help)| match help {
            true => Ok(Call::Help),
            false if !alone.argv.is_empty() => {
                Err(UsageError::Wrong("`watch` takes no command; `run` does".into()))
            }
            false => Ok(Call::Watch(alone)),
        }),
        "holder" => holder(parser),
        "rank" => rank(parser),
        "machine" => Ok(Call::Machine { dir: parser.value()?.into() }),
        other => Err(UsageError::Wrong(format!(
            "`{other}` is not a command; there are run, watch and boot"
        ))),
    }
}

fn boot(mut parser: lexopt::Parser) -> Result<Call, UsageError> {
    use lexopt::prelude::*;
    let (mut source, mut after) = (None, Then::Poweroff);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("then") => after = then(parser.value()?.string()?),
            Long("local") => source = Some(BootSource::Local(parser.value()?.into())),
            Short('h') | Long("help") => return Ok(Call::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Call::Boot(source.unwrap_or(BootSource::Machine(after))))
}

fn holder(mut parser: lexopt::Parser) -> Result<Call, UsageError> {
    use lexopt::prelude::*;
    let (mut dir, mut machine_pid, mut environment) = (None, None, None);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("machine-pid") => machine_pid = Some(parser.value()?.parse()?),
            Long("environment") => environment = Some(PathBuf::from(parser.value()?)),
            Value(value) if dir.is_none() => dir = Some(PathBuf::from(value)),
            other => return Err(other.unexpected().into()),
        }
    }
    let dir = dir.ok_or_else(|| UsageError::Wrong("`holder` needs a folder".into()))?;
    Ok(Call::Holder { dir, machine_pid, environment })
}

fn rank(mut parser: lexopt::Parser) -> Result<Call, UsageError> {
    use lexopt::prelude::*;
    let (mut machine, mut command) = (None, Vec::new());
    let (mut url, mut region, mut endpoint) = (None, None, None);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("local") => machine = Some(PathBuf::from(parser.value()?)),
            Long("job-root") => url = Some(parser.value()?.string()?),
            Long("region") => region = Some(parser.value()?.string()?),
            Long("endpoint") => endpoint = Some(parser.value()?.string()?),
            Value(first) => {
                command.push(first.string()?);
                for word in parser.raw_args()? {
                    command.push(word.string()?);
                }
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let source = match (machine, url) {
        (Some(machine), _) => RankSource::Local(machine),
        (None, Some(url)) => RankSource::JobRoot { url, region, endpoint },
        (None, None) => {
            return Err(UsageError::Wrong("`rank` needs --local or --job-root".into()));
        }
    };
    Ok(Call::Rank { source, command })
}

fn alone(mut parser: lexopt::Parser, mut alone: Alone) -> Result<(Alone, bool), UsageError> {
    use lexopt::prelude::*;
    while let Some(arg) = parser.next()? {
        match arg {
            Long("idle") | Short('i') => alone.idle = span_or_off("--idle", &mut parser)?,
            Long("idle-grace") => alone.idle_grace = Some(typed("--idle-grace", &mut parser)?),
            Long("stall") => alone.stall = span_or_off("--stall", &mut parser)?,
            Long("max-runtime" | "max-duration") => {
                alone.max_runtime = Some(typed("--max-runtime", &mut parser)?)
            }
            Long("grace") => alone.grace = typed("--grace", &mut parser)?,
            Long("gpus") => alone.gpus = gpus(&parser.value()?.string()?)?,
            Long("log-pattern") => alone.log_pattern = Some(parser.value()?.string()?),
            Long("metrics-listen") => {
                alone.metrics_listen = Some(typed("--metrics-listen", &mut parser)?);
            }
            Long("then") => alone.then = then(parser.value()?.string()?),
            Long("name") | Short('n') => alone.name = Some(parser.value()?.string()?),
            Long("state") => alone.state = Some(parser.value()?.into()),
            Long("dry-run") => alone.dry_run = true,
            Short('h') | Long("help") => return Ok((alone, true)),
            Value(first) => {
                // After `--`, or the first argument that is not an option: the rest belongs to the
                // program.
                alone.argv.push(first.string()?);
                for rest in parser.raw_args()? {
                    alone.argv.push(rest.string()?);
                }
            }
            other => return Err(other.unexpected().into()),
        }
    }
    Ok((alone, false))
}

impl Alone {
    fn for_run() -> Self {
        Alone {
            argv: Vec::new(),
            name: None,
            idle: Some(Span::from_secs(15 * 60)),
            idle_grace: None,
            stall: Some(Span::from_secs(20 * 60)),
            max_runtime: None,
            grace: Span::from_secs(30),
            gpus: GpuSelection::Workload,
            log_pattern: None,
            metrics_listen: None,
            then: Then::Exit,
            dry_run: false,
            state: None,
        }
    }

    /// A machine in manual use pauses longer than a job, and has no steps that could stall.
    fn for_watch() -> Self {
        Alone {
            idle: Some(Span::from_secs(30 * 60)),
            stall: None,
            gpus: GpuSelection::All,
            idle_grace: Some(Span::ZERO),
            ..Alone::for_run()
        }
    }
}

fn typed<T: FromStr>(flag: &str, parser: &mut lexopt::Parser) -> Result<T, UsageError>
where
    T::Err: std::fmt::Display,
{
    use lexopt::prelude::*;
    let text = parser.value()?.string()?;
    text.parse().map_err(|error| UsageError::Wrong(format!("{flag}: {error}")))
}

fn span_or_off(flag: &str, parser: &mut lexopt::Parser) -> Result<Option<Span>, UsageError> {
    use lexopt::prelude::*;
    let text = parser.value()?.string()?;
    if text == "off" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error| UsageError::Wrong(format!("{flag}: {error}")))
}

fn gpus(text: &str) -> Result<GpuSelection, UsageError> {
    if text == "all" {
        return Ok(GpuSelection::All);
    }
    let indices: Result<Vec<u32>, _> = text.split(',').map(|index| index.trim().parse()).collect();
    indices.map(GpuSelection::Indices).map_err(|_| {
        UsageError::Wrong(format!("--gpus: `{text}` is not a list of numbers like 0,1, nor `all`"))
    })
}

fn then(text: String) -> Then {
    match text.as_str() {
        "exit" => Then::Exit,
        "poweroff" => Then::Poweroff,
        _ => Then::Command(text),
    }
}

/// The word that was probably meant by a `--then` that is not a command.
pub fn then_meant(text: &str) -> Option<&'static str> {
    let word: String =
        text.trim().to_ascii_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    let known = [
        ("poweroff", "poweroff"),
        ("shutdown", "poweroff"),
        ("terminate", "poweroff"),
        ("halt", "poweroff"),
        ("stop", "poweroff"),
        ("off", "poweroff"),
        ("exit", "exit"),
        ("quit", "exit"),
        ("nothing", "exit"),
    ];
    // Two errors in a long word, one in a short one: with more, any command would match.
    let near = |like: &str| slips(&word, like) <= like.len() / 4;
    known.into_iter().find(|(like, _)| near(like)).map(|(_, meant)| meant)
}

/// The number of letters to insert, delete or change between two words (Levenshtein).
fn slips(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], index + 1);
        for (column, known) in other.iter().enumerate() {
            let changed = before + usize::from(letter != *known);
            before = row[column + 1];
            row[column + 1] = changed.min(before + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Call, String> {
        parse(words.split_whitespace().map(OsString::from).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_after_dashes_belong_to_program() {
        let Ok(Call::Run(alone)) =
            parsed("run --idle 5m --then poweroff -- python train.py --epochs 10 --then x")
        else {
            panic!()
        };
        assert_eq!(alone.argv, ["python", "train.py", "--epochs", "10", "--then", "x"]);
        assert_eq!(alone.idle, Some(Span::from_secs(300)));
        assert_eq!(alone.then, Then::Poweroff);
    }

    #[test]
    fn standalone_run_does_not_power_off_by_default() {
        let Ok(Call::Run(alone)) = parsed("run -- true") else { panic!() };
        assert_eq!(alone.then, Then::Exit);
        let Ok(Call::Watch(alone)) = parsed("watch") else { panic!() };
        assert_eq!(alone.then, Then::Exit);
    }

    #[test]
    fn launched_machine_powers_off_by_default() {
        assert_eq!(parsed("boot"), Ok(Call::Boot(BootSource::Machine(Then::Poweroff))));
        assert_eq!(parsed("boot --then exit"), Ok(Call::Boot(BootSource::Machine(Then::Exit))));
        assert_eq!(parsed("boot --local /m"), Ok(Call::Boot(BootSource::Local("/m".into()))));
    }

    #[test]
    fn mistyped_option_is_not_taken_for_command() {
        for near in ["powerof", "power-off", "Poweroff", "poweroof", "shutdow", "hlat", "stopp"] {
            assert!(
                matches!(then_meant(near), Some("poweroff") | None)
                    && (near == "hlat" || then_meant(near).is_some()),
                "{near}"
            );
        }
        assert_eq!((then_meant("exitt"), then_meant("quit")), (Some("exit"), Some("exit")));
        for far in ["./upload.sh", "rsync -a out host:", "true", "echo done"] {
            assert_eq!(then_meant(far), None, "{far}");
        }
        assert_eq!((slips("kitten", "sitting"), slips("", "off"), slips("off", "off")), (3, 3, 0));
    }

    #[test]
    fn wrong_arguments_are_named_in_error() {
        assert_eq!(
            parsed("run --idle 15 -- x").unwrap_err(),
            "--idle: `15` has no unit, write `15s` for seconds or `15m` for minutes"
        );
        assert_eq!(parsed("run").unwrap_err(), "nothing to run: put the command after `--`");
        assert!(parsed("run --idel 5m -- x").unwrap_err().contains("--idel"));
        assert!(parsed("start").unwrap_err().contains("`start`"));
        assert_eq!(parsed("run --help"), Ok(Call::Help));
        assert_eq!(parsed(""), Ok(Call::Help));
    }
}
