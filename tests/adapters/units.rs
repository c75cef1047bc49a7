//! The units in `systemd/`: correct, shut in, and the dead-man's switch does what it says.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lamp_test_support::skipped;
use lamplighter::adapters::host::files::LocalFiles;
use lamplighter::ports::StageFile;

const UNITS: [&str; 6] = [
    "lamp-agent.service",
    "lamp-agent-tmp.service",
    "lamp-boot.service",
    "lamp-workload.service",
    "lamp-deadman.service",
    "lamp-deadman.timer",
];

fn unit(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(name)
}

/// `None`, with a word, on a machine without it.
fn systemd_analyze(arguments: &[&str]) -> Option<Output> {
    // A user's manager wants a folder to run in, also where nobody is logged in.
    match Command::new("systemd-analyze")
        .args(arguments)
        .env("XDG_RUNTIME_DIR", std::env::temp_dir())
        .output()
    {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skipped("systemd-analyze", "there is no systemd-analyze on this machine");
            None
        }
        Err(error) => panic!("systemd-analyze: {error}"),
    }
}

#[test]
fn systemd_understands_every_unit() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in UNITS {
        // With a program that exists here: where it is installed is none of this test's business.
        let text = fs::read_to_string(unit(name))
            .expect("a unit")
            .replace("/usr/local/bin/lamp-agent", env!("CARGO_BIN_EXE_lamp-agent"));
        fs::write(folder.path().join(name), text).expect("written");
    }
    for name in UNITS {
        let path = folder.path().join(name);
        let Some(output) =
            systemd_analyze(&["verify", "--man=no", path.to_str().expect("a plain path")])
        else {
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !said.contains(name), "{name}: {said}");
    }
}

#[test]
fn systemd_understands_the_daemon_of_a_user() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lamp-controller.service");
    let text = fs::read_to_string(unit("lamp-controller.service")).expect("a unit");
    assert!(text.contains("%h/.cargo/bin/lamp"), "where `cargo install` puts it");
    fs::write(&path, text.replace("%h/.cargo/bin/lamp", env!("CARGO_BIN_EXE_lamp")))
        .expect("written");
    let Some(output) =
        systemd_analyze(&["verify", "--user", "--man=no", path.to_str().expect("a plain path")])
    else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("lamp-controller"), "{said}");
}

/// One daemon for each job root: the same unit, but for its name and where its jobs are; so what
/// holds of one holds of both.
#[test]
fn systemd_understands_the_daemon_of_one_of_several_job_roots() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = fs::read_to_string(unit("lamp-controller@.service")).expect("a unit");
    let exposure = |path: &Path| {
        let output = systemd_analyze(&[
            "security",
            "--no-pager",
            "--offline=true",
            path.to_str().expect("a plain path"),
        ])?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        Some(
            said.lines()
                .rev()
                .find_map(|line| line.split_once(": ").map(|(_, level)| level.to_owned()))
                .unwrap_or_else(|| panic!("{said}")),
        )
    };
    let run = |text: &str| text.replace("%h/.cargo/bin/lamp", env!("CARGO_BIN_EXE_lamp"));
    let path = folder.path().join("lamp-controller@.service");
    fs::write(&path, run(&text)).expect("written");
    let Some(output) =
        systemd_analyze(&["verify", "--user", "--man=no", path.to_str().expect("a plain path")])
    else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("lamp-controller"), "{said}");
    let one = fs::read_to_string(unit("lamp-controller.service")).expect("a unit");
    let settings = |text: &str| -> Vec<String> {
        let own = |line: &&str| {
            !line.starts_with('#') && !line.starts_with("Description=") && !line.is_empty()
        };
        text.lines()
            .filter(own)
            .map(|line| line.replace("lamp --job-root %I daemon", "lamp daemon"))
            .collect()
    };
    assert_eq!(settings(&text), settings(&one));
    let single = folder.path().join("lamp-controller.service");
    fs::write(&single, run(&one)).expect("written");
    assert_eq!(exposure(&path), exposure(&single), "as exposed as the other");
}

#[test]
fn systemd_understands_the_sweep_of_a_user_without_a_daemon() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = fs::read_to_string(unit("lamp-sweep.service")).expect("a unit");
    assert!(
        text.contains("ExecStart=%h/.cargo/bin/lamp sweep --yes\n"),
        "it ends machines, and nobody is there to ask"
    );
    fs::write(
        folder.path().join("lamp-sweep.service"),
        text.replace("%h/.cargo/bin/lamp", env!("CARGO_BIN_EXE_lamp")),
    )
    .expect("written");
    let timer = folder.path().join("lamp-sweep.timer");
    fs::copy(unit("lamp-sweep.timer"), &timer).expect("copied");
    let Some(output) =
        systemd_analyze(&["verify", "--user", "--man=no", timer.to_str().expect("a plain path")])
    else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("lamp-sweep"), "{said}");
}

#[test]
fn the_agent_is_shut_in() {
    let agent = unit("lamp-agent.service");
    let Some(output) = systemd_analyze(&[
        "security",
        "--no-pager",
        "--offline=true",
        "--threshold=27",
        agent.to_str().expect("a plain path"),
    ]) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "exposure above 2.7: {}",
        said.lines().last().unwrap_or_default()
    );
}

/// A user's manager has no rights of its own: folders, devices and capabilities stay as they are,
/// which is most of what is counted here; and a daemon's jobs inherit what it is denied. The bare
/// units stand at 9.6.
#[test]
fn users_services_are_shut_in_as_far_as_a_user_may() {
    for (name, most) in [
        ("lamp-controller.service", 78),
        ("lamp-controller@.service", 78),
        ("lamp-sweep.service", 64),
    ] {
        let path = unit(name);
        let threshold = format!("--threshold={most}");
        let Some(output) = systemd_analyze(&[
            "security",
            "--no-pager",
            "--offline=true",
            &threshold,
            path.to_str().expect("a plain path"),
        ]) else {
            return;
        };
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{name} is exposed above {most} tenths: {}",
            said.lines().last().unwrap_or_default()
        );
        let text = fs::read_to_string(path).expect("a unit");
        // Each of these needs root, or user namespaces that not every machine allows: with one of
        // them a user's unit does not start.
        let of_root = [
            "CapabilityBoundingSet=",
            "Private",
            "Protect",
            "DeviceAllow=",
            "ReadWritePaths=",
            "AmbientCapabilities=",
        ];
        for line in text.lines() {
            assert!(!of_root.iter().any(|start| line.starts_with(start)), "{name}: `{line}`");
        }
    }
    // A job of the local cloud lives in the daemon's unit, and may compile, and hold containers.
    let daemon = fs::read_to_string(unit("lamp-controller.service")).expect("a unit");
    assert!(!daemon.lines().any(|line| line.starts_with("MemoryDenyWriteExecute=")
        || line.starts_with("RestrictNamespaces=")));
    // And what it may take is for its job file to say: a limit of the unit's group would slow a
    // training down until it counts as stalled.
    let limits = ["Memory", "CPUQuota=", "CPUWeight=", "TasksMax=", "IO", "LimitAS=", "LimitRSS="];
    for name in ["lamp-controller.service", "lamp-controller@.service"] {
        let text = fs::read_to_string(unit(name)).expect("a unit");
        assert!(
            !text.lines().any(|line| limits.iter().any(|limit| line.starts_with(limit))),
            "{name}"
        );
    }
}

#[test]
fn controller_of_cloud_jobs_alone_is_shut_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lamp-controller-cloud@.service");
    let text = fs::read_to_string(unit("lamp-controller-cloud@.service")).expect("a unit");
    fs::write(&path, text.replace("/home/%i/.cargo/bin/lamp", env!("CARGO_BIN_EXE_lamp")))
        .expect("written");
    let path = path.to_str().expect("a plain path");
    let Some(output) = systemd_analyze(&["verify", "--man=no", path]) else { return };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("lamp-controller"), "{said}");
    let Some(output) =
        systemd_analyze(&["security", "--no-pager", "--offline=true", "--threshold=40", path])
    else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "exposure above 4.0: {}",
        said.lines().last().unwrap_or_default()
    );
}

#[test]
fn agent_can_still_do_its_work() {
    let text = fs::read_to_string(unit("lamp-agent.service")).expect("a unit");
    for line in [
        "Type=notify",
        "WatchdogSec=30s",
        "Restart=always",
        "RestartSec=2s",
        "StartLimitIntervalSec=0",
        "OOMScoreAdjust=-1000",
        "KillMode=process",
        "StateDirectory=lamplighter",
        "CacheDirectory=lamplighter",
        "DeviceAllow=char-* rw",
        // systemd itself makes such folders on the disk, at each start of who joins nobody's: on a
        // disk that hangs it would hang, and no switch would work any more.
        "JoinsNamespaceOf=lamp-agent-tmp.service",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
    assert!(!text.lines().any(|line| {
        ["PrivateNetwork=", "PrivateDevices="].iter().any(|start| line.starts_with(start))
    }));
}

/// The shell script of the dead-man's switch, as systemd would hand it to the shell.
fn deadman_script() -> String {
    let text =
        fs::read_to_string(unit("lamp-deadman.service")).expect("a unit").replace("\\\n", " ");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=@/bin/sh @lamp-deadman -c '"))
        .expect("a shell script");
    line.trim_end().strip_suffix('\'').expect("one argument").replace("$$", "$").replace("%%", "%")
}

/// What the script did in a world where `systemctl` and `sleep` only write down what was asked of
/// them, and the time is what was slept. The real ones are out of reach: the only folder in PATH is
/// ours.
#[derive(Debug, PartialEq)]
struct Fired {
    code: i32,
    /// Without the single seconds of its waits.
    asked: String,
    /// How long all of it took, on its clock.
    secs: u64,
    /// What the kernel itself was asked for.
    kernel: String,
}

fn deadman(deadline: Option<&str>) -> Fired {
    deadman_that_meets(deadline, None, "")
}

/// The same where this happens while it waits for its second look.
fn deadman_that_meets(deadline: Option<&str>, alive: Option<&str>, meanwhile: &str) -> Fired {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
    let (asked, uptime, kernel) = (path("asked"), path("uptime"), path("kernel"));
    fs::create_dir(path("bin")).expect("a folder");
    let meanwhile =
        meanwhile.replace("DEADLINE", &path("deadline")).replace("ALIVE", &path("alive"));
    let programs = [
        ("systemctl", format!("echo systemctl \"$@\" >> '{asked}'\n")),
        (
            "sleep",
            format!(
                "case $1 in 0|1) :;; *) echo sleep \"$@\" >> '{asked}'; {meanwhile} :;; esac\n\
                 read -r up rest < '{uptime}'; echo \"$((${{up%.*}} + $1)).50 1.00\" > '{uptime}'\n"
            ),
        ),
    ];
    for (name, script) in programs {
        let program = Path::new(&path("bin")).join(name);
        fs::write(&program, format!("#!/bin/sh\n{script}")).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("ours");
    }
    for name in ["cat", "date"] {
        symlink(Path::new("/bin").join(name), Path::new(&path("bin")).join(name)).expect("linked");
    }
    fs::write(&uptime, "1000.50 1.00\n").expect("written");
    if let Some(deadline) = deadline {
        fs::write(path("deadline"), deadline).expect("written");
    }
    if let Some(alive) = alive {
        fs::write(path("alive"), alive).expect("written");
    }
    let script = deadman_script().replace("/etc/lamplighter/deadline", &path("deadline"));
    let script = script.replace("/run/lamplighter/alive", &path("alive"));
    let script = script.replace("/proc/uptime", &uptime).replace("/proc/sysrq-trigger", &kernel);
    assert!(
        !script.contains("/bin/systemctl") && !script.contains("/proc/"),
        "it would power off the machine of this test: {script}"
    );
    let output = Command::new("/bin/sh")
        .args(["-c", &script])
        .env_clear()
        .env("PATH", path("bin"))
        .output()
        .expect("a shell");
    let up = fs::read_to_string(&uptime).expect("it is there");
    let secs = up
        .split('.')
        .next()
        .and_then(|up| up.parse::<u64>().ok())
        .unwrap_or_else(|| panic!("{up}"))
        - 1000;
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    Fired {
        code: output.status.code().expect("it exits"),
        asked: read(&asked),
        secs,
        kernel: read(&kernel),
    }
}

#[test]
fn the_dead_mans_switch_fires_after_its_deadline_and_only_then() {
    let now = jiff::Timestamp::now().as_second();
    let looked = |code, asked: &str, secs| Fired {
        code,
        asked: asked.to_owned(),
        secs,
        kernel: String::new(),
    };
    assert_eq!(deadman(None), looked(0, "", 0), "nothing is armed");
    assert_eq!(deadman(Some(&format!("{}\n", now + 3600))), looked(0, "", 0), "not yet");
    for torn in ["", "\n", "tomorrow", "17 00", "-5"] {
        assert_eq!(deadman(Some(torn)), looked(1, "", 0), "{torn:?} ends no useful work");
    }
    let ladder = "sleep 30\nsystemctl --ignore-inhibitors poweroff\nsystemctl poweroff --force\nsystemctl poweroff --force --force\n";
    for passed in [now, now - 1, 1] {
        let fired = Fired { kernel: "o\n".into(), ..looked(1, ladder, 30 + 60 + 30 + 10 + 10) };
        assert_eq!(deadman(Some(&passed.to_string())), fired, "{passed}");
    }
    // Seed 16002762 of 24 h: the clock was set six seconds after an agent had died, and the next
    // one was not up yet.
    let renewed = format!("echo {} > 'DEADLINE';", now + 3600);
    assert_eq!(
        deadman_that_meets(Some("1"), None, &renewed),
        looked(0, "sleep 30\n", 30),
        "its agent has said another one meanwhile"
    );
    assert_eq!(
        deadman_that_meets(Some("1"), None, "echo torn > 'DEADLINE';"),
        looked(1, "sleep 30\n", 30)
    );
}

#[test]
fn dead_mans_switch_fires_only_after_a_lease_of_silence() {
    let now = jiff::Timestamp::now().as_second();
    let later = format!("{}\n", now + 3600);
    let looked = |code, asked: &str, secs| Fired {
        code,
        asked: asked.to_owned(),
        secs,
        kernel: String::new(),
    };
    let after = |alive: &str| deadman_that_meets(Some(&later), Some(alive), "");
    for well in
        [format!("{now} 1800\n"), format!("{} 1800\n", now - 1700), format!("{} 1800\n", now + 600)]
    {
        assert_eq!(after(&well), looked(0, "", 0), "{well:?}");
    }
    for torn in ["", "\n", "1", "1 ", " 1800", "1 x", "x 1800", "1 -5", "1.5 3"] {
        assert_eq!(
            after(torn),
            looked(0, "", 0),
            "{torn:?} is no silence, and the deadline is later"
        );
    }
    let silent = format!("{} 1800\n", now - 1801);
    let ladder = "sleep 30\nsystemctl --ignore-inhibitors poweroff\nsystemctl poweroff --force\nsystemctl poweroff --force --force\n";
    let fired = Fired { kernel: "o\n".into(), ..looked(1, ladder, 30 + 60 + 30 + 10 + 10) };
    assert_eq!(after(&silent), fired);
    assert_eq!(deadman_that_meets(None, Some(&silent), ""), fired, "without a deadline too");
    let alive = format!("echo {now} 1800 > 'ALIVE';");
    assert_eq!(
        deadman_that_meets(Some(&later), Some(&silent), &alive),
        looked(0, "sleep 30\n", 30),
        "its agent is back"
    );
}

/// With it, the test below finds itself with the rights of the unit.
const HELD_FOLDER: &str = "LAMP_TEST_HELD_FOLDER";

/// `sudo -u` and `docker run -u` save as another user. The kernel links such a file only for who
/// owns it or has CAP_FOWNER (proc_sys_fs(5), `protected_hardlinks`).
#[test]
fn large_file_of_another_user_is_held_with_the_units_rights() {
    if let Some(folder) = std::env::var_os(HELD_FOLDER).map(PathBuf::from) {
        let path = folder.join("model.safetensors");
        let file = StageFile { path, bytes: LARGE_BYTES, is_log: false, is_rewritten: false };
        let held = LocalFiles::stage(&[file], &[folder.join("held")]).expect("it is held");
        assert_eq!(fs::metadata(&held[0].path).expect("it is there").len(), LARGE_BYTES);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.safetensors");
    fs::File::create(&file).unwrap().set_len(LARGE_BYTES).unwrap();
    if std::os::unix::fs::chown(&file, Some(65534), Some(65534)).is_err() {
        return skipped("root", "only root gives a file to another user");
    }
    let unit = include_str!("../../systemd/lamp-agent.service");
    let rights = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let rights = rights.expect("the unit has few rights").to_lowercase().replace("cap_", "+");
    let output = Command::new("setpriv")
        .arg(format!("--bounding-set=-all,{}", rights.replace(' ', ",")))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "units::large_file_of_another_user_is_held_with_the_units_rights"])
        .env(HELD_FOLDER, folder.path())
        .output()
        .expect("setpriv is part of util-linux");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Larger than what is copied.
const LARGE_BYTES: u64 = 5 * 1024 * 1024;
