//! Doubts about a shell command: work in the background, a hidden failure.

use super::script::parts;
use super::shell::unseen_failure;
use crate::job::{Command, Finding, Spec};

/// Checks a command that a shell runs.
pub(crate) fn check_script(spec: &Spec, found: &mut Vec<Finding>) {
    let script = match &spec.command {
        Command::Shell(script) => script.as_str(),
        Command::Args(args) => shell_script(args).unwrap_or_default(),
    };
    let all = parts(script);
    if all.leaves_work_behind() {
        let message = "puts its work into the background: the command has ended at once, and the work is killed with it";
        let hint = "leave the `&` away, and `nohup` with it: a job needs no terminal; or let the command end with `wait`";
        found.push(Finding::error("command", message).hint(hint));
    }
    // The shell of a text sees such a failure; a shell within the text does not.
    let hides_failure = match &spec.command {
        Command::Args(_) => has_blind_pipe(script),
        Command::Shell(_) => {
            all.parts.iter().filter_map(|part| inner_script(part.text)).any(has_blind_pipe)
        }
    };
    if hides_failure {
        let hint = "write the command as a text, `command = \"python train.py | tee log\"`, or begin the script with `set -o pipefail;`";
        found.push(
            Finding::warning("command", "runs a shell that does not see a failure before its pipe")
                .hint(hint),
        );
    }
    let unseen = match &spec.command {
        Command::Shell(script) => unseen_failure(script),
        Command::Args(_) => None,
    };
    if let Some(part) = unseen {
        let message =
            format!("a failure of `{part}` is not seen: its pipe is not the end of the command");
        let hint = "begin the command with `set -o pipefail;`, or end it with the pipe";
        found.push(Finding::warning("command", message).hint(hint));
    }
    let last: Vec<&str> = match &spec.command {
        Command::Args(args) if script.is_empty() => args.iter().map(String::as_str).collect(),
        _ => all.parts.last().iter().flat_map(|part| part.words()).collect(),
    };
    if detaches_terminal(&last) {
        let message = "starts its work in a terminal that is detached: the command has ended at once, and the work is killed with it";
        found.push(Finding::error("command", message).hint(
            "name the program itself: a job needs no terminal, and `lamp logs -f` follows it",
        ));
    }
    if detaches_container(&last) {
        let message = "starts a container in the background: the command has ended at once, and the container is stopped with it";
        found.push(
            Finding::error("command", message)
                .hint("leave `-d` away: `docker run --rm ...` ends when the container does"),
        );
    }
}

fn has_blind_pipe(script: &str) -> bool {
    let all = parts(script);
    let is_pipe = all.is_odd || all.has_inner_pipe || all.parts.iter().any(|part| part.piped);
    is_pipe && script.contains('|') && !script.contains("pipefail")
}

/// The script of `bash -c "SCRIPT"` within a text.
fn inner_script(command: &str) -> Option<&str> {
    let (before, quoted) = command.split_once(['"', '\''])?;
    let words: Vec<String> = before.split_whitespace().chain([quoted]).map(str::to_owned).collect();
    shell_script(&words)?;
    let (script, _) = quoted.rsplit_once(['"', '\''])?;
    Some(script)
}

/// The script of `sh -c SCRIPT`.
fn shell_script(args: &[String]) -> Option<&str> {
    let name = args.first()?.rsplit('/').next()?;
    let at = args
        .iter()
        .position(|word| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c'))?;
    ["sh", "bash", "dash", "zsh", "ksh"]
        .contains(&name)
        .then(|| args.get(at + 1).map(String::as_str))?
}

/// `tmux new -d ...`, `screen -dmS train ...`
fn detaches_terminal(words: &[&str]) -> bool {
    let flag = |letter: char| {
        words
            .iter()
            .any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(letter))
    };
    match words.first().map(|word| word.rsplit('/').next().unwrap_or(word)) {
        Some("tmux") => words.get(1).is_some_and(|verb| verb.starts_with("new")) && flag('d'),
        Some("screen") => flag('d') && flag('m'),
        _ => false,
    }
}

/// `docker run -d ...`
fn detaches_container(words: &[&str]) -> bool {
    let Some(at) = words.iter().position(|word| {
        ["docker", "podman", "nerdctl"].contains(&word.rsplit('/').next().unwrap_or(word))
    }) else {
        return false;
    };
    let is_detached = |word: &&str| {
        *word == "--detach"
            || (word.starts_with('-')
                && !word.starts_with("--")
                && word.contains('d')
                && word.len() < 5)
    };
    // The words after the image belong to the container.
    words[at..].get(1) == Some(&"run")
        && words[at + 2..].iter().take_while(|word| word.starts_with('-')).any(is_detached)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(command: Command) -> Vec<String> {
        let spec = Spec { command, ..Spec::bare() };
        let mut found = Vec::new();
        check_script(&spec, &mut found);
        found
            .iter()
            .map(|finding| finding.message.split(':').next().unwrap_or_default().to_owned())
            .collect()
    }

    fn list(words: &str) -> Command {
        Command::Args(words.split(' ').map(str::to_owned).collect())
    }

    fn shell(script: &str, words: [&str; 2]) -> Command {
        Command::Args(words.iter().chain([&script]).map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn work_in_the_background_is_an_error() {
        for script in ["nohup python3 train.py > train.log 2>&1 &", "cd a && (b &)"] {
            assert_eq!(
                said(Command::Shell(script.into())),
                ["puts its work into the background"],
                "{script}"
            );
            assert_eq!(
                said(shell(script, ["bash", "-lc"])),
                ["puts its work into the background"],
                "{script}"
            );
        }
        for script in [
            "tensorboard & python train.py",
            "a & b & wait",
            "python train.py 2>&1 | tee log",
            "a && b",
        ] {
            assert_eq!(said(Command::Shell(script.into())), [""; 0], "{script}");
        }
        assert_eq!(said(list("python train.py &")), [""; 0], "a word for the program");
    }

    #[test]
    fn terminal_that_is_detached_is_an_error() {
        for words in [
            "tmux new-session -d -s train python-train",
            "tmux new -ds train x",
            "screen -dmS train python train.py",
        ] {
            assert_eq!(
                said(list(words)),
                ["starts its work in a terminal that is detached"],
                "{words}"
            );
        }
        for words in ["tmux ls", "python -d screen", "screen -D"] {
            assert_eq!(said(list(words)), [""; 0], "{words}");
        }
    }

    #[test]
    fn container_in_the_background_is_an_error() {
        for words in [
            "docker run -d image",
            "docker run --rm --gpus=all -itd image train",
            "podman run --detach image",
        ] {
            assert_eq!(said(list(words)), ["starts a container in the background"], "{words}");
            assert_eq!(
                said(Command::Shell(words.into())),
                ["starts a container in the background"],
                "{words}"
            );
        }
        for words in ["docker run --rm image -d", "docker build -t x .", "python docker.py run -d"]
        {
            assert_eq!(said(list(words)), [""; 0], "{words}");
        }
        assert_eq!(said(Command::Shell("docker run -d x && docker wait x".into())), [""; 0]);
    }

    #[test]
    fn shell_of_the_users_own_hides_a_failure_before_its_pipe() {
        assert_eq!(
            said(shell("a | tee b", ["sh", "-c"])),
            ["runs a shell that does not see a failure before its pipe"]
        );
        for text in ["bash -c \"a | tee b\"", "/bin/sh -ec 'a 2>&1 | tee b' && echo done"] {
            assert_eq!(
                said(Command::Shell(text.into())),
                ["runs a shell that does not see a failure before its pipe"],
                "{text}"
            );
        }
        for text in [
            "a | tee b",
            "bash -c 'set -o pipefail; a | tee b'",
            "bash -c 'a' | tee b",
            "echo 'a | b'",
            "bash a.sh 'a | b'",
        ] {
            assert_eq!(said(Command::Shell(text.into())), [""; 0], "{text}");
        }
        assert_eq!(said(shell("set -o pipefail; a | tee b", ["bash", "-c"])), [""; 0]);
        assert_eq!(said(list("python -c print(1|2)")), [""; 0]);
    }
}
