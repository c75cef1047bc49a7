//! Which systemd understands our units: of each setting the release that brought it.
//!
//! A unit file with a setting that systemd does not know still runs, without it, and the journal
//! says so. `systemd-run` refuses one that it does not know. Images: Amazon Linux 2 has 219, Ubuntu
//! 20.04 has 245, Debian 11 has 247, Ubuntu 22.04 has 249, Amazon Linux 2023 and Debian 12 have
//! 252.

use std::collections::BTreeSet;
use std::path::Path;

use lamplighter::controller::SYSTEMD_MIN;

/// Amazon Linux 2, where nothing of ours runs but the switch that puts it out.
const OLDEST: u16 = 219;
/// Amazon Linux 2023.
const AMAZON: u16 = 252;

/// By the manual's notes and the release news of systemd. A setting with a value of its own stands
/// first.
const SINCE: [(u16, &[&str]); 19] = [
    (247, &["ProtectProc"]),
    (245, &["ProtectClock"]),
    (244, &["ProtectKernelLogs"]),
    (243, &["OOMPolicy"]),
    (242, &["RestrictSUIDSGID", "ProtectHostname"]),
    (240, &["Type=exec"]),
    (239, &["SystemCallFilter=@system-service", "PrivateMounts"]),
    // As a property of a transient unit.
    (238, &["RefuseManualStop"]),
    (236, &["--collect"]),
    (
        235,
        &[
            "KeyringMode",
            "LockPersonality",
            "CacheDirectory",
            "CacheDirectoryMode",
            "LogsDirectory",
            "RuntimeDirectoryPreserve",
            "StateDirectory",
            "StateDirectoryMode",
        ],
    ),
    (233, &["RestrictNamespaces"]),
    (
        232,
        &[
            "CPUWeight",
            "ProtectControlGroups",
            "ProtectKernelModules",
            "ProtectKernelTunables",
            "ProtectSystem=strict",
            "RemoveIPC",
        ],
    ),
    (231, &["MemoryDenyWriteExecute", "ReadWritePaths", "RestrictRealtime", "SystemCallFilter"]),
    (230, &["IOAccounting", "StartLimitIntervalSec"]),
    (227, &["TasksAccounting", "TasksMax"]),
    (218, &["Delegate"]),
    (214, &["ProtectHome"]),
    (211, &["RestrictAddressFamilies", "RuntimeDirectory"]),
    (
        // Older than anything that cloud-init runs on.
        209,
        &[
            "AccuracySec",
            "After",
            "Before",
            "CPUAccounting",
            "CapabilityBoundingSet",
            "DefaultDependencies",
            "Description",
            "DeviceAllow",
            "DevicePolicy",
            "EnvironmentFile",
            "ExecStart",
            "JoinsNamespaceOf",
            "KillMode",
            "LimitCORE",
            "LimitMEMLOCK",
            "LimitNOFILE",
            "MemoryAccounting",
            "NoNewPrivileges",
            "NotifyAccess",
            "OOMScoreAdjust",
            "OnActiveSec",
            "OnUnitInactiveSec",
            "PrivateTmp",
            "Restart",
            "RestartSec",
            "SendSIGKILL",
            "SupplementaryGroups",
            "SystemCallArchitectures",
            "SystemCallErrorNumber",
            "TimeoutStartSec",
            "TimeoutStopSec",
            "Type",
            "UMask",
            "User",
            "WantedBy",
            "Wants",
            "WatchdogSec",
        ],
    ),
];

/// Settings of the agent that an image with the oldest systemd that we take may lack: it is shut in
/// a little less there.
const MAY_LACK: [&str; 3] = ["ProtectProc", "ProtectClock", "ProtectKernelLogs"];

/// Each setting of a unit, `name=value`.
fn settings(name: &str) -> Vec<String> {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(name))
            .expect("a unit")
            .replace("\\\n", " ");
    let own = |line: &&str| !line.starts_with(['#', '[']) && line.contains('=');
    text.lines().filter(own).map(str::to_owned).collect()
}

fn since(setting: &str) -> u16 {
    let is_it = |known: &str| {
        setting == known || (!known.contains('=') && setting.split('=').next() == Some(known)) || {
            // A list that begins with what is new.
            known.contains('=')
                && setting.starts_with(known)
                && setting[known.len()..].starts_with(' ')
        }
    };
    let found = SINCE.iter().find(|(_, names)| names.iter().any(|name| is_it(name)));
    found.unwrap_or_else(|| panic!("`{setting}`: write down which systemd brought it")).0
}

fn name(setting: &str) -> &str {
    setting.split('=').next().unwrap_or(setting)
}

/// systemd-run hands each of them over, and fails for one that it does not know.
#[test]
fn workloads_unit_is_what_decides_how_old_systemd_may_be() {
    let newest = settings("lamp-workload.service")
        .iter()
        .map(|setting| since(setting))
        .chain([since("--collect")])
        .max();
    assert_eq!(newest, Some(SYSTEMD_MIN));
}

#[test]
fn agent_unit_has_only_three_settings_that_systemd_may_lack() {
    let all = settings("lamp-agent.service");
    let lacking: BTreeSet<&str> = all
        .iter()
        .filter(|setting| since(setting) > SYSTEMD_MIN)
        .map(|setting| name(setting))
        .collect();
    assert_eq!(lacking, MAY_LACK.into());
    assert!(all.iter().all(|setting| since(setting) <= AMAZON));
}

/// An image that is too old is put out by user data; should that fail as well, the switch must hold
/// even there.
#[test]
fn dead_mans_switch_is_understood_by_any_systemd() {
    for unit in ["lamp-deadman.service", "lamp-deadman.timer", "lamp-boot.service"] {
        for setting in settings(unit) {
            assert!(since(&setting) <= OLDEST, "{unit}: {setting}");
        }
    }
}
