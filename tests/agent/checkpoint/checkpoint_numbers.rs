//! Which number the next checkpoint has.

use lamplighter::job::CheckpointNo;

use crate::checkpoint::checkpoints::{Watched, restored, second, two_checkpoints, write};
use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::{simulate, until};

/// Seed 42000565 of 24 h: an agent died between a manifest and its own note of it, and the list was
/// half a minute old.
#[test]
fn number_that_an_old_list_does_not_show_is_not_used_again() {
    simulate(async |clock| {
        let rig = two_checkpoints(Rig::new(clock.clone())).await;
        rig.store.hide("checkpoints/0002");
        let (manifest, folder) = restored(&rig).await;
        assert_eq!(manifest.unwrap().unwrap().number, CheckpointNo::new(1), "as the old list says");
        let before = rig.store.object("jobs/digits-222222/checkpoints/0002/files/a.pt");
        let checkpoints = second(&rig, folder);
        write(&rig, "second/ckpt", "a.pt", "three");
        until(&clock, "the next number", secs(10), || {
            checkpoints.last().unwrap().number == CheckpointNo::new(3)
        })
        .await;
        assert_eq!(rig.store.object("jobs/digits-222222/checkpoints/0002/files/a.pt"), before);
    });
}

/// Seed 195 of gangs: two calls for the number shared 20 seconds. At 15 seconds a call nothing was
/// uploaded for 17 minutes.
#[test]
fn slow_store_of_15_s_a_call_gets_the_checkpoint() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.rig.store.fault("", Fault::Slow(secs(15)), None);
        watched.write("a.pt", "one");
        let manifest = watched.complete(1).await;
        assert_eq!(watched.read(&manifest, "a.pt"), "one");
    });
}
