//! A machine that is started again: for the same attempt after a reboot, or for the next one with
//! the disk of the last.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use lamplighter::agent::startup::boot::{BootError, BootPorts, boot};
use lamplighter::agent::{AGENT_STATE_FILE, AgentState, Attempt, Folders, PendingEnd};
use lamplighter::instance::Notice;
use lamplighter::job::{AttemptNo, ExitStatus, Lease, Receipt, ResolvedSpec, Settled};
use lamplighter::jobdir::JobDirError;
use lamplighter::ports::{Clock, Identity, Metadata, MetadataError, StoreError};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::world::Played;
use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

struct Tagged {
    clock: Arc<VirtualClock>,
    attempt: &'static str,
    silent: bool,
}

#[async_trait]
impl Metadata for Tagged {
    async fn identity(&self) -> Result<Identity, MetadataError> {
        if self.silent {
            return Err(MetadataError::Unavailable {
                what: "tags/instance/".into(),
                cause: "connection refused".into(),
            });
        }
        let tags = [
            ("owner", "me"),
            ("job", "digits-222222"),
            ("attempt", self.attempt),
            ("lease-s", "1800"),
        ];
        let tags: BTreeMap<String, String> = tags
            .iter()
            .map(|(key, value)| (format!("lamplighter:{key}"), (*value).to_owned()))
            .collect();
        Ok(Identity { instance: "i-1".into(), tags, launched: self.clock.now() })
    }

    async fn notices(&self) -> Result<Vec<Notice>, MetadataError> {
        Ok(Vec::new())
    }
}

async fn boots(rig: &Rig, attempt: &'static str) -> AgentState {
    takes_up(rig, attempt, false).await
}

async fn takes_up(rig: &Rig, attempt: &'static str, silent: bool) -> AgentState {
    let (booted, memory) =
        comes_up(rig, &Arc::new(Played::new(rig)), attempt, silent).await.expect("there is work");
    assert_eq!((booted.no.to_string().as_str(), booted.instance.as_str()), (attempt, "i-1"));
    memory
}

async fn comes_up(
    rig: &Rig,
    played: &Arc<Played>,
    attempt: &'static str,
    silent: bool,
) -> Result<(Attempt, AgentState), BootError> {
    let played = Arc::clone(played);
    let ports = BootPorts {
        clock: rig.clock.clone(),
        files: rig.files.clone(),
        store: rig.store.clone(),
        metadata: Arc::new(Tagged { clock: rig.clock.clone(), attempt, silent }),
        power: played.clone(),
        service: played,
        nonce: "n".into(),
    };
    let folders =
        Folders { work: rig.path("work"), state: rig.path("state"), cache: rig.path("cache") };
    boot(&ports, folders).await.map(|(attempt, _, memory)| (attempt, memory))
}

/// A record of ours, of this job.
fn record<T: DeserializeOwned>(name: &str, change: impl FnOnce(&mut Value)) -> T {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/v1").join(name);
    let mut words: Value =
        serde_json::from_slice(&std::fs::read(path).expect("a record of ours")).expect("JSON");
    change(&mut words);
    serde_json::from_value(words).expect("a record")
}

/// A laptop slept over its launch, found no machine when it woke, and settled the attempt; then the
/// machine came up after all.
#[test]
fn machine_whose_attempt_is_settled_ends_itself_and_says_why() {
    for (is_over, why) in [
        (
            false,
            "the attempt was settled (lost) before this machine came up: nobody waits for its work",
        ),
        (true, "the job is over and has its receipt: nobody waits for its work"),
    ] {
        simulate(async |clock| {
            let rig = Rig::new(clock.clone());
            submitted(&rig).await;
            if is_over {
                let receipt: Receipt =
                    record("receipt.json", |words| words["job"] = "digits-222222".into());
                let _ = rig.dir().create_receipt(&receipt).await.expect("the store works");
            } else {
                let settled = |words: &mut Value| {
                    words["attempt"] = 1.into();
                    words["because"] = "lost".into();
                };
                let _ = rig
                    .dir()
                    .create_settled(&record::<Settled>("settled.json", settled))
                    .await
                    .expect("the store works");
            }
            let machine = Arc::new(Played::new(&rig));
            let error =
                comes_up(&rig, &machine, "0001", false).await.expect_err("nobody waits for it");
            assert_eq!(error.to_string(), why);
            assert!(machine.is_off());
        });
    }
}

async fn submitted(rig: &Rig) {
    submitted_with(rig, "terminate").await;
}

/// `success`: what becomes of its machine once the work is done.
async fn submitted_with(rig: &Rig, success: &str) {
    let resolved: ResolvedSpec = serde_json::from_value(json!({
        "format": 1, "job": "digits-222222", "created": "2026-01-01T00:00:00Z", "written_by": "test", "code": null, "origins": {},
        "spec": {"name": "digits", "command": {"shell": "train"}, "on": {"success": success}},
    }))
    .expect("a spec");
    let _ = rig.dir().create_spec(&resolved).await.expect("the store works");
}

/// S3 answers 409 while another write of the same key is under way: "try again", and nothing is
/// there.
#[test]
fn lease_that_was_there_and_is_not_is_asked_for_again() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        submitted(&rig).await;
        rig.store.fault("lease", Fault::Conflict, 3);
        boots(&rig, "0001").await;
        let lease = rig.dir().lease(AttemptNo::FIRST).await.expect("readable").expect("taken");
        assert_eq!(lease.nonce, "n");

        rig.store.fault("settled", Fault::Conflict, 1);
        let settled = record::<Settled>("settled.json", |words| words["attempt"] = 1.into());
        let refused = rig.dir().create_settled(&settled).await.expect_err("nobody has written it");
        assert!(
            matches!(&refused, JobDirError::Store(StoreError::Unavailable { .. })),
            "{refused}"
        );
        let _ = rig.dir().create_settled(&settled).await.expect("the second time it works");
    });
}

#[test]
fn disk_of_an_earlier_attempt_says_nothing_of_the_next() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        submitted(&rig).await;

        let first = boots(&rig, "0001").await;
        assert!(!first.prepared);
        // As the agent left it, in the middle of its work.
        let kept = AgentState { prepared: true, start: 2, ..first };
        std::fs::write(
            rig.path("state").join(AGENT_STATE_FILE),
            serde_json::to_vec(&kept).unwrap(),
        )
        .unwrap();
        std::fs::create_dir_all(rig.path("state/starts/0002")).unwrap();
        std::fs::write(rig.path("state/boots"), "2\n").unwrap();
        let again = boots(&rig, "0001").await;
        assert_eq!((again.prepared, again.start), (true, 2), "after a reboot it goes on");
        assert!(!rig.path("state/boots").exists(), "that boot led to work");

        // Stopped, and started for the next attempt.
        let next = boots(&rig, "0002").await;
        assert_eq!((next.prepared, next.start), (false, 0));
        assert!(!rig.path("state/starts").exists());
        assert_eq!(
            std::fs::read_to_string(rig.path("state/nonce")).unwrap(),
            "n",
            "it is still the same machine"
        );
        let lease: Option<Lease> = rig.dir().lease(AttemptNo::new(2)).await.expect("readable");
        assert_eq!(lease.expect("taken").nonce, "n");
    });
}

/// An agent that comes back in the same boot goes on while the metadata service is down; after a
/// reboot it asks, since the machine may have been started for another attempt.
#[test]
fn restarted_agent_knows_its_machine_until_the_next_boot() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        submitted(&rig).await;
        boots(&rig, "0001").await;
        tokio::select! {
            biased;
            _ = takes_up(&rig, "0001", true) => {}
            () = clock.sleep(secs(5)) => panic!("it waits for the metadata service"),
        }
        let known = std::fs::read_to_string(rig.path("state/identity.json")).unwrap();
        std::fs::write(
            rig.path("state/identity.json"),
            known.replace(&format!("\"boot\":\"{}\"", clock.boot()), "\"boot\":\"another\""),
        )
        .unwrap();
        tokio::select! {
            biased;
            _ = takes_up(&rig, "0001", true) => panic!("it went by what an earlier boot knew"),
            () = clock.sleep(secs(600)) => {}
        }
    });
}

/// Its power-off was cut short by a reboot, and the metadata service is down: it goes on after half
/// a minute, or two where a power-off stops it, and the next agent of that boot at once (seed
/// 80033544 of 24 h). In the middle of its work it would wait.
#[test]
fn machine_being_terminated_goes_on_without_metadata_service() {
    for (ends, success, asks) in
        [(true, "terminate", 30), (true, "stop", 120), (false, "terminate", 600)]
    {
        simulate(async |clock| {
            let rig = Rig::new(clock.clone());
            submitted_with(&rig, success).await;
            boots(&rig, "0001").await;
            let machine = Played::new(&rig);
            let agent = machine.agent(&rig, "{}");
            let life = async {
                clock.sleep(secs(60)).await;
                if ends {
                    machine.end(ExitStatus { code: Some(0), ..ExitStatus::default() });
                    clock.sleep(secs(60)).await;
                }
            };
            tokio::select! {
                biased;
                () = life => {}
                finish = agent.run() => assert!(ends && machine.is_off(), "{finish:?}"),
            }
            clock.reboot(secs(45));
            let (before, asks) = (clock.mono(), secs(asks));
            tokio::select! {
                biased;
                memory = takes_up(&rig, "0001", true) => assert!(ends && matches!(memory.ending, Some(PendingEnd::End { .. })), "{:?}", memory.ending),
                () = clock.sleep(asks + secs(1)) => assert!(!ends, "it waits for the metadata service"),
            }
            assert!(
                clock.mono() - before >= asks,
                "{success}: it asks for {:?}",
                clock.mono() - before
            );
            if !ends {
                return;
            }
            tokio::select! {
                biased;
                _ = takes_up(&rig, "0001", true) => {}
                () = clock.sleep(secs(1)) => panic!("the second agent of that boot waits for the metadata service again"),
            }
            // It answers after all, and the machine was started for another attempt: that counts,
            // and not what was assumed.
            assert!(boots(&rig, "0002").await.ending.is_none());
        });
    }
}
