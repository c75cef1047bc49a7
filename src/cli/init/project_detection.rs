//! The findings of `lamp init` in a folder: the script, its launcher, its requirements, its saves.
//!
//! Each is a guess. Not here: the text of the job file (`starter_file`).

use std::path::Path;

use serde::Serialize;

use crate::app::python_script::python_source::PythonScript;
use crate::app::python_script::save_detection::{self, DetectedSaves};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct DetectedProject {
    pub script: Option<String>,
    /// The only program that `pyproject.toml` installs, if there is no script.
    pub program: Option<String>,
    /// The script starts a process group of PyTorch, so `torchrun` runs it.
    pub distributed: bool,
    pub launcher: Launcher,
    pub requirements: Option<String>,
    /// The Python of an environment in the folder, if no file lists what to install.
    pub venv: Option<String>,
    pub checkpoints: Option<String>,
    pub signal: Option<&'static str>,
    pub saves: DetectedSaves,
    pub asks: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Launcher {
    #[default]
    None,
    Torchrun,
    Accelerate,
}

impl DetectedProject {
    pub(crate) fn is_placeholder(&self) -> bool {
        self.script.is_none() && self.program.is_none()
    }
}

/// Usual names of training scripts, the best first.
const SCRIPTS: [&str; 7] = [
    "train.py",
    "main.py",
    "run.py",
    "src/train.py",
    "src/main.py",
    "scripts/train.py",
    "train.sh",
];
/// Words in a script for `torchrun`, with one process for each GPU.
const DISTRIBUTED: [&str; 2] = ["init_process_group", "LOCAL_RANK"];
/// These start their own processes, and use such words for another launcher.
const LAUNCH_THEMSELVES: [&str; 2] = ["Lightning", "Ultralytics"];
const CHECKPOINT_FOLDERS: [&str; 5] =
    ["checkpoints", "checkpoint", "ckpts", "ckpt", "outputs/checkpoints"];

pub(crate) fn look(folder: &Path, script: Option<String>) -> DetectedProject {
    let is_file = |name: &&&str| folder.join(name).is_file();
    let known = || SCRIPTS.iter().find(is_file).map(|name| (*name).to_owned());
    let script = script.or_else(known).or_else(|| only_script(folder));
    let text = script.as_ref().and_then(|script| read(&folder.join(script))).unwrap_or_default();
    let python = PythonScript::new(&text);
    let saves = save_detection::look(&python);
    let program = if script.is_none() {
        read(&folder.join("pyproject.toml")).and_then(|text| only_program(&text))
    } else {
        None
    };
    let there = || {
        CHECKPOINT_FOLDERS
            .iter()
            .find(|name| folder.join(name).is_dir())
            .map(|name| (*name).to_owned())
    };
    let launches_itself = saves.framework.is_some_and(|name| LAUNCH_THEMSELVES.contains(&name));
    let distributed = !launches_itself && DISTRIBUTED.iter().any(|word| python.has(word));
    let launcher = match distributed {
        true => Launcher::Torchrun,
        false if !python.calls("Accelerator").is_empty() => Launcher::Accelerate,
        false => Launcher::None,
    };
    let requirements = ["requirements.txt", "uv.lock", "pyproject.toml"]
        .iter()
        .find(is_file)
        .map(|name| (*name).to_owned());
    let venv = || {
        [".venv/bin/python", "venv/bin/python"]
            .iter()
            .map(|name| folder.join(name))
            .find(|path| path.is_file())
    };
    let asks = python
        .required
        .values()
        .filter(|option| !saves.arguments.contains(option) && python.demands(option))
        .cloned()
        .collect();
    DetectedProject {
        script,
        program,
        distributed,
        launcher,
        venv: if requirements.is_none() {
            venv().and_then(|path| {
                std::path::absolute(path).ok()?.into_os_string().into_string().ok()
            })
        } else {
            None
        },
        requirements,
        checkpoints: saves.folder.clone().or_else(there),
        signal: ["SIGUSR1", "SIGTERM"].into_iter().find(|signal| text.contains(signal)),
        saves,
        asks,
    }
}

/// The command of a package that has only one.
fn only_program(pyproject: &str) -> Option<String> {
    let document = toml_edit::Document::parse(pyproject).ok()?;
    let programs = document.get("project")?.get("scripts")?.as_table_like()?;
    let mut names = programs.iter().map(|(name, _)| name.to_owned());
    names.next().filter(|_| names.next().is_none())
}

fn only_script(folder: &Path) -> Option<String> {
    let names =
        folder.read_dir().ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_script = |name: &String| {
        name.ends_with(".py")
            && !name.starts_with("test_")
            && !["setup.py", "conftest.py"].contains(&name.as_str())
    };
    let mut scripts: Vec<String> = names.filter(is_script).collect();
    if scripts.len() == 1 { scripts.pop() } else { None }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the script that the user wants to run is read to guess its settings"
)]
fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}
