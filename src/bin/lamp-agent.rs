//! `lamp-agent`: parse, wire, dispatch.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    match arguments.as_slice() {
        [verb, dir] if verb == "holder" => holder(Path::new(dir), None),
        [verb, dir, flag, pid] if verb == "holder" && flag == "--machine-pid" => match pid.to_str().and_then(|pid| pid.parse().ok()) {
            Some(pid) => holder(Path::new(dir), Some(pid)),
            None => ExitCode::from(2),
        },
        _ => ExitCode::from(2),
    }
}

fn holder(dir: &Path, machine_pid: Option<u32>) -> ExitCode {
    ExitCode::from(u8::try_from(lamplighter::adapters::holder::main(dir, machine_pid)).unwrap_or(1))
}
