//! Stacks of a stalled process tree: the kernel's view of each thread, and Python's if `py-spy` is
//! installed.
//!
//! Reading `/proc` does not disturb the processes. `py-spy` pauses its targets for some
//! milliseconds, so it runs only on a stalled tree. Not here: the judgement.

#![expect(clippy::disallowed_methods, reason = "reads /proc, which is what this adapter is for")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use tokio::process::Command;

use super::process_tree;
use crate::ports::{Scope, Stacks};

/// Python processes to dump. One per GPU is usual; further data loaders look alike.
const PYTHON_MAX: usize = 8;

/// A dump takes well under a second. A process stuck in the kernel hangs py-spy too.
const DUMP_MAX: Duration = Duration::from_secs(5);

/// Threads shown per process: PyTorch starts one per core and library.
const THREADS_MAX: usize = 256;

#[derive(Clone, Copy, Debug, Default)]
pub struct ProcStacks;

#[async_trait]
impl Stacks for ProcStacks {
    async fn dump(&self, scope: &Scope, bytes_max: usize) -> String {
        // On another thread: reading a process that is stuck in the kernel may block.
        let scope = scope.clone();
        let kernel = tokio::task::spawn_blocking(move || kernel_view(&pids(&scope))).await;
        let (mut text, python) = kernel.unwrap_or_else(|error| {
            (format!("the process tree could not be read: {error}\n"), Vec::new())
        });
        python_view(&mut text, &python).await;
        cut(text, bytes_max)
    }
}

/// The workload's tree and what the holder adopted, without the holder.
fn pids(scope: &Scope) -> Vec<u32> {
    let mut pids: BTreeSet<u32> = scope.root_pid.into_iter().flat_map(process_tree::tree).collect();
    if let Some(holder) = scope.holder_pid {
        pids.extend(process_tree::tree(holder));
        pids.remove(&holder);
    }
    pids.into_iter().collect()
}

/// One block per process, and the numbers of the Python processes.
fn kernel_view(pids: &[u32]) -> (String, Vec<u32>) {
    let mut text = format!("{} processes\n", pids.len());
    let mut python = Vec::new();
    for &pid in pids {
        let Some(comm) = line(format!("/proc/{pid}/comm")) else { continue };
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let _ = writeln!(
            text,
            "\nprocess {pid} {comm}: {}",
            command.trim().chars().take(400).collect::<String>()
        );
        if comm.starts_with("python") || comm.starts_with("pt_main_thread") {
            python.push(pid);
        }
        let mut threads: Vec<u32> = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        threads.sort_unstable();
        for &thread in threads.iter().take(THREADS_MAX) {
            thread_view(&mut text, pid, thread);
        }
        if threads.len() > THREADS_MAX {
            let _ = writeln!(text, "  and {} threads more", threads.len() - THREADS_MAX);
        }
    }
    (text, python)
}

fn thread_view(text: &mut String, pid: u32, thread: u32) {
    let task = format!("/proc/{pid}/task/{thread}");
    let Some(stat) = line(format!("{task}/stat")) else { return };
    let name = line(format!("{task}/comm")).unwrap_or_default();
    // The state follows the name, which may hold anything.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('?');
    let _ = write!(text, "  thread {thread} {name} state {state}");
    if let Some(wchan) =
        line(format!("{task}/wchan")).filter(|wchan| wchan != "0" && !wchan.is_empty())
    {
        let _ = write!(text, " waits in {wchan}");
    }
    if let Some(syscall) = line(format!("{task}/syscall")) {
        let _ = write!(text, " syscall {}", syscall.split(' ').next().unwrap_or_default());
    }
    text.push('\n');
    if let Ok(stack) = fs::read_to_string(format!("{task}/stack")) {
        for frame in stack.lines() {
            let _ = writeln!(text, "    {frame}");
        }
    }
}

fn line(path: String) -> Option<String> {
    Some(
        String::from_utf8_lossy(&fs::read(path).ok()?)
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
    )
}

async fn python_view(text: &mut String, pids: &[u32]) {
    for pid in pids.iter().take(PYTHON_MAX) {
        let mut command = Command::new("py-spy");
        command.args(["dump", "--pid", &pid.to_string()]).stdin(Stdio::null()).kill_on_drop(true);
        let _ = writeln!(text, "\npy-spy dump --pid {pid}");
        match tokio::time::timeout(DUMP_MAX, command.output()).await {
            Ok(Ok(output)) => {
                text.push_str(&String::from_utf8_lossy(&output.stdout));
                text.push_str(&String::from_utf8_lossy(&output.stderr));
            }
            Ok(Err(error)) if error.kind() == ErrorKind::NotFound => {
                text.push_str(
                    "py-spy is not installed: `pip install py-spy` shows where Python is\n",
                );
                return;
            }
            Ok(Err(error)) => {
                let _ = writeln!(text, "{error}");
            }
            Err(_) => {
                let _ = writeln!(text, "no answer within {} s", DUMP_MAX.as_secs());
            }
        }
    }
}

/// Cuts at a character boundary and says so.
fn cut(mut text: String, bytes_max: usize) -> String {
    const MORE: &str = "\n[cut here]\n";
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max.saturating_sub(MORE.len())));
        text.push_str(MORE);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sleeping_child_is_seen_waiting() {
        let mut child = Command::new("sleep").arg("1000").kill_on_drop(true).spawn().unwrap();
        let scope = Scope { root_pid: child.id(), ..Scope::default() };
        // Waits until it runs `sleep` and sleeps.
        let seen = async {
            loop {
                let text = ProcStacks.dump(&scope, 1 << 20).await;
                if text.contains("sleep 1000") && text.contains("state S") {
                    return text;
                }
                tokio::task::yield_now().await;
            }
        };
        let text = tokio::time::timeout(Duration::from_secs(20), seen)
            .await
            .expect("a sleeping process is seen");
        assert!(text.starts_with("1 processes\n"), "{text}");
        child.kill().await.unwrap();
        assert_eq!(ProcStacks.dump(&Scope::default(), 1 << 20).await, "0 processes\n");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(cut("x".repeat(10), 10), "x".repeat(10));
        let long = cut("é".repeat(100), 51);
        assert!(long.len() <= 51 && long.ends_with("é\n[cut here]\n"), "{long}");
    }
}
