//! Somebody is told once, whoever drives.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use lamplighter::ports::{Notification, Notifier, NotifierError};

use super::World;
use super::cloud::Life;
use super::support::virtual_clock::simulate;

#[derive(Default)]
struct Ear(Mutex<Vec<Notification>>);

#[async_trait]
impl Notifier for Ear {
    async fn tell(&self, notification: &Notification) -> Result<(), NotifierError> {
        self.0.lock().unwrap().push(notification.clone());
        Err(NotifierError { what: "an ear that complains harms nothing".into() })
    }
}

#[test]
fn the_end_is_told_once_also_when_two_controllers_saw_it() {
    simulate(async |clock| {
        let world = World::new(clock, &[Life::Ends { secs: 5, code: 3 }]).await;
        let ear = Arc::new(Ear::default());
        let (one, two) = (world.controller().notifying(ear.clone()), world.controller().notifying(ear.clone()));
        let (first, second) = tokio::join!(one.drive(world.dir.job()), two.drive(world.dir.job()));
        assert_eq!(first.unwrap(), second.unwrap());
        let told = ear.0.lock().unwrap();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!((told[0].kind, told[0].text.as_str()), ("ended", "failed: it ended"));
        assert_eq!(told[0].receipt.as_ref().unwrap().exit_code, Some(3));
    });
}

#[test]
fn a_job_that_had_ended_before_is_no_news() {
    simulate(async |clock| {
        let world = World::new(clock, &[Life::Ends { secs: 5, code: 0 }]).await;
        world.drive().await;
        let ear = Arc::new(Ear::default());
        world.controller().notifying(ear.clone()).drive(world.dir.job()).await.unwrap();
        assert!(ear.0.lock().unwrap().is_empty());
    });
}
