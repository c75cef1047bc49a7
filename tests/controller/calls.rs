//! What a controller asks of the store. `cargo test --test controller calls -- --nocapture` shows
//! the table.

use std::sync::Arc;

use lamplighter::controller::submit;
use lamplighter::ports::{Clock, Store};

use crate::cloud::Life;
use crate::{World, spec};
use lamp_test_support::counting_store::{CountingStore, sum};
use lamp_test_support::virtual_clock::simulate;

const FINISHED: usize = 100;

#[test]
fn finished_job_costs_nothing_and_running_one_few_reads_a_tick() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[Life::Endless]).await;
        let store = CountingStore::new(world.store.clone());
        let receipt = std::fs::read_to_string(
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/v1/receipt.json"),
        )
        .unwrap();
        for number in 0..FINISHED {
            let mut spec = spec(clock.now());
            spec.job = format!("done-{number:06}").parse().unwrap();
            let dir = submit(&(world.store.clone() as Arc<dyn Store>), &spec, None).await.unwrap();
            world
                .store
                .put(&format!("jobs/{}/receipt.json", dir.job()), receipt.clone().into())
                .await
                .unwrap();
        }
        let controller = world.controller_on(store.clone(), world.port());
        let daemon = tokio::spawn(async move { controller.drive_all(&[], |_| {}).await });
        let minutes = |minutes: u64| clock.sleep(std::time::Duration::from_secs(60 * minutes));
        minutes(5).await;
        println!("the first five minutes, {FINISHED} finished jobs and one that begins:");
        store.take();
        minutes(10).await;
        println!("ten minutes of one running job beside them, 40 ticks:");
        let calls = store.take();
        world.wish(lamplighter::job::Wish::Stop).await;
        minutes(5).await;
        store.take();
        minutes(60).await;
        println!("an hour at rest:");
        let rest = store.take();
        daemon.abort();
        let (lists, reads) = (sum(&calls, "list"), sum(&calls, "get"));
        println!(
            "running: {lists} listings and {reads} reads in ten minutes; at rest: {} listings an hour",
            sum(&rest, "list")
        );
        // A tick every fifteen seconds; the schedules once a minute, the names of all jobs every
        // five.
        assert!(lists <= 3 * 41 + 11 + 3 && reads <= 5 * 41, "{calls:?}");
        assert!(sum(&rest, "list") <= 241 + 61 + 13 && sum(&rest, "get") == 0, "{rest:?}");
    });
}
