//! Work that goes on from a checkpoint and hangs before its first sign.

use lamplighter::ports::{Clock as _, Store as _};
use serde_json::{Value, json};

use super::fetching::stage;
use super::secs;
use super::support::virtual_clock::simulate;

const MANIFEST: &str = "jobs/digits-222222/checkpoints/0001/manifest.json";
const SPEC: &str = r#"{"checkpoint": {"path": "ckpt", "interval": "10m", "grace": "30s"}}"#;

#[test]
fn what_has_reported_on_another_machine_is_started_again_after_an_hour_also_where_its_agent_was() {
    for (silent, crashes, starts) in [(Some(40.0), false, 2), (Some(40.0), true, 2), (Some(2100.0), false, 1), (None, false, 1)] {
        simulate(async |clock| {
            let (rig, machine) = stage(clock.clone()).await;
            let mut manifest: Value = serde_json::from_slice(&rig.store.object(MANIFEST).expect("it is there")).expect("JSON");
            manifest["silent_secs"] = json!(silent);
            rig.store.put(MANIFEST, manifest.to_string().into_bytes().into()).await.expect("the store takes it");
            if crashes {
                tokio::select! {
                    finish = machine.agent(&rig, SPEC).run() => panic!("nothing ends it: {finish:?}"),
                    () = clock.sleep(secs(12)) => {}
                }
                assert_eq!(machine.starts(), 1);
            }
            tokio::select! {
                finish = machine.agent(&rig, SPEC).run() => panic!("nothing ends it: {finish:?}"),
                () = clock.sleep(secs(69 * 60)) => {}
            }
            assert_eq!(machine.starts(), starts, "{silent:?}, {crashes}");
        });
    }
}
