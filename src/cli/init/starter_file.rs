//! The text of a first job file. A comment beside each guess says that it is one.

use std::path::Path;

use super::project_detection::{DetectedProject, Launcher};
use crate::config::JOB_FILE;
use crate::job::{COMMAND_PLACEHOLDER, JobId};

fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

fn list(texts: &[String]) -> String {
    format!("[{}]", texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", "))
}

pub fn starter(found: &DetectedProject, folder: &Path) -> String {
    let name = folder
        .canonicalize()
        .ok()
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .unwrap_or_else(|| "job".into());
    let mut text = format!(
        "# A job for Lamplighter. `lamp check` finds what is wrong with it, `lamp run` runs it.\n\
         # docs/job-file.md explains every key. A length of time needs its unit: 30s, 15m, 2h, 3d.\n\n\
         name = {}\n\n",
        quoted(&JobId::slug(&name))
    );
    text.push_str(&what_runs(found));
    text.push_str("\n# Files to keep at the end, below this folder.\n");
    text.push_str(&match &found.saves.outputs[..] {
        [] => "# outputs = [\"model.pt\", \"metrics/*.json\"]\n".to_owned(),
        outputs => format!("outputs = {}\n", list(outputs)),
    });
    text.push_str(
        "\n# Packed and shipped is this folder, without what .gitignore and .lampignore name.\n\n\
         # [env]\n# SEED = 1\n\n\
         [machine]\ncloud = \"local\"            # this workstation; \"aws\" buys a machine: docs/aws.md\n\
         # gpus = \"A10G:1\"          # or \"at least 24GiB\"\n# market = \"spot\"          # of \"aws\": cheaper, can be interrupted\n\n",
    );
    text.push_str(&how_it_saves(found));
    text.push_str(
        "\n[watch]\nidle = \"5m\"                # every known signal quiet for this long; \"off\" never judges\n\
         stall = \"20m\"              # alive, but no step, log line or checkpoint for this long\n",
    );
    text.push_str(&match &found.saves.log_pattern {
        Some(pattern) => format!("log_pattern = {}   # how far it is, from a line that it prints\n", quoted(pattern)),
        None => "# log_pattern = \"step (\\\\d+)\" # how far it is, from its own lines; or it appends {\"step\": N} to the file LAMP_PROGRESS\n"
            .to_owned(),
    });
    text.push_str(
        "\n[limits]\nmax_runtime = \"12h\"        # of one attempt\n# budget = \"$5\"            # over all attempts\n\n\
         [on]\nfailure = \"terminate\"      # or \"keep 1h\" for a look at the machine\n",
    );
    text
}

fn what_runs(found: &DetectedProject) -> String {
    let (words, is_python) = match (&found.script, &found.program) {
        (Some(script), _) => (script.clone(), script.ends_with(".py")),
        (None, Some(program)) => (program.clone(), true),
        (None, None) => {
            return format!(
                "# What to run: a list is executed as it is, a string by the shell. Until it is there, the job is refused.\n\
                 command = {}\n",
                quoted(COMMAND_PLACEHOLDER)
            );
        }
    };
    let install = match found.requirements.as_deref() {
        Some("requirements.txt") if is_python => {
            Some(r#""$venv/bin/pip" install --quiet -r requirements.txt"#)
        }
        Some("uv.lock") if is_python => Some(
            r#""$venv/bin/pip" install --quiet uv && VIRTUAL_ENV="$venv" "$venv/bin/uv" sync --quiet --active --frozen --inexact"#,
        ),
        Some("pyproject.toml") if is_python => Some(r#""$venv/bin/pip" install --quiet ."#),
        _ => None,
    };
    let python = match (install, &found.venv) {
        (Some(_), _) => ".venv/bin/python",
        (None, Some(venv)) => venv,
        (None, None) => "python3",
    };
    let launcher: &[&str] = match found.launcher {
        Launcher::Torchrun => {
            &["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=auto"]
        }
        Launcher::Accelerate => &["-m", "accelerate.commands.launch"],
        Launcher::None => &[],
    };
    let mut command: Vec<String> = match &found.script {
        None => vec![format!(".venv/bin/{words}")],
        Some(_) if is_python => {
            [python].iter().chain(launcher).map(|word| (*word).to_owned()).chain([words]).collect()
        }
        Some(_) => vec!["bash".to_owned(), words],
    };
    command.extend(found.saves.arguments.iter().cloned());
    let mut text = format!(
        "# A list is executed as it is, a string by the shell. `lamp run {JOB_FILE} -- ...` replaces it.\n\
         command = {}\n",
        list(&command)
    );
    if !found.asks.is_empty() {
        text.push_str(&format!("# Not certain: the script has arguments without a default, and may need them here: {}\n", found.asks.join(" ")));
    }
    if install.is_none() && found.venv.is_some() {
        text.push_str("# That environment is of this workstation alone: a requirements.txt goes to every machine.\n");
    }
    let mut setup = Vec::new();
    if let Some(install) = install {
        setup.extend(
            // Two jobs of one name on a machine install one after the other.
            [
                "venv=$LAMP_CACHE_DIR/venv-$LAMP_JOB_NAME",
                r#"exec 9>"$venv.lock" && flock 9"#,
                r#"test -x "$venv/bin/pip" || python3 -m venv "$venv""#,
                install,
            ]
            .map(str::to_owned),
        );
        setup.push(r#"ln -sfn "$venv" .venv"#.to_owned());
    }
    if let (Some(folder), [_, ..]) = (&found.checkpoints, &found.saves.links[..]) {
        setup.push(format!("mkdir -p {folder}"));
        setup
            .extend(found.saves.links.iter().map(|link| format!("ln -sfn {folder}/{link} {link}")));
    }
    if setup.is_empty() {
        text.push_str(
            "\n# What a new machine needs before the command; each line must succeed.\n\
             # setup = [\"python3 -m pip install --user -r requirements.txt\"]\n",
        );
    } else {
        let kept = if install.is_some() {
            " The environment is kept on the machine for the next one."
        } else {
            ""
        };
        let lines: Vec<String> =
            setup.iter().map(|line| format!("    {},\n", quoted(line))).collect();
        text.push_str(&format!("\n# Runs once per attempt, before the command; each line must succeed.{kept}\nsetup = [\n{}]\n", lines.concat()));
    }
    text
}

fn how_it_saves(found: &DetectedProject) -> String {
    let signal = match found.signal {
        Some(signal) => format!("signal = {}         # asks the script to save", quoted(signal)),
        None => "# signal = \"SIGUSR1\"       # asks the script to save, if it listens for one"
            .to_owned(),
    };
    let because = if found.saves.because.is_empty() {
        String::new()
    } else {
        format!("# The folder: {}.\n", found.saves.because)
    };
    let doubt = found
        .saves
        .doubt
        .as_ref()
        .map(|doubt| format!("# Not certain: {doubt}.\n"))
        .unwrap_or_default();
    match &found.checkpoints {
        Some(folder) => format!(
            "[checkpoint]\n{because}{doubt}path = {}       # also in LAMP_CHECKPOINT_DIR; an interruption costs at most one interval\n\
             interval = \"10m\"\n{signal}\n",
            quoted(folder)
        ),
        None => format!(
            "# Without this table an interruption loses all work.\n# [checkpoint]\n\
             # path = \"checkpoints\"     # the folder that the script saves to; also in LAMP_CHECKPOINT_DIR\n\
             # interval = \"10m\"\n{}\n",
            if signal.starts_with('#') { signal } else { format!("# {signal}") }
        ),
    }
}
