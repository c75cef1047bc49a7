//! Checks of a spec against this workstation: is the folder there, is the program installed.
//!
//! Only what the machine that runs the job shares with this one is asked: with `cloud = "local"`
//! that is everything, else the workdir alone.

use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};

use super::key_suggest::closest;
use super::{Environment, Inputs};
use crate::account::setup::{BOX_ROLE, box_role};
use crate::job::{
    COMMAND_PLACEHOLDER, Finding, FindingCause, SECRET_BYTES_MAX, SecretSource, Spec, shell_word,
};
use crate::market::CloudKind;

/// Findings of the world; `workdir` is absolute.
pub fn check(spec: &Spec, workdir: &Path, inputs: &Inputs<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(deadline) = spec.limits.deadline.filter(|deadline| *deadline <= inputs.now) {
        let finding = Finding::error("limits.deadline", format!("`{deadline}` is in the past"));
        found.push(finding.hint("without a zone or an offset it is this workstation's local time"));
    }
    if let Some(pattern) = &spec.watch.log_pattern
        && let Err(error) = regex_lite::Regex::new(pattern)
    {
        found.push(Finding::error(
            "watch.log_pattern",
            format!("is not a regular expression: {error}"),
        ));
    }
    check_gpus(spec, &mut found);
    check_secrets(spec, inputs, &mut found);
    if !workdir.is_dir() {
        let problem = if workdir.exists() { "is not a folder" } else { "is not there" };
        found.push(Finding::error("workdir", format!("`{}` {problem}", workdir.display())));
        return found;
    }
    check_program(spec, workdir, inputs.environment, &mut found);
    check_script(spec, workdir, &mut found);
    check_setup(spec, workdir, &mut found);
    if let Some(checkpoint) = &spec.checkpoint
        && workdir.join(&checkpoint.path).is_file()
    {
        let finding = Finding::error("checkpoint.path", format!("`{}` is a file", checkpoint.path));
        found.push(finding.hint("it must be the folder that the script saves to"));
    }
    found
}

/// Whether the secrets are where the job says: here, or among those that machines at AWS may read.
fn check_secrets(spec: &Spec, inputs: &Inputs<'_>, found: &mut Vec<Finding>) {
    let environment = inputs.environment;
    for (name, source) in &spec.secrets {
        let path = format!("secrets.{name}");
        let is_set = |variable: &str| environment.names.contains(variable);
        match source {
            _ if spec.machine.cloud == CloudKind::Aws => {
                let allowed = inputs
                    .user
                    .aws
                    .secrets
                    .iter()
                    .flatten()
                    .any(|allowed| allowed.0.whole() == source.whole());
                // Only the policy of our own role is known here.
                if source.is_at_aws() && !allowed && is_our_role(inputs) {
                    let finding = Finding::error(
                        &path,
                        format!("is `{source}`, which the role of the machines may not read"),
                    );
                    let line = format!(
                        "add \"{}\" to `secrets` in [aws] of the configuration, then `lamp init aws` allows it",
                        source.whole()
                    );
                    found.push(finding.hint(line));
                }
            }
            SecretSource::Env(variable) => {
                let variable = variable.as_deref().unwrap_or(name);
                if !is_set(variable) {
                    let finding = Finding::error(
                        &path,
                        format!("the environment of `lamp` has no {variable}"),
                    );
                    found.push(finding.hint(format!(
                        "`export {variable}=...` before, or name a file: {name} = \"file:PATH\""
                    )));
                }
            }
            SecretSource::File(file) => {
                let file = environment.at_home(file);
                let problem = match std::fs::metadata(&file) {
                    Ok(meta) if !meta.is_file() => "is no regular file".to_owned(),
                    Ok(meta) if meta.len() == 0 => "is empty".to_owned(),
                    Ok(meta) if meta.len() > SECRET_BYTES_MAX => {
                        format!("is larger than {SECRET_BYTES_MAX} bytes")
                    }
                    Ok(_) if rustix::fs::access(&file, rustix::fs::Access::READ_OK).is_err() => {
                        "may not be read".to_owned()
                    }
                    Ok(_) => continue,
                    Err(error) => error.to_string(),
                };
                found.push(Finding::error(
                    &path,
                    format!("cannot be read from `{}`: {problem}", file.display()),
                ));
            }
            SecretSource::Ssm(_) | SecretSource::SecretsManager { .. } => {
                if !is_set(name) {
                    let finding = Finding::error(
                        &path,
                        format!(
                            "is `{source}`, which machines at AWS alone read; the environment of `lamp` has no {name}"
                        ),
                    );
                    found.push(finding.hint(format!(
                        "`export {name}=...` gives it to a job on this workstation"
                    )));
                }
            }
        }
    }
}

/// The role that `lamp init aws` makes, and writes the policy of.
fn is_our_role(inputs: &Inputs<'_>) -> bool {
    box_role(inputs.user.aws.instance_profile.as_deref()) == BOX_ROLE
}

/// Fewer GPUs than the job asks for, where that shows without asking the driver: the agent asks it,
/// and has the last word.
fn check_gpus(spec: &Spec, found: &mut Vec<Finding>) {
    let wanted = &spec.machine.gpus;
    // Under WSL the driver shows no devices of its own.
    if spec.machine.cloud != CloudKind::Local || wanted.count == 0 || Path::new("/dev/dxg").exists()
    {
        return;
    }
    let shown = (0..wanted.count)
        .filter(|index| Path::new(&format!("/dev/nvidia{index}")).exists())
        .count();
    if shown < wanted.count as usize {
        let message = format!("is `{wanted}`, but this machine shows {shown} NVIDIA GPUs");
        found.push(
            Finding::warning("machine.gpus", message)
                .hint("the driver is asked when the job starts, and too few GPUs end it there"),
        );
    }
}

/// Whether the command's program can be found; a machine in the cloud has other programs than this
/// one.
fn check_program(spec: &Spec, workdir: &Path, environment: &Environment, found: &mut Vec<Finding>) {
    let args = spec.command.plain_words();
    let Some(program) = args.first().copied().filter(|program| !program.trim().is_empty()) else {
        return;
    };
    if spec.command.display().trim() == COMMAND_PLACEHOLDER {
        return;
    }
    if program.contains(char::is_whitespace) && args.len() == 1 {
        let finding =
            Finding::error("command", format!("`{program}` is one word with blanks in it"));
        found.push(
            finding.hint("a list is executed as it is: one word per element, or write the whole as a string; on the command line, `-- sh -c '…'`"),
        );
        return;
    }
    let is_path = program.contains('/');
    let is_absolute = program.starts_with('/');
    let is_there =
        if is_path { workdir.join(program).is_file() } else { environment.finds_program(program) };
    if is_path && is_there && !is_executable(&workdir.join(program)) {
        let finding = Finding::error("command", format!("`{program}` may not be executed"));
        found.push(finding.hint(format!(
            "`chmod +x {}`, or name what reads it: command = [\"sh\", \"{program}\"]",
            shell_word(program)
        )));
        return;
    }
    let is_known = spec.machine.cloud == CloudKind::Local || (is_path && !is_absolute);
    if is_there || !is_known {
        return;
    }
    if spec.setup.is_some() && is_path && !is_absolute && is_made_by_setup(program) {
        return;
    }
    let place = if is_path && !is_absolute { "in the workdir" } else { "on this machine" };
    let message = format!("`{program}` is not {place}");
    found.push(if spec.setup.is_some() {
        Finding::warning("command", format!("{message}; `setup` has to bring it"))
    } else {
        Finding::error("command", message)
            .hint("is it spelled right? A program that must be installed first needs `setup`")
    });
}

fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0)
}

/// A virtual environment is never shipped, `setup` makes it: a finding about it in every job would
/// teach people to skip findings.
pub fn is_made_by_setup(program: &str) -> bool {
    let folder = program.trim_start_matches("./").split('/').next().unwrap_or_default();
    folder.starts_with('.') || ["venv", "env"].contains(&folder)
}

/// A file in the folder where the script would be, with nearly its name.
fn nearest(script: &str, workdir: &Path) -> Option<String> {
    let folder = Path::new(script).parent()?;
    let entries = std::fs::read_dir(workdir.join(folder)).ok()?.flatten();
    let files = entries
        .filter(|entry| entry.path().is_file())
        .filter_map(|entry| Some(folder.join(entry.file_name()).to_str()?.to_owned()));
    // So many are read of a folder with a million pictures.
    let files: Vec<String> = files.take(1000).collect();
    closest(script, files.iter().map(String::as_str)).map(str::to_owned)
}

/// The hint for a file that is not in the workdir.
fn where_it_may_be(file: &str, workdir: &Path) -> String {
    match nearest(file, workdir) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "is `workdir` right? It is relative to the job file".to_owned(),
    }
}

/// Whether a relative path ends above the folder that it begins in.
fn leads_out(path: &str) -> bool {
    let mut depth = 0_i32;
    Path::new(path).components().any(|part| {
        match part {
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => depth += 1,
            _ => {}
        }
        depth < 0
    })
}

/// A script that Python or a shell is asked to run must be in the workdir.
fn check_script(spec: &Spec, workdir: &Path, found: &mut Vec<Finding>) {
    let args = spec.command.plain_words();
    let Some(program) = args.first() else { return };
    let interpreter =
        Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !(interpreter.starts_with("python") || ["sh", "bash", "zsh"].contains(&interpreter)) {
        return;
    }
    let Some(script) = args.get(1).filter(|arg| !arg.starts_with('-')) else { return };
    if script.starts_with('/') {
        return;
    }
    if leads_out(script) {
        let message = format!(
            "`{script}` is outside the workdir `{}`, and only the workdir ships",
            workdir.display()
        );
        found.push(
            Finding::error("command", message)
                .hint(
                    "name a folder that holds both, like `--workdir ..`, and the script from there",
                )
                .because(FindingCause::WrongWorkdir),
        );
        return;
    }
    if workdir.join(script).exists() {
        return;
    }
    let message = format!("`{script}` is not in the workdir `{}`", workdir.display());
    found.push(if spec.setup.is_some() {
        Finding::warning("command", format!("{message}; `setup` has to bring it"))
    } else {
        let finding = Finding::error("command", message).hint(where_it_may_be(script, workdir));
        match nearest(script, workdir) {
            Some(_) => finding,
            None => finding.because(FindingCause::WrongWorkdir),
        }
    });
}

/// A list of packages or a script that `setup` names must be in the workdir too: that it is not
/// shows first on a machine that bills.
fn check_setup(spec: &Spec, workdir: &Path, found: &mut Vec<Finding>) {
    for file in spec.setup.as_deref().map(named_at_once).unwrap_or_default() {
        if workdir.join(file).exists() {
            continue;
        }
        let finding = Finding::warning(
            "setup",
            format!("`{file}` is not in the workdir `{}`", workdir.display()),
        );
        found.push(finding.hint(where_it_may_be(file, workdir)));
    }
}

/// The files that its first commands need: `pip install -r FILE`, `sh FILE`, `python FILE`,
/// `./FILE`. Only commands that make an environment may come before: any other may create the file
/// or change the folder. Commands that only a shell can read are skipped.
fn named_at_once(setup: &str) -> Vec<&str> {
    let mut named = Vec::new();
    for command in setup.lines().flat_map(|line| line.split("&&")) {
        let words: Vec<&str> = command.split_whitespace().collect();
        let [program, rest @ ..] = &words[..] else { continue };
        let program = program.rsplit('/').next().unwrap_or_default();
        if program == "set" || program.starts_with('#') {
            continue;
        }
        let installs =
            ["pip", "pip3", "uv"].contains(&program) || rest.first_chunk() == Some(&["-m", "pip"]);
        let lists = words
            .windows(2)
            .filter(|pair| installs && ["-r", "--requirement"].contains(&pair[0]))
            .map(|pair| pair[1]);
        let in_one = words
            .iter()
            .filter(|_| installs)
            .filter_map(|word| word.strip_prefix("--requirement="));
        let reads =
            ["sh", "bash", ".", "source"].contains(&program) || program.starts_with("python");
        let script = rest.first().filter(|_| reads).copied();
        let itself = words
            .first()
            .filter(|word| word.starts_with("./"))
            .copied()
            .filter(|word| !is_made_by_setup(word));
        named.extend(lists.chain(in_one).chain(script).chain(itself).filter(|file| is_plain(file)));
        if !installs && rest.first_chunk() != Some(&["-m", "venv"]) {
            break;
        }
    }
    named
}

/// A name that means the same to every shell.
fn is_plain(file: &str) -> bool {
    !file.starts_with(['-', '/', '~'])
        && !file.contains(['$', ':', '*', '?', '`', '<', '>', '"', '\'', '\\', ';', '|', '&', '('])
}
