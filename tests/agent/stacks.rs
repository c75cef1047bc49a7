//! What the processes waited for is kept under a number of its own, or its loss is said.

use async_trait::async_trait;
use lamplighter::agent::report::journal::Journal;
use lamplighter::agent::report::stack_dumps::collect;
use lamplighter::jobdir::EventDetail;
use lamplighter::ports::{Clock as _, Scope, Stacks};

use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::simulate;

struct Stuck;

#[async_trait]
impl Stacks for Stuck {
    async fn dump(&self, _scope: &Scope, _bytes_max: usize) -> String {
        "process 7 waits in futex_wait\n".into()
    }
}

/// It belongs to a process that is stuck in the kernel.
struct Unreadable;

#[async_trait]
impl Stacks for Unreadable {
    async fn dump(&self, _scope: &Scope, _bytes_max: usize) -> String {
        std::future::pending().await
    }
}

#[test]
fn stacks_that_cannot_be_read_are_given_up_before_the_watchdog() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let journal = Journal::start(rig.outbox());
        assert_eq!(collect(&rig.outbox(), &journal, &Unreadable, &Scope::default()).await, None);
        assert_eq!(clock.mono(), secs(15));
        assert!(journal.flush(secs(5)).await);
        assert_eq!(
            rig.attention().await,
            ["what the processes were waiting for was not kept: it could not be read within 15 s"]
        );
    });
}

#[test]
fn stacks_are_kept_and_a_hung_store_does_not_delay_the_restart() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let (outbox, journal) = (rig.outbox(), Journal::start(rig.outbox()));
        let mut keys = Vec::new();
        for _ in 0..2 {
            keys.push(
                collect(&outbox, &journal, &Stuck, &Scope::default()).await.expect("it is kept"),
            );
        }
        assert!(
            keys[0].ends_with("stacks/0001.txt") && keys[1].ends_with("stacks/0002.txt"),
            "{keys:?}"
        );
        assert!(rig.store.object(&keys[1]).unwrap().starts_with(b"process 7"));
        rig.store.fault("/stacks/", Fault::Hang, None);
        let begun = clock.mono();
        assert_eq!(collect(&outbox, &journal, &Stuck, &Scope::default()).await, None);
        assert_eq!(clock.mono() - begun, secs(15));
        assert!(journal.flush(secs(5)).await);
        let kept =
            |what: &EventDetail| matches!(what, EventDetail::Stacks { key } if *key == keys[0]);
        assert!(rig.events().await.iter().any(|event| kept(&event.what)));
        assert_eq!(
            rig.attention().await,
            ["what the processes were waiting for was not kept: the store does not answer"]
        );
    });
}
