//! Records that this program cannot read: a later version's, and torn ones.

use std::time::Duration;

use lamplighter::job::AttemptNo;
use lamplighter::jobdir::layout;
use lamplighter::ports::Clock as _;

use crate::sweep::visit::{ROOM, ids, silent, visit};
use lamp_test_support::virtual_clock::simulate;

const NEWER: &[u8] = b"{\"format\": 9}";

/// That a job is there is enough to know its machine by: a power cut has torn its words, or a later
/// version wrote them.
#[test]
fn unreadable_spec_keeps_no_silent_machine_running() {
    for (torn, all) in
        [(&b""[..], false), (b"{\"format\": 1, \"job\"", false), (NEWER, false), (NEWER, true)]
    {
        simulate(async |clock| {
            let world = silent(clock.clone(), 24).await;
            world.store.set(&layout::spec(world.job()), Some(torn));
            // All of a later version's records are of it.
            for key in [layout::plan, layout::lease, layout::status]
                .map(|key| key(world.job(), AttemptNo::FIRST))
                .iter()
                .filter(|_| all)
            {
                world.store.set(key, Some(torn));
            }
            clock.sleep(Duration::from_secs(3600)).await;
            let visit = visit(&world, ROOM).await;
            assert_eq!((ids(&visit), world.cloud.running().len()), (vec!["i-1"], 0), "{visit:?}");
        });
    }
}
