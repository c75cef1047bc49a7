//! Where a script saves, what it leaves at its end, and how it shows progress, from its text.
//!
//! ```text
//!   a framework's own argument (output_dir) ── else saved *and* loaded ── else a usual name
//! ```
//!
//! Pure. An uncertain guess has a `doubt`, which the job file has as a comment.

use serde::Serialize;

use super::progress_pattern::progress;
use super::python_source::{PythonScript, UNKNOWN};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DetectedSaves {
    pub framework: Option<&'static str>,
    /// The checkpoint folder, and the evidence for it.
    pub folder: Option<String>,
    pub because: String,
    /// Nothing was found that loads a file of the folder: it may be a result.
    #[serde(skip)]
    pub is_only_saved: bool,
    /// Files that the script saves in the workdir itself. `setup` links each into the folder.
    pub links: Vec<String>,
    pub outputs: Vec<String>,
    /// A regular expression whose first group is the step.
    pub log_pattern: Option<String>,
    /// Words that the script needs after its name.
    pub arguments: Vec<String>,
    pub doubt: Option<String>,
}

/// The folder to use if the script takes it as an option.
const FOLDER: &str = "checkpoints";

const USUAL: [&str; 5] = ["checkpoints", "checkpoint", "ckpts", "ckpt", "outputs/checkpoints"];

/// Each framework and its modules, the most specific first: Trainer is often imported with
/// Accelerate, and all of them import torch.
const FRAMEWORKS: [(&str, &[&str]); 11] = [
    ("Ultralytics", &["ultralytics"]),
    ("Lightning", &["lightning", "pytorch_lightning"]),
    ("Hugging Face Trainer", &["transformers", "trl"]),
    ("DeepSpeed", &["deepspeed"]),
    ("Accelerate", &["accelerate"]),
    ("Keras", &["keras", "tensorflow.keras", "tensorflow"]),
    ("Orbax", &["orbax", "orbax.checkpoint"]),
    ("JAX", &["jax", "flax"]),
    ("XGBoost", &["xgboost"]),
    ("PyTorch", &["torch"]),
    ("scikit-learn", &["sklearn"]),
];

/// Arguments that name the checkpoint folder: the call, the argument, and its position (99: none).
const ARGUMENTS: [(&str, &str, usize); 9] = [
    ("BackupAndRestore", "backup_dir", 0),
    ("TrainingCheckPoint", "directory", 0),
    ("CheckpointManager", "directory", 0),
    ("ModelCheckpoint", "dirpath", 0),
    ("TrainingArguments", "output_dir", 0),
    ("Seq2SeqTrainingArguments", "output_dir", 0),
    ("SFTConfig", "output_dir", 0),
    ("DPOConfig", "output_dir", 0),
    ("GRPOConfig", "output_dir", 0),
];

/// Calls that save, with the position and the name of the path.
const SAVING: [(&str, usize, &str); 14] = [
    ("save", 1, "f"),
    ("save", 0, "filepath"),
    ("dump", 1, "filename"),
    ("save_file", 1, "filename"),
    ("save_model", 1, "save_directory"),
    ("save_model", 0, "fname"),
    ("save_pretrained", 0, "save_directory"),
    ("save_weights", 0, "filepath"),
    ("save_state", 0, "output_dir"),
    ("save_checkpoint", 0, "save_dir"),
    ("save_checkpoint", 1, "filename"),
    ("savez", 0, "file"),
    ("ModelCheckpoint", 0, "filepath"),
    ("CheckpointManager", 1, "directory"),
];

/// Calls that load or look for saved files.
const LOADING: [(&str, &str); 16] = [
    ("load", "f"),
    ("load_model", "fname"),
    ("load_file", "filename"),
    ("load_weights", "filepath"),
    ("load_state", "input_dir"),
    ("load_checkpoint", "load_dir"),
    ("from_pretrained", "path"),
    ("load_from_checkpoint", "checkpoint_path"),
    ("Booster", "model_file"),
    ("YOLO", "model"),
    ("exists", "path"),
    ("isfile", "path"),
    ("isdir", "path"),
    ("listdir", "path"),
    ("glob", "pathname"),
    ("get_last_checkpoint", "folder"),
];

pub fn look(script: &PythonScript) -> DetectedSaves {
    let framework = FRAMEWORKS
        .iter()
        .find(|(_, modules)| modules.iter().any(|module| script.imports(module)))
        .map(|(name, _)| *name);
    let mut saves = DetectedSaves { framework, ..DetectedSaves::default() };
    let saved = saved(script);
    let loaded = loaded(script);
    saves.find_folder(script, &saved, &loaded);
    saves.find_outputs(script, &saved);
    saves.log_pattern = progress(script, framework);
    saves
}

impl DetectedSaves {
    fn is(&self, framework: &str) -> bool {
        self.framework == Some(framework)
    }

    fn at(&mut self, folder: &str, because: impl Into<String>) {
        (self.folder, self.because) = (Some(folder.to_owned()), because.into());
    }

    fn find_folder(&mut self, script: &PythonScript, saved: &[String], loaded: &[String]) {
        if script.has("LAMP_CHECKPOINT_DIR") {
            return self.at(FOLDER, "the script asks for LAMP_CHECKPOINT_DIR");
        }
        if self.by_argument(script) || self.by_default(script) {
            return;
        }
        let is_loaded = |path: &&String| loaded.iter().any(|known| is_same_place(known, path));
        // A file that is loaded again is a checkpoint; one that is only saved is a result.
        if let Some(path) = saved.iter().find(is_loaded) {
            return self.by_path(path, "it is saved and loaded there");
        }
        let is_usual = |path: &&String| {
            path.to_ascii_lowercase().contains("ckpt")
                || path.to_ascii_lowercase().contains("checkpoint")
        };
        if let Some(path) = saved.iter().find(|path| is_usual(path) || path.contains(UNKNOWN)) {
            self.by_path(path, "it is saved there");
            self.is_only_saved = self.links.is_empty();
            self.doubt = Some("no line was found that loads it again: without one, an interrupted job begins anew".to_owned());
        } else if let Some(name) = USUAL.iter().find(|name| {
            ['"', '\'']
                .iter()
                .any(|q| script.has(&format!("{q}{name}{q}")) || script.has(&format!("{q}{name}/")))
        }) {
            self.at(name, "the script has this name in it");
            self.doubt = Some("no call that saves was recognised".to_owned());
        }
    }

    fn by_argument(&mut self, script: &PythonScript) -> bool {
        for (name, argument, place) in ARGUMENTS {
            for call in script.calls(name) {
                // Keras has a callback of the same name, whose first argument is a file.
                let place = if name == "ModelCheckpoint" && self.is("Keras") { 99 } else { place };
                let Some(value) = call.argument(argument, place) else { continue };
                if let Some(folder) = script.resolve(value).as_deref().and_then(folder_of) {
                    self.at(&folder, format!("{argument} of {name}"));
                    return true;
                }
                if let Some(option) = script.required_option(value).map(str::to_owned) {
                    self.at(FOLDER, format!("the script's {option}"));
                    self.arguments = vec![option, FOLDER.to_owned()];
                    return true;
                }
            }
        }
        false
    }

    /// Where a framework saves by default.
    fn by_default(&mut self, script: &PythonScript) -> bool {
        if self.is("Lightning") && !script.calls("Trainer").is_empty() {
            let named = |name: &str, argument: &str| {
                let value = script
                    .calls(name)
                    .iter()
                    .find_map(|call| call.argument(argument, 0).map(str::to_owned));
                value.and_then(|value| script.resolve(&value)).as_deref().and_then(folder_of)
            };
            let logger =
                ["TensorBoardLogger", "CSVLogger"].iter().find_map(|name| named(name, "save_dir"));
            let root = script.calls("Trainer").iter().find_map(|call| {
                call.named("default_root_dir").and_then(|value| script.resolve(value))
            });
            let root = root.as_deref().and_then(folder_of);
            let folder = logger
                .or_else(|| root.map(|root| format!("{root}/lightning_logs")))
                .unwrap_or_else(|| "lightning_logs".to_owned());
            self.at(&folder, "where Trainer saves by itself");
            if script.has("WandbLogger") || script.has("MLFlowLogger") {
                self.doubt = Some(
                    "with another logger, Lightning saves below the logger's folder".to_owned(),
                );
            }
            return true;
        }
        if self.is("Ultralytics") {
            let project = script
                .calls("train")
                .iter()
                .find_map(|call| call.named("project").and_then(|value| script.resolve(value)));
            self.at(
                &project.as_deref().and_then(folder_of).unwrap_or_else(|| "runs".to_owned()),
                "where Ultralytics saves",
            );
            return true;
        }
        if let Some(project) = project_dir(script) {
            let folder = if script.has("automatic_checkpoint_naming") {
                format!("{project}/checkpoints")
            } else {
                project
            };
            self.at(&folder, "project_dir of Accelerate");
            return true;
        }
        let trains = ["TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig"]
            .iter()
            .any(|name| !script.calls(name).is_empty());
        if trains {
            self.at("trainer_output", "where Trainer saves by itself");
        } else if script.has("HfArgumentParser") {
            self.at(FOLDER, "the script's --output_dir");
            self.arguments = vec!["--output_dir".to_owned(), FOLDER.to_owned()];
            self.doubt =
                Some("the script takes more arguments: add them to the command".to_owned());
        }
        self.folder.is_some()
    }

    fn by_path(&mut self, path: &str, because: &str) {
        match folder_of(path) {
            None if !path.contains(['/', '{']) => {
                self.at(
                    FOLDER,
                    format!(
                        "the script saves `{path}`, and the setup makes it a link into this folder"
                    ),
                );
                self.links.push(path.to_owned());
            }
            None => {}
            Some(folder) => self.at(&folder, because),
        }
    }

    fn find_outputs(&mut self, script: &PythonScript, saved: &[String]) {
        let below = |path: &String| {
            self.folder
                .as_ref()
                .is_some_and(|folder| path == folder || path.starts_with(&format!("{folder}/")))
        };
        let others = saved.iter().filter(|path| !below(path) && !self.links.contains(path));
        let is_folder = |path: &str| {
            let calls = |saver: &str| {
                ['"', '\'']
                    .iter()
                    .any(|quote| script.has(&format!("{saver}({quote}{path}{quote})")))
            };
            !path.contains('.') && ["save_model", "save_pretrained"].into_iter().any(calls)
        };
        let whole = |path: String| if is_folder(&path) { format!("{path}/**") } else { path };
        // A path that begins with an unknown part may be any file.
        self.outputs = others
            .map(|path| whole(path.replace(UNKNOWN, "*")))
            .filter(|path| !path.starts_with('*'))
            .chain(self.links.clone())
            .collect();
        if self.is("Hugging Face Trainer")
            && script.has(".save_model()")
            && let Some(folder) = &self.folder
        {
            self.outputs.push(format!("{folder}/*.*"));
        }
        if self.is("Ultralytics")
            && let Some(folder) = &self.folder
        {
            self.outputs.push(format!("{folder}/**/best.pt"));
        }
        self.outputs.dedup();
    }
}

fn project_dir(script: &PythonScript) -> Option<String> {
    let of = |(name, place): (&str, usize)| {
        let calls = script.calls(name);
        let values = calls.iter().filter_map(|call| call.argument("project_dir", place));
        values.filter_map(|value| script.resolve(value)).find_map(|path| folder_of(&path))
    };
    [("ProjectConfiguration", 0), ("Accelerator", 99)].into_iter().find_map(of)
}

fn saved(script: &PythonScript) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    for (name, place, argument) in SAVING {
        for call in script.calls(name) {
            let Some(value) = call.argument(argument, place) else { continue };
            let Some(path) = script.resolve(value).and_then(|path| below_workdir(&path)) else {
                continue;
            };
            // `json.dump(x, file)` writes results; `yaml.dump(x)` and the like have no path.
            if is_path(&path) && !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    paths
}

fn loaded(script: &PythonScript) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    for (name, argument) in LOADING {
        let calls = script.calls(name);
        let values = calls
            .iter()
            .filter_map(|call| call.argument(argument, 0))
            .filter_map(|value| script.resolve(value));
        paths.extend(values.filter_map(|path| below_workdir(&path)));
    }
    for method in ["exists", "is_file", "is_dir", "iterdir", "glob", "rglob"] {
        let owners = script.owners(method).into_iter().filter_map(|owner| script.resolve(owner));
        paths.extend(owners.filter_map(|path| below_workdir(&path)));
    }
    paths
}

fn is_path(path: &str) -> bool {
    !["w", "wb", "a", "ab", "r", "rb", "x", "xb"].contains(&path)
}

/// A path below the workdir, without `.`; `None`: it leads out of it.
fn below_workdir(path: &str) -> Option<String> {
    let parts: Vec<&str> =
        path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let leaves =
        path.starts_with(['/', '~']) || path.contains([':', '\\', '\n']) || parts.contains(&"..");
    (!leaves && !parts.is_empty()).then(|| parts.join("/"))
}

/// The parts of the path before the first unknown one, without a file name.
fn folder_of(path: &str) -> Option<String> {
    let path = below_workdir(path)?;
    let known: Vec<&str> = path
        .split('/')
        .take_while(|part| !part.contains([UNKNOWN.as_bytes()[0] as char, '*', '<']))
        .collect();
    let is_whole = known.len() == path.split('/').count();
    let has_ending = known
        .last()
        .is_some_and(|last| last.rsplit_once('.').is_some_and(|(stem, _)| !stem.is_empty()));
    let known = if is_whole && has_ending { &known[..known.len() - 1] } else { &known[..] };
    (!known.is_empty()).then(|| known.join("/"))
}

/// Whether `loaded` is `saved`, a folder above it, or a pattern for it.
fn is_same_place(loaded: &str, saved: &str) -> bool {
    let above = |loaded: &str| saved == loaded || saved.starts_with(&format!("{loaded}/"));
    above(loaded)
        || folder_of(loaded)
            .is_some_and(|folder| folder != loaded && loaded.contains(['*', '{']) && above(&folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(script: &str) -> DetectedSaves {
        look(&PythonScript::new(script))
    }

    #[test]
    fn reloaded_file_is_the_checkpoint_and_the_rest_are_outputs() {
        let saves = of(
            "import torch\np = os.path.join('ckpts', 'last.pt')\nif os.path.exists(p): torch.load(p)\ntorch.save(a, p)\ntorch.save(m, 'model.pt')\n",
        );
        assert_eq!(
            (saves.folder.as_deref(), saves.outputs),
            (Some("ckpts"), vec!["model.pt".to_owned()])
        );
        assert_eq!(saves.doubt, None);
        let never = of("import torch\ntorch.save(a, f'out/ckpt_{e}.pt')\n");
        assert!(never.folder.as_deref() == Some("out") && never.doubt.is_some(), "{never:?}");
        assert_eq!(of("import torch\ntorch.save(m, 'model.pt')\n").folder, None, "a result alone");
    }

    #[test]
    fn file_in_the_workdir_itself_becomes_a_link() {
        for script in [
            "import torch\ndef main(snapshot_path='snapshot.pt'):\n  torch.load(snapshot_path)\n  torch.save(s, self.snapshot_path)\n",
            "import torch\nPATH = './snapshot.pt'\ntorch.load(PATH)\ntorch.save(s, PATH)\n",
        ] {
            let saves = of(script);
            assert_eq!(
                (saves.folder.as_deref(), saves.links),
                (Some("checkpoints"), vec!["snapshot.pt".to_owned()]),
                "{script}"
            );
        }
    }

    #[test]
    fn frameworks_own_argument_names_the_folder() {
        for (script, folder) in [
            (
                "from transformers import TrainingArguments\nTrainingArguments(output_dir='./results', x=1)",
                "results",
            ),
            ("from trl import SFTConfig\nSFTConfig('sft')", "sft"),
            (
                "from transformers import TrainingArguments\nTrainingArguments(max_steps=1)",
                "trainer_output",
            ),
            ("import lightning as L\nL.Trainer(max_epochs=1)", "lightning_logs"),
            ("import lightning as L\nL.Trainer(default_root_dir='exp')", "exp/lightning_logs"),
            (
                "import pytorch_lightning as pl\nc = ModelCheckpoint(dirpath='my/dir')\npl.Trainer(callbacks=[c])",
                "my/dir",
            ),
            ("import keras\nkeras.callbacks.BackupAndRestore(backup_dir='backup')", "backup"),
            (
                "import keras\nkeras.callbacks.ModelCheckpoint('ck/{epoch}.keras')\nkeras.models.load_model('ck/1.keras')",
                "ck",
            ),
            (
                "import xgboost as xgb\nd='ck'\nxgb.callback.TrainingCheckPoint(directory=d, name='m')",
                "ck",
            ),
            (
                "from accelerate import Accelerator\nc=ProjectConfiguration(project_dir='o', automatic_checkpoint_naming=True)",
                "o/checkpoints",
            ),
            ("from ultralytics import YOLO\nYOLO('x.yaml').train(data='d.yaml')", "runs"),
            ("from ultralytics import YOLO\nYOLO('x.yaml').train(project='p')", "p"),
            (
                "import orbax.checkpoint as ocp\nocp.CheckpointManager(os.path.abspath('ock'), options=o)\n",
                "ock",
            ),
            ("import deepspeed\nengine.load_checkpoint('ds')\nengine.save_checkpoint('ds')", "ds"),
            ("save(os.environ['LAMP_CHECKPOINT_DIR'])", "checkpoints"),
        ] {
            assert_eq!(of(script).folder.as_deref(), Some(folder), "{script}");
        }
    }

    #[test]
    fn option_without_a_default_is_put_into_the_command() {
        let saves = of(
            "from transformers import TrainingArguments\np.add_argument('--output_dir', required=True)\nTrainingArguments(output_dir=args.output_dir)\n",
        );
        assert_eq!(
            (saves.folder.as_deref(), saves.arguments),
            (Some("checkpoints"), vec!["--output_dir".to_owned(), "checkpoints".to_owned()])
        );
    }
}
