//! Stops containers that a workload has started. They outlive its processes, because a daemon is
//! their parent.
//!
//! Before the tree is killed, it is searched for clients (`docker run ...`): their words, and how
//! they reach their engine. After that, running containers are stopped if a client started them (by
//! name, id file, or image and words), or they mount a folder of the job. On a machine of its own,
//! so are containers that began after the workload.
//!
//! The client's own program is called, so that contexts, rootless engines and podman work as in the
//! workload. For what is certain, see docs/decisions.md, 35. Not here: when a workload ends.

#![expect(
    clippy::disallowed_methods,
    reason = "reads /proc, and runs the client of an engine within bounds"
)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::saved_environment;
use crate::adapters::host::process_tree::ProcessRef;
use crate::adapters::host::system_clock;

/// Programs that are clients of an engine.
const CLIENTS: [&str; 3] = ["docker", "podman", "nerdctl"];

/// The verbs that start a container, or run something in one.
const VERBS: [&str; 6] = ["run", "start", "create", "exec", "compose", "container"];

/// The label of compose with the folder of its call.
const COMPOSE_FOLDER: &str = "com.docker.compose.project.working_dir";

/// The socket of Docker's engine. Without it, only engines of clients in the tree are asked.
const SOCKET: &str = "/run/docker.sock";

/// How long the engine may take for an answer, and for stopping our containers. A container gets
/// [`STOP_SECS`] of that.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// The time between SIGTERM and SIGKILL. The workload had its own grace period before; a detached
/// container hears of the end only now.
const STOP_SECS: &str = "5";

/// How far the engine's clock and the kernel's ticks may differ: both belong to this machine.
const CLOCKS_APART: SignedDuration = SignedDuration::from_secs(2);

/// The limit of its answer: some hundred containers.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A client in the process tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The command that runs it again: the program, or an interpreter and its script.
    program: Vec<OsString>,
    /// Its arguments from `run` on.
    words: Vec<String>,
    /// The variables that select its engine.
    env: BTreeMap<OsString, OsString>,
    cwd: PathBuf,
    began: Timestamp,
}

/// The workload whose containers are stopped.
#[derive(Clone, Debug, Default)]
pub struct ContainerOwner {
    /// Folders that no other job uses.
    pub folders: Vec<PathBuf>,
    /// Since when all new containers of this machine belong to the job; `None`: the machine has
    /// other users.
    pub all_since: Option<Timestamp>,
}

/// An engine's description of a container.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct InspectedContainer {
    id: String,
    created: String,
    name: String,
    config: Config,
    image_name: String,
    mounts: Vec<Mount>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Config {
    image: String,
    cmd: Option<Vec<String>>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Mount {
    source: String,
}

/// The clients among these processes.
pub fn clients(pids: impl IntoIterator<Item = u32>) -> Vec<Client> {
    pids.into_iter().filter_map(client).collect()
}

fn client(pid: u32) -> Option<Client> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let words: Vec<OsString> = split(&fs::read(proc.join("cmdline")).ok()?);
    // A script has its interpreter before it.
    let at = words.iter().take(2).position(|word| {
        Path::new(word).file_name().is_some_and(|name| CLIENTS.iter().any(|client| name == *client))
    })?;
    let said: Vec<String> =
        words[at + 1..].iter().map(|word| word.to_string_lossy().into_owned()).collect();
    // The words before it select an engine: `--context gpu`, `--root /data`.
    let verb = said.iter().position(|word| VERBS.contains(&word.as_str()))?;
    let is_way = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with("DOCKER_")
            || name.starts_with("CONTAINER_")
            || ["HOME", "PATH", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"].contains(&&*name)
    };
    let variables = saved_environment::parse(&fs::read(proc.join("environ")).ok()?);
    let mut program = words[..=at].to_vec();
    if at == 0
        && let Ok(exe) = fs::read_link(proc.join("exe"))
    {
        program[0] = exe.into_os_string();
    }
    program.extend(said[..verb].iter().map(OsString::from));
    Some(Client {
        program,
        words: said[verb..].to_vec(),
        env: variables.into_iter().filter(|(name, _)| is_way(name)).collect(),
        cwd: fs::read_link(proc.join("cwd")).ok()?,
        began: began(pid)?,
    })
}

/// When a process began.
fn began(pid: u32) -> Option<Timestamp> {
    let since_boot = Duration::from_secs_f64(
        ProcessRef::of(pid)?.start_ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
    );
    Timestamp::now().checked_sub(system_clock::since_boot().saturating_sub(since_boot)).ok()
}

fn split(bytes: &[u8]) -> Vec<OsString> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    bytes.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect()
}

/// Stops the running containers of the clients and the owner.
///
/// # Errors
/// A container may still run; the error has the engine's message.
pub async fn end(clients: Vec<Client>, owner: ContainerOwner) -> io::Result<()> {
    if clients.is_empty() && !Path::new(SOCKET).exists() {
        return Ok(());
    }
    let (stopped, failed) = tokio::task::spawn_blocking(move || stop(&clients, &owner))
        .await
        .map_err(io::Error::other)?;
    if !stopped.is_empty() {
        tracing::info!("containers of the workload are stopped: {}", stopped.join(", "));
    }
    if failed.is_empty() { Ok(()) } else { Err(io::Error::other(failed.join("; "))) }
}

/// The same, blocking; returns the names of the stopped containers, and the failures.
pub fn stop(clients: &[Client], owner: &ContainerOwner) -> (Vec<String>, Vec<String>) {
    let (mut stopped, mut failed) = (Vec::new(), Vec::new());
    for (engine, own) in engines(clients) {
        let running = match engine.running() {
            Ok(running) => running,
            Err(why) => {
                // Without a client in its tree, a workload most likely uses no containers.
                failed.extend((!own.is_empty()).then_some(why));
                continue;
            }
        };
        let ours: Vec<&InspectedContainer> =
            running.iter().filter(|found| is_ours(found, &own, owner)).collect();
        if ours.is_empty() {
            continue;
        }
        let ids = ours.iter().map(|found| found.id.as_str());
        let said = engine.ask(["stop", "-t", STOP_SECS].into_iter().chain(ids), STOP_WITHIN);
        let names = ours.iter().map(|found| found.name.trim_start_matches('/').to_owned());
        match said {
            Ok(_) => stopped.extend(names),
            Err(why) => failed.push(format!("{}: {why}", names.collect::<Vec<_>>().join(", "))),
        }
    }
    (stopped, failed)
}

/// The engines in use, each with its clients; and Docker's own engine if it runs.
fn engines(clients: &[Client]) -> Vec<(Engine, Vec<&Client>)> {
    let mut engines: Vec<(Engine, Vec<&Client>)> = Vec::new();
    for client in clients {
        let engine = Engine { program: client.program.clone(), env: client.env.clone() };
        match engines.iter_mut().find(|(known, _)| *known == engine) {
            Some((_, of_it)) => of_it.push(client),
            None => engines.push((engine, vec![client])),
        }
    }
    if engines.is_empty() && Path::new(SOCKET).exists() {
        let own = std::env::vars_os()
            .filter(|(name, _)| ["PATH", "HOME"].iter().any(|kept| name == kept))
            .collect();
        engines.push((Engine { program: vec!["docker".into()], env: own }, Vec::new()));
    }
    engines
}

/// Whether it belongs to the workload.
fn is_ours(found: &InspectedContainer, clients: &[&Client], owner: &ContainerOwner) -> bool {
    let created: Option<Timestamp> = found.created.parse().ok();
    let is_new = owner.all_since.zip(created).is_some_and(|(since, created)| created >= since);
    let called_in = found.config.labels.iter().filter_map(|labels| labels.get(COMPOSE_FOLDER));
    let mut places = found.mounts.iter().map(|mount| &mount.source).chain(called_in);
    let has_folder =
        places.any(|place| owner.folders.iter().any(|folder| Path::new(place).starts_with(folder)));
    is_new || has_folder || clients.iter().any(|client| client.started(found))
}

impl Client {
    /// Whether this client has started that container.
    fn started(&self, found: &InspectedContainer) -> bool {
        let name = found.name.trim_start_matches('/');
        let named = |flag: &str| {
            let long = format!("{flag}=");
            self.words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix(&long) {
                Some(value) => Some(value),
                None if word == flag => self.words.get(at + 1).map(String::as_str),
                None => None,
            })
        };
        if let Some(wanted) = named("--name") {
            return wanted == name;
        }
        if let Some(file) = named("--cidfile") {
            return fs::read_to_string(self.cwd.join(file))
                .is_ok_and(|id| !id.trim().is_empty() && found.id.starts_with(id.trim()));
        }
        // `start NAME`, `exec NAME`: the name is among the words.
        if self
            .words
            .iter()
            .any(|word| word == name || (word.len() >= 12 && found.id.starts_with(word.as_str())))
        {
            return true;
        }
        let is_later = found
            .created
            .parse()
            .is_ok_and(|created: Timestamp| created >= self.began - CLOCKS_APART);
        let Some(run) = self.words.iter().position(|word| word == "run").filter(|_| is_later)
        else {
            return false;
        };
        let images = [found.config.image.as_str(), found.image_name.as_str()];
        let is_image = |word: &String| {
            images.iter().any(|image| {
                !image.is_empty()
                    && (*image == word
                        || image.ends_with(&format!("/{word}"))
                        || *image == format!("{word}:latest")
                        || image.ends_with(&format!("/{word}:latest")))
            })
        };
        let Some(image) = self.words[run + 1..].iter().position(is_image) else { return false };
        let words = &self.words[run + 1 + image + 1..];
        words.is_empty() || found.config.cmd.as_deref() == Some(words)
    }
}

/// How to reach an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Engine {
    program: Vec<OsString>,
    env: BTreeMap<OsString, OsString>,
}

impl Engine {
    fn running(&self) -> Result<Vec<InspectedContainer>, String> {
        let ids = self.ask(["ps", "-q", "--no-trunc"], ANSWER_WITHIN)?;
        let ids = String::from_utf8_lossy(&ids).into_owned();
        if ids.trim().is_empty() {
            return Ok(Vec::new());
        }
        let said =
            self.ask(["inspect"].into_iter().chain(ids.split_whitespace()), ANSWER_WITHIN)?;
        serde_json::from_slice(&said)
            .map_err(|error| format!("the container engine's answer is not understood: {error}"))
    }

    /// The client's output, if it succeeds within this time.
    fn ask<'a>(
        &self,
        words: impl IntoIterator<Item = &'a str>,
        within: Duration,
    ) -> Result<Vec<u8>, String> {
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]).args(words).env_clear().envs(&self.env).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command
            .spawn()
            .map_err(|error| format!("the container engine's client cannot be run: {error}"))?;
        let reads = child.stdout.take().map(|output| std::thread::spawn(move || read(output)));
        let until = Instant::now() + within;
        let ended = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
                Ok(None) | Err(_) => break None,
            }
        };
        let Some(status) = ended else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!(
                "the container engine does not answer within {} s",
                within.as_secs()
            ));
        };
        let said = reads.and_then(|reads| reads.join().ok()).unwrap_or_default();
        if status.success() {
            Ok(said)
        } else {
            Err(format!("the container engine's client ended with {status}"))
        }
    }
}

fn read(output: impl io::Read) -> Vec<u8> {
    let mut said = Vec::new();
    // Output that is cut off is invalid JSON, which the parser reports.
    let _ = io::Read::read_to_end(&mut output.take(ANSWER_BYTES_MAX as u64), &mut said);
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(json: serde_json::Value) -> InspectedContainer {
        serde_json::from_value(json).expect("as an engine says it")
    }

    fn client(words: &str) -> Client {
        let words = words.split(' ').map(str::to_owned).collect();
        Client {
            program: vec!["docker".into()],
            words,
            env: BTreeMap::new(),
            cwd: "/".into(),
            began: "2026-11-28T00:59:59Z".parse().expect("a time"),
        }
    }

    #[test]
    fn container_is_known_by_what_its_client_was_called_with() {
        let it = found(
            serde_json::json!({ "Id": "0123456789abcdef", "Name": "/happy_hopper", "Created": "2026-11-28T01:00:00.123456789Z",
            "Config": { "Image": "pytorch/pytorch:2.6", "Cmd": ["python", "train.py"] }, "Mounts": [{ "Source": "/jobs/a-222222/work/data" }] }),
        );
        for (words, ours) in [
            ("run --gpus all pytorch/pytorch:2.6 python train.py", true),
            ("run pytorch/pytorch:2.6 python other.py", false),
            ("run --name happy_hopper x", true),
            ("run --name=other pytorch/pytorch:2.6 python train.py", false),
            ("start -a happy_hopper", true),
            ("exec 0123456789ab ls", true),
            ("run ubuntu python train.py", false),
        ] {
            assert_eq!(client(words).started(&it), ours, "{words}");
        }
        let later = Client {
            began: "2026-11-28T02:00:00Z".parse().expect("a time"),
            ..client("run pytorch/pytorch:2.6 python train.py")
        };
        assert!(!later.started(&it), "the same image and words, an hour before");
        let of = |owner: &ContainerOwner| is_ours(&it, &[], owner);
        assert!(of(&ContainerOwner {
            folders: vec!["/jobs/a-222222/work".into()],
            all_since: None
        }));
        assert!(!of(&ContainerOwner {
            folders: vec!["/jobs/b-222222/work".into()],
            all_since: None
        }));
        assert!(of(&ContainerOwner {
            all_since: "2026-11-28T00:59:00Z".parse().ok(),
            ..ContainerOwner::default()
        }));
        assert!(
            !of(&ContainerOwner {
                all_since: "2026-11-28T01:01:00Z".parse().ok(),
                ..ContainerOwner::default()
            }),
            "it was there before"
        );
    }

    /// A client and its engine in one script: what it is asked is written down, and it runs one
    /// container.
    #[test]
    fn what_a_killed_client_has_started_is_stopped() {
        let folder = tempfile::tempdir().expect("a folder");
        let (docker, stopped) = (folder.path().join("docker"), folder.path().join("stopped"));
        let script = "#!/bin/sh\ncase \"$1\" in\nrun) exec sleep 60;;\nps) echo 00ab; echo 00cd;;\n\
            inspect) echo '[{\"Id\":\"00ab\",\"Created\":\"2999-01-01T00:00:00Z\",\"Name\":\"/ours\",\"Config\":{\"Image\":\"img\",\"Cmd\":[\"train\"]}},\
            {\"Id\":\"00cd\",\"Name\":\"/theirs\",\"Config\":{\"Image\":\"img\",\"Cmd\":[\"serve\"]}}]';;\nstop) echo \"$@\" > \"${0%/*}/stopped\";;\nesac\n";
        // `exec` would make another program of it: it stays the client for as long as it runs.
        fs::write(&docker, script.replace("exec sleep 60", "sleep 60 & wait")).expect("written");
        fs::set_permissions(&docker, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("set");
        let mut running = Command::new(&docker)
            .args(["run", "--rm", "img", "train"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let until = Instant::now() + Duration::from_secs(30);
        let seen = loop {
            let seen = clients([running.id()]);
            if !seen.is_empty() || Instant::now() > until {
                break seen;
            }
        };
        let children = crate::adapters::host::process_tree::tree(running.id());
        let (ended, failed) = stop(&seen, &ContainerOwner::default());
        children
            .into_iter()
            .filter_map(crate::adapters::host::process_tree::ProcessRef::of)
            .for_each(|process| drop(process.signal(rustix::process::Signal::KILL)));
        let _ = running.wait();
        assert_eq!((ended, failed), (vec!["ours".to_owned()], vec![]));
        assert_eq!(fs::read_to_string(stopped).expect("asked"), "stop -t 5 00ab\n");
    }
}
