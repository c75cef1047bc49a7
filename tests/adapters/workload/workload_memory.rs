//! A workload that the kernel kills for want of memory is told apart from one that somebody else
//! killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::workload::workload::{Bench, until};
use lamp_test_support::skipped;

/// A control group with little memory, removed with the test.
struct SmallGroup(PathBuf);

impl SmallGroup {
    /// `None`, with a word, where one may not make any.
    fn make() -> Option<Self> {
        let name = format!("lamp-test-{}", std::process::id());
        let places = [
            ("/sys/fs/cgroup", "memory.max", "memory.swap.max"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
        ];
        for (root, limit, with_swap) in places {
            let group = SmallGroup(Path::new(root).join(&name));
            if !Path::new(root).join("cgroup.procs").exists() || fs::create_dir(&group.0).is_err() {
                continue;
            }
            if fs::write(group.0.join(limit), "33554432").is_ok() {
                let swap = if with_swap == "memory.swap.max" { "0" } else { "33554432" };
                let _ = fs::write(group.0.join(with_swap), swap);
                return Some(group);
            }
        }
        skipped("cgroup", "only root can make a control group with little memory");
        None
    }

    /// Runs the holder of a start in the group.
    fn hold(&self, bench: &Bench) -> Child {
        fs::create_dir_all(bench.dir()).expect("a folder");
        fs::write(
            bench.dir().join("launch.json"),
            serde_json::to_vec(&bench.launch).expect("json"),
        )
        .expect("written");
        let script = format!("echo $$ > '{}/cgroup.procs' && exec \"$@\"", self.0.display());
        let mut holder = Command::new("/bin/sh");
        holder.args(["-c", &script, "sh"]).arg(&bench.program.exe).arg("holder").arg(bench.dir());
        holder.stdout(Stdio::null()).spawn().expect("a shell")
    }
}

impl Drop for SmallGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[tokio::test]
async fn the_kernels_kill_is_told_from_somebodys() {
    let Some(group) = SmallGroup::make() else { return };
    // Each keeps all it reads: the first until there is no more memory.
    for (argv, oom) in [(["tail", "/dev/zero"], true), (["sh", "kill.sh"], false)] {
        let bench = Bench::of(&argv);
        fs::write(bench.file("kill.sh"), "kill -KILL $$").expect("written");
        let mut holder = group.hold(&bench);
        until("the end is on record", || bench.has_exit_record()).await;
        until("its holder ends", || holder.try_wait().expect("it was started here").is_some())
            .await;
        let record: serde_json::Value =
            serde_json::from_slice(&fs::read(bench.dir().join("exit.json")).expect("there"))
                .expect("json");
        assert_eq!(
            record["end"]["ended"]["exit"],
            serde_json::json!({"code": null, "signal": 9, "oom": oom}),
            "{argv:?}"
        );
    }
}
