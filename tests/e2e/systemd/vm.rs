//! A machine with a kernel of its own, which can hang: qemu emulates all of it, so that it takes
//! neither rights to the processor's own means nor a kernel that fits them.
//!
//! Its disk is what `.ci/vm-image` made, named by `LAMP_TEST_VM`; nothing else starts one, because
//! a boot takes half a minute of a processor. What is written before it is switched on is laid over
//! that disk, and what happens on the disk is gone with the power. Not here: what a test is about.

#![cfg_attr(not(feature = "aws"), allow(dead_code, reason = "all stories of it are of EC2"))]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use lamp_test_support::skipped;

/// A shell on the second serial line. Each of its commands is on its own: one that hangs holds up
/// no other.
const SHELL: &str = "[Unit]\nDescription=The test's own shell\nDefaultDependencies=no\nAfter=local-fs.target\n\
[Service]\nOOMScoreAdjust=-1000\nExecStart=/bin/sh -c 'exec </dev/ttyS1; stty raw -echo; while read -r line; do sh -c \"$$line\" >/dev/console 2>&1 & done'\n";

/// Two processors, so that one that hangs is not the whole machine; memory for the work, the agent
/// and their caches.
const MACHINE: [&str; 8] = ["-M", "q35", "-cpu", "max", "-smp", "2", "-m", "768"];

pub struct Vm {
    folder: tempfile::TempDir,
    image: PathBuf,
    /// The namespace that it reaches the world from.
    network: String,
    running: Option<Child>,
}

/// Where the image is; `None`, with a word, where it is not.
pub fn image() -> Option<PathBuf> {
    let Some(image) = std::env::var_os("LAMP_TEST_VM").map(PathBuf::from) else {
        skipped(
            "vm",
            "LAMP_TEST_VM does not name the image of a virtual machine (`just vm-faults` makes one, and tries it)",
        );
        return None;
    };
    if !image.join("complete").exists() {
        skipped(
            "vm",
            format!(
                "there is no image of a virtual machine in {} (.ci/vm-image makes it)",
                image.display()
            ),
        );
        return None;
    }
    for program in ["qemu-system-x86_64", "nsenter", "tar"] {
        if let Err(error) = Command::new(program).arg("--version").stdout(Stdio::null()).status() {
            skipped("vm", format!("{program}: {error}"));
            return None;
        }
    }
    Some(image)
}

impl Vm {
    pub fn new(image: PathBuf, network: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("lamp-vm-").tempdir().expect("a folder");
        let vm = Vm { folder, image, network: network.to_owned(), running: None };
        vm.unit("shell.service", SHELL);
        vm.wants("sysinit.target", "shell.service");
        vm
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join("laid").join(path);
        std::fs::create_dir_all(path.parent().expect("below the disk")).expect("writable");
        std::fs::write(path, text).expect("writable");
    }

    pub fn unit(&self, name: &str, text: &str) {
        self.write(&format!("etc/systemd/system/{name}"), text);
    }

    pub fn wants(&self, target: &str, unit: &str) {
        let folder = self.folder.path().join(format!("laid/etc/systemd/system/{target}.wants"));
        std::fs::create_dir_all(&folder).expect("writable");
        symlink(format!("../{unit}"), folder.join(unit)).expect("writable");
    }

    pub fn power_on(&mut self) {
        let (folder, image) = (self.folder.path(), self.image.display());
        let laid = Command::new("tar")
            .arg("-C")
            .arg(folder.join("laid"))
            .arg("-cf")
            .arg(folder.join("laid.tar"))
            .arg(".")
            .status();
        assert!(laid.is_ok_and(|status| status.success()), "what was written is no archive");
        let console = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.join("qemu"))
            .expect("writable");
        let words = "root=/dev/vda rw console=ttyS0 quiet net.ifnames=0 mitigations=off init=/usr/local/sbin/first";
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.network)).arg("qemu-system-x86_64").args(MACHINE);
        command.args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-accel",
            "tcg,thread=multi,tb-size=256",
            "-append",
            words,
        ]);
        command.args([
            "-kernel",
            &format!("{image}/vmlinux"),
            "-initrd",
            &format!("{image}/initrd.img"),
        ]);
        for (id, file, how) in [
            ("root", format!("{image}/disk.img"), "cache=unsafe,snapshot=on"),
            ("laid", "laid.tar".into(), "readonly=on"),
        ] {
            command.args([
                "-drive",
                &format!("id={id},file={file},if=none,format=raw,{how}"),
                "-device",
                &format!("virtio-blk-pci,drive={id}"),
            ]);
        }
        command.args([
            "-netdev",
            "user,id=n0,ipv6=off",
            "-device",
            "virtio-net-pci,netdev=n0",
            "-device",
            "virtio-rng-pci",
        ]);
        command.args([
            "-serial",
            "file:console",
            "-serial",
            "unix:shell,server=on,wait=off",
            "-qmp",
            "unix:monitor,server=on,wait=off",
        ]);
        command.current_dir(folder).env("TMPDIR", folder).stdin(Stdio::null());
        command.stdout(console.try_clone().expect("a handle")).stderr(console);
        // SAFETY: between fork and exec, only a system call. A test that is killed leaves no
        // machine behind.
        unsafe {
            command.pre_exec(|| {
                Ok(rustix::process::set_parent_process_death_signal(Some(
                    rustix::process::Signal::KILL,
                ))?)
            })
        };
        self.running = Some(command.spawn().expect("it was there a moment ago"));
    }

    /// What it ever said on its console, and what qemu said of it.
    pub fn console(&self) -> String {
        let read = |name: &str| {
            String::from_utf8_lossy(
                &std::fs::read(self.folder.path().join(name)).unwrap_or_default(),
            )
            .into_owned()
        };
        read("console") + &read("qemu")
    }

    /// Is it on? `Err`: it went off since it was asked last. A machine that boots anew stays on.
    pub fn is_on(&mut self) -> Result<bool, ExitStatus> {
        crate::bench::is_on(&mut self.running)
    }

    /// Has a command carried out inside, as root. What it says is on the console; nobody waits for
    /// it.
    pub fn tell(&self, command: &str) {
        assert!(!command.contains('\n'), "one line");
        let mut line =
            UnixStream::connect(self.folder.path().join("shell")).expect("the machine is on");
        line.write_all(format!("{command}\n").as_bytes()).expect("it is read");
        // Bytes that are on their way when the line is cut are lost.
        std::thread::sleep(Duration::from_millis(500));
    }

    pub fn press_the_button(&self) {
        self.ask("system_powerdown", &json!({}));
    }

    /// From now on nothing that is read from its disk or written to it comes to an end: one byte a
    /// second.
    pub fn hang_the_disk(&self) {
        let throttle = json!({ "device": "root", "bps": 1, "bps_rd": 0, "bps_wr": 0, "iops": 0, "iops_rd": 0, "iops_wr": 0 });
        self.ask("block_set_io_throttle", &throttle);
    }

    fn ask(&self, what: &str, arguments: &Value) {
        let mut monitor =
            UnixStream::connect(self.folder.path().join("monitor")).expect("the machine is on");
        monitor.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        let mut lines = BufReader::new(monitor.try_clone().expect("a handle")).lines();
        lines.next().expect("a greeting").expect("words");
        for (what, arguments) in [("qmp_capabilities", &json!({})), (what, arguments)] {
            monitor
                .write_all(
                    json!({ "execute": what, "arguments": arguments }).to_string().as_bytes(),
                )
                .expect("it is read");
            // Events may come before the answer.
            let answer = lines
                .by_ref()
                .map(|line| line.expect("an answer"))
                .find(|line| !line.contains("\"event\""))
                .expect("an answer");
            assert!(answer.contains("\"return\""), "{what}: {answer}");
        }
    }

    pub fn cut_the_power(&mut self) {
        if let Some(mut running) = self.running.take() {
            // It may have ended by itself just now.
            let _killed = running.kill();
            let _reaped = running.wait();
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.cut_the_power();
    }
}
