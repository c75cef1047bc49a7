//! Two gigabytes to a bucket, as one file and as two thousand: the agent's own way for outputs,
//! `s5cmd`, and `aws s3 sync`, in turn, to the same server with fresh keys.
//!
//! The server is a program that is called with a folder and a port (s3s-fs), or one that keeps
//! nothing and talks TLS (`benches/sink`), as S3 does: it shares the processors with whoever sends
//! to it, and the less it does itself, the more of what is measured is the client. What is compared
//! is the whole program from start to end, its own processor time, and its most memory.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lamplighter::adapters::host::files::LocalFiles;
use lamplighter::adapters::store::open;
use lamplighter::agent::report::retry_sender::Outbox;
use lamplighter::agent::shutdown::outputs::{WantedOutputs, upload};
use lamplighter::job::AttemptNo;
use lamplighter::jobdir::JobDir;
use lamplighter::wire::clock;

use super::Asked;
use super::machine::{kib, say_load, used_by_children};
use super::place::Place;

const GIGABYTES: f64 = 2.0;
const FILES: usize = 2_000;
const FILE_BYTES: usize = 1_000_000;
const BUCKET: &str = "figures";
const JOB: &str = "figures-222222";

/// The server, ended with this.
struct Server {
    child: Child,
    endpoint: String,
    keeps: Keeps,
}

/// What becomes of what is sent.
enum Keeps {
    /// Files below this folder.
    Files(PathBuf),
    /// A count. The server is known by the certificate in this file.
    Nothing(PathBuf),
}

impl Server {
    /// One that keeps files, over plain HTTP.
    fn start(program: &Path, place: &Path) -> Server {
        let (port, folder) = (free_port(), place.join("server"));
        std::fs::create_dir_all(folder.join(BUCKET)).expect("our folder can be written");
        let mut command = Command::new(program);
        command.args([
            "--host",
            "127.0.0.1",
            "--port",
            &port.to_string(),
            "--access-key",
            "figures",
            "--secret-key",
            "figures-secret",
        ]);
        command.arg(&folder);
        Server::started(command, port, format!("http://127.0.0.1:{port}"), Keeps::Files(folder))
    }

    /// One that keeps nothing, over TLS.
    fn sink(program: &Path, place: &Path) -> Server {
        let (port, certificate) = (free_port(), place.join("sink.pem"));
        let mut command = Command::new(program);
        command.arg(port.to_string()).arg(&certificate);
        Server::started(
            command,
            port,
            format!("https://127.0.0.1:{port}"),
            Keeps::Nothing(certificate),
        )
    }

    fn started(mut command: Command, port: u16, endpoint: String, keeps: Keeps) -> Server {
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server can be started: --server PATH, --sink PATH");
        let server = Server { child, endpoint, keeps };
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "the server does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// How many bytes came since the last look; what was kept is removed.
    fn clear(&self) -> u64 {
        match &self.keeps {
            Keeps::Files(folder) => {
                let bucket = folder.join(BUCKET);
                let bytes = bytes_below(&bucket);
                std::fs::remove_dir_all(&bucket)
                    .and_then(|()| std::fs::create_dir(&bucket))
                    .expect("our folder can be written");
                bytes
            }
            Keeps::Nothing(certificate) => taken(&self.endpoint, certificate),
        }
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|socket| socket.local_addr())
        .expect("a free port")
        .port()
}

/// What a sink counted.
fn taken(endpoint: &str, certificate: &Path) -> u64 {
    open::install_crypto();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let root =
            reqwest::Certificate::from_pem(&std::fs::read(certificate).expect("the sink wrote it"))
                .expect("a certificate");
        let client = reqwest::Client::builder().tls_certs_only([root]).build().expect("a client");
        let answer =
            client.get(format!("{endpoint}/-/taken")).send().await.expect("the sink answers");
        answer.text().await.ok().and_then(|count| count.parse().ok()).expect("a count")
    })
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            if entry.path().is_dir() {
                bytes_below(&entry.path())
            } else {
                entry.metadata().map_or(0, |found| found.len())
            }
        })
        .sum()
}

/// What one upload took.
#[derive(Clone, Copy)]
struct Took {
    secs: f64,
    cpu: f64,
    mib: f64,
}

pub fn measure(asked: &Asked) {
    let place = Place::new();
    let folders = files(place.path());
    if let Some(program) = &asked.sink {
        println!("To a server that keeps nothing, over TLS:");
        compare(asked, &Server::sink(program, place.path()), &folders);
    }
    if let Some(program) = &asked.server {
        println!("To a server that keeps files:");
        compare(asked, &Server::start(program, place.path()), &folders);
    }
}

fn compare(asked: &Asked, server: &Server, (one, many): &(PathBuf, PathBuf)) {
    for (name, folder) in [("one file", one), (&*format!("{FILES} files"), many)] {
        println!("{GIGABYTES} GB in {name}:");
        let mut took: [Vec<Took>; 3] = Default::default();
        for run in 0..asked.runs.unwrap_or(3) {
            for (tool, took) in took.iter_mut().enumerate() {
                took.push(send(asked, server, tool, folder, run));
                let there = server.clear();
                assert!(there >= (FILES * FILE_BYTES) as u64, "only {there} bytes arrived");
            }
        }
        let best = took.map(|took| {
            took.into_iter()
                .reduce(|one, other| if other.secs < one.secs { other } else { one })
                .expect("a run")
        });
        for (name, took) in ["lamp-agent's outputs", "s5cmd cp", "aws s3 sync"].iter().zip(best) {
            let (cpu, times) = (took.cpu / GIGABYTES, took.secs / best[0].secs);
            let rate = GIGABYTES * 1e3 / took.secs;
            println!(
                "  {name:<22} {:>6.2} s {rate:>6.0} MB/s  {cpu:>5.2} CPU s a GB  {:>6.1} MiB  {times:.2} x ours",
                took.secs, took.mib
            );
        }
        say_load("now");
    }
}

/// The same bytes twice: as one file, and as many.
fn files(place: &Path) -> (PathBuf, PathBuf) {
    use std::io::{Read, Write};
    let (one, many) = (place.join("one"), place.join("many"));
    let mut block = vec![0; FILE_BYTES];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut block))
        .expect("random bytes");
    for folder in [&one, &many] {
        std::fs::create_dir_all(folder).expect("our folder can be written");
    }
    let mut whole =
        std::fs::File::create(one.join("model.bin")).expect("our folder can be written");
    for number in 0..FILES {
        // No two alike.
        block[..8].copy_from_slice(&number.to_le_bytes());
        whole.write_all(&block).expect("our folder can be written");
        std::fs::write(many.join(format!("part-{number:04}.bin")), &block)
            .expect("our folder can be written");
    }
    (one, many)
}

fn send(asked: &Asked, server: &Server, tool: usize, folder: &Path, run: usize) -> Took {
    let target = format!("s3://{BUCKET}/run-{run}-{tool}");
    let ourselves = std::env::current_exe().expect("we know our own path");
    let from = folder.display().to_string();
    let mut command = match tool {
        0 => {
            let mut command = Command::new(ourselves);
            command.args(["upload-one", &target, &from]);
            command
        }
        1 => {
            let mut command = Command::new(&asked.s5cmd);
            command.args([
                "--endpoint-url",
                &server.endpoint,
                "cp",
                &format!("{from}/"),
                &format!("{target}/"),
            ]);
            command
        }
        _ => {
            let mut command = Command::new(&asked.aws);
            command.args(["--endpoint-url", &server.endpoint, "s3", "sync", &from, &target]);
            command
        }
    };
    command
        .env("AWS_ACCESS_KEY_ID", "figures")
        .env("AWS_SECRET_ACCESS_KEY", "figures-secret")
        .env("AWS_REGION", "us-east-1");
    command.env("AWS_ENDPOINT_URL", &server.endpoint).env("AWS_ALLOW_HTTP", "true");
    if let Keeps::Nothing(certificate) = &server.keeps {
        command.env("SSL_CERT_FILE", certificate).env("AWS_CA_BUNDLE", certificate);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let (began, before) = (Instant::now(), used_by_children());
    let mut child = command.spawn().expect("the program can be started: --s5cmd PATH, --aws PATH");
    let mut peak = 0;
    let status = loop {
        peak = peak.max(kib(child.id(), "status", "VmHWM"));
        if let Some(status) = child.try_wait().expect("it is ours") {
            break status;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "{command:?}: {status}");
    Took {
        secs: began.elapsed().as_secs_f64(),
        cpu: (used_by_children() - before).as_secs_f64(),
        mib: peak as f64 / 1024.0,
    }
}

/// As the agent does it at the end of an attempt, in the same kind of process.
pub fn one(words: &[String]) {
    let [root, folder] = words else { panic!("a job root and a folder") };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = open::open(root).expect("the environment says how");
        let dir = JobDir::new(store, JOB.parse().expect("an id"));
        let state = std::env::temp_dir();
        let outbox = Outbox {
            dir,
            attempt: AttemptNo::FIRST,
            clock: clock(),
            files: Arc::new(LocalFiles),
            state,
        };
        let wanted = WantedOutputs { named: &["**".to_owned()], if_any: &[] };
        let time_is_up = outbox.clock.sleep(Duration::from_secs(600));
        let kept = upload(&outbox, Path::new(folder), wanted, time_is_up).await;
        assert!(kept.losses.is_empty(), "{:?}", kept.losses);
    });
}
