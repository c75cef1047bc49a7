//! The way of the output: how fast a workload can print, and what keeping it costs beside a plain
//! file.
//!
//! The workload is this program (`figures flood BYTES WHERE`), which prints lines of text in blocks
//! of 64 KiB and writes to `WHERE` how long it took. Each way is taken several times in turn, so
//! that a loaded minute strikes all of them.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use serde_json::json;

use super::Asked;
use super::machine::{kib, quantile, used_by_children};
use super::place::{Place, Running, wait_for};

/// One flood. More than a cache, less than what the writing back of dirty pages stalls everybody
/// at.
const FLOOD_BYTES: u64 = 1 << 30;

/// One way of keeping a flood; gives the seconds that the workload needed.
type Way = fn(&Asked, &Place) -> Option<f64>;

pub fn measure(asked: &Asked) {
    let runs = asked.runs.unwrap_or(5);
    let ways: [(&str, Way); 8] = [
        ("> /dev/null", null),
        ("> file", file),
        ("| cat > file", cat),
        ("a terminal, read and thrown away", bare_terminal),
        ("holder, by a terminal", |asked, place| holder(asked, place, 4 * FLOOD_BYTES, true)),
        ("holder, everything kept", |asked, place| holder(asked, place, 4 * FLOOD_BYTES, false)),
        ("holder, bound of 512 MiB", |asked, place| holder(asked, place, 512 << 20, false)),
        ("agent run (shipping beside it)", agent),
    ];
    let mut all: Vec<(Vec<f64>, Vec<f64>)> = ways.iter().map(|_| Default::default()).collect();
    for _ in 0..runs {
        for ((_, way), (rates, costs)) in ways.iter().zip(&mut all) {
            let place = Place::new();
            let before = used_by_children();
            let Some(secs) = way(asked, &place) else { continue };
            rates.push(FLOOD_BYTES as f64 / 1e6 / secs);
            costs.push((used_by_children() - before).as_secs_f64() * 1e9 / FLOOD_BYTES as f64);
        }
    }
    for ((name, _), (mut rates, mut costs)) in ways.iter().zip(all) {
        rates.sort_by(f64::total_cmp);
        costs.sort_by(f64::total_cmp);
        println!(
            "{name:<34} median {:>6.0} MB/s, least {:>6.0}, best {:>6.0}; {:>5.2} CPU s a GB, both ends",
            quantile(&rates, 0.5),
            quantile(&rates, 0.0),
            quantile(&rates, 1.0),
            quantile(&costs, 0.5)
        );
    }
}

/// The workload: `BYTES WHERE`.
pub fn flood(words: &[String]) {
    let [bytes, place] = words else { return };
    let bytes: u64 = bytes.parse().expect("a number of bytes");
    let mut block = Vec::new();
    for line in 0.. {
        if block.len() >= 64 << 10 {
            break;
        }
        let _ = writeln!(
            block,
            "epoch 3 step {line} loss {:.6} lr 3.0e-4 tokens/s {}",
            2.0 / f64::from(line + 1),
            91_000 + line * 7919 % 1000
        );
    }
    block.truncate(64 << 10);
    let began = Instant::now();
    let mut out = std::io::stdout().lock();
    for _ in 0..bytes / block.len() as u64 {
        out.write_all(&block).expect("somebody reads it");
    }
    std::fs::write(place, began.elapsed().as_secs_f64().to_string()).expect("the folder is there");
}

fn us() -> std::path::PathBuf {
    std::env::current_exe().expect("we know our own path")
}

fn flooding(place: &Place) -> Command {
    let mut command = place.command(&us());
    command.arg("flood").arg(FLOOD_BYTES.to_string()).arg(place.file("took"));
    command
}

fn took(place: &Place) -> Option<f64> {
    std::fs::read_to_string(place.file("took")).ok()?.parse().ok()
}

fn null(_: &Asked, place: &Place) -> Option<f64> {
    flooding(place).status().ok()?;
    took(place)
}

fn file(_: &Asked, place: &Place) -> Option<f64> {
    flooding(place).stdout(File::create(place.file("out")).ok()?).status().ok()?;
    took(place)
}

fn cat(_: &Asked, place: &Place) -> Option<f64> {
    let mut cat = place
        .command(Path::new("cat"))
        .stdin(Stdio::piped())
        .stdout(File::create(place.file("out")).ok()?)
        .spawn()
        .ok()?;
    flooding(place).stdout(cat.stdin.take()?).status().ok()?;
    cat.wait().ok()?;
    took(place)
}

/// What the kernel's terminal allows: the same terminal, and a reader that only reads.
fn bare_terminal(_: &Asked, place: &Place) -> Option<f64> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let mut reader = File::from(openpt(flags).ok()?);
    unlockpt(&reader).ok()?;
    let writer = ioctl_tiocgptpeer(&reader, flags).ok()?;
    let mut modes = tcgetattr(&writer).ok()?;
    modes.make_raw();
    tcsetattr(&writer, OptionalActions::Now, &modes).ok()?;
    let mut command = flooding(place);
    let mut workload = command.stdout(writer).spawn().ok()?;
    // It holds the writing end, and the reader would wait for it.
    drop(command);
    let mut buffer = vec![0; 64 << 10];
    // Without a writer the terminal gives an error.
    while reader.read(&mut buffer).is_ok_and(|read| read > 0) {}
    workload.wait().ok()?;
    took(place)
}

/// The holder as the agent starts it, without an agent.
fn holder(asked: &Asked, place: &Place, log_bytes_max: u64, terminal: bool) -> Option<f64> {
    let argv = [
        us().display().to_string(),
        "flood".into(),
        FLOOD_BYTES.to_string(),
        place.file("took").display().to_string(),
    ];
    let (dir, cwd) = (place.file("start"), place.path());
    let launch = json!({"name": "figures", "argv": argv, "cwd": cwd, "env": {}, "dir": dir, "log_bytes_max": log_bytes_max, "echo": false, "terminal": terminal});
    place.write("start/launch.json", &launch);
    // The agent makes the pipe that the holder keeps open; ours is the reading end.
    let mut command = place.command(&asked.agent);
    let mut holder = Running::start(command.arg("holder").arg(&dir));
    let mut most = 0;
    wait_for(|| {
        most = most.max(kib(holder.pid(), "status", "VmHWM"));
        holder.0.try_wait().ok()?
    })?;
    let kept: u64 = std::fs::read_dir(dir.join("log"))
        .ok()?
        .flatten()
        .filter_map(|entry| Some(entry.metadata().ok()?.len()))
        .sum();
    println!(
        "  holder: {:.1} MiB resident at most, kept {} MiB of {} MiB",
        most as f64 / 1024.0,
        kept >> 20,
        FLOOD_BYTES >> 20
    );
    took(place)
}

fn agent(asked: &Asked, place: &Place) -> Option<f64> {
    let words = [
        "run",
        "--",
        &us().display().to_string(),
        "flood",
        &FLOOD_BYTES.to_string(),
        &place.file("took").display().to_string(),
    ]
    .map(str::to_owned);
    let mut agent = Running::start(place.command(&asked.agent).args(words));
    let mut most = 0;
    wait_for(|| {
        most = most.max(kib(agent.pid(), "status", "VmHWM"));
        agent.0.try_wait().ok()?
    })?;
    println!("  agent: {:.1} MiB resident at most", most as f64 / 1024.0);
    took(place)
}
