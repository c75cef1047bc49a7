//! The user data under real cloud-init with its Ec2 data source: from the first boot of an image to
//! power-off.
//!
//! What such an image is stands in `image.rs`; a whole job on it is told in `ec2/cloud_init.rs`.
//! Skipped, with a word, where there is none.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};

use lamplighter::controller::{Bootstrap, BoxEndpoint};
use sha2::{Digest as _, Sha256};

use crate::bench::wait_until;
use crate::ec2::network::{API, Network};
use crate::systemd::image;
use crate::systemd::machine::{FOLDER, metadata, recorded};
use crate::systemd::nspawn::Machine;
use lamp_test_support::skipped;

/// A web server with one file, as it is at the moment; gives its address and what was asked of it.
fn serves(body: Vec<u8>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("it listens"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let head: Vec<String> = BufReader::new(&stream)
                .lines()
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            told.lock().expect("nobody fails with it").extend(head.first().cloned());
            let start = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            // A client that went away has its reasons.
            let _gone = stream.write_all(start.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    });
    (address, asked)
}

/// An image with cloud-init, before its first boot; its network and metadata live as long as the
/// second value.
struct Image {
    machine: Machine,
    _network: Network,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Image {
    fn new(served: Vec<u8>, sha256: &str) -> Option<Self> {
        let root = image::unpacked()?;
        let machine = Machine::new()?;
        let (address, asked) = serves(served);
        let imds = metadata();
        let bootstrap = Bootstrap {
            job_root: "file:///var/lib/lamplighter/root",
            job_root_region: None,
            region: "us-east-1",
            agent_url: &format!("{API}/agents/a/lamp-agent?X-Amz-Signature=0&x=%2F"),
            agent_sha256: sha256,
            box_endpoint: Some(BoxEndpoint::All(API)),
            boot: lamplighter::job::BOOT,
        };
        imds.says("user-data", &bootstrap.user_data().expect("plain words"));
        let network = match Network::new(&imds, &address) {
            Ok(network) => network,
            Err(why) => {
                skipped("cloud-init", why);
                return None;
            }
        };
        let machine = image::with_cloud_init(image::bare(machine, &network.path), &root);
        Some(Image { machine, _network: network, asked })
    }

    fn said(&self) -> String {
        image::said(&self.machine)
    }

    /// Everything, for the one who looks for the reason.
    fn story(&self) -> String {
        let (said, log, journal) =
            (self.said(), image::log(&self.machine), image::journal(&self.machine));
        format!("{}\n----\n{said}\n----\n{log}\n----\n{journal}", self.machine.console())
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
    let text =
        std::fs::read_to_string(machine.path("etc/lamplighter/agent.env")).expect("it was written");
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned()))
        .collect()
}

#[test]
fn image_becomes_a_machine_that_works_and_puts_itself_out() {
    let agent = agent();
    let Some(mut image) = Image::new(agent.clone(), &sum(&agent)) else { return };
    let kill_at = recorded(
        &image.machine,
        "while [ ! -e /root/go ]; do sleep 0.05; done; echo done > $LAMP_OUTPUT_DIR/word",
        "true",
    );
    image.machine.power_on();
    wait_until("the agent holds the lease", || {
        image.machine.path(&format!("{FOLDER}/attempts/0001/lease.json")).exists().then_some(())
    });
    assert_eq!(
        image.asked.lock().unwrap().as_slice(),
        ["GET /agents/a/lamp-agent?X-Amz-Signature=0&x=%2F HTTP/1.1"]
    );
    assert_eq!(settings(&image.machine)["AWS_ENDPOINT_URL"], API);
    let deadline = || {
        std::fs::read_to_string(image.machine.path("etc/lamplighter/deadline"))
            .ok()?
            .trim()
            .parse::<i64>()
            .ok()
    };
    wait_until("the switch knows the hard end", || {
        deadline().filter(|deadline| (deadline - kill_at.as_second()).abs() <= 1)
    });
    image.machine.run(&[
        "systemctl",
        "is-active",
        "--quiet",
        "lamp-deadman.timer",
        "lamp-agent.service",
    ]);
    image.machine.run(&[
        "systemctl",
        "is-enabled",
        "--quiet",
        "lamp-boot.service",
        "lamp-deadman.timer",
        "lamp-agent.service",
    ]);

    // A start of the stopped machine: cloud-init runs the user data no second time, and the units
    // are there. The first start is the setup's.
    let events = image.machine.path(&format!("{FOLDER}/attempts/0001/events"));
    let started = |starts: usize| {
        let events = std::fs::read_dir(&events).ok()?;
        let text: String = events
            .flatten()
            .filter_map(|entry| std::fs::read_to_string(entry.path()).ok())
            .collect();
        (text.matches("\"workload_started\"").count() >= starts).then_some(())
    };
    wait_until("the work is started", || started(2));
    image.machine.cut_the_power();
    image.machine.power_on();
    wait_until("the work is started again", || started(3));
    assert_eq!(image.asked.lock().unwrap().len(), 1, "nothing was fetched again");

    image.machine.write("root/go", "");
    image.machine.until_dark();
    let outcome = std::fs::read_to_string(
        image.machine.path(&format!("{FOLDER}/attempts/0001/outcome.json")),
    )
    .expect("the last thing");
    assert!(outcome.contains("\"succeeded\""), "{outcome}");
    assert_eq!(image.said().matches("lamplighter: the agent is started").count(), 1);
}

/// One byte of the agent is another: it never runs, the word is on the console, and the machine
/// goes out.
#[test]
fn flipped_byte_puts_the_machine_out() {
    let mut agent = agent();
    let sha256 = sum(&agent);
    let middle = agent.len() / 2;
    agent[middle] ^= 1;
    let Some(mut image) = Image::new(agent, &sha256) else { return };
    // Its pauses are a minute and a half; the test has no use for them.
    std::fs::write(image.machine.path("usr-local/bin/sleep"), "#!/bin/sh\nexit 0\n")
        .expect("writable");
    assert!(
        Command::new("chmod")
            .arg("755")
            .arg(image.machine.path("usr-local/bin/sleep"))
            .status()
            .expect("chmod")
            .success()
    );
    image.machine.power_on();
    image.machine.until_dark();
    let said = image.said();
    assert!(
        said.contains("what was fetched is not the agent")
            && said.contains("no agent was had; powering off"),
        "{}",
        image.story()
    );
    assert!(!image.machine.path("usr-local/bin/lamp-agent").exists());
}
