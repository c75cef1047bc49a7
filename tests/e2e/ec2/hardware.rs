//! What stands behind an instance of the false EC2: a container on this kernel, which boots in a
//! second, or a machine that is emulated whole, for what a kernel does.

use std::path::PathBuf;
use std::process::ExitStatus;

use crate::systemd::image;
use crate::systemd::nspawn::Machine;
use crate::systemd::vm::Vm;

/// As cloud-init does it, in a fraction of its time: once in the life of the instance, as root,
/// with what the metadata service says.
const USER_DATA: &str = "[Unit]\nDescription=User data\nAfter=basic.target network.target\nConditionPathExists=!/var/lib/cloud/ran\n\
[Service]\nType=oneshot\nStandardOutput=append:/var/log/cloud-init-output.log\nStandardError=inherit\nTimeoutStartSec=infinity\nTimeoutStopSec=3s\n\
ExecStart=/bin/sh -c 'imds=http://169.254.169.254/latest; mkdir -p /var/lib/cloud; \
token=$$(curl -sSf --retry 20 --retry-all-errors --retry-delay 1 -X PUT -H \"X-aws-ec2-metadata-token-ttl-seconds: 60\" $$imds/api/token); \
curl -sSf --retry 20 --retry-all-errors --retry-delay 1 -H \"X-aws-ec2-metadata-token: $$token\" -o /var/lib/cloud/user-data $$imds/user-data || exit 1; \
touch /var/lib/cloud/ran; chmod 700 /var/lib/cloud/user-data; exec /var/lib/cloud/user-data'\n";

/// On control groups of version 1 systemd may miss that a group is empty, and then waits for this.
const STOP: &str = "[Manager]\nDefaultTimeoutStopSec=10s\n";

#[cfg_attr(
    not(feature = "aws"),
    allow(dead_code, reason = "without EC2 nobody asks for the others")
)]
#[derive(Clone)]
pub enum Kind {
    Container,
    /// Made ready by cloud-init, which is unpacked there.
    CloudInit(PathBuf),
    /// Of this image.
    Virtual(PathBuf),
}

pub enum Hardware {
    Container(Machine),
    Virtual(Vm),
}

impl Hardware {
    /// Of a kind that was seen to be had here.
    pub fn new(kind: &Kind, network: &str) -> Self {
        if let Kind::Virtual(image) = kind {
            let vm = Vm::new(image.clone(), network);
            vm.unit("user-data.service", USER_DATA);
            vm.wants("multi-user.target", "user-data.service");
            return Hardware::Virtual(vm);
        }
        let machine = image::bare(Machine::new().expect("it worked a moment ago"), network);
        machine.write("etc/systemd/system.conf.d/stop.conf", STOP);
        if let Kind::CloudInit(root) = kind {
            return Hardware::Container(image::with_cloud_init(machine, root));
        }
        machine.unit("user-data.service", USER_DATA);
        machine.wants("multi-user.target user-data.service");
        Hardware::Container(machine)
    }

    /// For what only a disk in sight, or processes in sight, can tell.
    pub fn container(&self) -> &Machine {
        match self {
            Hardware::Container(machine) => machine,
            Hardware::Virtual(_) => panic!("a virtual machine shows nobody its disk"),
        }
    }

    #[cfg(feature = "aws")]
    pub fn vm(&self) -> &Vm {
        match self {
            Hardware::Container(_) => panic!("a container has no kernel and no disk of its own"),
            Hardware::Virtual(vm) => vm,
        }
    }

    pub fn power_on(&mut self) {
        match self {
            Hardware::Container(machine) => machine.power_on(),
            Hardware::Virtual(vm) => vm.power_on(),
        }
    }

    /// `Err`: how it went off since it was asked last.
    pub fn is_on(&mut self) -> Result<bool, ExitStatus> {
        match self {
            Hardware::Container(machine) => machine.is_on(),
            Hardware::Virtual(vm) => vm.is_on(),
        }
    }

    pub fn press_the_button(&self) {
        match self {
            Hardware::Container(machine) => machine.press_the_button(),
            Hardware::Virtual(vm) => vm.press_the_button(),
        }
    }

    pub fn cut_the_power(&mut self) {
        match self {
            Hardware::Container(machine) => machine.cut_the_power(),
            Hardware::Virtual(vm) => vm.cut_the_power(),
        }
    }

    /// All that it said, for the one who looks for the reason.
    pub fn last_words(&self) -> String {
        match self {
            Hardware::Container(machine) => [
                machine.console(),
                image::said(machine),
                image::log(machine),
                image::journal(machine),
            ]
            .join("\n"),
            Hardware::Virtual(vm) => vm.console(),
        }
    }
}
