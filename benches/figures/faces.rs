//! What the page and `lamp top` cost: the first byte, the samples of a week, open pages, memory.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Asked;
use super::listing::finished_jobs;
use super::machine::{kib, used};
use super::place::{Place, Running, now_text};

const JOBS: usize = 1000;

/// The number of jobs that still run.
const RUNNING: usize = 10;

/// The page itself gives up after 90 s.
const PATIENCE: Duration = Duration::from_secs(120);

/// A batch a minute.
const WEEK_BATCHES: u64 = 7 * 24 * 60;

pub fn measure(asked: &Asked) {
    let place = Place::new();
    let all = asked.runs.unwrap_or(JOBS);
    finished_jobs(&place, all);
    let jobs = still_running(&place, RUNNING);
    let week = &jobs[0];
    let bytes = week_of_samples(&place, week);
    println!("{all} jobs, {RUNNING} of them running; a week of samples: {} MB", bytes / 1_000_000);
    for start in ["empty cache", "second start"] {
        let page = OpenPage::start(asked, &place);
        page.say(&format!("overview, {start}"), "/");
        if start == "second start" {
            continue;
        }
        for look in ["second", "third", "fourth"] {
            // The next look at the records is due.
            std::thread::sleep(Duration::from_millis(2500));
            page.say(&format!("overview, {look} look"), "/");
        }
        let assets = ["style.css", "page.js", "uplot.min.js", "uplot.min.css"];
        let assets = assets.map(|name| page.get(&format!("/assets/{name}")));
        let bytes = assets.iter().flatten().map(|(_, whole)| whole.len());
        println!("all assets: {} KB", bytes.sum::<usize>() / 1000);
    }
    let page = OpenPage::start(asked, &place);
    for read in ["first", "second", "third"] {
        page.say(&format!("plot data of a week, {read} read"), &format!("/job/{week}/plot.json"));
        std::thread::sleep(Duration::from_millis(2500));
    }
    let memory = kib(page.program.pid(), "status", "VmRSS") / 1024;
    println!("lamp web after the week: {memory} MiB");
    drop(page);
    let secs = Duration::from_secs(asked.secs.unwrap_or(30));
    let page = OpenPage::start(asked, &place);
    page.rests("lamp web, no page open", secs);
    for pages in [1, 50] {
        let _open: Vec<TcpStream> = (0..pages).map(|_| page.ask("/live")).collect();
        page.rests(&format!("lamp web, {pages} open pages"), secs);
    }
    top(asked, &place, secs);
}

/// Takes the end of the first jobs away, and lets their agents report now.
fn still_running(place: &Place, count: usize) -> Vec<String> {
    let root = place.file("root/jobs");
    let mut jobs: Vec<String> = std::fs::read_dir(&root)
        .expect("the jobs were written")
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    jobs.sort();
    jobs.truncate(count);
    for job in &jobs {
        for name in ["receipt.json", "attempts/0002/outcome.json", "attempts/0002/settled.json"] {
            std::fs::remove_file(root.join(job).join(name)).expect("it was written");
        }
        let status = root.join(job).join("attempts/0002/status.json");
        let text = std::fs::read(status).expect("it was written");
        let mut status: Value = serde_json::from_slice(&text).expect("records are JSON");
        status["at"] = now_text().into();
        status["phase"] = "running".into();
        place.write(&format!("root/jobs/{job}/attempts/0002/status.json"), &status);
    }
    jobs
}

/// The samples of a job of seven days at one a second, as an agent with eight GPUs writes them.
fn week_of_samples(place: &Place, job: &str) -> usize {
    let folder = place.file(&format!("root/jobs/{job}/attempts/0002/samples"));
    let mut random = 88_172_645_463_325_252_u64;
    let mut drawn = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as f64 / (1_u64 << 53) as f64
    };
    let began: jiff::Timestamp = "2026-11-01T00:00:00Z".parse().expect("a time");
    let mut bytes = 0;
    for batch in 0..WEEK_BATCHES {
        let mut rows = String::new();
        for second in batch * 60..(batch + 1) * 60 {
            let at = began + Duration::from_secs(second);
            let _infallible = writeln!(
                rows,
                "{{\"t_secs\":{:.6},\"interval_secs\":{},\"gpu_percent\":{},\"gpu_memory_percent\":{},\"gpu_memory_used_mib\":{:.1},\
                 \"gpu_power_watts\":{:.3},\"cpu_percent\":{},\"cpu_percent_min\":null,\"machine_cpu_percent\":{},\"rest_cpu_percent\":{},\
                 \"disk_bytes_per_sec\":{},\"net_bytes_per_sec\":{},\"log_bytes\":80.0,\"progress_marks\":1.0,\"step\":{second}.0,\
                 \"checkpoint_marks\":0.0,\"typing_secs\":null,\"gpu_power_limit_watts\":5600.0,\"gpu_temperature_celsius\":{:.1},\
                 \"gpu_clock_mhz\":1980.0,\"memory_bytes\":{:.1},\"machine_memory_percent\":{},\"disk_free_bytes\":{:.1}{},\"at\":\"{at}\"}}",
                second as f64 + drawn() * 1e-3,
                1.0 + drawn() * 1e-4,
                90.0 + drawn() * 10.0,
                40.0 + drawn(),
                600_000.0 + (drawn() * 100.0).floor(),
                5000.0 + drawn() * 500.0,
                800.0 + drawn() * 100.0,
                30.0 + drawn(),
                drawn(),
                drawn() * 1e8,
                drawn() * 1e6,
                60.0 + (drawn() * 9.0).floor(),
                1e11 + (drawn() * 1e9).floor(),
                30.0 + drawn(),
                1e12 - (drawn() * 1e9).floor(),
                if second % 10 == 0 { each_gpu(&mut drawn) } else { String::new() },
            );
        }
        let packed = zstd::bulk::compress(rows.as_bytes(), 3).expect("it packs");
        bytes += packed.len();
        std::fs::write(folder.join(format!("{:08}.jsonl.zst", batch + 1)), packed)
            .expect("our folder can be written");
    }
    bytes
}

/// The eight GPUs of a sample, each with the process that holds it.
fn each_gpu(drawn: &mut impl FnMut() -> f64) -> String {
    let gpus = (0..8).map(|index| {
        format!(
            "{{\"index\":{index},\"name\":\"NVIDIA H100 80GB HBM3\",\"util_percent\":{:.0}.0,\
             \"memory_used_mib\":{:.0},\"memory_total_mib\":81559,\"power_watts\":{:.3},\
             \"temperature_celsius\":{:.0}.0,\"power_limit_watts\":700.0,\"clock_mhz\":1980.0,\
             \"throttled_by\":[],\"ecc_uncorrected\":0,\"processes\":[{{\"pid\":{},\
             \"name\":\"python\",\"memory_mib\":75000,\"of_workload\":true}}]}}",
            90.0 + drawn() * 10.0,
            75_000.0 + drawn() * 100.0,
            600.0 + drawn() * 90.0,
            60.0 + drawn() * 9.0,
            4000 + index,
        )
    });
    format!(",\"gpus\":[{}]", gpus.collect::<Vec<_>>().join(","))
}

/// `lamp web` and the way to it.
struct OpenPage {
    program: Running,
    address: String,
    token: String,
}

impl OpenPage {
    fn start(asked: &Asked, place: &Place) -> OpenPage {
        let root = format!("file://{}", place.file("root").display());
        let mut command = place.command(&asked.lamp);
        command.args(["--job-root", &root, "web", "--port", "0"]).stdout(Stdio::piped());
        let mut program = Running::start(&mut command);
        let out = program.0.stdout.take().expect("it is piped");
        let mut link = String::new();
        BufReader::new(out).read_line(&mut link).expect("it prints its link");
        let address = link.trim().trim_start_matches("http://").split('/').next();
        let token = std::fs::read_to_string(place.file("state/lamplighter/web-token"));
        OpenPage {
            program,
            address: address.expect("an address").to_owned(),
            token: token.expect("it keeps its token").trim().to_owned(),
        }
    }

    fn ask(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let (host, token) = (&self.address, &self.token);
        let asked = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(asked.as_bytes()).expect("it reads");
        stream
    }

    /// The time to the first byte, and the whole answer; or why there is none.
    fn get(&self, path: &str) -> Result<(Duration, Vec<u8>), String> {
        let began = Instant::now();
        let mut stream = self.ask(path);
        let silent = |_| format!("no answer in {} s", began.elapsed().as_secs());
        stream.set_read_timeout(Some(PATIENCE)).map_err(silent)?;
        let mut answer = vec![0];
        stream.read_exact(&mut answer).map_err(silent)?;
        let first = began.elapsed();
        stream.read_to_end(&mut answer).map_err(silent)?;
        let status = String::from_utf8_lossy(answer.get(9..12).unwrap_or_default()).into_owned();
        match status.as_str() {
            "200" => Ok((first, answer)),
            "504" => Err(format!("no answer in {} s", first.as_secs())),
            status => Err(format!("status {status} after {} s", first.as_secs())),
        }
    }

    /// Prints how long an answer takes, and the processor time of the page for it.
    fn say(&self, name: &str, path: &str) {
        let before = used(self.program.pid());
        let answer = self.get(path);
        let cpu = (used(self.program.pid()) - before).as_millis();
        match answer {
            Ok((first, whole)) => println!(
                "{name}: first byte {} ms, {cpu} ms of a core, {} KB",
                first.as_millis(),
                whole.len() / 1000
            ),
            Err(why) => println!("{name}: {why}, {cpu} ms of a core"),
        }
    }

    fn rests(&self, name: &str, time: Duration) {
        say_use(name, self.program.pid(), time);
    }
}

fn say_use(name: &str, pid: u32, time: Duration) {
    // The start is over.
    std::thread::sleep(Duration::from_secs(5));
    let (began, before) = (Instant::now(), used(pid));
    std::thread::sleep(time);
    let share = (used(pid) - before).as_secs_f64() / began.elapsed().as_secs_f64();
    let memory = kib(pid, "status", "VmRSS") as f64 / 1024.0;
    println!("{name}: {:.1} % of a core, {memory:.0} MiB", share * 100.0);
}

/// In a terminal of 120 columns that `script` makes.
fn top(asked: &Asked, place: &Place, time: Duration) {
    let root = format!("file://{}", place.file("root").display());
    let typed =
        format!("stty cols 120 rows 40; exec {} --job-root {root} top", asked.lamp.display());
    let mut command: Command = place.command("script".as_ref());
    command.args(["-qfc", &typed, "/dev/null"]).env("TERM", "xterm-256color");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let terminal = Running::start(&mut command);
    std::thread::sleep(Duration::from_secs(2));
    let named = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|words| words.split('\0').any(|word| word == "top"))
    };
    let above = |pid: u32| super::machine::parent_of(pid) == Some(terminal.pid());
    match super::place::pids().find(|pid| named(pid) && above(*pid)) {
        Some(pid) => say_use("lamp top", pid, time),
        None => println!("lamp top: not found below `script`"),
    }
}
