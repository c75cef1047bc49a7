//! A command that dies of the checkpoint it began from: the one before is tried.

use std::path::Path;

use lamplighter::job::{CheckpointNo, EndedBecause, ExitStatus, Wish};
use lamplighter::jobdir::EventDetail;
use lamplighter::ports::Clock as _;

use crate::world::Played;
use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::simulate;

const SPEC: &str =
    r#"{"checkpoint": {"path": "out", "interval": "2s", "grace": "60s", "signal": null}}"#;
const FAILED: ExitStatus = ExitStatus { code: Some(1), signal: None, oom: false };
const SUCCESS: ExitStatus = ExitStatus { code: Some(0), signal: None, oom: false };

/// An earlier machine has left so many checkpoints, each with its own folder; each keeps the two
/// newest, as a well known trainer does.
async fn left(rig: &Rig, many: u64) {
    let machine = Played::new(rig);
    let out = rig.path("work").join("out");
    let world = async {
        rig.clock.sleep(secs(10)).await;
        for number in 1..=many {
            save(&out, number);
            rig.clock.sleep(secs(10)).await;
        }
        // The only one of its kind must rest for ten seconds.
        rig.clock.sleep(secs(5)).await;
    };
    tokio::select! {
        finish = machine.agent(rig, SPEC).run() => panic!("nothing ends it: {finish:?}"),
        () = world => {}
    }
    assert_eq!(rig.dir().checkpoint_numbers().await.expect("the store answers").len() as u64, many);
    for folder in ["work", "state"] {
        std::fs::remove_dir_all(rig.path(folder)).expect("the machine is gone");
    }
}

fn save(out: &Path, number: u64) {
    let folder = out.join(format!("checkpoint-{number}"));
    std::fs::create_dir_all(&folder).expect("writable");
    std::fs::write(folder.join("model.safetensors"), format!("{number}")).expect("writable");
    if number > 2 {
        std::fs::remove_dir_all(out.join(format!("checkpoint-{}", number - 2)))
            .expect("it was saved");
    }
}

/// The folders that a script finds, with what each holds.
fn found(rig: &Rig) -> Vec<String> {
    let mut names: Vec<String> = match std::fs::read_dir(rig.path("work").join("out")) {
        Ok(entries) => entries
            .map(|entry| entry.expect("readable").file_name().into_string().expect("text"))
            .collect(),
        Err(_) => Vec::new(),
    };
    names.sort_unstable();
    names
}

async fn until_start(rig: &Rig, machine: &Played, start: u32) {
    while machine.starts() < start {
        rig.clock.sleep(secs(1)).await;
    }
}

/// It dies at its start, and for twenty seconds the store does not answer whoever looks for an
/// older checkpoint.
async fn dies_without_a_store(rig: &Rig, machine: &Played) {
    dies(rig, machine, 1, 3, FAILED).await;
    rig.store.fault("checkpoints", Fault::Down, None);
    rig.clock.sleep(secs(20)).await;
}

/// Waits for the next start, lives for some seconds and ends so. What the start found.
async fn dies(
    rig: &Rig,
    machine: &Played,
    start: u32,
    lived: u64,
    exit: ExitStatus,
) -> Vec<String> {
    until_start(rig, machine, start).await;
    let names = found(rig);
    // A script that begins writes something at once.
    std::fs::write(rig.path("work").join("out/run.log"), format!("start {start}"))
        .expect("writable");
    rig.clock.sleep(secs(lived)).await;
    machine.end(exit);
    names
}

async fn numbers(rig: &Rig) -> Vec<u32> {
    rig.dir()
        .checkpoint_numbers()
        .await
        .expect("the store answers")
        .into_iter()
        .map(CheckpointNo::number)
        .collect()
}

#[test]
fn command_that_dies_of_its_checkpoint_begins_from_an_older_one() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        left(&rig, 3).await;
        let machine = Played::new(&rig);
        let world = async {
            let first = dies(&rig, &machine, 1, 3, FAILED).await;
            assert_eq!(first, ["checkpoint-2", "checkpoint-3"]);
            // It gets on with the older one, and saves.
            until_start(&rig, &machine, 2).await;
            assert_eq!(
                found(&rig),
                ["checkpoint-1", "checkpoint-2"],
                "and nothing else: the highest number is taken"
            );
            clock.sleep(secs(10)).await;
            let out = rig.path("work").join("out");
            save(&out, 3);
            std::fs::write(out.join("checkpoint-3/model.safetensors"), "3, by another way")
                .expect("writable");
            clock.sleep(secs(10)).await;
            let status = rig.status().await;
            assert!(
                status.attention.iter().any(|text| text
                    .starts_with("began from checkpoint 2, because the command ended within ")),
                "{status:?}"
            );
            machine.end(SUCCESS);
        };
        let (finish, ()) = tokio::join!(machine.agent(&rig, SPEC).run(), world);
        assert_eq!((finish.because, machine.starts()), (EndedBecause::Succeeded, 2));
        let outcome = rig.outcome().await;
        assert_eq!(outcome.resumed_from.map(|from| from.number.number()), Some(2));
        assert!(
            outcome.went_back.is_some_and(|why| why.contains("of its start from checkpoint 3"))
        );
        assert!(
            outcome.last_checkpoint.is_some_and(|last| last.number.number() > 3),
            "what it saves is the newest"
        );
        let resumed = rig
            .events()
            .await
            .into_iter()
            .filter(|event| matches!(event.what, EventDetail::Resumed { went_back: Some(_), .. }))
            .count();
        assert_eq!(resumed, 1);
    });
}

/// Nothing that a start leaves which dies as well becomes the newest checkpoint: whoever mends the
/// script goes on from that.
#[test]
fn command_goes_back_twice_at_most_then_fails_and_keeps_newest() {
    simulate(async |clock| {
        for (many, starts, text) in [
            (4, 3, "from 2 newer checkpoints"),
            (2, 2, "from 1 newer checkpoint"),
            (1, 1, "there is no older checkpoint to begin from"),
        ] {
            let rig = Rig::new(clock.clone());
            left(&rig, many).await;
            let machine = Played::new(&rig);
            let world = async {
                for start in 1..=starts {
                    dies(&rig, &machine, start, 20, FAILED).await;
                }
            };
            let (finish, ()) = tokio::join!(machine.agent(&rig, SPEC).run(), world);
            assert_eq!(
                (finish.because, machine.starts(), finish.exit),
                (EndedBecause::Failed, starts, Some(FAILED)),
                "{many}"
            );
            assert!(finish.reason.text.ends_with(text), "{:?}", finish.reason);
            let newest = numbers(&rig).await.pop().expect("there are some");
            let manifest = rig
                .dir()
                .manifest(format!("{newest:04}").parse().unwrap())
                .await
                .expect("the store answers")
                .expect("whole");
            let name = format!("checkpoint-{many}/model.safetensors");
            assert!(manifest.files.iter().any(|file| file.path == name), "{many}: {manifest:?}");
            if many > 1 {
                assert!(
                    u64::from(newest) <= many + 1,
                    "at most the log of the first start came to it: {newest}"
                );
            }
        }
    });
}

/// It told a step, or worked for long: its end says nothing against its checkpoint. Nor does that
/// of a start that somebody ended.
#[test]
fn start_that_got_going_is_not_put_down_to_its_checkpoint() {
    simulate(async |clock| {
        let steps = |rig: &Rig| {
            std::fs::write(rig.path("state").join("progress.jsonl"), "{\"step\": 12}\n")
                .expect("writable")
        };
        let killed = ExitStatus { signal: Some(9), code: None, oom: false };
        for (told, lived, exit) in [(true, 5, FAILED), (false, 700, FAILED), (false, 5, killed)] {
            let rig = Rig::new(clock.clone());
            left(&rig, 3).await;
            let machine = Played::new(&rig);
            let world = async {
                until_start(&rig, &machine, 1).await;
                clock.sleep(secs(1)).await;
                if told {
                    steps(&rig);
                }
                clock.sleep(secs(lived)).await;
                machine.end(exit);
            };
            let (finish, ()) = tokio::join!(machine.agent(&rig, SPEC).run(), world);
            assert_eq!(
                (finish.because, machine.starts()),
                (EndedBecause::Failed, 1),
                "{told} {lived} {exit}"
            );
        }
    });
}

/// A start within the attempt begins from the folder as it was; half a save in it is not in any
/// checkpoint, so the newest itself is tried.
#[test]
fn restart_that_dies_of_half_a_save_begins_from_the_checkpoint() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let out = rig.path("work").join("out");
        let spec = r#"{"checkpoint": {"path": "out", "interval": "1h", "grace": "60s", "signal": null}, "retries": {"max": 1, "delay": "1s"}}"#;
        let world = async {
            clock.sleep(secs(10)).await;
            save(&out, 1);
            clock.sleep(secs(20)).await;
            std::fs::create_dir_all(out.join("checkpoint-2")).expect("writable");
            std::fs::write(out.join("checkpoint-2/half"), "half").expect("writable");
            // Killed while it saved: tried once more, as the job says.
            machine.end(ExitStatus { signal: Some(9), code: None, oom: false });
            let second = dies(&rig, &machine, 2, 3, FAILED).await;
            assert_eq!(second, ["checkpoint-1", "checkpoint-2"]);
            until_start(&rig, &machine, 3).await;
            assert_eq!(found(&rig), ["checkpoint-1"]);
            clock.sleep(secs(100)).await;
            machine.end(SUCCESS);
        };
        let (finish, ()) = tokio::join!(machine.agent(&rig, spec).run(), world);
        assert_eq!((finish.because, machine.starts()), (EndedBecause::Succeeded, 3));
    });
}

/// The intent is kept: the agent after it brings the older one back.
#[test]
fn next_agent_finishes_going_back_after_one_died_in_it() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        left(&rig, 3).await;
        let machine = Played::new(&rig);
        let world = async {
            dies_without_a_store(&rig, &machine).await;
        };
        tokio::select! {
            finish = machine.agent(&rig, SPEC).run() => panic!("nothing ends it: {finish:?}"),
            () = world => {}
        }
        rig.store.mend();
        let world = async {
            until_start(&rig, &machine, 2).await;
            assert_eq!(found(&rig), ["checkpoint-1", "checkpoint-2"]);
            clock.sleep(secs(30)).await;
            machine.end(SUCCESS);
        };
        let (finish, ()) = tokio::join!(machine.agent(&rig, SPEC).run(), world);
        assert_eq!((finish.because, machine.starts()), (EndedBecause::Succeeded, 2));
    });
}

/// The store is down while an older one is looked for: a person's word ends it all the same, and
/// what the folder holds is kept by nobody.
#[test]
fn stop_while_an_older_checkpoint_is_fetched_is_obeyed() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        left(&rig, 3).await;
        let machine = Played::new(&rig);
        let world = async {
            dies_without_a_store(&rig, &machine).await;
            rig.dir()
                .add_request(Wish::Stop, "somebody", clock.now())
                .await
                .expect("the store takes it");
        };
        let (finish, ()) = tokio::join!(machine.agent(&rig, SPEC).run(), world);
        assert_eq!((finish.because, machine.starts()), (EndedBecause::UserStopped, 1));
    });
}
