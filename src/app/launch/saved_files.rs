//! Before a job runs: which files are kept after its machine ends, and which saved files would be
//! lost.
//!
//! Not here: how a script is read (`python_script`), and what was lost in the end (the agent).

use std::path::Path;

use crate::app::python_script::python_source::PythonScript;
use crate::app::python_script::save_detection::{self, DetectedSaves};
use crate::config::Loaded;
use crate::job::{Command, Finding, OutputGlob, Spec};

/// A larger script is data.
const SCRIPT_BYTES_MAX: u64 = 1 << 20;

pub fn line(spec: &Spec) -> String {
    let named = spec.outputs.iter().map(|pattern| format!("`{pattern}`"));
    let mut kept: Vec<String> = named.collect();
    kept.push("what the script writes to $LAMP_OUTPUT_DIR".to_owned());
    kept.extend(
        spec.checkpoint
            .as_ref()
            .map(|checkpoint| format!("the newest checkpoint of `{}`", checkpoint.path)),
    );
    format!("kept at its end: {}; all else in its workdir goes with the machine", kept.join(", "))
}

/// The files that the script's text saves, and that would be lost with the machine.
pub fn findings(loaded: &Loaded) -> Vec<Finding> {
    let Some(text) = script_of(&loaded.spec).and_then(|script| read(&loaded.workdir.join(script)))
    else {
        return Vec::new();
    };
    let saves = save_detection::look(&PythonScript::new(&text));
    let lost = unkept(&loaded.spec, &saves);
    let mut found = Vec::new();
    if !lost.is_empty() {
        let shown: Vec<String> = lost.iter().map(|path| format!("`{path}`")).collect();
        let line: Vec<String> =
            loaded.spec.outputs.iter().chain(&lost).map(|pattern| format!("{pattern:?}")).collect();
        let finding = Finding::warning(
            "outputs",
            format!("the script saves {}, which nothing keeps", shown.join(", ")),
        );
        found.push(finding.hint(format!("outputs = [{}] brings it home", line.join(", "))));
    }
    // An uncertain guess is not worth a warning before each run.
    if let (Some(folder), None) = (&saves.folder, &saves.doubt)
        && loaded.spec.checkpoint.is_none()
        && !is_kept(&loaded.spec, folder)
        && saves.links.is_empty()
    {
        let finding = Finding::warning(
            "checkpoint",
            format!("the script saves to `{folder}` ({}), which nothing keeps", saves.because),
        );
        found.push(finding.hint(format!("[checkpoint] with path = \"{folder}\" keeps it as it is saved, outputs = [\"{folder}/**\"] at the end")));
    }
    found
}

fn unkept(spec: &Spec, saves: &DetectedSaves) -> Vec<String> {
    // A text without a slash or a dot may be no path, and false alarms make people ignore warnings.
    let is_path = |path: &str| path.contains(['/', '.']);
    let is_of_folder =
        |path: &str| saves.folder.as_deref().is_some_and(|folder| is_below(path, folder));
    let files = saves
        .outputs
        .iter()
        .filter(|path| is_path(path) && !is_of_folder(path) && !is_kept(spec, path))
        .cloned();
    let folder = saves
        .folder
        .iter()
        .filter(|folder| saves.is_only_saved && !is_kept(spec, folder))
        .map(|folder| format!("{folder}/**"));
    files.chain(folder).collect()
}

fn is_kept(spec: &Spec, path: &str) -> bool {
    let by_output = |pattern: &String| {
        OutputGlob::new(pattern).is_ok_and(|glob| glob.names(path)) || pattern == path
    };
    let by_checkpoint = spec
        .checkpoint
        .as_ref()
        .is_some_and(|checkpoint| is_below(path, checkpoint.path.trim_matches('/')));
    by_checkpoint || is_below(path, "lamp-output") || spec.outputs.iter().any(by_output)
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn script_of(spec: &Spec) -> Option<&str> {
    let Command::Args(args) = &spec.command else { return None };
    args.iter()
        .map(String::as_str)
        .find(|word| word.ends_with(".py") && !word.starts_with(['-', '/']))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the script that the user wants to run is read to see what it saves"
)]
fn read(path: &Path) -> Option<String> {
    let is_text =
        std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= SCRIPT_BYTES_MAX);
    if is_text { std::fs::read_to_string(path).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(script: &str, outputs: &[&str]) -> Vec<String> {
        let spec =
            Spec { outputs: outputs.iter().map(ToString::to_string).collect(), ..Spec::bare() };
        unkept(&spec, &save_detection::look(&PythonScript::new(script)))
    }

    #[test]
    fn what_a_script_saves_is_lost_unless_something_keeps_it() {
        let script =
            "import torch\ntorch.save(m, 'model_final.bin')\ntorch.save(m, f'output/{n}.pt')\n";
        assert_eq!(lost(script, &[]), ["model_final.bin", "output/**"]);
        assert_eq!(lost(script, &["output/**"]), ["model_final.bin"]);
        assert!(lost(script, &["*.bin", "output"]).is_empty());
        assert!(lost("import torch\ntorch.save(m, 'lamp-output/m.pt')", &[]).is_empty());
    }

    #[test]
    fn line_before_a_run_says_what_stays_and_what_goes() {
        let spec = Spec { outputs: vec!["out/**".into()], ..Spec::bare() };
        assert_eq!(
            line(&spec),
            "kept at its end: `out/**`, what the script writes to $LAMP_OUTPUT_DIR; all else in its workdir goes with the machine"
        );
    }
}
