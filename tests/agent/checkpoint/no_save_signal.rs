//! Scripts as people have them: no signal asks them to save. A notice is time in which they work,
//! and what is whole is kept.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use lamplighter::instance::NoticeKind;
use lamplighter::job::{Manifest, Wish};
use lamplighter::ports::Clock as _;

use crate::world::Played;
use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::simulate;

/// An interval that is longer than all of it: what is kept is kept because of the notice.
const SPEC: &str =
    r#"{"checkpoint": {"path": "out", "interval": "1h", "grace": "60s", "signal": null}}"#;

/// The layout of a well known trainer: numbered folders, of which the two newest stay.
fn save(out: &Path, number: u64) {
    let folder = out.join(format!("checkpoint-{number}"));
    std::fs::create_dir_all(&folder).expect("writable");
    for part in ["model.safetensors", "optimizer.pt", "trainer_state.json"] {
        std::fs::write(folder.join(part), format!("{number}")).expect("writable");
    }
    if number > 2 {
        std::fs::remove_dir_all(out.join(format!("checkpoint-{}", number - 2)))
            .expect("it was saved");
    }
}

async fn newest(rig: &Rig) -> Option<Manifest> {
    let number =
        rig.dir().checkpoint_numbers().await.expect("the store answers").into_iter().next_back()?;
    rig.dir().manifest(number).await.expect("the store answers")
}

/// Runs a script that writes to `log.txt` each second. It saves `epoch_N.pt` every few seconds and
/// keeps the two newest. Returns the number of the newest save, and the files that are kept when the
/// power is cut.
async fn cut(rig: &Rig, folder: &str, every: u64, is_open_known: bool) -> (u64, Vec<String>) {
    let spec = SPEC.replace("1h", "5s");
    let machine = Played::new(rig);
    let run = rig.path("work").join("out").join(folder);
    let log = Path::new(folder).join("log.txt").to_string_lossy().into_owned();
    *machine.open.lock().expect("nobody panics with it") =
        is_open_known.then(|| BTreeSet::from([log]));
    let world = async {
        rig.clock.sleep(secs(10)).await;
        std::fs::create_dir_all(&run).expect("writable");
        std::fs::write(run.join("args.yaml"), "lr: 1").expect("writable");
        let epoch = |number: u64| run.join(format!("epoch_{number}.pt"));
        for second in 1..=90 {
            let file = File::options().append(true).create(true).open(run.join("log.txt"));
            file.and_then(|mut file| file.write_all(b"a line")).expect("writable");
            if second % every == 0 {
                let number = second / every;
                std::fs::write(epoch(number), vec![7; 1000]).expect("writable");
                if number > 2 {
                    std::fs::remove_file(epoch(number - 2)).expect("it was saved");
                }
            }
            rig.clock.sleep(secs(1)).await;
            let kept = newest(rig).await.map_or(Vec::new(), |kept| kept.files);
            assert!(
                kept.is_empty() || kept.iter().any(|file| file.path.ends_with(".pt")),
                "settings alone: {kept:?}"
            );
        }
        90 / every
    };
    let saved = tokio::select! {
        finish = machine.agent(rig, &spec).run() => panic!("nothing ends it: {finish:?}"),
        saved = world => saved,
    };
    let kept = newest(rig).await.expect("something is kept");
    (saved, kept.files.into_iter().map(|file| file.path).collect())
}

/// With a `log.txt` held open, 15 saves were made and none was kept. With a `train.log`, all were.
#[test]
fn log_of_any_name_in_a_run_folder_holds_no_save_up() {
    simulate(async |clock| {
        for is_open_known in [false, true] {
            let rig = Rig::new(clock.clone());
            let (saved, kept) = cut(&rig, "version_0", 5, is_open_known).await;
            let is_kept = |number| kept.contains(&format!("version_0/epoch_{number}.pt"));
            assert!(is_kept(saved) || is_kept(saved - 1), "{saved} were saved: {kept:?}");
        }
    });
}

/// 98 saves were made, one a second, and none was kept: none rested for two seconds.
#[test]
fn script_that_saves_every_second_loses_one_interval_at_most() {
    simulate(async |clock| {
        for folder in ["exp1/", ""] {
            let rig = Rig::new(clock.clone());
            let (saved, kept) = cut(&rig, folder, 1, true).await;
            let is_kept = |number| kept.contains(&format!("{folder}epoch_{number}.pt"));
            assert!((saved - 7..=saved).any(is_kept), "{saved} were saved: {kept:?}");
        }
    });
}

/// The newest number of which all three files are in it.
fn whole(manifest: &Manifest) -> u64 {
    let number = |path: &str| {
        path.strip_prefix("checkpoint-")
            .and_then(|rest| rest.split('/').next()?.parse::<u64>().ok())
    };
    let numbers = manifest.files.iter().filter_map(|file| number(&file.path));
    let all = |wanted: &u64| {
        manifest.files.iter().filter(|file| number(&file.path) == Some(*wanted)).count() == 3
    };
    numbers.filter(all).max().expect("one of them is whole")
}

/// A script saves each so many seconds and is given two minutes. How many seconds before its time
/// it was ended, the newest that it had saved by then, and the newest that is kept when the machine
/// goes.
async fn taken(rig: &Rig, every: u64, upload: u64) -> (u64, u64, u64) {
    let machine = Played::new(rig);
    let out = rig.path("work").join("out");
    std::fs::create_dir_all(&out).expect("writable");
    rig.store.fault("/files/", Fault::Slow(secs(upload)), None);
    let world = async {
        let (clock, mut number) = (&rig.clock, 0);
        clock.sleep(secs(10)).await;
        let begun = clock.mono();
        let notice = begun + secs(400);
        let gone = notice + secs(120);
        let (mut told, mut ended) = (false, None);
        while clock.mono() < gone {
            let now = clock.mono();
            if now >= notice && !told {
                told = true;
                machine.notice(NoticeKind::Interruption, clock.now() + secs(120));
            }
            if ended.is_none() && machine.has_ended() {
                ended = Some((gone - now).as_secs());
            }
            if ended.is_none() && (now - begun).as_secs() % every == every - 1 {
                number += 1;
                save(&out, number);
            }
            clock.sleep(secs(1)).await;
        }
        (ended.expect("it was ended before the machine went"), number)
    };
    let (ended, saved) = tokio::select! {
        finish = machine.agent(rig, SPEC).run() => panic!("an interruption ends with the power: {finish:?}"),
        found = world => found,
    };
    (ended, saved, whole(&newest(rig).await.expect("something is kept")))
}

/// Tried with Hugging Face's Trainer and `save_steps=50`: it was ended 0 s after a notice of two
/// minutes, and nothing was kept.
#[test]
fn script_saving_every_3_s_works_on_and_loses_at_most_one_save() {
    simulate(async |clock| {
        let rig = Rig::new(clock);
        let (ended, saved, kept) = taken(&rig, 3, 0).await;
        assert!((28..=40).contains(&ended), "ended {ended} s before its time");
        assert!(saved - kept <= 1, "{saved} were saved and {kept} is kept");
    });
}

#[test]
fn uploads_that_take_their_time_end_the_work_as_much_earlier() {
    simulate(async |clock| {
        let rig = Rig::new(clock);
        let (ended, saved, kept) = taken(&rig, 5, 4).await;
        assert!((32..=55).contains(&ended), "ended {ended} s before its time");
        assert!(saved - kept <= 1, "{saved} were saved and {kept} is kept");
    });
}

/// Its newest save is whole and waits for the interval when the notice comes.
#[test]
fn script_saving_every_5_min_is_kept_at_notice_and_works_on() {
    simulate(async |clock| {
        let rig = Rig::new(clock);
        let (ended, saved, kept) = taken(&rig, 195, 1).await;
        assert!((28..=40).contains(&ended), "ended {ended} s before its time");
        assert_eq!((saved, kept), (2, 2));
    });
}

/// Its second save waits for the interval. Returns it as it is kept so long after `act`.
async fn second_save_after(
    rig: &Rig,
    machine: &Played,
    act: impl AsyncFnOnce(),
    later: Duration,
) -> Manifest {
    let out = rig.path("work").join("out");
    std::fs::create_dir_all(&out).expect("writable");
    let world = async {
        for number in [1, 2] {
            rig.clock.sleep(secs(60)).await;
            save(&out, number);
        }
        rig.clock.sleep(secs(60)).await;
        let first = newest(rig).await.expect("the first is kept");
        assert_eq!(whole(&first), 1, "the second waits for its interval");
        act().await;
        rig.clock.sleep(later).await;
        assert!(!machine.has_ended());
        newest(rig).await.expect("it is kept")
    };
    tokio::select! {
        finish = machine.agent(rig, SPEC).run() => panic!("it works on: {finish:?}"),
        kept = world => kept,
    }
}

#[test]
fn notice_and_request_upload_the_newest_save_at_once() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let notice = async || machine.notice(NoticeKind::Interruption, clock.now() + secs(120));
        let kept = second_save_after(&rig, &machine, notice, secs(5)).await;
        assert_eq!((whole(&kept), kept.asked_by.as_deref()), (2, Some("notice")));

        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let request = async || {
            let asked = rig.dir().add_request(Wish::Checkpoint, "somebody", clock.now()).await;
            asked.expect("the store takes it");
        };
        // Requests are read every few seconds.
        let kept = second_save_after(&rig, &machine, request, secs(20)).await;
        assert_eq!((whole(&kept), kept.asked_by.as_deref()), (2, Some("request")));
    });
}

/// Its end tears what it is writing, and it does not end for a SIGTERM: the save before that one
/// counts.
#[test]
fn save_that_the_end_tears_costs_that_save_alone() {
    simulate(async |clock| {
        for stubborn in [false, true] {
            let rig = Rig::new(clock.clone());
            let machine = Played::new(&rig);
            machine.stubborn.store(stubborn, std::sync::atomic::Ordering::Relaxed);
            let out = rig.path("work").join("out");
            std::fs::create_dir_all(&out).expect("writable");
            let world = async {
                clock.sleep(secs(60)).await;
                save(&out, 1);
                clock.sleep(secs(60)).await;
                save(&out, 2);
                clock.sleep(secs(10)).await;
                let gone = clock.mono() + secs(120);
                machine.notice(NoticeKind::Interruption, clock.now() + secs(120));
                clock.sleep(secs(60)).await;
                let half = out.join("checkpoint-3");
                std::fs::create_dir_all(&half).expect("writable");
                let mut wrote = 0;
                while clock.mono() < gone {
                    if !machine.has_ended() {
                        wrote += 1;
                        std::fs::write(half.join("model.safetensors"), vec![7; wrote])
                            .expect("writable");
                    }
                    clock.sleep(secs(1)).await;
                }
                assert!(machine.has_ended());
            };
            tokio::select! {
                finish = machine.agent(&rig, SPEC).run() => panic!("an interruption ends with the power: {finish:?}"),
                () = world => {}
            }
            assert_eq!(whole(&newest(&rig).await.expect("it is kept")), 2);
        }
    });
}
