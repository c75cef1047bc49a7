//! A machine of its own for a test: systemd as its first process, the disk a folder, the programs
//! those of this machine.
//!
//! systemd-nspawn boots a tree that holds nothing but `/etc`, `/var` and a mount of our `/usr`. Its
//! power switch ends the container and nothing else. Unless it is given a network of its own it
//! shares ours.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::bench::{Running, wait_until};
use lamp_test_support::skipped;

/// Boots, and powers off: does that work here at all?
const PROBE: &str = "[Unit]\nAfter=basic.target\nRequires=basic.target\n[Service]\nType=oneshot\nExecStart=/usr/bin/systemctl poweroff\n";

/// Should the test be killed. A timer, and no process that a shutdown would have to end first.
const END: [(&str, &str); 2] = [
    ("end.timer", "[Timer]\nOnActiveSec=30min\n"),
    (
        "end.service",
        "[Service]\nType=oneshot\nExecStart=/usr/bin/systemctl poweroff --force --force\n",
    ),
];

/// A boot takes a second. Longer delays the tests of a machine on which it hangs, shorter skips on
/// a busy one.
const PROBE_WAIT: Duration = Duration::from_secs(120);

/// The disk of a machine, and the machine while it is on.
pub struct Machine {
    disk: tempfile::TempDir,
    running: Option<Child>,
    /// More words for systemd-nspawn.
    more: Vec<String>,
}

/// Does it work here? Said once a process.
fn can_be_had() -> bool {
    static PROBED: OnceLock<Result<(), String>> = OnceLock::new();
    let probed = PROBED.get_or_init(|| {
        let mut probe = Machine::blank()?;
        probe.unit("probe.service", PROBE);
        probe.wants("probe.service");
        probe.power_on();
        if probe.ends_well() {
            Ok(())
        } else {
            Err(format!("systemd-nspawn cannot boot a machine here: {}", probe.console()))
        }
    });
    probed.as_ref().map_err(|why| skipped("nspawn", why)).is_ok()
}

impl Machine {
    /// `None`, with a word, where such a machine cannot be had.
    pub fn new() -> Option<Self> {
        can_be_had().then(|| Machine::blank().expect("it worked a moment ago"))
    }

    /// The next power-on gets these words for systemd-nspawn, too.
    pub fn with(mut self, more: &[String]) -> Self {
        self.more.extend_from_slice(more);
        self
    }

    /// A probe that hangs is cut short when it is dropped.
    fn ends_well(&mut self) -> bool {
        let (running, until) =
            (self.running.as_mut().expect("just started"), Instant::now() + PROBE_WAIT);
        loop {
            match running.try_wait().expect("it is our child") {
                Some(status) => return status.success(),
                None if Instant::now() >= until => return false,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn blank() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("this is not root".into());
        }
        for program in ["systemd-nspawn", "nsenter"] {
            Command::new(program)
                .arg("--version")
                .stdout(Stdio::null())
                .status()
                .map_err(|error| format!("{program}: {error}"))?;
        }
        let machine = Machine {
            disk: tempfile::Builder::new().prefix("lamp-machine-").tempdir().expect("a folder"),
            running: None,
            more: Vec::new(),
        };
        let made = [
            "usr",
            "etc/systemd/system",
            "etc/lamplighter",
            "var/lib",
            "proc",
            "sys",
            "dev",
            "run",
            "tmp",
            "root",
        ];
        made.iter()
            .for_each(|folder| std::fs::create_dir_all(machine.path(folder)).expect("writable"));
        for link in ["bin", "sbin", "lib", "lib64"] {
            match std::fs::read_link(Path::new("/").join(link)) {
                Ok(target) => symlink(target, machine.path(link)).expect("writable"),
                Err(_) if link == "lib64" => {}
                Err(_) => return Err(format!("/{link} is no link into /usr")),
            }
        }
        machine.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
        machine.write("etc/group", "root:x:0:\n");
        machine.write("etc/machine-id", "");
        for file in ["etc/ld.so.cache", "etc/os-release"] {
            std::fs::copy(Path::new("/").join(file), machine.path(file))
                .map_err(|error| format!("/{file}: {error}"))?;
        }
        Ok(machine)
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.disk.path().join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        std::fs::create_dir_all(self.path(path).parent().expect("below the disk"))
            .expect("writable");
        std::fs::write(self.path(path), text).expect("writable");
    }

    pub fn unit(&self, name: &str, text: &str) {
        self.write(&format!("etc/systemd/system/{name}"), text);
    }

    /// What the machine is for. It ends by itself, should the test be killed.
    pub fn wants(&self, unit: &str) {
        END.iter().for_each(|(name, text)| self.unit(name, text));
        self.unit(
            "default.target",
            &format!("[Unit]\nRequires=basic.target end.timer {unit}\nAfter=basic.target\n"),
        );
    }

    pub fn power_on(&mut self) {
        // A control group of its own: two machines below one would share the groups of units with
        // the same name.
        let script = "for tree in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do \
                      [ -e $tree/cgroup.procs ] && mkdir -p $tree/$0 && echo $$ > $tree/$0/cgroup.procs; done; \
                      exec systemd-nspawn --quiet --boot --directory=\"$1\" --machine=$0 --register=no --keep-unit \
                      --resolv-conf=off --timezone=off --link-journal=no --console=pipe --bind-ro=/usr \"${@:2}\"";
        let console = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("console"))
            .expect("writable");
        let mut command = Command::new("/bin/bash");
        command.args(["-c", script, &self.name()]).arg(self.disk.path());
        command
            .arg(format!("--bind-ro={}:/opt/lamp-agent", env!("CARGO_BIN_EXE_lamp-agent")))
            .args(&self.more);
        command.stdin(Stdio::null()).stdout(console.try_clone().expect("a handle")).stderr(console);
        self.running = Some(command.spawn().expect("a shell"));
    }

    fn name(&self) -> String {
        self.disk
            .path()
            .file_name()
            .and_then(|name| name.to_str())
            .expect("plain")
            .replace('.', "")
            .to_lowercase()
    }

    /// Everything that it ever said there.
    pub fn console(&self) -> String {
        std::fs::read_to_string(self.path("console")).unwrap_or_default()
    }

    /// The first process of the machine: it outlives systemd-nspawn, and the machine is dark when
    /// it is gone.
    fn first(&self) -> Option<u32> {
        let outside = self.running.as_ref()?.id();
        let children = std::fs::read_to_string(format!("/proc/{outside}/task/{outside}/children"))
            .unwrap_or_default();
        children.split_whitespace().next()?.parse().ok()
    }

    /// Runs a command inside.
    pub fn run(&self, words: &[&str]) {
        let Some(first) = self.first() else { panic!("the machine is off: {}", self.console()) };
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={first}"))
            .args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--"]);
        assert!(Running::start(command.args(words)).wait().success(), "{words:?}");
    }

    /// Is it on? `Err`: how it went off since it was asked last; a reboot is 133.
    pub fn is_on(&mut self) -> Result<bool, ExitStatus> {
        crate::bench::is_on(&mut self.running)
    }

    /// What a cloud does before it cuts the power: systemd is asked to shut the machine down.
    pub fn press_the_button(&self) {
        if let Some(first) = self.first().and_then(|pid| i32::try_from(pid).ok()) {
            // SAFETY: a plain system call, with the first process of a machine of ours.
            unsafe { libc::kill(first, libc::SIGRTMIN() + 4) };
        }
    }

    pub fn until_dark(&mut self) {
        let running = self.running.as_mut().expect("it is on");
        wait_until("the machine is dark", || running.try_wait().expect("it is our child"));
        self.running = None;
    }

    pub fn cut_the_power(&mut self) {
        let first = self.first();
        if let Some(mut running) = self.running.take() {
            first.into_iter().chain([running.id()]).for_each(|pid| crate::bench::kill(pid, "KILL"));
            let _reaped = running.wait();
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.cut_the_power();
        for tree in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"] {
            let group = Path::new(tree).join(self.name());
            // What was killed needs a moment to leave it; an empty one that stays harms nobody.
            for _ in 0..40 {
                if !group.is_dir() {
                    break;
                }
                let _removed = Command::new("find")
                    .arg(&group)
                    .args(["-depth", "-type", "d", "-delete"])
                    .stderr(Stdio::null())
                    .status();
                std::thread::sleep(Duration::from_millis(25));
            }
        }
    }
}
