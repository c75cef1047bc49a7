//! Random workloads, faults and crashes, by seed: what arrives is whole, or is not called complete.

use lamplighter::agent::activity_counters::ActivityCounters;
use lamplighter::agent::checkpoint::handle::Checkpoints;
use lamplighter::agent::checkpoint::restore::restore;
use lamplighter::agent::log::handle::{BYTES_MAX_DEFAULT, LogShip};
use lamplighter::agent::log::shipping_state::{LogPace, LogSettings};
use lamplighter::agent::report::journal::Journal;
use lamplighter::agent::startup::fetch_status::Fetching;
use lamplighter::job::{AttemptNo, AttemptPhase, CheckpointSpec, Manifest};
use lamplighter::jobdir::EventDetail;
use lamplighter::market::Span;
use lamplighter::ports::Clock;

use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::simulate;

/// Seeds that are played. Each is some minutes of an attempt.
const SEEDS: u64 = 12;

struct Dice(u64);

impl Dice {
    /// In `0..below`.
    fn roll(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn fault(&mut self) -> Fault {
        [Fault::Down, Fault::LostReply, Fault::Hang, Fault::Denied, Fault::Slow(secs(7))]
            [self.roll(5) as usize]
    }
}

/// Now and then something is wrong with some keys for some calls; now and then all is well again.
fn weather(rig: &Rig, dice: &mut Dice, keys: &[&str]) {
    match dice.roll(6) {
        0 | 1 => {
            let (key, fault, times) = (
                keys[dice.roll(keys.len() as u64) as usize],
                dice.fault(),
                dice.roll(6) as u32 + 1,
            );
            rig.store.fault(key, fault, times);
        }
        2 => rig.store.mend(),
        _ => {}
    }
}

/// One version of a checkpoint: every file says which, and each is replaced by renaming, some
/// seconds apart.
async fn save(rig: &Rig, dice: &mut Dice, version: u64) {
    let folder = rig.path("ckpt");
    std::fs::create_dir_all(folder.join("shards")).unwrap();
    let old = folder.join(format!("step-{}.txt", version.saturating_sub(1)));
    for name in ["model.txt".to_owned(), "shards/0.txt".to_owned(), format!("step-{version}.txt")] {
        let fresh = folder.join("x.tmp");
        std::fs::write(&fresh, format!("{version} ").repeat(1 + version as usize)).unwrap();
        std::fs::rename(&fresh, folder.join(name)).unwrap();
        rig.clock.sleep(std::time::Duration::from_millis(dice.roll(1900))).await;
    }
    let _ = std::fs::remove_file(old);
}

/// The versions that the files of a manifest hold, by what is in the store.
fn versions(rig: &Rig, manifest: &Manifest) -> Vec<String> {
    let version = |key: &str| {
        let body = rig
            .store
            .object(&format!("jobs/digits-222222/{key}"))
            .expect("every file of a manifest is there");
        String::from_utf8(body.to_vec()).unwrap().split(' ').next().unwrap().to_owned()
    };
    let mut found: Vec<String> = manifest.files.iter().map(|file| version(&file.key)).collect();
    found.dedup();
    found
}

#[test]
fn manifest_never_mixes_two_saves() {
    let mut complete = 0;
    for seed in 0..SEEDS {
        complete += simulate(async |clock| {
            let (rig, mut dice) = (Rig::new(clock.clone()), Dice(seed));
            let spec = CheckpointSpec {
                path: "ckpt".into(),
                interval: Span::from_secs(5),
                signal: None,
                grace: Span::from_secs(30),
            };
            let start = || {
                let (journal, board) = (Journal::start(rig.outbox()), ActivityCounters::default());
                Checkpoints::start(rig.outbox(), journal, board, &spec, rig.path("ckpt"), false)
            };
            let mut checkpoints = start();
            for version in 1..=12 {
                weather(&rig, &mut dice, &["/files/", "manifest", "checkpoints/", "shards"]);
                save(&rig, &mut dice, version).await;
                clock.sleep(std::time::Duration::from_millis(500 + dice.roll(12_000))).await;
                if dice.roll(8) == 0 {
                    drop(checkpoints);
                    checkpoints = start();
                }
            }
            rig.store.mend();
            let saved = checkpoints.save(checkpoints.as_is(), "the end", secs(300)).await;
            let numbers = rig.dir().checkpoint_numbers().await.unwrap();
            let mut complete = 0;
            for number in numbers {
                let Some(manifest) = rig.dir().manifest(number).await.unwrap() else { continue };
                assert_eq!(manifest.files.len(), 3, "seed {seed}: {manifest:?}");
                assert_eq!(versions(&rig, &manifest).len(), 1, "seed {seed}: {manifest:?}");
                complete += 1;
            }
            // Whatever the weather was, the newest is the last save.
            let newest = rig
                .dir()
                .newest_checkpoint()
                .await
                .unwrap()
                .unwrap_or_else(|| panic!("seed {seed}: {saved:?}"));
            assert_eq!(versions(&rig, &newest), ["12"], "seed {seed}: {saved:?}");
            let outbox = rig.outbox_of(AttemptNo::new(2));
            let journal = Journal::start(outbox.clone());
            let restored = restore(
                &outbox,
                None,
                &journal,
                (&rig.path("second"), false),
                &Fetching::new(clock.clone()),
            )
            .await
            .unwrap();
            assert_eq!(
                restored.map(|manifest| manifest.number),
                Some(newest.number),
                "seed {seed}"
            );
            assert!(
                std::fs::read_to_string(rig.path("second/shards/0.txt"))
                    .unwrap()
                    .starts_with("12 ")
            );
            complete
        });
    }
    assert!(complete > 2 * SEEDS, "the weather is not so bad that nothing arrives: {complete}");
}

#[test]
fn log_is_whole_whatever_happens_to_the_agent_and_the_store() {
    for seed in 0..SEEDS {
        simulate(async |clock| {
            let (rig, mut dice) = (Rig::new(clock.clone()), Dice(seed));
            let settings = || LogSettings {
                bytes_max: BYTES_MAX_DEFAULT,
                pattern: Some("x".into()),
                done_line: None,
                pace: LogPace::Followed,
            };
            let open = |start: u32| {
                let ship = LogShip::start(
                    rig.outbox(),
                    Journal::start(rig.outbox()),
                    ActivityCounters::default(),
                    settings(),
                );
                ship.follow(start, &rig.path(&format!("start-{start}")));
                ship
            };
            let (mut start, mut segment) = (1, 1);
            let mut ship = open(start);
            let (mut expected, mut printing) = (Vec::new(), 0);
            for line in 0..60u64 {
                weather(&rig, &mut dice, &["/log/"]);
                let folder = rig.path(&format!("start-{start}/log"));
                std::fs::create_dir_all(&folder).unwrap();
                let text = format!("line {line} {}\n", "x".repeat(dice.roll(3000) as usize));
                let path = folder.join(format!("{segment:08}.log"));
                let mut bytes = std::fs::read(&path).unwrap_or_default();
                // In place, as the holder appends.
                bytes.extend_from_slice(text.as_bytes());
                std::fs::write(&path, bytes).unwrap();
                expected.extend_from_slice(text.as_bytes());
                printing = start;
                clock.sleep(std::time::Duration::from_millis(dice.roll(4000))).await;
                match dice.roll(12) {
                    0 => segment += 1,
                    1 => {
                        drop(ship);
                        ship = open(start);
                    }
                    2 => {
                        ship.ended(start);
                        (start, segment) = (start + 1, 1);
                        ship.follow(start, &rig.path(&format!("start-{start}")));
                    }
                    _ => {}
                }
            }
            rig.store.mend();
            ship.ended(start);
            let losses = ship.finish(secs(300)).await;
            assert!(losses.is_empty(), "seed {seed}: {losses:?}");
            let frames =
                rig.store.keys("/log/").into_iter().map(|key| rig.store.object(&key).unwrap());
            let log: Vec<u8> =
                frames.flat_map(|frame| zstd::decode_all(&frame[..]).unwrap()).collect();
            // Without the lines of our own between the starts.
            let log = String::from_utf8(log).unwrap();
            let ours = |line: &&str| !line.starts_with("[lamp: start ") && !line.is_empty();
            let kept: String = log.lines().filter(ours).map(|line| format!("{line}\n")).collect();
            let short = |text: &str| {
                text.lines().map(|line| line.chars().take(12).collect()).collect::<Vec<String>>()
            };
            assert_eq!(short(&kept), short(std::str::from_utf8(&expected).unwrap()), "seed {seed}");
            assert!(kept.as_bytes() == expected, "seed {seed}");
            assert_eq!(log.matches("[lamp: start ").count() as u32, printing - 1, "seed {seed}");
        });
    }
}

#[test]
fn events_are_numbered_without_gaps_and_none_is_lost_in_a_crash() {
    for seed in 0..SEEDS {
        simulate(async |clock| {
            let (rig, mut dice) = (Rig::new(clock.clone()), Dice(seed));
            let mut journal = Journal::start(rig.outbox());
            for number in 1..=80 {
                weather(&rig, &mut dice, &["/events/"]);
                let what = if dice.roll(2) == 0 {
                    EventDetail::Phase { phase: AttemptPhase::Running }
                } else {
                    EventDetail::Attention { text: number.to_string() }
                };
                assert_eq!(journal.record(what), Some(number));
                clock.sleep(std::time::Duration::from_millis(dice.roll(5000))).await;
                if dice.roll(10) == 0 {
                    drop(journal);
                    journal = Journal::start(rig.outbox());
                }
            }
            rig.store.mend();
            assert!(journal.flush(secs(120)).await, "seed {seed}");
            let seqs: Vec<u64> = rig.events().await.iter().map(|event| event.seq).collect();
            assert_eq!(seqs, (1..=80).collect::<Vec<_>>(), "seed {seed}");
            // A batch that was written twice was written with the same bytes.
            let writes = rig.store.writes("/events/");
            for (key, body) in &writes {
                assert!(
                    writes.iter().all(|(other, again)| other != key || again == body),
                    "seed {seed}: {key}"
                );
            }
        });
    }
}
