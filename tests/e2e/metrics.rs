//! `lamp-agent --metrics-listen`: the real program with a scripted GPU, asked as Prometheus asks.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use crate::bench::{Bench, Running, wait_until};
use lamp_test_support::fake_nvml::{BUSY, FakeNvml};

/// Header and body of one answer; `None`: nothing listens.
fn get(address: &str, path: &str, host: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (header, body) = answer.split_once("\r\n\r\n")?;
    Some((header.to_owned(), body.to_owned()))
}

/// The samples of an OpenMetrics text by name and labels. Fails where the text breaks a rule.
fn parsed(text: &str) -> BTreeMap<String, f64> {
    // Nothing is measured before the first sample.
    assert!(text.ends_with("\n# EOF\n") || text == "# EOF\n", "{text}");
    let (mut types, mut samples) = (BTreeSet::new(), BTreeMap::new());
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (kind, name) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
            let rest = words.next().unwrap_or_default();
            match kind {
                "TYPE" => assert!(types.insert(name.to_owned()) && rest == "gauge", "{line}"),
                "UNIT" => assert!(name.ends_with(&format!("_{rest}")), "{line}"),
                _ => assert_eq!(kind, "HELP", "{line}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
        let name = series.split('{').next().unwrap_or_default();
        assert!(types.contains(name), "a sample follows its type: {line}");
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("not a number: {line}"));
        assert!(samples.insert(series.to_owned(), value).is_none(), "twice: {line}");
    }
    samples
}

#[test]
fn agent_serves_metrics_only_when_asked_and_only_locally() {
    let bench = Bench::new();
    let gpu = FakeNvml::in_dir(bench.path());
    gpu.play(BUSY);
    let address = {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        free.local_addr().expect("an address").to_string()
    };
    let port = address.rsplit(':').next().expect("a port");
    let mut run = Running::start(
        bench
            .agent()
            .env("LAMP_NVML_LIBRARY", gpu.library())
            .args(["run", "--name", "a \"b\"", "--gpus", "all", "--metrics-listen", port])
            .args(["--", "sh", "-c", "while [ ! -e go ]; do sleep 0.1; done; exit 5"])
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    let value = |samples: &BTreeMap<String, f64>, name: &str, labels: &str| {
        let fits = |series: &str| series.split('{').next() == Some(name) && series.contains(labels);
        samples.iter().find(|(series, _)| fits(series)).map(|(_, value)| *value)
    };
    let samples = wait_until("the agent serves the state of the job", || {
        let (header, body) = get(&address, "/metrics", &address)?;
        assert!(header.starts_with("HTTP/1.1 200"), "{header}");
        assert!(header.contains("application/openmetrics-text; version=1.0.0"), "{header}");
        let samples = parsed(&body);
        value(&samples, "lamp_agent_state", "phase=\"running\"")?;
        value(&samples, "lamp_agent_quiet_seconds", "")?;
        Some(samples)
    });
    for (name, labels, expected) in [
        ("DCGM_FI_DEV_GPU_UTIL", "gpu=\"0\"", 97.0),
        ("DCGM_FI_DEV_MEM_COPY_UTIL", "gpu=\"0\"", 60.0),
        ("DCGM_FI_DEV_FB_USED", "gpu=\"0\"", 40_000.0),
        ("DCGM_FI_DEV_FB_FREE", "gpu=\"0\"", 41_920.0),
        ("DCGM_FI_DEV_POWER_USAGE", "gpu=\"0\"", 350.0),
        ("DCGM_FI_DEV_GPU_TEMP", "gpu=\"0\"", 68.0),
        ("DCGM_FI_DEV_XID_ERRORS", "gpu=\"0\"", 0.0),
        ("lamp_agent_starts", "name=\"a \\\"b\\\"\"", 1.0),
    ] {
        assert_eq!(value(&samples, name, labels), Some(expected), "{name} of {samples:?}");
    }
    for name in ["node_memory_MemTotal_bytes", "lamp_agent_workload_memory_bytes"] {
        assert!(value(&samples, name, "").is_some_and(|bytes| bytes > 1e5), "{samples:?}");
    }
    // A page of another site reaches nothing through a browser here.
    let (header, _) = get(&address, "/metrics", "evil.example:80").expect("an answer");
    assert!(header.starts_with("HTTP/1.1 403"), "{header}");
    // The port is taken: this run says so, and starts nothing.
    let second = bench
        .agent()
        .args(["run", "--metrics-listen", port, "--", "touch", "started"])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("cannot serve measurements"), "{said}");
    assert!(!bench.file("started").exists());
    bench.write("go", "");
    assert_eq!(run.wait().code(), Some(5), "the exit code is the command's own");
}
