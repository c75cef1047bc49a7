//! The context of a verb that reads jobs, without a program around it.

use std::sync::Arc;

use lamplighter::cli::{ColorChoice, Context, Format, JobRoots, Printer, ReadConfig};
use lamplighter::config::{Environment, UserConfig};

use crate::virtual_clock::VirtualClock;

/// Its printer is quiet.
pub fn context(job_root: String, clock: Arc<VirtualClock>) -> Context {
    Context {
        printer: Arc::new(Printer::new(Format::Text, true, ColorChoice::Never, true)),
        roots: JobRoots { url: job_root, origin: "flag", more: Vec::new() },
        config: ReadConfig { user: UserConfig::default(), is_misread: false },
        environment: Environment::default(),
        current_dir: "/".into(),
        clock,
        workstation: Default::default(),
    }
}
