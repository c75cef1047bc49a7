//! `lamp rehearse` uses the existing Python environment, and installs no other.
//!
//! ```text
//!   setup = venv, pip install, other lines     .venv here, or an active one
//!        └─ install lines go, the others stay; a link replaces the command's environment
//! ```
//!
//! A setup that calls a script (`bash setup.sh`) runs unchanged: its lines are not read. `rehearse`
//! runs the rehearsal.

use std::path::{Path, PathBuf};

use crate::app::launch::submission::ENVIRONMENT_FOLDERS;
use crate::job::{Command, Spec};

/// Programs that make an environment, or install into one.
const INSTALLERS: &[&str] = &[
    "pip",
    "pip3",
    "uv",
    "conda",
    "mamba",
    "micromamba",
    "poetry",
    "pdm",
    "pipenv",
    "virtualenv",
    "apt",
    "apt-get",
];

pub fn find(workdir: &Path, active: Option<PathBuf>) -> Option<PathBuf> {
    let is_one = |folder: &PathBuf| folder.join("bin/python").exists();
    let in_folder = ENVIRONMENT_FOLDERS.iter().map(|name| workdir.join(name));
    in_folder.chain(active).find(is_one)
}

/// Removes install lines, and lets the command find this environment. Returns whether it removed
/// any.
pub fn use_it(spec: &mut Spec, environment: &Path, path: Option<&str>) -> bool {
    let Some(setup) = spec.setup.as_ref().filter(|setup| setup.lines().all(is_plain)) else {
        return false;
    };
    let environment = environment.display().to_string();
    let quoted = environment.replace('\'', r"'\''");
    let (starts, rest): (Vec<&str>, Vec<&str>) =
        setup.lines().partition(|line| line.trim() == "set -e");
    let mut lines: Vec<String> = starts.into_iter().take(1).map(str::to_owned).collect();
    if let Some(own) = own_environment(&spec.command) {
        let parent = Path::new(own).parent().filter(|parent| !parent.as_os_str().is_empty());
        lines.extend(parent.map(|parent| format!("mkdir -p '{}'", parent.display())));
        lines.push(format!("ln -sfn '{quoted}' '{own}'"));
    }
    // The other lines may run the environment's programs by the name that the setup gave it.
    let stays = |line: &&str| match assigned(line) {
        Some(name) => Some(format!("{name}='{quoted}'")),
        None => (!installs(line)).then(|| (*line).to_owned()),
    };
    let kept: Vec<String> = rest.iter().filter_map(stays).collect();
    if rest.iter().all(|line| assigned(line).is_none() && !installs(line)) {
        return false;
    }
    lines.extend(kept);
    let says_more =
        lines.iter().any(|line| !["", "set -e"].contains(&line.trim()) && assigned(line).is_none());
    spec.setup = says_more.then(|| lines.join("\n") + "\n");
    spec.env.insert("VIRTUAL_ENV".into(), environment.clone());
    spec.env.insert(
        "PATH".into(),
        format!("{environment}/bin:{}", path.unwrap_or("/usr/local/bin:/usr/bin:/bin")),
    );
    true
}

/// Whether a line is complete and does nothing besides an installation. Else the setup stays
/// unchanged.
fn is_plain(line: &str) -> bool {
    let line = line.trim();
    let first = line.split_whitespace().next().unwrap_or_default();
    let opens = [
        "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac",
        "{", "}", "(",
    ]
    .contains(&first);
    let runs = ["uv run", "poetry run", "conda run", "pipenv run", "pdm run"]
        .iter()
        .any(|words| line.contains(words));
    let is_lock = line.starts_with("exec 9>");
    let does_more = installs(line) && !is_lock && (line.contains("&&") || line.contains(';'));
    !(opens || runs || does_more || line.ends_with('\\') || line.contains("<<"))
}

/// `venv` of `venv=$LAMP_CACHE_DIR/venv-$LAMP_JOB_NAME`: the name of the setup's environment.
fn assigned(line: &str) -> Option<&str> {
    let (name, _) = line.trim().split_once('=')?;
    ["venv", "VENV"].contains(&name).then_some(name)
}

fn installs(line: &str) -> bool {
    let line = line.trim();
    let makes_a_link =
        line.starts_with("ln ") && line.split_whitespace().any(|word| word.contains("venv"));
    let is_lock = line.starts_with("exec 9>");
    let words: Vec<&str> = line
        .split(|c: char| c.is_whitespace() || "\"';&|()".contains(c))
        .filter(|word| !word.is_empty())
        .collect();
    let is_installer = |word: &&str| INSTALLERS.contains(&word.rsplit('/').next().unwrap_or(word));
    let as_module = words
        .windows(2)
        .any(|pair| pair[0] == "-m" && ["venv", "pip", "virtualenv", "uv"].contains(&pair[1]));
    let activates = words.iter().any(|word| word.ends_with("bin/activate"));
    makes_a_link || is_lock || as_module || activates || words.iter().any(is_installer)
}

/// `.venv` of `.venv/bin/python train.py`: the command's own environment.
fn own_environment(command: &Command) -> Option<&str> {
    let first = match command {
        Command::Args(args) => args.first()?.as_str(),
        Command::Shell(script) => script.split_whitespace().find(|word| word.contains("/bin/"))?,
    };
    let (folder, program) = first.rsplit_once("/bin/")?;
    (!folder.starts_with('/') && !folder.is_empty() && !program.contains('/')).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(command: &[&str], setup: &str) -> Spec {
        Spec {
            command: Command::Args(command.iter().map(|word| (*word).to_owned()).collect()),
            setup: Some(setup.into()),
            ..Spec::bare()
        }
    }

    #[test]
    fn what_installs_goes_and_the_rest_of_the_setup_stays() {
        let setup = "set -e\nvenv=$LAMP_CACHE_DIR/venv-$LAMP_JOB_NAME\nexec 9>\"$venv.lock\" && flock 9\ntest -x \"$venv/bin/pip\" || python3 -m venv \"$venv\"\n\
            \"$venv/bin/pip\" install --quiet -r requirements.txt\nln -sfn \"$venv\" .venv\n.venv/bin/python prepare.py\n\"${venv}/bin/hf\" download x\n";
        let mut drafted = spec(&[".venv/bin/python", "train.py"], setup);
        assert!(use_it(&mut drafted, Path::new("/home/ada/p/.venv"), Some("/usr/bin")));
        let expected = "set -e\nln -sfn '/home/ada/p/.venv' '.venv'\nvenv='/home/ada/p/.venv'\n.venv/bin/python prepare.py\n\"${venv}/bin/hf\" download x\n";
        assert_eq!(drafted.setup.as_deref(), Some(expected));
        assert_eq!(drafted.env["PATH"], "/home/ada/p/.venv/bin:/usr/bin");
        let mut bare = spec(&["python3", "train.py"], "set -e\npip install -r requirements.txt\n");
        assert!(use_it(&mut bare, Path::new("/v"), None));
        assert_eq!(bare.setup, None);
    }

    #[test]
    fn setup_that_installs_nothing_or_is_a_script_stays_as_it_is() {
        for setup in [
            "set -e\nif [ ! -d .venv ]; then\npython3 -m venv .venv\nfi\n",
            "set -e\npip install \\\n -r requirements.txt\n",
            "set -e\npip install x && python prepare.py\n",
            "set -e\nuv run python prepare.py\n",
            "set -e\nmkdir -p data\ncp -r /data/mnist data\n",
            "bash setup.sh",
            "set -e\nln -sfn checkpoints/out out\n",
        ] {
            let mut said = spec(&["python3", "train.py"], setup);
            let before = said.clone();
            assert!(!use_it(&mut said, Path::new("/v"), None), "{setup}");
            assert_eq!(said, before);
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test makes environments to find")]
    fn environment_of_the_folder_comes_before_the_active_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let active = folder.path().join("elsewhere");
        std::fs::create_dir_all(active.join("bin")).expect("made");
        std::fs::write(active.join("bin/python"), "").expect("written");
        assert_eq!(find(folder.path(), Some(active.clone())), Some(active.clone()));
        std::fs::create_dir_all(folder.path().join("venv/bin")).expect("made");
        std::fs::write(folder.path().join("venv/bin/python"), "").expect("written");
        assert_eq!(find(folder.path(), Some(active)), Some(folder.path().join("venv")));
        assert_eq!(find(&folder.path().join("none"), None), None);
    }
}
