//! `lamp replay market --stdio`: a question a line, an answer a line.

use std::io::Write;
use std::process::Stdio;

use crate::sandbox::{Sandbox, heard};

const FIRST: &str = r#"{"run":"","tick":0,"elapsed":0,"tick_seconds":600,"has_spot":true,"progress":0,"remaining":7200,"job":7200,"deadline":28800,"overhead":720,"overhead_left":0,"current":"none","previous":"none","price_spot":0.9731,"price_on_demand":3.06}"#;

fn answers(options: &[&str], questions: &str) -> (i32, String, String) {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&[&["replay", "market", "--stdio"], options].concat());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that ended at a broken line does not read the rest.
    let _ = child.stdin.take().unwrap().write_all(questions.as_bytes());
    let ended = heard(child);
    (
        ended.status.code().unwrap(),
        String::from_utf8(ended.stdout).unwrap(),
        String::from_utf8(ended.stderr).unwrap(),
    )
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
fn verdict_with_its_numbers() {
    let (code, out, _) = answers(&["-o", "jsonl"], FIRST);
    let verdict: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &verdict["step"], &verdict["because"]),
        (0, &"spot".into(), &"cheapest".into())
    );
    assert!(verdict["spot_usd"].as_f64().unwrap() < verdict["on_demand_usd"].as_f64().unwrap());
}

#[test]
fn line_that_is_no_question_is_named() {
    for broken in ["{}", "x", &FIRST.replace("7200", "-1"), &FIRST.replace("3.06", "1e300")] {
        let (code, out, err) = answers(&[], &format!("{FIRST}\n{broken}\n{FIRST}\n"));
        assert_eq!((code, out.as_str()), (100, "spot\n"), "{broken}");
        assert!(err.contains("line 2 is not a question"), "{err}");
    }
}

#[test]
fn price_below_nothing_and_a_tick_of_no_time_are_refused() {
    let priced = |name: &str| FIRST.replace(&format!(r#""{name}":"#), &format!(r#""{name}":-"#));
    for (broken, because) in [
        (priced("price_spot"), "`price_spot` is -0.9731: a price is 0 or more"),
        (priced("price_on_demand"), "`price_on_demand` is -3.06: a price is 0 or more"),
        (FIRST.replace(r#""tick_seconds":600"#, r#""tick_seconds":0"#), "`tick_seconds` is 0"),
    ] {
        let (code, out, err) = answers(&[], &format!("{FIRST}\n{broken}\n"));
        assert_eq!((code, out.as_str()), (100, "spot\n"), "{broken}");
        assert!(err.contains("line 2 is not a question") && err.contains(because), "{err}");
    }
}

/// The example of the help is a question, and each field that a question may have is told there.
#[test]
fn help_says_what_a_question_is() {
    let help = Sandbox::new().lamp(&["replay", "market", "--help"]).out;
    let from = help.find('{').expect("an example");
    let to = from + help[from..].find('}').expect("the end of the example") + 1;
    let (code, out, err) = answers(&[], &help[from..to].replace('\n', " "));
    assert_eq!((code, out.as_str(), err.as_str()), (0, "spot\n", ""), "{help}");
    for field in FIRST
        .split('"')
        .filter(|word| word.contains('_') && !["tick_seconds"].contains(word))
        .chain(["unsaved", "begins_anew", "tick_seconds"])
    {
        assert!(
            help.contains(&format!("`{field}`")) || help.contains(&format!("\"{field}\"")),
            "{field}: {help}"
        );
    }
}
