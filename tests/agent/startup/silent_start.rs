//! Work that goes on from a checkpoint and hangs before its first sign.

use lamplighter::job::ExitStatus;
use lamplighter::ports::{Clock as _, Store as _};
use serde_json::{Value, json};

use crate::checkpoint::checkpoints::write;
use crate::startup::fetching::{SPEC, stage};
use crate::world::Played;
use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::simulate;

const MANIFEST: &str = "jobs/digits-222222/checkpoints/0001/manifest.json";

#[test]
fn silent_job_that_reported_before_is_restarted_after_an_hour() {
    for (silent, crashes, starts) in
        [(Some(40.0), false, 2), (Some(40.0), true, 2), (Some(2100.0), false, 1), (None, false, 1)]
    {
        simulate(async |clock| {
            let (rig, machine) = stage(clock.clone()).await;
            let mut manifest: Value =
                serde_json::from_slice(&rig.store.object(MANIFEST).expect("it is there"))
                    .expect("JSON");
            manifest["silent_secs"] = json!(silent);
            rig.store
                .put(MANIFEST, manifest.to_string().into_bytes().into())
                .await
                .expect("the store takes it");
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

/// Seed 46018305 of 24 h: the last checkpoint is made by an agent that came up in the end of the
/// attempt, and has seen nothing.
#[test]
fn last_checkpoint_of_a_late_agent_knows_that_work_has_reported() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let works = async {
            for step in 1..=60 {
                clock.sleep(secs(5)).await;
                let said: String =
                    (1..=step).map(|step| format!("{{\"step\": {step}}}\n")).collect();
                std::fs::write(rig.path("state/progress.jsonl"), said).expect("it can be written");
            }
            write(&rig, "work/ckpt", "model", "weights");
            rig.store.fault("", Fault::Down, None);
            machine.end(ExitStatus { code: Some(0), signal: None, oom: false });
            clock.sleep(secs(60)).await;
        };
        tokio::select! {
            finish = machine.agent(&rig, SPEC).run() => panic!("nothing could be sent: {finish:?}"),
            () = works => {}
        }
        rig.store.mend();
        machine.agent(&rig, SPEC).run().await;
        let last = rig.outcome().await.last_checkpoint.expect("it was sent");
        let manifest =
            rig.dir().manifest(last.number).await.expect("the store works").expect("it is there");
        assert!(manifest.silent_secs.is_some_and(|secs| secs < 60.0), "{manifest:?}");
    });
}
