//! What was named is kept, or its loss is said.

use lamplighter::agent::shutdown::outputs::{WantedOutputs, upload};
use lamplighter::ports::Clock;

use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::simulate;

fn write(rig: &Rig, name: &str, content: &str) {
    let path = rig.path("work").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

#[test]
fn paths_folders_and_globs_are_kept_and_what_is_missing_is_said() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        for name in [
            "model.pt",
            "out/a.json",
            "out/deep/b.json",
            "runs/1/m.csv",
            "runs/2/m.csv",
            "runs/2/big.bin",
            "other.txt",
        ] {
            write(&rig, name, name);
        }
        std::os::unix::fs::symlink("/etc", rig.path("work/out/etc")).unwrap();
        let globs = ["model.pt", "out", "runs/*/m.csv", "absent/*.x"].map(str::to_owned);
        rig.store.fault("model.pt", Fault::Down, 2);
        let wanted = WantedOutputs { named: &globs, if_any: &["lamp-output/**", "runs/2/m.csv"] };
        let kept = upload(&rig.outbox(), &rig.path("work"), wanted, clock.sleep(secs(60))).await;
        let keys: Vec<String> = rig
            .store
            .keys("")
            .iter()
            .map(|key| key.replace("jobs/digits-222222/outputs/", ""))
            .collect();
        assert_eq!(
            keys,
            ["model.pt", "out/a.json", "out/deep/b.json", "runs/1/m.csv", "runs/2/m.csv"]
        );
        assert_eq!((kept.files, kept.bytes), (5, 8 + 10 + 15 + 12 + 12));
        assert_eq!(
            kept.losses,
            ["output out/etc: a link that leads outside", "output `absent/*.x` was not there"]
        );
    });
}

#[test]
fn special_files_and_loops_delay_nothing_and_odd_names_are_kept() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let odd = ["out/gr\u{fc}n \u{6570}.txt", "out/new\nline", "out/plain"];
        odd.iter().for_each(|name| write(&rig, name, "x"));
        let at = |name: &str| rig.path("work/out").join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for (link, target) in [("loop", "loop"), ("up", ".."), ("dangling", "nowhere")] {
            std::os::unix::fs::symlink(target, at(link)).unwrap();
        }
        let begun = clock.mono();
        let wanted = WantedOutputs { named: &["out/**".to_owned()], if_any: &[] };
        let kept = upload(&rig.outbox(), &rig.path("work"), wanted, clock.sleep(secs(60))).await;
        assert_eq!((kept.files, (clock.mono() - begun).as_secs()), (3, 0), "{:?}", kept.losses);
        for name in ["pipe", "socket", "loop", "dangling"] {
            assert!(
                kept.losses.iter().any(|loss| loss.contains(&format!("out/{name}:"))),
                "{name} in {:?}",
                kept.losses
            );
        }
    });
}

#[test]
fn globs_find_what_they_name_and_a_file_of_that_very_name() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        for name in
            ["model_1.pt", "model_x.pt", "a.csv", "a.json", "a.txt", "run[1].txt", "sub/b.csv"]
        {
            write(&rig, name, name);
        }
        let globs = ["model_[0-9].pt", "*.{csv,json}", "run[1].txt"].map(str::to_owned);
        let kept = upload(
            &rig.outbox(),
            &rig.path("work"),
            WantedOutputs { named: &globs, if_any: &[] },
            clock.sleep(secs(60)),
        )
        .await;
        let keys: Vec<String> = rig
            .store
            .keys("")
            .iter()
            .map(|key| key.replace("jobs/digits-222222/outputs/", ""))
            .collect();
        assert_eq!(keys, ["a.csv", "a.json", "model_1.pt", "run[1].txt"]);
        assert_eq!(kept.losses, [""; 0]);
    });
}

#[test]
fn unsendable_output_is_named_with_reason_and_delays_nothing() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        ["out/a", "out/b"].iter().for_each(|name| write(&rig, name, "x"));
        rig.store.fault("out/a", Fault::Unfit, None);
        let begun = clock.mono();
        let wanted = WantedOutputs { named: &["out".to_owned()], if_any: &[] };
        let kept = upload(&rig.outbox(), &rig.path("work"), wanted, clock.sleep(secs(60))).await;
        assert_eq!((kept.files, (clock.mono() - begun).as_secs()), (1, 0));
        assert_eq!(kept.losses, ["output `out/a` was not kept: injected"]);
    });
}

#[test]
fn what_does_not_arrive_in_time_is_named() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        write(&rig, "a.pt", "a");
        write(&rig, "b.pt", "b");
        write(&rig, "c.pt", "c");
        rig.store.fault("b.pt", Fault::Hang, None);
        rig.store.fault("c.pt", Fault::Denied, None);
        let begun = clock.mono();
        let wanted = WantedOutputs { named: &["*.pt".to_owned()], if_any: &[] };
        let kept = upload(&rig.outbox(), &rig.path("work"), wanted, clock.sleep(secs(30))).await;
        assert_eq!(clock.mono() - begun, secs(30));
        assert_eq!(kept.files, 1);
        let cut = "the upload of the outputs was cut after 30 s";
        assert_eq!(kept.losses, ["output `b.pt` was not kept", "output `c.pt` was not kept", cut]);
    });
}
