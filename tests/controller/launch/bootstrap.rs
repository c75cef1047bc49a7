//! The user data, run by the shells that images have, in a folder that stands for the machine.
//!
//! Every path of the script is moved below that folder, and so is PATH: the real `systemctl` and
//! `poweroff` are out of reach.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lamplighter::controller::{Bootstrap, BoxEndpoint};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

/// What the false agent is: it answers to `--version`.
const AGENT: &str = "#!/bin/sh\necho lamp-agent 0\n";

/// The commands that the script may use, as an image has them.
const REAL: [&str; 15] = [
    "cat",
    "chmod",
    "cut",
    "date",
    "mkdir",
    "mv",
    "rm",
    "sha256sum",
    "sh",
    "sync",
    "tail",
    "tee",
    "test",
    "wc",
    "sed",
];

struct FalseMachine {
    root: tempfile::TempDir,
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The shells of this machine.
fn shells() -> Vec<Vec<&'static str>> {
    let there = |name: &&[&str]| {
        Command::new(name[0])
            .args(&name[1..])
            .args(["-c", "exit 0"])
            .stdin(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let all: [&[&'static str]; 4] =
        [&["/bin/sh"], &["dash"], &["bash", "--posix"], &["busybox", "sh"]];
    all.into_iter().filter(there).map(<[&str]>::to_vec).collect()
}

impl FalseMachine {
    /// A machine with systemd and curl; `served` is what curl brings.
    fn new(served: &str) -> Self {
        let machine = FalseMachine { root: tempfile::tempdir().unwrap() };
        for folder in ["bin", "run/systemd/system", "dev"] {
            fs::create_dir_all(machine.path(folder)).unwrap();
        }
        for name in REAL {
            let found = ["/usr/bin", "/bin"]
                .iter()
                .map(|folder| Path::new(folder).join(name))
                .find(|path| path.exists());
            symlink(
                found.unwrap_or_else(|| panic!("this machine has no {name}")),
                machine.path("bin").join(name),
            )
            .unwrap();
        }
        for name in ["systemctl", "sleep", "poweroff", "sysctl", "shutdown"] {
            machine.program(
                name,
                &format!("echo {name} \"$@\" >> '{}'", machine.path("asked").display()),
            );
        }
        fs::write(machine.path("served"), served).unwrap();
        machine.program(
            "curl",
            &format!("while [ \"$1\" != -o ]; do shift; done; echo fetch \"$3\" >> '{0}/asked'; cat '{0}/served' > \"$2\"", machine.show()),
        );
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn show(&self) -> String {
        self.root.path().display().to_string()
    }

    fn program(&self, name: &str, script: &str) {
        fs::write(self.path("bin").join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(self.path("bin").join(name), fs::Permissions::from_mode(0o755))
            .unwrap();
    }

    fn without(self, name: &str) -> Self {
        fs::remove_file(self.path("bin").join(name)).unwrap();
        self
    }

    /// The script below our folder.
    fn moved(&self, text: &str) -> String {
        let root = self.show();
        let text = text.replace(
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n",
            &format!("PATH={root}/bin\n"),
        );
        assert!(text.contains(&format!("PATH={root}/bin")));
        ["/etc/", "/usr/local/", "/var/", "/run/systemd", "/dev/console"]
            .iter()
            .fold(text, |text, from| text.replace(from, &format!("{root}{from}")))
    }

    /// Its exit status and what it said; `asked` holds what it did.
    fn boots(&self, shell: &[&str], text: &str) -> (i32, String) {
        let script = self.path("user-data");
        fs::File::create(&script).unwrap().write_all(self.moved(text).as_bytes()).unwrap();
        let mut command = Command::new(shell[0]);
        let output = command.args(&shell[1..]).arg(&script).stdin(Stdio::null()).output().unwrap();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn asked(&self) -> String {
        fs::read_to_string(self.path("asked")).unwrap_or_default()
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }
}

fn user_data(sum: &str) -> String {
    let bootstrap = Bootstrap {
        job_root: "s3://bucket/jobs",
        job_root_region: Some("us-east-1"),
        region: "eu-west-1",
        agent_url: "https://bucket.example/agents/a?X-Amz-Signature=0&b=c",
        agent_sha256: sum,
        box_endpoint: Some(BoxEndpoint::All("http://169.254.169.253:5000")),
        boot: lamplighter::job::BOOT,
    };
    bootstrap.user_data().unwrap()
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// skypilot#1341, and needrestart of Ubuntu 24.04: what a machine does by itself minutes after its
/// boot is in nobody's way.
#[test]
fn apt_bootstrap_waits_for_the_lock_and_restarts_no_lamp_unit() {
    for shell in shells() {
        let (machine, text) = (FalseMachine::new(AGENT), user_data(&hex(AGENT.as_bytes())));
        machine.program("apt-get", "exit 0");
        let (status, said) = machine.boots(&shell, &text);
        assert_eq!(status, 0, "{shell:?}: {said}");
        assert_eq!(
            machine.read("etc/apt/apt.conf.d/60lamplighter"),
            "DPkg::Lock::Timeout \"600\";\n"
        );
        assert_eq!(
            machine.read("etc/needrestart/conf.d/60-lamplighter.conf"),
            "$nrconf{override_rc}{qr(^lamp-)} = 0;\n"
        );
        let asked = machine.asked();
        assert!(
            asked.contains("systemctl mask apt-daily.timer apt-daily-upgrade.timer"),
            "{asked}"
        );
        assert!(!asked.contains("stop apt-daily.service"), "what runs is left to end: {asked}");
        let (machine, text) = (FalseMachine::new(AGENT), user_data(&hex(AGENT.as_bytes())));
        machine.boots(&shell, &text);
        assert!(
            !machine.path("etc/apt").exists() && !machine.asked().contains("mask"),
            "there is none"
        );
    }
}

#[test]
fn a_machine_is_made_and_made_again() {
    for shell in shells() {
        let (machine, text) = (FalseMachine::new(AGENT), user_data(&hex(AGENT.as_bytes())));
        let before = now();
        let (status, said) = machine.boots(&shell, &text);
        assert_eq!(status, 0, "{shell:?}: {said}");
        let deadline: i64 = machine.read("etc/lamplighter/deadline").trim().parse().unwrap();
        assert!((before + 900..=now() + 900).contains(&deadline), "{shell:?}: {deadline}");
        assert_eq!(machine.read("etc/lamplighter/boot-secs"), "900\n", "{shell:?}");
        let env = machine.read("etc/lamplighter/agent.env");
        assert_eq!(
            env,
            "LAMP_JOB_ROOT=\"s3://bucket/jobs\"\nLAMP_JOB_ROOT_REGION=\"us-east-1\"\nAWS_REGION=\"eu-west-1\"\nAWS_ENDPOINT_URL=\"http://169.254.169.253:5000\"\n"
        );
        assert_eq!(machine.read("usr/local/bin/lamp-agent"), AGENT);
        assert_eq!(
            fs::metadata(machine.path("usr/local/bin/lamp-agent")).unwrap().permissions().mode()
                & 0o777,
            0o755
        );
        for name in [
            "lamp-agent.service",
            "lamp-agent-tmp.service",
            "lamp-boot.service",
            "lamp-deadman.service",
            "lamp-deadman.timer",
        ] {
            let file = fs::read_to_string(
                Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(name),
            )
            .unwrap();
            let settings: Vec<&str> =
                file.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
            // The unit says where things are on a real machine; our folder stands in for it.
            let written =
                machine.read(&format!("etc/systemd/system/{name}")).replace(&machine.show(), "");
            assert_eq!(written.lines().collect::<Vec<_>>(), settings, "{shell:?}: {name}");
        }
        let asked = machine.asked();
        let at = |word: &str| {
            asked.find(word).unwrap_or_else(|| panic!("{shell:?}: no `{word}` in {asked}"))
        };
        assert!(
            at("enable --now lamp-deadman.timer")
                < at("fetch https://bucket.example/agents/a?X-Amz-Signature=0&b=c\n"),
            "{asked}"
        );
        assert!(
            at("fetch ") < at("restart --no-block lamp-agent.service")
                && !asked.contains("poweroff"),
            "{asked}"
        );
        assert_eq!(machine.read("var/lib/lamplighter/agent/boots"), "1\n");
        // A kernel that panics starts again, from now on and after each boot.
        assert_eq!(
            machine.read("etc/sysctl.d/60-lamplighter.conf"),
            "kernel.panic = 10\n",
            "{shell:?}"
        );
        assert!(asked.contains("sysctl -q -w kernel.panic=10\n"), "{shell:?}: {asked}");

        // Once more, later: nothing is fetched again, no time is given.
        fs::write(machine.path("etc/lamplighter/deadline"), "123\n").unwrap();
        let (status, said) = machine.boots(&shell, &text);
        assert_eq!(
            (status, machine.read("etc/lamplighter/deadline")),
            (0, "123\n".to_owned()),
            "{shell:?}: {said}"
        );
        assert_eq!(machine.asked().matches("fetch").count(), 1, "{shell:?}");
    }
}

#[test]
fn a_flipped_byte_never_runs() {
    for shell in shells() {
        let machine = FalseMachine::new(&AGENT.replace("0\n", "1\n"));
        let (status, said) = machine.boots(&shell, &user_data(&hex(AGENT.as_bytes())));
        assert_eq!(status, 1, "{shell:?}: {said}");
        assert!(
            said.contains("what was fetched is not the agent")
                && said.contains("no agent was had; powering off"),
            "{shell:?}: {said}"
        );
        assert!(
            said.len() < 2000 && machine.read("dev/console").contains("powering off"),
            "{shell:?}: {said}"
        );
        assert!(
            !machine.path("usr/local/bin/lamp-agent").exists()
                && !machine.path("usr/local/bin/lamp-agent.new").exists()
        );
        let asked = machine.asked();
        assert!(
            asked.contains("systemctl --ignore-inhibitors poweroff")
                && !asked.contains("lamp-agent.service"),
            "{shell:?}: {asked}"
        );
        assert_eq!(asked.matches("fetch").count(), 8, "bounded: {asked}");
        assert!(
            asked.contains("enable --now lamp-deadman.timer"),
            "the switch stands behind it: {asked}"
        );
    }
}

#[test]
fn image_that_cannot_serve_says_why_and_goes_out() {
    let text = user_data(&hex(AGENT.as_bytes()));
    let sh = ["/bin/sh"];
    let (status, said) = FalseMachine::new(AGENT).without("systemctl").boots(&sh, &text);
    assert!(
        status == 1 && said.contains("this image does not run systemd; powering off"),
        "{said}"
    );

    let machine = FalseMachine::new(AGENT).without("curl");
    let (status, said) = machine.boots(&sh, &text);
    assert!(status == 1 && said.contains("none of curl, wget and python3"), "{said}");
    assert!(machine.asked().contains("enable --now lamp-deadman.timer"));

    let broken = "#!/bin/sh\necho 'version GLIBC_2.34 not found' >&2; exit 1\n";
    let (status, said) = FalseMachine::new(broken).boots(&sh, &user_data(&hex(broken.as_bytes())));
    assert!(
        status == 1
            && said.contains("the agent does not run on this image: version GLIBC_2.34 not found"),
        "{said}"
    );
}

/// Amazon Linux 2 and CentOS 7 have 219, RHEL 8 has 239, Amazon Linux 2023 and Debian 12 have 252.
#[test]
fn image_with_an_old_systemd_says_so_and_goes_out() {
    let text = user_data(&hex(AGENT.as_bytes()));
    for shell in shells() {
        for (first, runs) in [
            ("systemd 219", false),
            ("systemd 239 (239-82.el8)", false),
            ("systemd 243 (v243.9-1.fc31)", true),
            ("systemd 252 (252.23-2.amzn2023)", true),
            ("systemd 256~rc3", true),
            ("", true),
        ] {
            let machine = FalseMachine::new(AGENT);
            let asked = machine.path("asked").display().to_string();
            let version = format!(
                "if [ \"$1\" = --version ]; then echo '{first}'; echo '+PAM +AUDIT -SMACK'; exit; fi"
            );
            machine.program("systemctl", &format!("{version}\necho systemctl \"$@\" >> '{asked}'"));
            let (status, said) = machine.boots(&shell, &text);
            let asked = machine.asked();
            assert_eq!(
                (status == 0, asked.contains("fetch")),
                (runs, runs),
                "{shell:?} {first}: {said}"
            );
            assert!(
                asked.contains("enable --now lamp-deadman.timer"),
                "the switch stands behind it: {asked}"
            );
            if !runs {
                let version = first.split(' ').nth(1).unwrap();
                let words = format!(
                    "this image has systemd {version}, and the agent needs {}: ",
                    lamplighter::controller::SYSTEMD_MIN
                );
                assert!(
                    said.contains(&words)
                        && asked.contains("systemctl --ignore-inhibitors poweroff"),
                    "{shell:?}: {said} {asked}"
                );
            }
        }
    }
}

#[test]
fn agent_comes_by_what_the_image_has() {
    let text = user_data(&hex(AGENT.as_bytes()));
    let machine = FalseMachine::new(AGENT).without("curl");
    machine.program(
        "wget",
        &format!(
            "while [ \"$1\" != -O ]; do shift; done; cat '{}/served' > \"$2\"",
            machine.show()
        ),
    );
    let (status, said) = machine.boots(&["/bin/sh"], &text);
    assert_eq!(status, 0, "{said}");

    // Nothing but Python, for the fetch and for the sum.
    let machine = FalseMachine::new(AGENT).without("curl").without("sha256sum");
    let Some(python) =
        ["/usr/bin/python3", "/usr/local/bin/python3"].iter().find(|path| Path::new(path).exists())
    else {
        return;
    };
    symlink(python, machine.path("bin/python3")).unwrap();
    let text = text.replace(
        "https://bucket.example/agents/a?X-Amz-Signature=0&b=c",
        &format!("file://{}", machine.path("served").display()),
    );
    let (status, said) = machine.boots(&["/bin/sh"], &text);
    assert_eq!(status, 0, "{said}");
    assert_eq!(machine.read("usr/local/bin/lamp-agent"), AGENT);
}

/// `lamp-boot.service`, as systemd would hand its script to the shell.
fn boot_script() -> String {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/lamp-boot.service"))
            .unwrap()
            .replace("\\\n", " ");
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/bin/sh -c '")).unwrap();
    format!(
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n{}",
        line.strip_suffix('\'').unwrap().replace("$$", "$").replace("%%", "%")
    )
}

#[test]
fn the_third_boot_without_a_lease_is_the_last() {
    for shell in shells() {
        let (machine, boots, deadline) = (
            FalseMachine::new(AGENT),
            "var/lib/lamplighter/agent/boots",
            "etc/lamplighter/deadline",
        );
        fs::create_dir_all(machine.path("etc/lamplighter")).unwrap();
        fs::create_dir_all(machine.path("var/lib/lamplighter/agent")).unwrap();
        let boot = || {
            let (status, said) = machine.boots(&shell, &boot_script());
            assert_eq!(status, 0, "{shell:?}: {said}");
        };
        // The first is the user data's.
        fs::write(machine.path(boots), "1\n").unwrap();
        let soon = format!("{}\n", now() + 500);
        fs::write(machine.path(deadline), &soon).unwrap();
        boot();
        assert_eq!(
            (machine.read(boots), machine.read(deadline), machine.asked()),
            ("2\n".into(), soon, String::new()),
            "{shell:?}"
        );
        // The deadline of an earlier life, which was to run for a day: without its agent this one
        // gets the time of a boot.
        fs::write(machine.path(deadline), format!("{}\n", now() + 86_400)).unwrap();
        fs::remove_file(machine.path(boots)).unwrap();
        let before = now();
        boot();
        let found: i64 = machine.read(deadline).trim().parse().unwrap();
        assert!((before + 900..=now() + 900).contains(&found), "{shell:?}: {}", found - before);
        // The machine was off for a week: the agent has the time of a boot to say how long it may
        // run now.
        fs::write(machine.path(deadline), "1000\n").unwrap();
        // With the lease in hand the agent removes the count.
        fs::remove_file(machine.path(boots)).unwrap();
        boot();
        assert!(machine.read(deadline).trim().parse::<i64>().unwrap() > now() + 800, "{shell:?}");
        // As long as its job's `limits.boot` says; a file that says nothing is none.
        for (said, secs) in [("7200\n", 7200), ("soon\n", 900)] {
            fs::write(machine.path("etc/lamplighter/boot-secs"), said).unwrap();
            fs::write(machine.path(deadline), "1000\n").unwrap();
            fs::remove_file(machine.path(boots)).unwrap();
            let before = now();
            boot();
            let found: i64 = machine.read(deadline).trim().parse().unwrap();
            assert!(
                (before + secs..=now() + secs).contains(&found),
                "{shell:?}: {said:?} gives {}",
                found - before
            );
        }
        boot();
        assert_eq!(
            (machine.read(boots), machine.asked()),
            ("2\n".into(), String::new()),
            "{shell:?}"
        );
        boot();
        assert_eq!(machine.asked(), "systemctl --force --force poweroff\n", "{shell:?}");
        assert!(machine.read("dev/console").contains("the third boot in a row"), "{shell:?}");
        // Whoever starts it again by hand gets a machine.
        assert!(!machine.path(boots).exists());
    }
}

/// What an environment file says, to a shell that reads it.
fn as_sourced(shell: &[&str], file: &Path) -> BTreeMap<String, String> {
    let mut command = Command::new(shell[0]);
    let script = ". \"$0\"; for name in LAMP_JOB_ROOT AWS_REGION AWS_ENDPOINT_URL; do eval printf '%s=%s\\\\n' \\\"$name\\\" \\\"\\$$name\\\"; done";
    let output =
        command.args(&shell[1..]).args(["-c", script]).arg(file).env_clear().output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn word() -> impl Strategy<Value = String> {
    let nasty = prop::sample::select(vec![
        '\'',
        '"',
        '\\',
        '$',
        '`',
        ' ',
        '!',
        '*',
        ';',
        '&',
        '|',
        '(',
        '#',
        '~',
        '%',
        'é',
        '\u{1F4A1}',
    ]);
    prop::collection::vec(prop_oneof![nasty, prop::char::range(' ', '~')], 1..40)
        .prop_map(|chars| chars.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn every_word_arrives_as_it_was(root in word(), url in word(), endpoint in word()) {
        for shell in shells() {
            let machine = FalseMachine::new(AGENT);
            let bootstrap = Bootstrap { job_root: &root, job_root_region: None, region: "r", agent_url: &url, agent_sha256: &hex(AGENT.as_bytes()), box_endpoint: Some(BoxEndpoint::All(&endpoint)), boot: lamplighter::job::BOOT };
            let text = bootstrap.user_data().unwrap();
            // Only the assignments: what the words mean to the script is shown by printing them.
            let (head, _) = text.split_once("\numask").unwrap();
            let script = machine.path("words");
            fs::write(&script, format!("{head}\nprintf '%s\\n' \"$agent_env\" >'{}'; printf '%s' \"$agent_url\"", machine.path("env").display())).unwrap();
            let output = Command::new(shell[0]).args(&shell[1..]).arg(&script).output().unwrap();
            prop_assert_eq!(String::from_utf8(output.stdout).unwrap(), url.clone());
            let read = as_sourced(&shell, &machine.path("env"));
            prop_assert_eq!(read.get("LAMP_JOB_ROOT"), Some(&root), "{:?}", shell);
            prop_assert_eq!(read.get("AWS_ENDPOINT_URL"), Some(&endpoint), "{:?}", shell);
        }
    }
}
