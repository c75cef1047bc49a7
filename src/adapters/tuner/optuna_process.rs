//! The process that answers questions of a tuning, and the Python environment that it needs.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The program, run as `python -c`.
const PROGRAM: &str = include_str!("lamp_tuner.py");

/// The version that its results were checked with. Its samplers change between versions, and then
/// another controller would choose other values.
const OPTUNA: &str = "optuna==5.0.0";

/// The algorithm `cmaes` needs this too.
const MORE: [&str; 1] = ["cmaes==0.12.0"];

/// One answer takes milliseconds with a thousand trials. The first import from a cold disk takes
/// seconds. A longer wait hides a program that hangs.
const ANSWERS_WITHIN: Duration = Duration::from_secs(120);

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No Python of this workstation has Optuna.
    #[error("no Python here has Optuna (tried {tried})")]
    NoOptuna { tried: String },
    #[error("Optuna needs the Python package `{module}` for this")]
    NoModule { module: String },
    #[error("Optuna refused: {0}")]
    Refused(String),
    #[error("the Python program of Optuna does not answer")]
    Silent(#[source] io::Error),
    #[error("cannot make a Python environment in `{folder}`: {why}")]
    Setup { folder: String, why: String },
}

/// Answers questions. It is started at the first one, and keeps nothing between two.
pub struct TuneEngine {
    /// The environment of `lamp tune setup`.
    folder: Option<PathBuf>,
    running: Option<Helper>,
}

struct Helper {
    /// Ends with this value.
    _child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl TuneEngine {
    /// `cache`: the folder of this user's caches.
    pub fn new(cache: Option<&Path>) -> Self {
        TuneEngine { folder: cache.map(|cache| cache.join("tuner")), running: None }
    }

    /// The answer to one question. After a failure the program is started again.
    ///
    /// # Errors
    /// When no Python has Optuna, or it refuses.
    pub async fn answer(&mut self, question: &Value) -> Result<Value, EngineError> {
        let mut helper = match self.running.take() {
            Some(helper) => helper,
            None => self.start().await?,
        };
        let answer = helper.answer(question).await.map_err(EngineError::Silent)?;
        self.running = Some(helper);
        match (answer["missing"].as_str(), answer["error"].as_str()) {
            (Some(module), _) => Err(EngineError::NoModule { module: module.to_owned() }),
            (None, Some(error)) => Err(EngineError::Refused(error.to_owned())),
            (None, None) => Ok(answer),
        }
    }

    /// The version of Optuna, and which Python has it.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub async fn version(&mut self) -> Result<String, EngineError> {
        let answer = self.answer(&json!({ "do": "hello" })).await?;
        Ok(answer["optuna"].as_str().unwrap_or_default().to_owned())
    }

    /// The first Python that has Optuna.
    async fn start(&self) -> Result<Helper, EngineError> {
        let own = self.folder.iter().map(|folder| folder.join("bin/python"));
        let candidates: Vec<PathBuf> = own.chain([PathBuf::from("python3")]).collect();
        for python in &candidates {
            let Ok(mut helper) = Helper::start(python) else { continue };
            if helper.answer(&json!({ "do": "hello" })).await.is_ok() {
                return Ok(helper);
            }
        }
        let tried: Vec<String> =
            candidates.iter().map(|path| format!("`{}`", path.display())).collect();
        Err(EngineError::NoOptuna { tried: tried.join(", ") })
    }

    /// Makes an environment with Optuna in the cache. Returns its folder.
    ///
    /// # Errors
    /// When Python is missing, or the packages cannot be fetched.
    pub async fn set_up(&mut self) -> Result<PathBuf, EngineError> {
        let missing = || EngineError::Setup {
            folder: "~/.cache/lamplighter/tuner".to_owned(),
            why: "nothing says where the cache is: set HOME or XDG_CACHE_HOME".to_owned(),
        };
        let folder = self.folder.clone().ok_or_else(missing)?;
        let python = folder.join("bin/python");
        let run = async |program: &Path, words: &[&str]| {
            let output = Command::new(program).args(words).stdin(Stdio::null()).output().await;
            let failed =
                |why: String| EngineError::Setup { folder: folder.display().to_string(), why };
            match output {
                Ok(output) if output.status.success() => Ok(()),
                Ok(output) => Err(failed(last_line(&output.stderr))),
                Err(error) => Err(failed(format!("`{}`: {error}", program.display()))),
            }
        };
        let text = folder.to_string_lossy().into_owned();
        run(Path::new("python3"), &["-m", "venv", &text]).await?;
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", OPTUNA];
        run(&python, &[&install[..], &MORE[..]].concat()).await?;
        self.running = None;
        Ok(folder)
    }
}

fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("no message")
        .trim()
        .to_owned()
}

impl Helper {
    fn start(python: &Path) -> io::Result<Helper> {
        let mut child = Command::new(python)
            .args(["-c", PROGRAM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let (questions, answers) = (child.stdin.take(), child.stdout.take());
        let piped = || io::Error::from(io::ErrorKind::BrokenPipe);
        Ok(Helper {
            questions: questions.ok_or_else(piped)?,
            answers: BufReader::new(answers.ok_or_else(piped)?),
            _child: child,
        })
    }

    async fn answer(&mut self, question: &Value) -> io::Result<Value> {
        let asked = async {
            self.questions.write_all(format!("{question}\n").as_bytes()).await?;
            let mut line = String::new();
            self.answers.read_line(&mut line).await?;
            serde_json::from_str(&line).map_err(io::Error::other)
        };
        tokio::time::timeout(ANSWERS_WITHIN, asked)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}
