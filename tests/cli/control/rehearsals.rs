//! `lamp rehearse` of scripts that know nothing of `lamp`: what is concluded, and from what.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::jobs::failed;
use crate::place::{Place, end, signal, wait_until};

/// A stock script: it tells no step, saves one file over and over, and is never asked.
const TELLS_NOTHING: &str = "import os, time\npath = 'ckpt/state.txt'\nos.makedirs('ckpt', exist_ok=True)\n\
    n = int(open(path).read()) if RESUMES and os.path.exists(path) else 0\n\
    while True:\n    n += 1\n    open(path, 'w').write(str(n))\n    time.sleep(4)\n";

fn rehearse_what_tells_nothing(resumes: &str) -> (i32, Value) {
    let place = Place::new("");
    place.0.write("train.py", TELLS_NOTHING.replace("RESUMES", resumes));
    place.0.write("lamp.toml", "name = \"r\"\ncommand = [\"python3\", \"train.py\"]\n[checkpoint]\npath = \"ckpt\"\ninterval = \"1s\"\n");
    let report =
        place.0.json(&["rehearse", "--interrupt-after", "8s", "--notice", "0s", "-o", "json"]);
    place.nothing_is_left();
    report
}

#[test]
fn rehearsal_of_a_script_without_steps_concludes_from_its_reads() {
    let (code, report) = rehearse_what_tells_nothing("True");
    // A file system that notes no reads proves nothing.
    if report.to_string().contains("did not say at which step") {
        return;
    }
    assert_eq!((code, report["proved"].as_bool()), (0, Some(true)), "{report:#}");
    assert!(report.to_string().contains("read 1 of the 1 files of its checkpoint"), "{report:#}");
    let (code, report) = rehearse_what_tells_nothing("False");
    assert_eq!((code, failed(&report)), (109, vec!["went_on"]), "{report:#}");
    assert!(report.to_string().contains("read no file of its checkpoint"), "{report:#}");
}

/// As `lamp init` writes it: a requirements.txt, and a command of its own environment. The one that
/// people have stands beside the script.
#[test]
fn rehearsal_uses_the_local_environment_and_leaves_nothing() {
    let place = Place::new("");
    place.0.write(
        "train.py",
        TELLS_NOTHING.replace("RESUMES", "True").replacen(
            "import os",
            "print('begun', flush=True)\nimport mine, os",
            1,
        ),
    );
    let made = std::process::Command::new("python3")
        .args(["-m", "venv", "--without-pip", ".venv"])
        .current_dir(place.0.path())
        .output();
    assert!(made.expect("python3").status.success());
    let site = std::fs::read_dir(place.0.path().join(".venv/lib"))
        .expect("lib")
        .next()
        .expect("a python")
        .expect("read")
        .path();
    std::fs::write(site.join("site-packages/mine.py"), "")
        .expect("a package that is in that environment alone");
    let setup = r#"['venv=$LAMP_CACHE_DIR/venv-$LAMP_JOB_NAME', 'test -x "$venv/bin/pip" || python3 -m venv "$venv"', 'ln -sfn "$venv" .venv', 'touch set-up']"#;
    place.0.write(
        "lamp.toml",
        format!("name = \"r\"\ncommand = [\".venv/bin/python\", \"train.py\"]\nsetup = {setup}\n[checkpoint]\npath = \"ckpt\"\ninterval = \"1s\"\n"),
    );
    let ended = place.0.lamp(&["rehearse", "--interrupt-after", "8s", "--notice", "0s"]);
    assert!(
        ended.err.contains("uses the Python environment")
            && ended.err.contains("/.venv and installs nothing"),
        "{ended:?}"
    );
    // Some file systems do not note reads, and the rehearsal then cannot conclude.
    let concluded = !ended.out.contains("did not say at which step");
    assert_eq!(ended.code, if concluded { 0 } else { 109 }, "{ended:?}");
    let of = |path: &str| {
        std::fs::read_dir(place.0.path().join("home").join(path))
            .into_iter()
            .flatten()
            .flatten()
            .count()
    };
    assert_eq!(of(".cache/lamplighter"), 0, "no second environment");
    assert_eq!(stored(&place), Vec::<PathBuf>::new(), "its records and its log alone stay");
    let logs = place.0.lamp(&["logs", "r-rehearsal"]);
    assert!(logs.code == 0 && logs.out.contains("begun"), "{logs:?}");
    place.nothing_is_left();

    // A simulation counts the save that the rehearsal measured.
    let prices = [
        "simulate",
        "--quick",
        "--work",
        "10h",
        "--runs",
        "10",
        "--spot-price",
        "1",
        "--on-demand-price",
        "3",
        "-o",
        "json",
    ];
    let found = place.0.json(&prices);
    let job = &found.1["job"];
    assert!(
        job["save_seconds"].as_f64().is_some_and(|secs| (0.0..60.0).contains(&secs))
            && job["work_hours"] == 10.0,
        "{found:?}"
    );
}

#[test]
fn rehearsal_that_is_broken_off_leaves_its_records_alone() {
    let place = Place::new("");
    place.0.write("train.py", TELLS_NOTHING.replace("RESUMES", "True"));
    place.0.write("lamp.toml", "name = \"r\"\ncommand = [\"python3\", \"train.py\"]\n[checkpoint]\npath = \"ckpt\"\ninterval = \"1s\"\n");
    let rehearsal = place.start(&["rehearse", "--interrupt-after", "10m"]);
    wait_until("a checkpoint is stored", || {
        stored(&place)
            .iter()
            .any(|path| path.to_string_lossy().contains("/checkpoints/"))
            .then_some(())
    });
    signal(rehearsal.id(), "INT");
    let (code, _, err) = end(rehearsal);
    assert_eq!((code, stored(&place)), (130, Vec::new()), "{err}");
    place.nothing_is_left();
}

/// The files that the one rehearsal has stored beside its records.
fn stored(place: &Place) -> Vec<PathBuf> {
    let root = place.0.path().join("home/.local/state/lamplighter/jobs");
    let job = std::fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .next()
        .map(|job| job.path())
        .unwrap_or_default();
    ["checkpoints", "outputs", "code"].iter().flat_map(|name| walk(&job.join(name))).collect()
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}
