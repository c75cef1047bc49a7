//! A cost that nobody knows to the cent is the most that it can be: wherever it is shown, it is
//! marked so.

use crate::sandbox::Sandbox;

#[test]
fn estimated_total_is_marked_in_the_receipt_and_the_status() {
    let sandbox = Sandbox::new();
    let shown = |is_estimated: bool| {
        let mut record: serde_json::Value =
            serde_json::from_str(include_str!("../../data/v1/receipt.json")).expect("a record");
        record["attempts"][0]["billed_estimated"] = is_estimated.into();
        sandbox.write(
            "home/.local/state/lamplighter/jobs/digits-7f3k2q/receipt.json",
            record.to_string(),
        );
        let words =
            ["receipt", "status", "status"].iter().zip([Some("digits"), Some("digits"), None]);
        let texts = words
            .map(|(verb, job)| sandbox.lamp(&[&[*verb], job.as_slice()].concat()).out)
            .collect::<Vec<_>>();
        let (_, document) = sandbox.json(&["status", "-o", "json"]);
        (texts, document["jobs"][0]["usd_estimated"].clone(), document["jobs"][0]["usd"].clone())
    };
    let (known, is_estimated, usd) = shown(false);
    assert!(
        known[0].contains("  total $0.46; ") && known[1].contains("\ncost        $0.46\n"),
        "{known:?}"
    );
    assert!(!known.concat().contains("<=") && is_estimated == false, "{known:?}");
    let (most, is_estimated, same) = shown(true);
    assert!(
        most[0].contains("  total <= $0.46; ") && most[1].contains("\ncost        <= $0.46\n"),
        "{most:?}"
    );
    assert!(most[2].contains("  <= $0.46  ") && is_estimated == true && same == usd, "{most:?}");
}
