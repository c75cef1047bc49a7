//! The shipped catalogue is what its program makes of the collected facts: nobody has written a
//! price into it by hand.
//!
//! The facts are of several sources, not all of which may be passed on, and are not in this
//! repository. Where `LAMP_CATALOG_DATA` names their folder, as the gate does where it lies beside
//! the repository, the catalogue is written anew into another folder and compared.

use std::path::PathBuf;
use std::process::Command;

use super::text;
use lamp_test_support::skipped;

/// What `generate.py` writes; `extras.csv` is written by hand.
const GENERATED: [&str; 3] = ["on_demand.csv", "types.csv", "zones.csv"];

#[test]
fn catalogue_equals_what_its_program_makes_of_the_facts() {
    let Some(facts) = std::env::var_os("LAMP_CATALOG_DATA").map(PathBuf::from) else {
        return skipped(
            "data",
            "LAMP_CATALOG_DATA names no collected facts, which are not in this repository (config/catalog/generate.py)",
        );
    };
    let into = tempfile::tempdir().expect("a temporary folder can be made");
    let program = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config/catalog/generate.py");
    let ended = Command::new("python3")
        .arg("-B")
        .arg(program)
        .arg(facts)
        .arg(into.path())
        .output()
        .expect("python3 is there, as for the rest of the gate");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let written = std::fs::read_dir(into.path()).expect("the folder is there").flatten();
    let mut written: Vec<String> =
        written.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    written.sort_unstable();
    assert_eq!(written, GENERATED, "and nothing else, beside the shipped one or elsewhere");
    for name in GENERATED {
        let made = std::fs::read_to_string(into.path().join(name)).expect("it was written");
        assert!(
            made == text(&format!("config/catalog/{name}")),
            "config/catalog/{name} differs: `python3 config/catalog/generate.py FOLDER` writes it anew"
        );
    }
}
