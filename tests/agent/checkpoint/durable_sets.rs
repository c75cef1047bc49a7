//! Sets of many files are made durable together. A power cut takes nothing from a listed set.

use lamplighter::job::Manifest;

use crate::Rig;
use crate::checkpoint::checkpoints::Watched;
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::simulate;

/// Many enough to be made durable together.
const FILES: usize = 100;

fn save(watched: &Watched) {
    for number in 0..FILES {
        watched.write(&format!("shard_{}/c{number}", number / 50), "weights");
    }
}

fn are_there(rig: &Rig, manifest: &Manifest) -> usize {
    let key = |key: &str| format!("jobs/digits-222222/{key}");
    manifest.files.iter().filter(|file| rig.store.object(&key(&file.key)).is_some()).count()
}

#[test]
fn listed_set_of_many_files_survives_power_cut() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock));
        save(&watched);
        let manifest = watched.complete(1).await;
        watched.rig.store.cut_power();
        assert_eq!((manifest.files.len(), are_there(&watched.rig, &manifest)), (FILES, FILES));
    });
}

#[test]
fn files_that_the_disk_lost_are_sent_again_before_set_is_listed() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock));
        watched.rig.store.fault("/checkpoints/durable", Fault::Down, 1);
        save(&watched);
        let manifest = watched.complete(2).await;
        watched.rig.store.cut_power();
        assert_eq!((manifest.files.len(), are_there(&watched.rig, &manifest)), (FILES, FILES));
        assert_eq!(watched.rig.store.keys("/manifest.json").len(), 1, "the first has no manifest");
    });
}
