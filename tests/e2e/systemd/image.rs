//! A machine with cloud-init on its disk: what an image of AWS is before its first boot.
//!
//! The machine is this one's userland (Debian or Ubuntu) with cloud-init's own packages laid over
//! it, unpacked by `.ci/cloud-init` and named by `LAMP_TEST_CLOUD_INIT`. `.ci/cloud-init-from` lays
//! another release over it, such as Ubuntu's or the one of Amazon Linux with its configuration.
//! Their userlands cannot be had here; what the user data uses of them is POSIX shell, curl and
//! systemd. Not here: user data, or a word of ours in it.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::systemd::nspawn::Machine;
use lamp_test_support::skipped;

/// The Ec2 data source alone, by the metadata service alone; no network to set up but loopback.
const CONFIG: &str = "datasource_list: [ Ec2 ]\ndatasource:\n  Ec2:\n    strict_id: true\n    timeout: 5\n    max_wait: 60\n\
                      network: { config: disabled }\nusers: []\nssh_deletekeys: false\nlocale: false\n";

/// cloud-init's units, of older and newer versions.
const STAGES: [&str; 6] = [
    "cloud-init-local.service",
    "cloud-init-main.service",
    "cloud-init-network.service",
    "cloud-init.service",
    "cloud-config.service",
    "cloud-final.service",
];

/// What a machine with nothing but loopback and no users does not need.
const MASKED: [&str; 6] = [
    "getty.target",
    "dbus.service",
    "dbus.socket",
    "systemd-logind.service",
    "systemd-user-sessions.service",
    "systemd-networkd.service",
];

/// Where cloud-init was unpacked; `None`, with a word, where it was not.
pub fn unpacked() -> Option<PathBuf> {
    let named = std::env::var_os("LAMP_TEST_CLOUD_INIT").map(PathBuf::from);
    let root = named
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/cloud-init/root"));
    let there = root.join("complete").exists();
    if !there {
        skipped(
            "cloud-init",
            format!("cloud-init is not unpacked in {} (.ci/cloud-init does it)", root.display()),
        );
    }
    there.then_some(root)
}

/// A bare machine in this network, with a `/usr/local` and a journal of its own.
pub fn bare(machine: Machine, network: &str) -> Machine {
    let local = machine.path("usr-local");
    std::fs::create_dir_all(local.join("bin")).expect("writable");
    std::fs::create_dir_all(machine.path("var/log/journal")).expect("writable");
    for unit in MASKED {
        symlink("/dev/null", machine.path("etc/systemd/system").join(unit)).expect("writable");
    }
    let mut words = vec![
        format!("--network-namespace-path={network}"),
        format!("--bind={}:/usr/local", local.display()),
    ];
    // Certificates, as every image has them.
    words.extend(Path::new("/etc/ssl").is_dir().then(|| "--bind-ro=/etc/ssl".into()));
    machine.with(&words)
}

/// cloud-init on it, as the installation of its package leaves it; `root` is what [`unpacked`]
/// gave.
pub fn with_cloud_init(machine: Machine, root: &Path) -> Machine {
    assert!(
        Command::new("cp")
            .arg("-a")
            .arg(root.join("etc/cloud"))
            .arg(machine.path("etc"))
            .status()
            .expect("cp")
            .success()
    );
    machine.write("etc/cloud/cloud.cfg.d/99-test.cfg", CONFIG);
    machine.write("etc/hypervisor-uuid", "ec2e1916-9099-7caf-fd21-012345678901\n");
    let wants = machine.path("etc/systemd/system/cloud-init.target.wants");
    std::fs::create_dir_all(&wants).expect("writable");
    for unit in STAGES.iter().filter(|unit| root.join("usr/lib/systemd/system").join(unit).exists())
    {
        symlink(Path::new("/usr/lib/systemd/system").join(unit), wants.join(unit))
            .expect("writable");
    }
    machine.wants("multi-user.target");
    machine.with(&[format!("--overlay-ro=/usr:{}:/usr", root.join("usr").display())])
}

/// What the user data printed.
pub fn said(machine: &Machine) -> String {
    std::fs::read_to_string(machine.path("var/log/cloud-init-output.log")).unwrap_or_default()
}

/// The end of its journal, for the one who looks for the reason.
pub fn journal(machine: &Machine) -> String {
    let mut journalctl = Command::new("journalctl");
    journalctl.arg("-D").arg(machine.path("var/log/journal")).args([
        "--no-pager",
        "-n",
        "80",
        "-o",
        "short-monotonic",
    ]);
    journalctl
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default()
}

/// The end of what cloud-init wrote down of itself.
pub fn log(machine: &Machine) -> String {
    let log = std::fs::read_to_string(machine.path("var/log/cloud-init.log")).unwrap_or_default();
    let skip = log.lines().count().saturating_sub(60);
    log.lines().skip(skip).collect::<Vec<_>>().join("\n")
}
