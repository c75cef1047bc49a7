//! `lamp replay market --stdio`: a question a line, an answer a line.

use std::io::Write;
use std::process::Stdio;

use crate::sandbox::Sandbox;

const FIRST: &str = r#"{"run":"","tick":0,"elapsed":0,"tick_seconds":600,"has_spot":true,"progress":0,"remaining":7200,"job":7200,"deadline":28800,"overhead":720,"overhead_left":0,"current":"none","previous":"none","price_spot":0.9731,"price_on_demand":3.06}"#;

fn answers(options: &[&str], questions: &str) -> (i32, String, String) {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&[&["replay", "market", "--stdio"], options].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // One that ended at a broken line does not read the rest.
    let _ = child.stdin.take().unwrap().write_all(questions.as_bytes());
    let ended = child.wait_with_output().unwrap();
    (ended.status.code().unwrap(), String::from_utf8(ended.stdout).unwrap(), String::from_utf8(ended.stderr).unwrap())
}

#[test]
fn each_question_has_one_word() {
    let gone = FIRST.replace(r#""has_spot":true"#, r#""has_spot":false"#);
    let unknown = FIRST.replace(r#""has_spot":true"#, r#""has_spot":null"#);
    let late = gone.replace("28800", "7200");
    let (code, out, err) = answers(&[], &format!("{FIRST}\n\n{gone}\n{unknown}\n{late}\n"));
    assert_eq!((code, out.as_str(), err.as_str()), (0, "spot\nnone\nnone\non_demand\n", ""));
}

#[test]
fn the_verdict_with_its_numbers() {
    let (code, out, _) = answers(&["-o", "jsonl"], FIRST);
    let verdict: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &verdict["step"], &verdict["because"]), (0, &"spot".into(), &"cheapest".into()));
    assert!(verdict["spot_usd"].as_f64().unwrap() < verdict["on_demand_usd"].as_f64().unwrap());
}

#[test]
fn a_line_that_is_no_question_is_named() {
    for broken in ["{}", "x", &FIRST.replace("7200", "-1"), &FIRST.replace("3.06", "1e300")] {
        let (code, out, err) = answers(&[], &format!("{FIRST}\n{broken}\n{FIRST}\n"));
        assert_eq!((code, out.as_str()), (100, "spot\n"), "{broken}");
        assert!(err.contains("line 2 is not a question"), "{err}");
    }
}
