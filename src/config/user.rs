//! The settings for all jobs of this user, from `~/.config/lamplighter/config.toml`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::decode::decode;
use super::document::Source;
use super::job_file::{AwsFile, JobFile, UserFile};
use super::notify;
use super::source_file::read_file;
use super::{ConfigError, Environment};
use crate::job::{Finding, FindingCause, KeySuggestion, NotifySpec};
use crate::market::Usd;
use crate::policy::purchase::spending_cap::Caps;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserConfig {
    /// Its file, if there is one.
    pub path: Option<PathBuf>,
    pub job_root: Option<String>,
    /// The owner of the machines.
    pub owner: String,
    /// The channels to the user.
    pub notify: NotifySpec,
    pub aws: AwsFile,
    /// Limits on the cost of all jobs together.
    pub caps: Caps,
    /// The money that coding agents may spend in 24 hours. `None`: they start nothing.
    pub purse: Option<Usd>,
    /// Defaults for jobs: the weakest layer.
    pub defaults: JobFile,
    /// The file with the line of each key.
    pub(super) source: Source,
}

/// The owner if configuration, environment and login name none. It must not be empty: lamp stops
/// only machines with this tag.
const OWNER_UNKNOWN: &str = "unknown";

/// Reads the user configuration. The file may be missing if `LAMP_CONFIG` does not name it.
///
/// # Errors
/// The file cannot be read, or has errors.
pub fn load_user(environment: &Environment) -> Result<UserConfig, ConfigError> {
    let (user, wrong) = load_user_all_the_same(environment, false)?;
    wrong.map_or(Ok(user), Err)
}

/// An error in these tables leaves the job root and the owner known. An unknown key outside them
/// may be a misspelt `job_root`.
const HARMLESS_TABLES: [&str; 6] = ["caps.", "purse.", "limits.", "machine.", "watch.", "notify."];

/// The same for a command that only looks or ends machines: it gets all that could be read, with
/// the error, if the job root and the owner are known. `any_key`: an unknown key is such an error
/// too, unless it is probably a misspelt `job_root` or `owner`. A command that ends machines
/// without a job passes `false`, since any unknown key may have been meant as the job root.
///
/// # Errors
/// The file cannot be read, is no TOML, or its error may hide the job root or the owner.
pub fn load_user_all_the_same(
    environment: &Environment,
    any_key: bool,
) -> Result<(UserConfig, Option<ConfigError>), ConfigError> {
    let named = environment.config.is_some();
    let path = environment.user_config_path();
    let (path, text) =
        match path.map(|path| read_file("configuration", &path).map(|text| (path, text))) {
            Some(Ok((path, text))) => (Some(path), text),
            Some(Err(ConfigError::NotFound { .. })) if !named => (None, String::new()),
            Some(Err(error)) => return Err(error),
            None => (None, String::new()),
        };
    let file =
        path.as_ref().map_or_else(|| "config.toml".to_owned(), |path| path.display().to_string());
    let source = Source::parse(file.as_ref(), &text)
        .map_err(|findings| ConfigError::Findings { file: file.clone(), findings })?;
    let (fragment, mut findings) = decode::<UserFile>(&source);
    findings.extend(
        judge(&fragment)
            .into_iter()
            .map(|finding| Finding { line: source.line(&finding.path), ..finding }),
    );
    if environment.owner.as_deref().is_some_and(is_blank) {
        return Err(ConfigError::BlankOwner);
    }
    let is_harmless_path = |path: &str| HARMLESS_TABLES.iter().any(|table| path.starts_with(table));
    // An unknown key is harmless, unless it is probably a misspelt `job_root` or `owner`.
    let is_harmless = |finding: &Finding| {
        let is_harmless_key = |meant: &Option<KeySuggestion>| {
            meant.as_ref().is_none_or(|meant| is_harmless_path(&format!("{}.", meant.name)))
        };
        is_harmless_path(&finding.path)
            || matches!(&finding.cause, FindingCause::UnknownKey(meant)
                if any_key && is_harmless_key(meant))
    };
    let wrong = match findings.is_empty() {
        true => None,
        false if findings.iter().all(is_harmless) => Some(ConfigError::Findings { file, findings }),
        false => return Err(ConfigError::Findings { file, findings }),
    };
    let owner = environment.owner.clone().or(fragment.owner).or_else(|| environment.user.clone());
    let user = UserConfig {
        path,
        job_root: fragment.job_root,
        owner: owner.unwrap_or_else(|| OWNER_UNKNOWN.to_owned()),
        notify: notify::settings(&fragment.notify.unwrap_or_default(), environment),
        aws: fragment.aws.unwrap_or_default(),
        caps: fragment.caps.unwrap_or_default().caps(),
        purse: fragment.purse.and_then(|purse| purse.usd_per_day).map(|usd| usd.0),
        defaults: JobFile {
            machine: fragment.machine,
            watch: fragment.watch,
            limits: fragment.limits,
            ..JobFile::default()
        },
        source,
    };
    Ok((user, wrong))
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Findings about values that can be read but make no sense.
fn judge(file: &UserFile) -> Vec<Finding> {
    let mut found = Vec::new();
    if file.owner.as_deref().is_some_and(is_blank) {
        let finding =
            Finding::error("owner", "is blank: everything that is launched carries whose it is");
        found.push(finding.hint("leave it out: then it is the login name"));
    }
    found.extend(file.notify.as_ref().map(notify::judge).unwrap_or_default());
    let per_day = file.caps.as_ref().and_then(|caps| caps.usd_per_day.as_ref());
    if per_day.is_some_and(|per_day| per_day.0 < Usd::ZERO) {
        let finding = Finding::error(
            "caps.usd_per_day",
            "is less than nothing: no machine would ever be launched",
        );
        found.push(
            finding.hint("write the dollars that all jobs may cost in 24 hours, or leave it out"),
        );
    }
    let purse = file.purse.as_ref().and_then(|purse| purse.usd_per_day.as_ref());
    if purse.is_some_and(|purse| purse.0 < Usd::ZERO) {
        let finding =
            Finding::error("purse.usd_per_day", "is less than nothing: no job would ever fit");
        found.push(finding.hint("write 0 for jobs that cost nothing, or leave it out"));
    }
    found
}

/// The caps of the user configuration, read again while a process runs.
#[derive(Debug)]
pub struct CapsReader {
    environment: Environment,
    /// The file existed before. If it is missing now, the caps are not removed: it is being
    /// replaced, or the home folder is not mounted.
    was_there: AtomicBool,
}

impl CapsReader {
    pub fn new(environment: Environment, user: &UserConfig) -> Self {
        CapsReader { environment, was_there: AtomicBool::new(user.path.is_some()) }
    }

    /// # Errors
    /// The file cannot be read, has errors, or no longer exists.
    pub fn read(&self) -> Result<Caps, ConfigError> {
        let user = load_user(&self.environment)?;
        match (user.path, self.environment.user_config_path()) {
            (Some(_), _) => self.was_there.store(true, Ordering::Relaxed),
            (None, Some(path)) if self.was_there.load(Ordering::Relaxed) => {
                return Err(ConfigError::NotFound { what: "configuration", path });
            }
            (None, _) => {}
        }
        Ok(user.caps)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test writes the file that it reads")]
mod tests {
    use super::*;
    use crate::job::ChannelSpec;

    fn load(text: &str) -> Result<UserConfig, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        load_user(&Environment {
            config: Some(path),
            user: Some("alice".into()),
            ..Environment::default()
        })
    }

    #[test]
    fn defaults_of_the_user_become_a_layer() {
        let user = load("owner = 'team'\njob_root = 's3://b'\n[limits]\nbudget = '$5'\n[notify]\ncommand = ['mail', 'me']").unwrap();
        assert_eq!(user.owner, "team");
        let command = ChannelSpec::Command(vec!["mail".into(), "me".into()]);
        assert_eq!(user.notify.channels, [command]);
        assert!(user.defaults.limits.unwrap().budget.is_some());
        assert_eq!(load("").unwrap().owner, "alice");
    }

    #[test]
    fn key_of_a_job_does_not_belong_here() {
        let Err(ConfigError::Findings { findings, .. }) = load("command = 'x'\nowner = 1") else {
            panic!("must be refused")
        };
        assert_eq!(findings.len(), 2, "{findings:?}");
    }

    #[test]
    fn owner_that_is_blank_and_a_cap_below_nothing_are_findings() {
        let found = |text: &str| match load(text) {
            Err(ConfigError::Findings { findings, .. }) => {
                findings.into_iter().map(|f| (f.path, f.line, f.message)).collect::<Vec<_>>()
            }
            other => panic!("{text}: {other:?}"),
        };
        for blank in ["owner = ''", "owner = '  '"] {
            assert_eq!(found(blank)[0].0, "owner");
        }
        let both = found("owner = ''\n[caps]\nusd_per_day = -1\nusd_per_hour = -1");
        assert_eq!(
            both.iter().map(|(path, line, _)| (path.as_str(), *line)).collect::<Vec<_>>().len(),
            3,
            "{both:?}"
        );
        assert!(
            both.iter().any(|(path, line, _)| path == "caps.usd_per_day" && *line == Some(3)),
            "{both:?}"
        );
        let list = found("[[caps]]\nusd_per_day = 5");
        assert!(
            list[0].0 == "caps" && list[0].2 == "is a list of tables, expected one table",
            "{list:?}"
        );
        let blank = Environment {
            owner: Some("  ".into()),
            config: Some("/dev/null".into()),
            ..Environment::default()
        };
        assert!(matches!(load_user(&blank), Err(ConfigError::BlankOwner)));
    }

    #[test]
    fn what_ends_a_machine_is_not_held_up_by_a_slip_elsewhere() {
        let read = |text: &str, any_key: bool| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("config.toml");
            std::fs::write(&path, text).unwrap();
            load_user_all_the_same(
                &Environment {
                    config: Some(path),
                    user: Some("alice".into()),
                    ..Environment::default()
                },
                any_key,
            )
        };
        let all_the_same = |text: &str| read(text, true);
        let (user, wrong) =
            all_the_same("job_root = 's3://b'\n[caps]\nper_day = 5\n[limits]\nbudget = 'much'")
                .unwrap();
        assert_eq!(user.job_root.as_deref(), Some("s3://b"));
        assert!(
            matches!(wrong, Some(ConfigError::Findings { findings, .. }) if findings.len() == 2)
        );
        assert!(load("[caps]\nper_day = 5").is_err(), "what launches is held to it");
        let (user, wrong) =
            all_the_same("job_root = 's3://b'\ncapz = 1\n[aws]\nbogus = 1").unwrap();
        assert!(
            user.job_root.as_deref() == Some("s3://b") && wrong.is_some(),
            "a key that means nothing to anybody"
        );
        assert!(
            read("capz = 1", false).is_err(),
            "who ends what no job needs must know where the jobs are"
        );
        assert!(
            read("[caps]\nusd_per_dya = 5", false).is_ok_and(|(_, wrong)| wrong.is_some()),
            "and this says nothing of that"
        );
        for elsewhere in
            ["job_rot = 's3://b'", "owner = 1", "[aws]\nregion = 'x'", "job_root = 5", "[caps"]
        {
            assert!(all_the_same(elsewhere).is_err(), "{elsewhere}: other jobs would be looked at");
        }
    }

    #[test]
    fn purse_is_read_and_is_not_below_nothing() {
        assert_eq!(load("").unwrap().purse, None);
        assert_eq!(load("[purse]\nusd_per_day = 0").unwrap().purse, Some(Usd::ZERO));
        let Err(ConfigError::Findings { findings, .. }) = load("[purse]\nusd_per_day = -1") else {
            panic!("must be refused")
        };
        assert_eq!((findings[0].path.as_str(), findings[0].line), ("purse.usd_per_day", Some(2)));
    }

    #[test]
    fn named_file_must_be_there_and_the_default_one_need_not() {
        let named =
            Environment { config: Some("/nowhere/c.toml".into()), ..Environment::default() };
        assert!(matches!(load_user(&named), Err(ConfigError::NotFound { .. })));
        let default = Environment { home: Some("/nowhere".into()), ..Environment::default() };
        assert_eq!(load_user(&default).unwrap().owner, "unknown");
    }

    #[test]
    fn caps_reader_reads_a_later_cap_and_fails_on_a_missing_file() {
        let home = tempfile::tempdir().expect("a folder");
        let path = home.path().join(".config/lamplighter/config.toml");
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("it can be made");
        let environment =
            Environment { home: Some(home.path().to_owned()), ..Environment::default() };
        let reader = CapsReader::new(
            environment.clone(),
            &load_user(&environment).expect("no file is fine"),
        );
        let per_day = |reader: &CapsReader| {
            reader.read().map(|caps| caps.usd_per_day.map(|usd| usd.to_string()))
        };
        assert_eq!(per_day(&reader).expect("there is none yet"), None);
        std::fs::write(&path, "[caps]\nusd_per_day = 5\n").expect("it can be written");
        assert_eq!(per_day(&reader).expect("it is read").as_deref(), Some("$5.00"));
        std::fs::write(&path, "[caps]\nusd_per_day = 'much'\n").expect("it can be written");
        let wrong = reader.read().expect_err("a slip is no cap").in_a_line();
        assert!(wrong.contains("config.toml:2: ") && wrong.contains("usd_per_day"), "{wrong}");
        std::fs::remove_file(&path).expect("it is there");
        assert!(matches!(reader.read(), Err(ConfigError::NotFound { .. })));
        std::fs::write(&path, "").expect("it can be written");
        assert_eq!(per_day(&reader).expect("whoever wants none says so"), None);
    }
}
