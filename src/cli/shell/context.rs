//! The context of every command: the printer, the job root, and the user configuration.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::Arc;

use super::args::{Format, Globals};
use crate::cli::{ExitCode, Fault, Printer};
use crate::config::{self, ConfigError, Environment, Inputs, JobFile, UserConfig};
use crate::wire;

/// Which configuration errors a command tolerates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgives {
    Nothing,
    /// Errors in what new jobs get and may cost.
    Terms,
    /// Also unknown keys.
    Keys,
}

/// Adds a way to run without the configuration, because running machines bill.
fn all_the_same(error: ConfigError) -> Fault {
    let is_wrong = matches!(error, ConfigError::Findings { .. });
    let fault = Fault::from(error);
    let way = "`LAMP_CONFIG=/dev/null` makes `lamp` run without the file until it is mended; then LAMP_JOB_ROOT names the job root, and LAMP_OWNER the owner";
    if is_wrong {
        fault.meaning("nothing was changed; what runs goes on, and bills").hint(way)
    } else {
        fault
    }
}

/// The job roots of one command.
pub struct JobRoots {
    /// `file:///...` or `s3://...`
    pub url: String,
    /// The source of that URL: `flag`, `environment`, `user config` or `default`.
    pub origin: &'static str,
    /// Further ones, for the one command that takes several.
    pub more: Vec<String>,
}

/// The configuration as far as it was understood.
pub struct ReadConfig {
    pub user: UserConfig,
    /// It has errors, and `user` has only the rest.
    pub is_misread: bool,
}

pub struct Context {
    pub printer: Arc<Printer>,
    pub roots: JobRoots,
    pub config: ReadConfig,
    pub environment: Environment,
    pub current_dir: PathBuf,
    pub clock: wire::ClockHandle,
    /// Made once, so that a cloud is asked for the identity once.
    pub workstation: OnceCell<wire::Workstation>,
}

impl Context {
    /// What a job is read from, beside its file.
    pub fn job_inputs<'a>(&'a self, flags: &'a JobFile) -> Inputs<'a> {
        Inputs {
            flags,
            user: &self.config.user,
            environment: &self.environment,
            current_dir: &self.current_dir,
            now: self.clock.now(),
        }
    }

    /// # Errors
    /// Fails when the configuration has errors, the job root is invalid, or a needed current folder
    /// is gone.
    pub fn new(
        globals: &Globals,
        environment: Environment,
        printer: Arc<Printer>,
        forgives: Forgives,
        needs_no_folder: bool,
    ) -> Result<Self, Fault> {
        let (user, is_misread) = if forgives != Forgives::Nothing {
            let (user, wrong) =
                config::load_user_all_the_same(&environment, forgives == Forgives::Keys)
                    .map_err(all_the_same)?;
            let is_misread = wrong.is_some();
            // An error in a cap must not stop the user from ending a machine that bills.
            if let Some(wrong) = wrong {
                let wrong = Fault::from(wrong);
                if globals.output == Format::Text {
                    printer.findings(wrong.file.as_deref(), &wrong.findings);
                }
                printer.warn("the configuration has errors; they do not matter here, but mend them before the next launch");
            }
            (user, is_misread)
        } else {
            (config::load_user(&environment)?, false)
        };
        let current_dir = match environment.current_dir() {
            // The command reads nothing there, and its paths are absolute.
            Err(_) if needs_no_folder => PathBuf::from("/"),
            current_dir => current_dir.map_err(ConfigError::from)?,
        };
        let mut said = globals.job_root.iter();
        let root = config::job_root(said.next().map(String::as_str), &environment, &user)?;
        // With several roots, a command cannot name the right one.
        if let [only] = globals.job_root.as_slice() {
            printer.name_job_root(only);
        }
        let mut more = Vec::new();
        for said in said {
            let url = config::job_root(Some(said), &environment, &user)?.url;
            if url != root.url && !more.contains(&url) {
                more.push(url);
            }
        }
        Ok(Context {
            printer,
            roots: JobRoots { url: root.url, origin: root.origin, more },
            config: ReadConfig { user, is_misread },
            environment,
            current_dir,
            clock: wire::clock(),
            workstation: OnceCell::new(),
        })
    }

    pub fn is_machine_output(&self) -> bool {
        self.printer.format() != Format::Text
    }
}

impl From<ConfigError> for Fault {
    fn from(error: ConfigError) -> Self {
        let hint = error.hint();
        let code = match &error {
            ConfigError::NotFound { .. } | ConfigError::NoJobFile { .. } => ExitCode::NOT_FOUND,
            ConfigError::Findings { .. }
            | ConfigError::JobRoot { .. }
            | ConfigError::RelativeJobRoot { .. }
            | ConfigError::BlankOwner
            | ConfigError::NoHome
            | ConfigError::Folder { .. }
            | ConfigError::NoFile { .. }
            | ConfigError::TooLarge { .. }
            | ConfigError::Script { .. } => ExitCode::FINDINGS,
            // It was read, but is not text.
            ConfigError::Read { source, .. }
                if source.kind() == std::io::ErrorKind::InvalidData =>
            {
                ExitCode::FINDINGS
            }
            ConfigError::Read { .. } | ConfigError::CurrentDir(_) => ExitCode::UNREACHABLE,
        };
        let mut fault = Fault::from_error(code, &error);
        if let ConfigError::Findings { file, findings } = error {
            fault = fault.findings(file, findings);
        }
        fault.hint = hint;
        fault
    }
}
