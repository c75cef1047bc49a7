//! The checks of `lamp doctor` on this workstation.

use std::process::Stdio;

use tokio::process::Command;

use crate::adapters::host::nvml::library::LIBRARY;

/// The state of the daemon in the user's service manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserUnit {
    /// `active`, `inactive`, `failed` ...
    Known(String),
    /// There is no unit of that name.
    NotInstalled,
    /// No service manager runs for this user.
    NoManager(String),
}

/// The unit in `systemd/`.
const DAEMON: &str = "lamp-controller.service";

pub async fn daemon_unit() -> UserUnit {
    let mut command = Command::new("systemctl");
    command
        .args(["--user", "show", "--property=LoadState,ActiveState", DAEMON])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = match command.output().await {
        Ok(output) => output,
        Err(error) => {
            return UserUnit::NoManager(format!("`systemctl` cannot be started: {error}"));
        }
    };
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return UserUnit::NoManager(
            why.lines().next().unwrap_or("`systemctl --user` fails").trim().to_owned(),
        );
    }
    let told = String::from_utf8_lossy(&output.stdout);
    let value = |name: &str| {
        told.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .unwrap_or_default()
            .to_owned()
    };
    if value("LoadState") == "loaded" {
        UserUnit::Known(value("ActiveState"))
    } else {
        UserUnit::NotInstalled
    }
}

/// The GPUs and the driver here. `Ok(None)`: there is no driver.
pub async fn gpus() -> Result<Option<String>, String> {
    let asked = tokio::task::spawn_blocking(ask_the_driver).await;
    asked.unwrap_or_else(|_| Err("the driver's library broke down".to_owned()))
}

fn ask_the_driver() -> Result<Option<String>, String> {
    use nvml_wrapper::error::NvmlError;
    let nvml = match nvml_wrapper::Nvml::builder().lib_path(LIBRARY.as_ref()).init() {
        Ok(nvml) => nvml,
        Err(NvmlError::LibloadingError(_)) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let number = nvml.device_count().map_err(|error| error.to_string())?;
    let names = (0..number).filter_map(|at| nvml.device_by_index(at).ok()?.name().ok());
    let names = names.collect::<Vec<_>>().join(", ");
    let driver = nvml.sys_driver_version().unwrap_or_else(|_| "unknown".to_owned());
    Ok(Some(if number == 0 {
        format!("no GPU, driver {driver}")
    } else {
        format!("{names}, driver {driver}")
    }))
}
