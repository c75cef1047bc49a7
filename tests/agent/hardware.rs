//! A whole agent on a machine whose GPU is lost.

use lamplighter::instance::{GpuHealth, GpuSample, Reading};
use lamplighter::job::EndedBecause;
use lamplighter::jobdir::EventDetail;
use lamplighter::ports::Clock as _;

use crate::world::Played;
use crate::{Rig, secs};
use lamp_test_support::virtual_clock::simulate;

fn gpu(xids: &[u64], lost: bool) -> Reading<Vec<GpuSample>> {
    let known =
        |value: f64| if lost { Reading::unknown("GPU is lost") } else { Reading::Known(value) };
    Reading::Known(vec![GpuSample {
        index: 0,
        uuid: String::new(),
        name: "L4".into(),
        util_percent: known(90.0),
        memory_util_percent: known(40.0),
        memory_used_mib: Reading::Absent,
        memory_total_mib: Reading::Absent,
        power_watts: known(60.0),
        power_limit_watts: Reading::Absent,
        clock_mhz: Reading::Absent,
        temperature_celsius: known(60.0),
        used_by_workload: Reading::Absent,
        used_by_others: Reading::Absent,
        throttled_by: Reading::Absent,
        processes: Vec::new(),
        ecc_uncorrected: Reading::Absent,
        xids: xids.to_vec(),
        health: GpuHealth::default(),
        lost: lost.then(|| "GPU is lost".into()),
    }])
}

#[test]
fn workload_hung_on_a_lost_gpu_is_saved_and_ended_in_10_minutes() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        machine.show(|now| now.gpus = gpu(&[], false));
        let agent = machine.agent(&rig, r#"{"checkpoint": {"path": "ckpt", "interval": "10m", "grace": "90s", "signal": "SIGUSR1"}}"#).run();
        tokio::pin!(agent);
        tokio::select! {
            finish = &mut agent => panic!("nothing is wrong yet: {finish:?}"),
            () = rig.clock.sleep(secs(120)) => {}
        }
        machine.show(|now| now.gpus = gpu(&[79], true));
        let lost_at = rig.clock.mono();
        let finish = agent.await;
        assert_eq!(finish.because, EndedBecause::HardwareLost, "{finish:?}");
        assert!(rig.clock.mono() - lost_at <= secs(600), "{:?}", rig.clock.mono() - lost_at);
        assert!(machine.is_off());
        assert_eq!(rig.outcome().await.because, EndedBecause::HardwareLost);
        let asked = rig.events().await.into_iter().find_map(|event| match event.what {
            EventDetail::Asked { by, signal, .. } => Some((by, signal)),
            _ => None,
        });
        assert_eq!(
            asked,
            Some(("hardware_lost".to_owned(), "SIGUSR1".to_owned())),
            "it was asked to save first"
        );
        assert!(rig.attention().await.contains(&"GPU 0: GPU is lost (Xid 79)".to_owned()));
    });
}

#[test]
fn restarted_agent_remembers_an_xid_that_the_driver_told_once() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        machine.show(|now| now.gpus = gpu(&[48], false));
        tokio::select! {
            finish = machine.agent(&rig, "{}").run() => panic!("not yet: {finish:?}"),
            () = rig.clock.sleep(secs(60)) => {}
        }
        machine.show(|now| now.gpus = gpu(&[], false));
        let finish = machine.agent(&rig, "{}").run().await;
        assert_eq!(finish.because, EndedBecause::HardwareLost, "{finish:?}");
    });
}

/// Seed 16000692 of 24 h: the driver did not answer when the machine came up, and later showed no
/// GPU. Its work, which was to be done on one, was called idle.
#[test]
fn machine_found_to_have_no_gpu_is_hardware_lost_and_not_idle() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        machine.show(|now| {
            now.gpus = Reading::unknown("driver and library do not match");
            now.works = false;
        });
        let agent = machine
            .agent(&rig, r#"{"machine": {"gpus": "A10G:1"}, "watch": {"idle": {"window": "15m"}}}"#)
            .run();
        tokio::pin!(agent);
        tokio::select! {
            finish = &mut agent => panic!("nobody knows yet: {finish:?}"),
            () = rig.clock.sleep(secs(600)) => {}
        }
        machine.show(|now| now.gpus = Reading::Known(Vec::new()));
        let finish = agent.await;
        assert_eq!(finish.because, EndedBecause::HardwareLost, "{finish:?}");
        assert!(rig.attention().await.iter().any(|line| line.contains("the driver shows none")));
    });
}

/// A virtual GPU, or a slice of one: the driver lists it, and cannot say how busy it is.
#[test]
fn work_on_gpus_whose_use_cannot_be_read_is_not_called_idle() {
    for (asked, is_idle) in [("L4:1", false), ("none", true)] {
        simulate(async |clock| {
            let rig = Rig::new(clock.clone());
            let machine = Played::new(&rig);
            machine.show(|now| {
                now.gpus = gpu(&[], false).map(|gpus| {
                    let mute = |gpu| GpuSample {
                        util_percent: Reading::Absent,
                        memory_util_percent: Reading::Absent,
                        ..gpu
                    };
                    gpus.into_iter().map(mute).collect()
                });
                now.works = false;
            });
            let agent = machine.agent(&rig, &format!(r#"{{"machine": {{"gpus": "{asked}"}}, "watch": {{"stall": {{"window": null}}}}}}"#)).run();
            tokio::select! {
                finish = agent => assert!(is_idle && finish.because == EndedBecause::Idle, "{asked}: {finish:?}"),
                () = rig.clock.sleep(secs(4 * 3600)) => assert!(!is_idle, "{asked}: nothing is hidden there"),
            }
            if !is_idle {
                let said = rig.status().await.reason.map(|reason| reason.text).unwrap_or_default();
                assert!(said.is_empty() || said.contains("cannot say how busy"), "{said}");
            }
        });
    }
}

/// `docker run` on a machine of our own, and a neighbour on a workstation.
#[test]
fn container_activity_is_work_only_on_a_machine_of_our_own() {
    for own_machine in [true, false] {
        simulate(async |clock| {
            let rig = Rig::new(clock.clone());
            let mut machine = Played::new(&rig);
            machine.own_machine = own_machine;
            machine.show(|now| (now.works, now.rest_works) = (false, true));
            let agent = machine.agent(&rig, r#"{"watch": {"stall": {"window": null}}}"#).run();
            tokio::select! {
                finish = agent => assert!(!own_machine && finish.because == EndedBecause::Idle, "{finish:?}"),
                () = rig.clock.sleep(secs(4 * 3600)) => assert!(own_machine, "a neighbour's work is not the job's"),
            }
        });
    }
}
