//! The machines: each running instance of the false EC2 is one that really boots; what happens to
//! one happens to the other.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use crate::systemd::image;
use crate::systemd::nspawn::Machine;
use crate::systemd::vm;
use lamp_test_support::ec2::{FalseEc2, Options, Seen, State, base64};
use lamp_test_support::imds::{ACTION, FalseImds};
use lamp_test_support::skipped;

use super::hardware::{Hardware, Kind};
use super::network::Network;

/// Between the power button and the end of power. EC2 gives minutes; a test has no use for them.
const GRACE: Duration = Duration::from_secs(30);

/// One that starts again and again is left dark after this.
const BOOTS_MAX: u32 = 6;

/// `systemd-nspawn` ends so when the machine wants to start again.
const REBOOT: i32 = 133;

/// A machine boots, works and is shut down; with many of them on few processors all of that takes
/// its time.
const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until something is so, and fails with these words if it never is.
pub fn patiently<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What has just come about took no longer than its bound since then; how long it took is for the
/// fault matrix.
pub fn took(what: &str, since: Instant, bound: Duration) {
    let took = since.elapsed();
    eprintln!("measured: {what}: {:.1} s of {} s", took.as_secs_f64(), bound.as_secs());
    assert!(took <= bound, "{what}: {took:?}, and its bound is {bound:?}");
}

/// The false EC2 with its machines. Everything is switched off when it is dropped.
pub struct Ec2 {
    cloud: Arc<FalseEc2>,
    machines: Arc<Mutex<BTreeMap<String, Iron>>>,
    closing: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

/// The machine behind one instance.
struct Iron {
    machine: Hardware,
    imds: FalseImds,
    network: Network,
    boots: u32,
    /// Without power, and EC2 does not know.
    plugged_out: bool,
    pressed: Option<Instant>,
    noticed: bool,
}

impl std::ops::Deref for Ec2 {
    type Target = FalseEc2;
    fn deref(&self) -> &FalseEc2 {
        &self.cloud
    }
}

impl Ec2 {
    /// `None`, with a word, where it cannot be had. A unit of ours runs the user data of its
    /// machines, in a fraction of the time that cloud-init takes.
    pub fn start() -> Option<Self> {
        Self::with(Kind::Container)
    }

    /// The same with machines that cloud-init makes ready, as an image of AWS has it.
    #[cfg(feature = "aws")]
    pub fn start_with_cloud_init() -> Option<Self> {
        Self::with(Kind::CloudInit(image::unpacked()?))
    }

    /// The same with machines that have kernels of their own.
    #[cfg(feature = "aws")]
    pub fn start_with_kernels() -> Option<Self> {
        Self::with(Kind::Virtual(vm::image()?))
    }

    fn with(kind: Kind) -> Option<Self> {
        if !matches!(kind, Kind::Virtual(_)) {
            drop(Machine::new()?);
        }
        if let Err(why) = Network::new(&FalseImds::default(), "127.0.0.1:1") {
            skipped("nspawn", why);
            return None;
        }
        let cloud = Arc::new(FalseEc2::start(Options { managed: true, ..Options::default() })?);
        let (machines, closing) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let watched = (Arc::clone(&cloud), Arc::clone(&machines), Arc::clone(&closing));
        let watcher = std::thread::spawn(move || watch(&watched.0, &watched.1, &watched.2, &kind));
        Some(Ec2 { cloud, machines, closing, watcher: Some(watcher) })
    }

    fn machines(&self) -> MutexGuard<'_, BTreeMap<String, Iron>> {
        lock(&self.machines)
    }

    fn on<T>(&self, id: &str, act: impl FnOnce(&mut Iron) -> T) -> T {
        patiently("the instance has a machine", || self.machines().contains_key(id).then_some(()));
        act(self.machines().get_mut(id).expect("it was just there"))
    }

    /// What the user data said.
    pub fn said(&self, id: &str) -> String {
        self.on(id, |one| image::said(one.machine.container()))
    }

    pub fn boots(&self, id: &str) -> u32 {
        self.on(id, |one| one.boots)
    }

    /// The path of a file of its disk, from outside.
    pub fn file(&self, id: &str, path: &str) -> PathBuf {
        self.on(id, |one| one.machine.container().path(path))
    }

    /// Runs a command inside.
    pub fn run(&self, id: &str, words: &[&str]) {
        self.on(id, |one| one.machine.container().run(words));
    }

    pub fn imds(&self, id: &str) -> FalseImds {
        self.on(id, |one| one.imds.clone())
    }

    /// The power is gone, and EC2 goes on saying that it runs, and billing.
    pub fn plug(&self, id: &str) {
        self.on(id, |one| {
            one.plugged_out = true;
            one.machine.cut_the_power();
        });
    }

    /// The machine as one with a kernel of its own.
    #[cfg(feature = "aws")]
    pub fn vm<T>(&self, id: &str, act: impl FnOnce(&vm::Vm) -> T) -> T {
        self.on(id, |one| act(one.machine.vm()))
    }

    /// The machine cannot reach the API; its metadata it can.
    pub fn partition(&self, id: &str, on: bool) {
        self.on(id, |one| one.network.partition(on));
    }

    /// Waits for a state.
    pub fn until(&self, id: &str, state: State) -> Seen {
        patiently(&format!("{id} is {}", state.name()), || {
            Some(self.instance(id)).filter(|seen| seen.state == state)
        })
    }
}

impl Drop for Ec2 {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        if let Some(watcher) = self.watcher.take() {
            // If it failed, so did the test.
            let _ended = watcher.join();
        }
        if std::thread::panicking() {
            for (id, one) in self.machines().iter() {
                eprintln!("---- {id}\n{}", one.machine.last_words());
            }
        }
        self.machines().clear();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch(
    cloud: &FalseEc2,
    machines: &Mutex<BTreeMap<String, Iron>>,
    closing: &AtomicBool,
    kind: &Kind,
) {
    while !closing.load(Ordering::Relaxed) {
        for seen in cloud.instances() {
            let mut machines = lock(machines);
            if let Some(one) = machines.get_mut(&seen.id) {
                one.step(cloud, &seen);
            } else if matches!(seen.state, State::Pending | State::Running) {
                machines.insert(seen.id.clone(), Iron::new(cloud, &seen, kind));
            } else if matches!(seen.state, State::ShuttingDown | State::Stopping) {
                // It ended before its machine was ever on.
                cloud.reached(
                    &seen.id,
                    if seen.state == State::Stopping { State::Stopped } else { State::Terminated },
                );
            }
        }
        std::thread::sleep(Duration::from_millis(30));
    }
}

impl Iron {
    fn new(cloud: &FalseEc2, seen: &Seen, kind: &Kind) -> Self {
        let imds = FalseImds::default();
        imds.is(&seen.id, &seen.kind, &seen.zone, seen.launched);
        imds.says("meta-data/ami-launch-index", seen.item.at("amiLaunchIndex"));
        if let Some(user_data) = base64(&seen.user_data)
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .filter(|text| !text.is_empty())
        {
            imds.says("user-data", &user_data);
        }
        if !seen.profile.is_empty() {
            imds.role(&seen.profile);
        }
        let network = Network::new(&imds, cloud.url()).expect("it worked a moment ago");
        let machine = Hardware::new(kind, &network.path);
        Iron { machine, imds, network, boots: 0, plugged_out: false, pressed: None, noticed: false }
    }

    fn boot(&mut self) {
        if self.boots == BOOTS_MAX {
            self.plugged_out = true;
            return;
        }
        self.boots += 1;
        self.pressed = None;
        self.machine.power_on();
    }

    fn step(&mut self, cloud: &FalseEc2, seen: &Seen) {
        self.tell(seen);
        let on = match self.machine.is_on() {
            Ok(on) => on,
            // Nobody switched it off: it did so itself.
            Err(status) if matches!(seen.state, State::Pending | State::Running) => {
                if status.code() == Some(REBOOT) {
                    return self.boot();
                }
                return cloud.powered_off(&seen.id);
            }
            Err(_) => false,
        };
        match seen.state {
            State::Pending | State::Running if !on && !self.plugged_out => {
                self.boot();
                cloud.reached(&seen.id, State::Running);
            }
            State::Pending | State::Running | State::Terminated | State::Stopped => {}
            State::ShuttingDown | State::Stopping if !on => {
                self.plugged_out = false;
                cloud.reached(
                    &seen.id,
                    if seen.state == State::Stopping { State::Stopped } else { State::Terminated },
                );
            }
            State::ShuttingDown | State::Stopping => self.switch_off(seen),
        }
    }

    /// A spot interruption takes the power; everything else asks first.
    fn switch_off(&mut self, seen: &Seen) {
        let pressed = self.pressed;
        if seen.reason == "Server.SpotInstanceTermination"
            || pressed.is_some_and(|at| at.elapsed() > GRACE)
        {
            self.machine.cut_the_power();
        } else if pressed.is_none() {
            self.machine.press_the_button();
            self.pressed = Some(Instant::now());
        }
    }

    /// What its metadata says by now.
    fn tell(&mut self, seen: &Seen) {
        if seen.item.at("metadataOptions/instanceMetadataTags") == "enabled" {
            self.imds.tagged(&seen.tags);
        }
        match seen.notice {
            Some(rest) if !self.noticed => {
                self.noticed = true;
                self.imds.interrupts(
                    &seen.interruption,
                    Timestamp::now() + SignedDuration::try_from(rest).expect("short"),
                );
            }
            None if self.noticed && seen.state == State::Running => {
                self.noticed = false;
                self.imds.forgets(ACTION);
            }
            _ => {}
        }
    }
}
