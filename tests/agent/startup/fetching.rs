//! What cannot be fetched before the start: told, waited for as long as time may help, and not for
//! ever.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::agent::Finish;
use lamplighter::job::{EndedBecause, ExitStatus};
use lamplighter::ports::{Clock as _, Store as _};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::world::Played;
use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

const SUCCESS: ExitStatus = ExitStatus { code: Some(0), signal: None, oom: false };

const MODEL: &str = "weights";

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A machine of a job with a packed workdir and one checkpoint, both in the job directory.
pub async fn stage(clock: Arc<VirtualClock>) -> (Rig, Played) {
    let rig = Rig::new(clock);
    // The end of an archive: of no files.
    let archive = zstd::encode_all(&[0_u8; 1024][..], 1).expect("memory");
    let sum = sha256(&archive);
    let mut machine = Played::new(&rig);
    machine.code = json!({ "files": 0, "bytes": 0, "packed_bytes": archive.len(), "sha256": sum });
    let file = json!({ "path": "model", "bytes": MODEL.len(), "sha256": sha256(MODEL.as_bytes()), "key": "checkpoints/0001/files/model" });
    let manifest = json!({
        "format": 1, "number": 1, "attempt": 1, "created": "2026-01-01T00:00:00Z", "step": 7.0, "save_secs": 0.0, "upload_secs": 0.0, "files": [file],
    });
    for (key, body) in [
        (format!("code/{sum}.tar.zst"), archive),
        ("checkpoints/0001/files/model".to_owned(), MODEL.into()),
        ("checkpoints/0001/manifest.json".to_owned(), manifest.to_string().into_bytes()),
    ] {
        rig.store
            .put(&format!("jobs/digits-222222/{key}"), body.into())
            .await
            .expect("the store works");
    }
    (rig, machine)
}

pub const SPEC: &str = r#"{"checkpoint": {"path": "ckpt", "interval": "10m", "grace": "30s"}}"#;

/// The sentences in the status, of a store that answers for it.
async fn told(rig: &Rig) -> Vec<String> {
    rig.status()
        .await
        .attention
        .into_iter()
        .filter(|line| line.starts_with("cannot fetch"))
        .collect()
}

/// An attempt that ends before it began, what it told three minutes after its begin, and how long
/// its machine was lit.
async fn given_up(rig: &Rig, machine: &Played) -> (Finish, Vec<String>, Duration) {
    let begun = rig.clock.mono();
    let look = async {
        rig.clock.sleep(secs(180)).await;
        told(rig).await
    };
    let (finish, told) = tokio::join!(machine.agent(rig, SPEC).run(), look);
    let lit = rig.clock.mono() - begun;
    assert!(machine.is_off() && machine.starts() == 0, "{finish:?}");
    assert_eq!(
        (finish.because, rig.outcome().await.because),
        (EndedBecause::PreflightFailed, EndedBecause::PreflightFailed)
    );
    assert_eq!(rig.outcome().await.reasons.last().expect("a reason").text, finish.reason.text);
    (finish, told, lit)
}

/// A role that may beat and not read is as lit as a healthy machine: no lease, no sweep and no
/// switch would ever end it.
#[test]
fn unreadable_code_is_told_and_ends_the_attempt_in_15_minutes() {
    simulate(async |clock| {
        let (rig, machine) = stage(clock).await;
        rig.store.fault("/code/", Fault::Denied, None);
        let (finish, told, lit) = given_up(&rig, &machine).await;
        let line = "cannot fetch the code of the job, so the work is not started: not allowed to download `jobs/digits-222222/code/";
        assert!(
            told.len() == 1
                && told[0].starts_with(line)
                && told[0].ends_with("it is given up after 10m of this"),
            "{told:?}"
        );
        let why = finish.reason.text;
        assert!(
            why.starts_with("cannot fetch the code of the job: not allowed to download")
                && why.contains("it was refused for 10m"),
            "{why}"
        );
        assert!(
            why.contains("let its role read the job root (`lamp doctor`, `lamp init aws`)"),
            "{why}"
        );
        assert!(
            (secs(600)..=secs(900)).contains(&lit),
            "a role that was made just now has its minutes: {lit:?}"
        );
        let events = rig.attention().await;
        assert_eq!(
            events.iter().filter(|text| text.starts_with("cannot fetch")).count(),
            1,
            "it is told once: {events:?}"
        );
    });
}

#[test]
fn checkpoint_without_disk_room_ends_the_attempt_in_15_minutes() {
    simulate(async |clock| {
        let (rig, machine) = stage(clock).await;
        rig.store.fault("/files/", Fault::Full, None);
        let (finish, told, lit) = given_up(&rig, &machine).await;
        assert!(
            told.len() == 1 && told[0].starts_with("cannot fetch checkpoint 0001 (0.0 MB), so the work is not started: no space left"),
            "{told:?}"
        );
        let why = finish.reason.text;
        assert!(
            why.contains("there was no room for it for 10m")
                && why.contains("ask for more with `disk` in `[machine]`"),
            "{why}"
        );
        assert!(
            (secs(600)..=secs(900)).contains(&lit),
            "what is just being removed has its minutes: {lit:?}"
        );
    });
}

/// Heartbeats arrive, and nothing else does.
#[test]
fn store_that_gives_nothing_for_hours_is_given_up_after_three() {
    for (part, fault) in [
        ("/checkpoints/", Fault::Down),
        ("/files/", Fault::Hang),
        ("/code/", Fault::Down),
        ("/code/", Fault::Hang),
    ] {
        simulate(async |clock| {
            let (rig, machine) = stage(clock).await;
            rig.store.fault(part, fault, None);
            let (finish, told, lit) = given_up(&rig, &machine).await;
            assert_eq!(told.len(), 1, "{part} {fault:?}: {told:?}");
            assert!(
                finish.reason.text.contains("nothing new of it has come for 3h"),
                "{part} {fault:?}: {finish:?}"
            );
            assert!(
                (secs(3 * 3600)..=secs(3 * 3600 + 300)).contains(&lit),
                "{part} {fault:?}: {lit:?}"
            );
        });
    }
}

#[test]
fn what_cannot_be_fetched_stands_in_the_status_until_it_comes() {
    for (part, fault) in [
        ("/code/", Fault::Denied),
        ("/code/", Fault::Hang),
        ("/files/", Fault::Full),
        ("/checkpoints/", Fault::Down),
    ] {
        simulate(async |clock| {
            let (rig, machine) = stage(clock.clone()).await;
            rig.store.fault(part, fault, None);
            let world = async {
                clock.sleep(secs(180)).await;
                assert_eq!((told(&rig).await.len(), machine.starts()), (1, 0), "{part} {fault:?}");
                // A call that hangs hangs on: its answer is the next agent's.
                rig.store.mend();
                clock.sleep(secs(90)).await;
                let comes = fault != Fault::Hang;
                assert_eq!(
                    (told(&rig).await.is_empty(), machine.starts()),
                    (comes, u32::from(comes)),
                    "{part} {fault:?}"
                );
            };
            tokio::select! {
                finish = machine.agent(&rig, SPEC).run() => panic!("{part} {fault:?}: its work goes on: {finish:?}"),
                () = world => {}
            }
        });
    }
}

/// Of a workstation that sleeps, or a store that is out: not the fault of the job.
#[test]
fn store_outage_while_a_machine_begins_costs_only_the_time() {
    for minutes in [10, 45, 150] {
        simulate(async |clock| {
            let (rig, machine) = stage(clock.clone()).await;
            rig.store.fault("", Fault::Down, None);
            let world = async {
                clock.sleep(secs(minutes * 60)).await;
                assert_eq!(machine.starts(), 0, "{minutes} min");
                rig.store.mend();
                clock.sleep(secs(90)).await;
                assert_eq!((machine.starts(), told(&rig).await), (1, vec![]), "{minutes} min");
                let model =
                    std::fs::read_to_string(rig.path("work/ckpt/model")).expect("it came back");
                assert_eq!(model, MODEL);
                machine.end(SUCCESS);
            };
            let (finish, ()) = tokio::join!(machine.agent(&rig, SPEC).run(), world);
            assert_eq!(
                (finish.because, rig.outcome().await.because),
                (EndedBecause::Succeeded, EndedBecause::Succeeded),
                "{minutes} min"
            );
            assert_eq!(
                rig.outcome().await.resumed_from.and_then(|summary| summary.step),
                Some(7.0)
            );
        });
    }
}
