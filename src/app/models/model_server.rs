//! One prediction by an existing server: started on loopback, asked once, ended.
//!
//! ```text
//! folder ─ helper (user's Python) ─> MLflow model ─ `mlflow models serve` ─> /ping ─> /invocations
//! folder ─ the user's command ────────────────────────────────────────────> health ─> predict
//! ```
//! The server ends with its whole process group: after the answer, at an error, at Ctrl-C.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::model_fetch::cache_fault;
use crate::app::exit_code::ExitCode;
use crate::app::fault::Fault;
use crate::job::{ModelFramework, ServeCommand, shell_word};
use crate::wire::{
    ClockHandle, HttpAnswer, LoopbackServer, ScratchFolder, ServerProcess, ServerProgram,
    end_in_words, free_port,
};

/// Makes an MLflow model of a bare folder.
const HELPER: &str = include_str!("../../adapters/prediction/mlflow_model.py");

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The last lines of a server that a fault shows.
const LINES_SHOWN: usize = 8;

/// The workstation that serves.
pub struct ServingHost<'a> {
    /// The Python that has MLflow: a program of the search path, or a path.
    pub python: &'a Path,
    pub search_path: &'a str,
    pub scratch: &'a ScratchFolder,
    pub clock: &'a ClockHandle,
    /// How long start and answer may take together.
    pub patience: Duration,
}

/// The model that answers.
pub struct ServedModel<'a> {
    pub folder: &'a Path,
    pub framework: ModelFramework,
    pub serve: Option<&'a ServeCommand>,
    /// Stands for `{name}` in the routes of a command.
    pub name: &'a str,
    pub signature: Option<&'a str>,
}

/// The answer, and what the user must know of it.
#[derive(Debug)]
pub struct ServedAnswer {
    pub body: Value,
    pub warnings: Vec<String>,
}

struct Prepared {
    program: ServerProgram,
    health: String,
    predict: String,
    /// MLflow answers 200 when the model is loaded. Another server may answer anything but 503.
    is_mlflow: bool,
    warnings: Vec<String>,
}

/// The result that the helper prints.
#[derive(Debug, Default, Deserialize)]
struct HelperResult {
    #[serde(default)]
    missing: Option<String>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(default)]
    scripts: Vec<String>,
}

/// Starts the server, asks it once, and ends it. `left` resolves when the user leaves.
///
/// # Errors
/// When the server cannot start, dies, or refuses; or when the user left.
pub async fn ask_once(
    host: &ServingHost<'_>,
    model: &ServedModel<'_>,
    instances: &[Value],
    left: impl Future<Output = ()>,
) -> Result<ServedAnswer, Fault> {
    let began = host.clock.mono();
    let mut left = std::pin::pin!(left);
    let port = free_port().map_err(|error| {
        Fault::new(ExitCode::UNREACHABLE, "no free port on loopback").because(&error)
    })?;
    let prepared = tokio::select! {
        biased;
        () = &mut left => return Err(gone()),
        prepared = prepare(host, model, port) => prepared?,
    };
    let mut server = start(&prepared.program)?;
    let answer = tokio::select! {
        biased;
        () = &mut left => Err(gone()),
        answer = ready_and_answer(host, &prepared, &mut server, PredictionQuestion { port, began, model, instances }) => answer,
    };
    server.end(&**host.clock).await;
    let body = body_of(&answer?, host.scratch)?;
    Ok(ServedAnswer { body, warnings: prepared.warnings })
}

struct PredictionQuestion<'a> {
    port: u16,
    began: Duration,
    model: &'a ServedModel<'a>,
    instances: &'a [Value],
}

fn gone() -> Fault {
    Fault::new(ExitCode::CTRL_C, "left before the answer").meaning("the server was ended")
}

fn start(program: &ServerProgram) -> Result<ServerProcess, Fault> {
    ServerProcess::start(program).map_err(|error| {
        let name = program.argv.first().map_or("", String::as_str);
        Fault::new(ExitCode::NOT_FOUND, format!("cannot start `{name}`"))
            .because(&error)
            .hint(PYTHON_HINT)
    })
}

const PYTHON_HINT: &str = "activate the environment that has MLflow, or name its Python: `--python PATH`; `python3 -m venv env && env/bin/pip install mlflow` makes one";

async fn prepare(
    host: &ServingHost<'_>,
    model: &ServedModel<'_>,
    port: u16,
) -> Result<Prepared, Fault> {
    match model.serve {
        Some(serve) => Ok(own_command(host, model, serve, port)),
        None => by_mlflow(host, model, port).await,
    }
}

fn own_command(
    host: &ServingHost<'_>,
    model: &ServedModel<'_>,
    serve: &ServeCommand,
    port: u16,
) -> Prepared {
    let folder = model.folder.display().to_string();
    let line = serve
        .line
        .replace("{port}", &port.to_string())
        .replace("{model}", &shell_word(&folder))
        .replace("{name}", &shell_word(model.name));
    let route = |route: &str| route.replace("{name}", model.name);
    let variables =
        vec![("LAMP_MODEL_DIR".to_owned(), folder), ("LAMP_PORT".to_owned(), port.to_string())];
    Prepared {
        program: ServerProgram {
            argv: ["sh", "-c", &line].map(str::to_owned).to_vec(),
            variables,
            folder: model.folder.to_owned(),
            log: host.scratch.path().join(SERVER_LOG),
        },
        health: route(&serve.health_route),
        predict: route(&serve.predict_route),
        is_mlflow: false,
        warnings: Vec::new(),
    }
}

const SERVER_LOG: &str = "server.log";
const HELPER_LOG: &str = "helper.log";

async fn by_mlflow(
    host: &ServingHost<'_>,
    model: &ServedModel<'_>,
    port: u16,
) -> Result<Prepared, Fault> {
    let target = host.scratch.path().join("mlflow");
    let result = run_helper(host, model, &target).await?;
    // MLflow refuses a link that leads out of the folder of a model.
    let served =
        if model.framework == ModelFramework::Mlflow { model.folder } else { target.as_path() };
    let words = ["-m", "mlflow", "models", "serve", "--env-manager", "local"];
    let place = ["-h", "127.0.0.1", "-p", &port.to_string()].map(str::to_owned);
    let python = host.python.display().to_string();
    let argv = std::iter::once(python)
        .chain(words.map(str::to_owned))
        .chain(["-m".to_owned(), served.display().to_string()])
        .chain(place)
        .collect();
    let search = [result.scripts.join(":"), host.search_path.to_owned()].join(":");
    let seconds = host.patience.as_secs().max(1).to_string();
    let variables = [
        ("PATH", search.as_str()),
        ("MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT", &seconds),
        ("MLFLOW_DISABLE_TELEMETRY", "true"),
        ("GIT_PYTHON_REFRESH", "quiet"),
    ];
    Ok(Prepared {
        program: ServerProgram {
            argv,
            variables: owned(&variables),
            folder: host.scratch.path().to_owned(),
            log: host.scratch.path().join(SERVER_LOG),
        },
        health: "/ping".to_owned(),
        predict: "/invocations".to_owned(),
        is_mlflow: true,
        warnings: result.warnings,
    })
}

fn owned(variables: &[(&str, &str)]) -> Vec<(String, String)> {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

async fn run_helper(
    host: &ServingHost<'_>,
    model: &ServedModel<'_>,
    target: &Path,
) -> Result<HelperResult, Fault> {
    let script: PathBuf =
        host.scratch.write("mlflow_model.py", HELPER).map_err(|error| cache_fault(&error))?;
    let words = [host.python, &script].map(|path| path.display().to_string());
    let more = [model.framework.word().to_owned()]
        .into_iter()
        .chain([model.folder, target].map(|path| path.display().to_string()))
        .chain(model.signature.map(str::to_owned));
    let program = ServerProgram {
        argv: words.into_iter().chain(more).collect(),
        variables: owned(&[("MLFLOW_DISABLE_TELEMETRY", "true"), ("GIT_PYTHON_REFRESH", "quiet")]),
        folder: host.scratch.path().to_owned(),
        log: host.scratch.path().join(HELPER_LOG),
    };
    let mut helper = start(&program)?;
    let ended = tokio::select! {
        ended = helper.wait() => ended,
        () = host.clock.sleep(host.patience) => {
            helper.end(&**host.clock).await;
            return Err(late(host, HELPER_LOG));
        }
    };
    let log = host.scratch.text(HELPER_LOG);
    let result = log.lines().rev().find_map(|line| serde_json::from_str::<HelperResult>(line).ok());
    match (result, ended) {
        (Some(result), _) => judged(result, model, host.python),
        (None, Ok(status)) => {
            Err(died(&format!("the helper ended: {}", end_in_words(status)), &log))
        }
        (None, Err(error)) => Err(died("the helper cannot be waited for", &log).because(&error)),
    }
}

/// Turns the result of the helper into a fault, if it has one.
fn judged(
    result: HelperResult,
    model: &ServedModel<'_>,
    python: &Path,
) -> Result<HelperResult, Fault> {
    let python = shell_word(&python.display().to_string());
    if let Some(missing) = &result.missing {
        let package = package_of(missing);
        let what = format!("`{python}` has no module `{missing}`");
        let fault = Fault::new(ExitCode::NOT_FOUND, what).meaning("nothing was predicted");
        return Err(fault.hint(if KNOWN_PACKAGES.iter().any(|(module, _)| module == missing) {
            format!("`{python} -m pip install {package}`, or name another Python: `--python PATH`")
        } else {
            format!("install it, or set PYTHONPATH to the folder of `{missing}` if it is yours")
        }));
    }
    let Some(error) = &result.error else { return Ok(result) };
    let what = format!("the model cannot be loaded as {}: {error}", model.framework);
    let fault = Fault::new(ExitCode::FINDINGS, what).meaning("nothing was predicted");
    Err(match result.warnings.first() {
        Some(warning) => fault.hint(format!("install the version that wrote it: {warning}")),
        None => fault.hint(format!(
            "load it with `{python}` yourself; the versions that wrote it must be installed"
        )),
    })
}

/// Modules that an own model never is, and the packages that have them.
const KNOWN_PACKAGES: [(&str, &str); 7] = [
    ("mlflow", "mlflow"),
    ("sklearn", "scikit-learn"),
    ("joblib", "joblib"),
    ("xgboost", "xgboost"),
    ("tensorflow", "tensorflow"),
    ("keras", "keras"),
    ("yaml", "pyyaml"),
];

fn package_of(module: &str) -> &str {
    let known = KNOWN_PACKAGES.iter().find(|(name, _)| *name == module);
    known.map_or(module, |(_, package)| package)
}

async fn ready_and_answer(
    host: &ServingHost<'_>,
    prepared: &Prepared,
    server: &mut ServerProcess,
    question: PredictionQuestion<'_>,
) -> Result<HttpAnswer, Fault> {
    let unasked = |what: &str, error: &dyn std::error::Error| {
        Fault::new(ExitCode::UNREACHABLE, format!("{what}: {error}"))
    };
    let http = LoopbackServer::new(question.port)
        .map_err(|error| unasked("cannot make an HTTP client", &error))?;
    let left = || host.patience.saturating_sub(host.clock.mono().saturating_sub(question.began));
    loop {
        let status = http.status(&prepared.health).await;
        // Asked after the answer: an answer of another program counts for nothing.
        if let Ok(Some(ended)) = server.ended() {
            let what = format!("the server ended before it was ready: {}", end_in_words(ended));
            return Err(died(&what, &host.scratch.text(SERVER_LOG)));
        }
        let is_ready = match status {
            Some(status) if prepared.is_mlflow => status == 200,
            Some(status) => status != 503,
            None => false,
        };
        if is_ready {
            break;
        }
        if left().is_zero() {
            return Err(late(host, SERVER_LOG));
        }
        host.clock.sleep(LOOK_EVERY).await;
    }
    let body = request(prepared, &question);
    http.post(&prepared.predict, &body, left()).await.map_err(|error| {
        died(&format!("the server gave no answer: {error}"), &host.scratch.text(SERVER_LOG))
    })
}

/// MLflow takes no signature in a request: its model has one.
fn request(prepared: &Prepared, question: &PredictionQuestion<'_>) -> Value {
    let mut body = json!({ "instances": question.instances });
    if let (false, Some(signature)) = (prepared.is_mlflow, question.model.signature) {
        body["signature_name"] = signature.into();
    }
    body
}

fn late(host: &ServingHost<'_>, log: &str) -> Fault {
    let what = format!("the model was not ready after {} s", host.patience.as_secs());
    died(&what, &host.scratch.text(log)).or_hint("`--timeout 30m` waits longer")
}

fn died(what: &str, log: &str) -> Fault {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
    let mut fault = Fault::new(ExitCode::PREPARE_FAILED, what);
    fault.causes = last.iter().map(|line| (*line).to_owned()).collect();
    fault.meaning("nothing was predicted")
}

fn body_of(answer: &HttpAnswer, scratch: &ScratchFolder) -> Result<Value, Fault> {
    let read: Option<Value> = serde_json::from_slice(&answer.body).ok();
    match (answer.status, read) {
        (200..300, Some(body)) => Ok(body),
        (200..300, None) => {
            Err(died("the answer of the server is not JSON", &scratch.text(SERVER_LOG)))
        }
        (status, read) => {
            let said = refusal(read.as_ref(), &answer.body);
            let what = format!("the model refused the instances (HTTP {status}): {said}");
            Err(Fault::new(ExitCode::FINDINGS, what)
                .meaning("nothing was predicted")
                .hint("an instance has the shape that one row had in training"))
        }
    }
}

/// The longest sentence of a server that a fault shows.
const SAID_CHARS_MAX: usize = 400;

/// MLflow says `message`, TensorFlow Serving `error`.
fn refusal(read: Option<&Value>, body: &[u8]) -> String {
    let field = |name: &str| read?.get(name)?.as_str().map(str::to_owned);
    let text = field("message")
        .or_else(|| field("error"))
        .unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(SAID_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(framework: ModelFramework) -> ServedModel<'static> {
        ServedModel { folder: Path::new("/m"), framework, serve: None, name: "m", signature: None }
    }

    #[test]
    fn missing_module_is_named_with_its_package() {
        let told = |missing: &str| {
            let result = HelperResult { missing: Some(missing.into()), ..HelperResult::default() };
            let fault = judged(result, &model(ModelFramework::ScikitLearn), Path::new("python3"));
            fault.unwrap_err().hint.clone().unwrap_or_default()
        };
        assert!(told("sklearn").contains("`python3 -m pip install scikit-learn`"));
        assert!(told("my_features").contains("PYTHONPATH"), "a module of the user's own");
    }

    #[test]
    fn refusal_is_the_sentence_of_the_server() {
        let said = |text: &str| refusal(serde_json::from_str(text).ok().as_ref(), text.as_bytes());
        assert_eq!(said("{\"message\": \"4 features\\nstack\"}"), "4 features");
        assert_eq!(said("{\"error\": \"no such signature\"}"), "no such signature");
        assert_eq!(said("plain"), "plain");
    }
}
