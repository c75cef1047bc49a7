//! The user data under real cloud-init with its Ec2 data source: from the first boot of an image to power-off.
//!
//! The machine is this one's userland (Debian or Ubuntu) with cloud-init's own packages laid over it, unpacked by
//! `.ci/cloud-init` and named by `LAMP_TEST_CLOUD_INIT`. Skipped, with a word, where there are none. Amazon Linux is not
//! tried: its userland cannot be had here; what the script uses of it is POSIX shell, curl and systemd.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use lamplighter::controller::Bootstrap;
use sha2::{Digest as _, Sha256};

use super::bench::wait_until;
use super::ec2::network::{API, Network};
use super::machine::{FOLDER, metadata, recorded};
use super::nspawn::Machine;
use crate::skipped::skipped;

/// The Ec2 data source alone, by the metadata service alone; no network to set up but loopback.
const CONFIG: &str = "datasource_list: [ Ec2 ]\ndatasource:\n  Ec2:\n    strict_id: true\n    timeout: 5\n    max_wait: 60\n\
                      network: { config: disabled }\nusers: []\nssh_deletekeys: false\nlocale: false\n";

/// What a machine with nothing but loopback does not need.
const MASKED: [&str; 6] =
    ["getty.target", "dbus.service", "dbus.socket", "systemd-logind.service", "systemd-user-sessions.service", "systemd-networkd.service"];

/// cloud-init's units, of older and newer versions.
const STAGES: [&str; 6] = [
    "cloud-init-local.service",
    "cloud-init-main.service",
    "cloud-init-network.service",
    "cloud-init.service",
    "cloud-config.service",
    "cloud-final.service",
];

/// Where cloud-init was unpacked.
fn unpacked() -> Option<PathBuf> {
    let named = std::env::var_os("LAMP_TEST_CLOUD_INIT").map(PathBuf::from);
    let root = named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/cloud-init/root"));
    let there = root.join("complete").exists();
    if !there {
        skipped(format!("cloud-init is not unpacked in {} (.ci/cloud-init does it)", root.display()));
    }
    there.then_some(root)
}

/// A web server with one file, as it is at the moment; gives its address and what was asked of it.
fn serves(body: Vec<u8>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("it listens"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let head: Vec<String> = BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            told.lock().expect("nobody fails with it").extend(head.first().cloned());
            let start = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            // A client that went away has its reasons.
            let _gone = stream.write_all(start.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    });
    (address, asked)
}

/// An image with cloud-init, before its first boot; its network and metadata live as long as the second value.
struct Image {
    machine: Machine,
    _network: Network,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Image {
    fn new(served: Vec<u8>, sha256: &str) -> Option<Self> {
        let root = unpacked()?;
        let machine = Machine::new()?;
        let (address, asked) = serves(served);
        let imds = metadata();
        let bootstrap = Bootstrap {
            job_root: "file:///var/lib/lamplighter/root",
            region: "us-east-1",
            agent_url: &format!("{API}/agents/a/lamp-agent?X-Amz-Signature=0&x=%2F"),
            agent_sha256: sha256,
            box_endpoint_url: Some(API),
            boot: lamplighter::job::BOOT,
        };
        imds.says("user-data", &bootstrap.user_data().expect("plain words"));
        let network = match Network::new(&imds, &address) {
            Ok(network) => network,
            Err(why) => {
                skipped(why);
                return None;
            }
        };
        assert!(Command::new("cp").arg("-a").arg(root.join("etc/cloud")).arg(machine.path("etc")).status().expect("cp").success());
        machine.write("etc/cloud/cloud.cfg.d/99-test.cfg", CONFIG);
        machine.write("etc/hypervisor-uuid", "ec2e1916-9099-7caf-fd21-012345678901\n");
        for unit in MASKED {
            symlink("/dev/null", machine.path("etc/systemd/system").join(unit)).expect("writable");
        }
        // As the package's installation leaves it.
        std::fs::create_dir_all(machine.path("etc/systemd/system/cloud-init.target.wants")).expect("writable");
        for unit in STAGES.iter().filter(|unit| root.join("usr/lib/systemd/system").join(unit).exists()) {
            let link = machine.path("etc/systemd/system/cloud-init.target.wants").join(unit);
            symlink(Path::new("/usr/lib/systemd/system").join(unit), link).expect("writable");
        }
        let local = machine.path("usr-local");
        std::fs::create_dir_all(local.join("bin")).expect("writable");
        std::fs::create_dir_all(machine.path("var/log/journal")).expect("writable");
        let machine = machine.with(&[
            format!("--network-namespace-path={}", network.path),
            format!("--overlay-ro=/usr:{}:/usr", root.join("usr").display()),
            format!("--bind={}:/usr/local", local.display()),
        ]);
        machine.wants("multi-user.target");
        Some(Image { machine, _network: network, asked })
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.machine.path("var/log/cloud-init-output.log")).unwrap_or_default()
    }

    /// Everything, for the one who looks for the reason.
    fn story(&self) -> String {
        let log = std::fs::read_to_string(self.machine.path("var/log/cloud-init.log")).unwrap_or_default();
        let log = log.lines().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n");
        let mut journalctl = Command::new("journalctl");
        journalctl.arg("-D").arg(self.machine.path("var/log/journal")).args(["--no-pager", "-n", "80", "-o", "short-monotonic"]);
        let journal = journalctl.output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        format!("{}\n----\n{}\n----\n{log}\n----\n{journal}", self.machine.console(), self.said())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.story());
        }
    }
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn agent() -> Vec<u8> {
    std::fs::read(env!("CARGO_BIN_EXE_lamp-agent")).expect("it was just built")
}

/// `LAMP_JOB_ROOT="..."` and so on, as the machine has them.
fn settings(machine: &Machine) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(machine.path("etc/lamplighter/agent.env")).expect("it was written");
    text.lines().filter_map(|line| line.split_once('=')).map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned())).collect()
}

#[test]
fn an_image_becomes_a_machine_that_works_and_puts_itself_out() {
    let agent = agent();
    let Some(mut image) = Image::new(agent.clone(), &sum(&agent)) else { return };
    let kill_at = recorded(&image.machine, "while [ ! -e /root/go ]; do sleep 0.05; done; echo done > $LAMP_OUTPUT_DIR/word", "true");
    image.machine.power_on();
    wait_until("the agent holds the lease", || image.machine.path(&format!("{FOLDER}/attempts/0001/lease.json")).exists().then_some(()));
    assert_eq!(image.asked.lock().unwrap().as_slice(), ["GET /agents/a/lamp-agent?X-Amz-Signature=0&x=%2F HTTP/1.1"]);
    assert_eq!(settings(&image.machine)["AWS_ENDPOINT_URL"], API);
    let deadline = || std::fs::read_to_string(image.machine.path("etc/lamplighter/deadline")).ok()?.trim().parse::<i64>().ok();
    wait_until("the switch knows the hard end", || deadline().filter(|deadline| (deadline - kill_at.as_second()).abs() <= 1));
    image.machine.run(&["systemctl", "is-active", "--quiet", "lamp-deadman.timer", "lamp-agent.service"]);
    image.machine.run(&["systemctl", "is-enabled", "--quiet", "lamp-boot.service", "lamp-deadman.timer", "lamp-agent.service"]);

    // A start of the stopped machine: cloud-init runs the user data no second time, and the units are there. The first
    // start is the setup's.
    let events = image.machine.path(&format!("{FOLDER}/attempts/0001/events"));
    let started = |starts: usize| {
        let events = std::fs::read_dir(&events).ok()?;
        let text: String = events.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).collect();
        (text.matches("\"workload_started\"").count() >= starts).then_some(())
    };
    wait_until("the work is started", || started(2));
    image.machine.cut_the_power();
    image.machine.power_on();
    wait_until("the work is started again", || started(3));
    assert_eq!(image.asked.lock().unwrap().len(), 1, "nothing was fetched again");

    image.machine.write("root/go", "");
    image.machine.until_dark();
    let outcome = std::fs::read_to_string(image.machine.path(&format!("{FOLDER}/attempts/0001/outcome.json"))).expect("the last thing");
    assert!(outcome.contains("\"succeeded\""), "{outcome}");
    assert_eq!(image.said().matches("lamplighter: the agent is started").count(), 1);
}

/// One byte of the agent is another: it never runs, the word is on the console, and the machine goes out.
#[test]
fn a_flipped_byte_puts_the_machine_out() {
    let mut agent = agent();
    let sha256 = sum(&agent);
    let middle = agent.len() / 2;
    agent[middle] ^= 1;
    let Some(mut image) = Image::new(agent, &sha256) else { return };
    // Its pauses are a minute and a half; the test has no use for them.
    std::fs::write(image.machine.path("usr-local/bin/sleep"), "#!/bin/sh\nexit 0\n").expect("writable");
    assert!(Command::new("chmod").arg("755").arg(image.machine.path("usr-local/bin/sleep")).status().expect("chmod").success());
    image.machine.power_on();
    image.machine.until_dark();
    let said = image.said();
    assert!(said.contains("what was fetched is not the agent") && said.contains("no agent was had; powering off"), "{}", image.story());
    assert!(!image.machine.path("usr-local/bin/lamp-agent").exists());
}
