//! Machines of the false EC2 as agents of this computer: each boots when it is launched, and its
//! instance ends when its agent does.

use std::collections::BTreeMap;
use std::process::Child;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::sweep::prove::Account;
use lamp_test_support::ec2::State;
use lamp_test_support::imds::FalseImds;

#[derive(Default)]
pub(super) struct Machines {
    booted: Mutex<BTreeMap<String, Booted>>,
    /// The most that ran at the same time.
    most: AtomicUsize,
    is_over: AtomicBool,
}

struct Booted {
    agent: Option<Child>,
    imds: FalseImds,
}

/// Ends the machines also if the test fails.
struct Over<'a>(&'a Machines);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

impl Machines {
    /// Runs the test while every machine of the account has an agent.
    pub(super) fn beside(account: &Account, test: impl FnOnce(&Machines)) {
        let machines = Machines::default();
        std::thread::scope(|scope| {
            let over = Over(&machines);
            scope.spawn(|| {
                while !machines.is_over.load(Ordering::Relaxed) {
                    machines.step(account);
                    std::thread::sleep(Duration::from_millis(50));
                }
                machines.end_all();
            });
            test(&machines);
            drop(over);
        });
    }

    pub(super) fn most_at_once(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// The metadata of a machine that has booted.
    pub(super) fn imds(&self, id: &str) -> FalseImds {
        self.booted.lock().unwrap()[id].imds.clone()
    }

    fn step(&self, account: &Account) {
        let mut booted = self.booted.lock().unwrap();
        let mut running = 0;
        for seen in account.ec2.instances() {
            let is_up = matches!(seen.state, State::Pending | State::Running);
            running += usize::from(is_up);
            // Also one that was stopped, and is started again with its disk.
            if is_up && booted.get(&seen.id).is_none_or(|one| one.agent.is_none()) {
                let imds = booted.get(&seen.id).map(|one| one.imds.clone()).unwrap_or_default();
                let agent = Some(account.boot(&seen, &imds));
                booted.insert(seen.id.clone(), Booted { agent, imds });
            }
            let Some(Booted { agent: slot @ Some(_), .. }) = booted.get_mut(&seen.id) else {
                continue;
            };
            let Some(agent) = slot else { continue };
            if !is_up {
                cut_power(agent);
                *slot = None;
            } else if agent.try_wait().expect("it is a child").is_some() {
                account.ec2.powered_off(&seen.id);
                *slot = None;
            }
        }
        self.most.fetch_max(running, Ordering::Relaxed);
    }

    fn end_all(&self) {
        for one in self.booted.lock().unwrap().values_mut() {
            one.agent.iter_mut().for_each(cut_power);
        }
    }
}

fn cut_power(agent: &mut Child) {
    agent.kill().expect("it is a child");
    agent.wait().expect("it is a child");
}
