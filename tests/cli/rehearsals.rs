//! `lamp rehearse` of scripts that know nothing of `lamp`: what is concluded, and from what.

use serde_json::Value;

use crate::jobs::failed;
use crate::place::Place;

/// A stock script: it tells no step, saves one file over and over, and is never asked.
const TELLS_NOTHING: &str = "import os, time\npath = 'ckpt/state.txt'\nos.makedirs('ckpt', exist_ok=True)\n\
    n = int(open(path).read()) if RESUMES and os.path.exists(path) else 0\n\
    while True:\n    n += 1\n    open(path, 'w').write(str(n))\n    time.sleep(4)\n";

fn rehearse_what_tells_nothing(resumes: &str) -> (i32, Value) {
    let place = Place::new("");
    place.0.write("train.py", TELLS_NOTHING.replace("RESUMES", resumes));
    place.0.write("lamp.toml", "name = \"r\"\ncommand = [\"python3\", \"train.py\"]\n[checkpoint]\npath = \"ckpt\"\ninterval = \"1s\"\n");
    let report = place.0.json(&["rehearse", "--interrupt-after", "8s", "--notice", "0s", "-o", "json"]);
    place.nothing_is_left();
    report
}

#[test]
fn a_rehearsal_of_a_script_that_tells_no_step_concludes_from_what_it_reads() {
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
