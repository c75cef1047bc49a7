//! Numbers without gaps, the same bytes under the same key, and nothing lost that fits.

use std::sync::atomic::Ordering;

use lamplighter::agent::report::journal::Journal;
use lamplighter::job::{AttemptNo, AttemptPhase, Reason};
use lamplighter::jobdir::EventDetail;
use lamplighter::ports::Clock;

use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::{simulate, until};

fn phase() -> EventDetail {
    EventDetail::Phase { phase: AttemptPhase::Running }
}

fn verdict(number: usize) -> EventDetail {
    EventDetail::Verdict {
        reason: Reason::new(
            "2026-01-01T00:00:00Z".parse().unwrap(),
            "idle",
            "busy",
            format!("verdict {number}"),
        ),
    }
}

#[test]
fn important_events_go_at_once_and_others_gather_for_2_s() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let journal = Journal::start(rig.outbox());
        journal.record(phase());
        until(&clock, "the phase is sent", secs(1), || rig.store.keys("/events/").len() == 1).await;
        let before = clock.mono();
        for number in 0..5 {
            journal.record(verdict(number));
        }
        until(&clock, "the verdicts are sent", secs(3), || rig.store.keys("/events/").len() == 2)
            .await;
        assert!(clock.mono() - before >= secs(2));
        let seqs: Vec<u64> = rig.events().await.iter().map(|event| event.seq).collect();
        assert_eq!(seqs, [1, 2, 3, 4, 5, 6]);
    });
}

#[test]
fn twenty_minutes_without_a_store_lose_nothing() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let journal = Journal::start(rig.outbox());
        rig.store.fault("", Fault::Down, None);
        for number in 0..600 {
            journal.record(verdict(number));
            clock.sleep(secs(2)).await;
        }
        assert_eq!(journal.unsent(), 600);
        let tries = rig.store.calls();
        assert!((20..40).contains(&tries), "polite: {tries} tries in 20 minutes");
        rig.store.mend();
        until(&clock, "all are sent", secs(65), || journal.unsent() == 0).await;
        assert_eq!(rig.events().await.len(), 600);
    });
}

#[test]
fn lost_replies_and_hanging_calls_write_the_same_bytes_again() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let journal = Journal::start(rig.outbox());
        rig.store.fault("", Fault::LostReply, 2);
        rig.store.fault("", Fault::Hang, 1);
        journal.record(phase());
        clock.sleep(secs(1)).await;
        // Recorded while the first batch is being tried: must not join it.
        journal.record(phase());
        assert!(journal.flush(secs(120)).await);
        let writes = rig.store.writes("00000001.jsonl");
        assert!(writes.len() >= 3, "it was tried again: {}", writes.len());
        assert!(writes.iter().all(|(_, body)| *body == writes[0].1));
        assert_eq!(rig.events().await.len(), 2);
    });
}

#[test]
fn crashed_agent_goes_on_with_the_next_number_and_same_batch() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let journal = Journal::start(rig.outbox());
        journal.record(phase());
        assert!(journal.flush(secs(5)).await);
        rig.store.fault("", Fault::LostReply, None);
        journal.record(phase());
        clock.sleep(secs(1)).await;
        journal.record(phase());
        drop(journal);
        // Half a line, as a crash leaves it.
        let path = rig.outbox().state.join("events.jsonl");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.extend_from_slice(b"{\"seq\": 4, \"at");
        std::fs::write(&path, bytes).unwrap();
        rig.store.mend();

        let journal = Journal::start(rig.outbox());
        assert_eq!(journal.unsent(), 2);
        assert_eq!(journal.record(phase()), Some(4));
        assert!(journal.flush(secs(5)).await);
        let seqs: Vec<u64> = rig.events().await.iter().map(|event| event.seq).collect();
        assert_eq!(seqs, [1, 2, 3, 4]);
        let again = rig.store.writes("00000002.jsonl");
        assert!(again.len() >= 2 && again.iter().all(|(_, body)| *body == again[0].1));
    });
}

#[test]
fn events_beyond_the_bound_are_counted_and_important_ones_fit() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let journal = Journal::start(rig.outbox());
        rig.store.fault("", Fault::Denied, None);
        for number in 0..2100 {
            journal.record(verdict(number));
        }
        assert_eq!(journal.unsent(), 2000);
        assert_eq!(journal.record(phase()), Some(2001));
        rig.store.mend();
        assert!(journal.flush(secs(120)).await);
        assert_eq!(
            rig.attention().await,
            ["100 events were not recorded: the store did not take them in time"]
        );
        let events = rig.events().await;
        assert!(events.windows(2).all(|pair| pair[0].seq + 1 == pair[1].seq), "no gaps");
        assert_eq!(events.len(), 2002);
    });
}

#[test]
fn full_disk_stops_no_event_and_a_flush_ends_at_its_deadline() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        rig.files.full.store(true, Ordering::Relaxed);
        let journal = Journal::start(rig.outbox());
        journal.record(phase());
        assert!(journal.flush(secs(5)).await);
        rig.store.fault("", Fault::Hang, None);
        journal.record(phase());
        let before = clock.mono();
        assert!(!journal.flush(secs(7)).await);
        assert_eq!(clock.mono() - before, secs(7));
        assert_eq!(rig.dir().job().as_str(), "digits-222222");
        assert_eq!(rig.outbox().attempt, AttemptNo::FIRST);
    });
}
