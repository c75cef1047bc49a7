//! What an hour of an agent costs in requests to the store.
//! `cargo test --test agent calls -- --nocapture` shows the table.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lamplighter::ports::Clock as _;

use crate::Rig;
use crate::world::Played;
use lamp_test_support::counting_store::{CountingStore, sum};
use lamp_test_support::virtual_clock::simulate;

/// What is in the spec besides name and command.
const CKPT: &str = r#"{"checkpoint": {"path": "ckpt", "interval": "10m", "grace": "90s"}}"#;

/// A line a second and a checkpoint of three files every ten minutes.
async fn train(rig: &Rig, printed: &AtomicU64, secs: u64) {
    let log = rig.path("state/starts/0001/log");
    std::fs::create_dir_all(&log).expect("a folder");
    std::fs::create_dir_all(rig.path("work/ckpt")).expect("a folder");
    for second in 0..secs {
        let mut text = std::fs::read_to_string(log.join("00000001.log")).unwrap_or_default();
        let line = format!("step {second} loss 0.5\n");
        text.push_str(&line);
        printed.fetch_add(line.len() as u64, Ordering::Relaxed);
        std::fs::write(log.join("00000001.log"), text).expect("the folder is there");
        if second % 600 == 300 {
            for name in ["model", "optimizer", "state"] {
                std::fs::write(rig.path(&format!("work/ckpt/{name}")), second.to_string())
                    .expect("the folder is there");
            }
        }
        rig.clock.sleep(Duration::from_secs(1)).await;
    }
}

#[test]
fn hour_of_an_agent_costs_a_cent_in_requests() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let store = CountingStore::new(rig.store.clone());
        let played = Played::new(&rig);
        let printed = played.printed.clone();
        let hour = async {
            train(&rig, &printed, 60).await;
            println!("the first minute:");
            store.take();
            train(&rig, &printed, 3600).await;
            println!("an hour after it:");
            store.take()
        };
        let calls = tokio::select! {
            calls = hour => calls,
            finish = played.agent_with(&rig, store.clone(), CKPT).run() => panic!("nothing ends it: {finish:?}"),
        };
        // S3: $5 a million for writes and listings, $0.40 for reads.
        let (writes, lists, reads) = (sum(&calls, "put"), sum(&calls, "list"), sum(&calls, "get"));
        println!(
            "{writes} writes, {lists} listings, {reads} reads: ${:.4}",
            f64::from(writes + lists) * 5e-6 + f64::from(reads) * 4e-7
        );
        assert!(writes > 200, "it works: {writes}");
        // One every three seconds, which `lamp logs -f` needs to show a line within five; a little
        // sooner beside a loop that looks every five.
        let pieces = calls
            .iter()
            .filter(|((_, record), _)| record == "attempts/log")
            .map(|(_, times)| times)
            .sum::<u32>();
        assert!((1190..=1270).contains(&pieces), "{pieces} pieces of the log");
        assert!(writes + lists <= 2500 && reads <= 100, "{calls:?}");
    });
}
