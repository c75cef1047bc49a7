//! What only a machine with a kernel of its own can show: the kernel hangs, its disk hangs, a mount
//! hangs. It goes dark all the same.
//!
//! Each story is told from `lamp run --detach` on, of an emulated machine that takes a minute to
//! begin; `just vm-faults` tells them one after another. Without an image they are skipped.

use std::time::{Duration, Instant};

use super::desk::{Desk, JOB};
use super::machines::{Ec2, patiently, took};
use super::story::{ITSELF, SAVES, Story};
use crate::bench::Running;
use lamp_test_support::ec2::{Seen, State};

/// The shortest that a job file may ask for.
const LEASE: Duration = Duration::from_secs(120);

/// What the controller needs to see it, at the most.
const LOOKS: Duration = Duration::from_secs(90);

/// Between the power button, which nobody answers, and the end of power.
const GRACE: Duration = Duration::from_secs(30);

/// The dead-man's switch looks once a minute, and again half a minute later; its ladder has 100 s.
const SWITCH: Duration = Duration::from_secs(60 + 30 + 100);

/// The ladder of the agent's own power-off.
const LADDER: Duration = Duration::from_secs(120);

/// Once the disk hangs: longer than systemd takes to give up the agent that hangs with it and to
/// start the next.
const AFTER_THE_NEXT_AGENT: u64 = 240;

/// A server of the machine's own, which answers nobody any more; a writer and a reader that wait
/// for it; and somebody who wants no shutdown.
const A_MOUNT_HANGS: &str = "mkdir -p /srv/data /mnt/data; echo '/srv/data *(rw,no_root_squash,insecure,no_subtree_check,fsid=0)' >/etc/exports; \
systemctl start nfs-server; echo Y >/proc/fs/nfsd/v4_end_grace; mount -t nfs4 -o hard,vers=4.2,actimeo=1 127.0.0.1:/ /mnt/data && echo x >/mnt/data/x && sync; \
nft add table ip t; nft add chain ip t o '{ type filter hook output priority 0; }'; nft add rule ip t o tcp dport 2049 drop; \
systemd-run --quiet dd if=/dev/zero of=/mnt/data/big bs=1M count=4; systemd-run --quiet ls /mnt/data/new; \
systemd-run --quiet systemd-inhibit --what=shutdown --mode=block sleep 1d; \
sleep 5; for one in /proc/[0-9]*; do read -r stat <$one/stat; case $stat in *'(dd) D'*) echo the mount hangs;; esac; done";

/// A disk of the work's own, whose driver answers no more: the writer can be ended by nothing, and
/// a sync of the machine never ends.
const A_SYNC_HANGS: &str = "truncate -s 64M /root/data; loop=$(losetup -f --show /root/data); \
echo 0 $(blockdev --getsz $loop) linear $loop 0 | dmsetup create data; mkfs.ext4 -q /dev/mapper/data; mkdir -p /mnt/data; mount /dev/mapper/data /mnt/data; sync; \
dmsetup suspend --noflush --nolockfs data; systemd-run --quiet dd if=/dev/zero of=/mnt/data/big bs=1M count=4 oflag=direct; \
sleep 5; for one in /proc/[0-9]*; do read -r stat <$one/stat; case $stat in *'(dd) D'*) echo the mount hangs;; esac; done";

fn begin<'a>(desk: &'a Desk<Ec2>, name: &str, lease: &str, more: &str) -> (Story<'a>, Seen) {
    let job = JOB.replace("[limits]\n", &format!("[limits]\nlease = '{lease}'\n"));
    let story = Story::begin(desk, name, &format!("{job}[interruptions]\nmax = 0\n{more}"));
    let machine = story.machine("0001");
    desk.until_event(&story.job, 1, "the work is under way", |event| {
        event["kind"] == "workload_started"
    });
    (story, machine)
}

fn tell(desk: &Desk<Ec2>, machine: &Seen, command: &str) {
    desk.ec2.vm(&machine.id, |vm| vm.tell(command));
}

fn until_it_says(desk: &Desk<Ec2>, machine: &Seen, words: &str) {
    patiently(&format!("it says `{words}`"), || {
        desk.ec2.vm(&machine.id, |vm| vm.console().contains(words)).then_some(())
    });
}

/// Waits longer than [`patiently`], which the bounds here may outlast.
fn until_dark(desk: &Desk<Ec2>, machine: &Seen, most: Duration) -> Seen {
    let until = Instant::now() + most;
    loop {
        let seen = desk.ec2.instance(&machine.id);
        if seen.state == State::Terminated {
            return seen;
        }
        assert!(Instant::now() < until, "it is on after {most:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Its power stays on, EC2 says that it runs, and no word comes from it: the lease ends it, and
/// what no button ends is cut.
#[test]
fn a_kernel_that_hangs_is_ended_by_its_lease() {
    let Some(desk) = Ec2::start_with_kernels().map(Desk::new) else { return };
    let (story, machine) = begin(&desk, "kernel", "2m", SAVES);
    patiently("a checkpoint is complete", || desk.has_checkpoint(&story.job).then_some(()));
    // With the setting of the user data it would start again after ten seconds.
    tell(&desk, &machine, "sysctl -w kernel.panic=0; echo c >/proc/sysrq-trigger");
    until_it_says(&desk, &machine, "Kernel panic");
    let hung = Instant::now();
    assert_eq!(desk.ec2.instance(&machine.id).state, State::Running, "EC2 knows nothing");
    let ended = desk.ec2.until(&machine.id, State::Terminated);
    assert_eq!(ended.reason, "Client.UserInitiatedShutdown");
    took("hung kernel to terminated", hung, LEASE + LOOKS + GRACE);
    // The heartbeat before it may be a quarter of a minute old.
    assert!(
        hung.elapsed() > LEASE - Duration::from_secs(30),
        "the lease was kept: {:?}",
        hung.elapsed()
    );
    let receipt = desk.receipt(&story.job);
    assert_eq!(receipt["attempts"][0]["ended_because"], "lost", "{receipt:#}");
}

/// Agent, holder and work hang in writes to their disk, and nobody watches from outside: the switch
/// needs no disk.
#[test]
fn a_machine_whose_disk_hangs_is_put_out_by_its_switch() {
    let Some(desk) = Ec2::start_with_kernels().map(Desk::new) else { return };
    let (story, machine) = begin(&desk, "disk", "30m", SAVES);
    for pid in story.drivers() {
        crate::bench::kill(pid, "KILL");
    }
    patiently("nobody watches", || story.drivers().is_empty().then_some(()));
    // As if the hard end were near; the agent has written its own and looks at its own alone. Read,
    // as the switch does each minute.
    let deadline = format!(
        "echo $(($(date +%s) + {AFTER_THE_NEXT_AGENT})) >/etc/lamplighter/deadline; sync; cat /etc/lamplighter/deadline"
    );
    tell(&desk, &machine, &format!("{deadline}; echo the deadline is near"));
    until_it_says(&desk, &machine, "the deadline is near");
    let told = Instant::now();
    desk.ec2.vm(&machine.id, crate::systemd::vm::Vm::hang_the_disk);
    let near = Duration::from_secs(AFTER_THE_NEXT_AGENT);
    let ended = until_dark(&desk, &machine, near + SWITCH + LADDER);
    assert_eq!(ended.reason, ITSELF);
    took("hung disk, deadline and switch to dark", told, near + SWITCH + GRACE);
    assert!(told.elapsed() > near - GRACE, "the deadline was kept: {:?}", told.elapsed());
    let mut daemon =
        Running::start(&mut desk.lamp(&["daemon", "--job", &story.job, "--until-done"]));
    let receipt = desk.receipt(&story.job);
    assert_eq!(receipt["attempts"][0]["ended_because"], "lost", "{receipt:#}");
    assert!(daemon.wait().success());
}

/// The agent's own power-off, where this hangs and shall not hold it up.
fn powers_off_beside(name: &str, hangs: &str) {
    let Some(desk) = Ec2::start_with_kernels().map(Desk::new) else { return };
    let (story, machine) = begin(&desk, name, "30m", "");
    tell(&desk, &machine, hangs);
    until_it_says(&desk, &machine, "the mount hangs");
    tell(&desk, &machine, "echo 0 >/root/go");
    desk.until_event(&story.job, 1, "its end", |event| {
        event["kind"] == "phase" && event["phase"] == "ended"
    });
    let ended = Instant::now();
    until_dark(&desk, &machine, LADDER * 3);
    took(&format!("{name} hangs, last word of the agent to dark"), ended, LADDER);
    let receipt = story.ends(&[&machine], ITSELF, "succeeded");
    assert_eq!(receipt["exit_code"], 0, "{receipt:#}");
}

#[test]
fn a_mount_that_hangs_holds_no_power_off_up() {
    powers_off_beside("mount", A_MOUNT_HANGS);
}

#[test]
fn sync_that_never_ends_holds_no_power_off_up() {
    powers_off_beside("sync", A_SYNC_HANGS);
}
