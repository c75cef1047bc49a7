//! `ports::Agents`: finds the agent program for the machines on this workstation.
//!
//! The first that exists is used:
//! 1. the file that the user names (`LAMP_AGENT_BINARY`)
//! 2. `lamp-agent-x86_64` or `lamp-agent-arm64` beside this program, in `../lib/lamplighter`, where
//!    the package has it, or in `portable` in the build folder, where `just agent-portable` has it
//! 3. `lamp-agent` beside this program, if its architecture fits
//!
//! Not here: the upload, and whether an image can run it (`controller::launch::agent_shipping`).

#![expect(clippy::disallowed_methods, reason = "reads the program that it hands out")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use sha2::{Digest, Sha256};

use super::elf_requirements;
use crate::market::Arch;
use crate::ports::{AgentFile, Agents, AgentsError};

/// `MARK` in `src/bin/lamp-agent.rs`, reversed: `lamp` contains this text and must not look like an
/// agent.
const MARK_BACKWARDS: &[u8] = b"]rethgilpmaL fo tnega-pmal margorp eht[";

/// Looks up each architecture once: hashing five megabytes for every launch is slow.
pub struct AgentFiles {
    named: Option<PathBuf>,
    /// The folder of this program.
    beside: Option<PathBuf>,
    found: Mutex<BTreeMap<Arch, AgentFile>>,
}

impl AgentFiles {
    /// `named` is the file that the user named. If it is set, no other place is searched.
    pub fn new(named: Option<PathBuf>) -> Self {
        let beside =
            super::process_env::exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
        AgentFiles { named, beside, found: Mutex::default() }
    }

    #[cfg(test)]
    fn beside(folder: &Path) -> Self {
        AgentFiles { named: None, beside: Some(folder.to_owned()), found: Mutex::default() }
    }

    fn look(&self, arch: Arch) -> Result<AgentFile, AgentsError> {
        let none = |why: String| AgentsError { arch, why };
        if let Some(named) = &self.named {
            return program(named, arch).map_err(none);
        }
        let Some(folder) = &self.beside else {
            return Err(none("this program cannot find its own folder".into()));
        };
        let name = format!("lamp-agent-{arch}");
        let portable = folder.join(&name);
        // As seen from `/usr/bin/lamp` and from `target/release/lamp`.
        let elsewhere =
            ["../lib/lamplighter", "../portable"].map(|path| folder.join(path).join(&name));
        if let Some(found) = [&portable].into_iter().chain(&elsewhere).find(|path| path.exists()) {
            return program(found, arch).map_err(none);
        }
        let plain = folder.join("lamp-agent");
        program(&plain, arch).map_err(|why| {
            none(format!(
                "there is no `{}`, and {why}; `just agent-portable` in the source builds one, and LAMP_AGENT_BINARY names one that is elsewhere",
                portable.display()
            ))
        })
    }
}

impl Agents for AgentFiles {
    fn find(&self, arch: Arch) -> Result<AgentFile, AgentsError> {
        let mut found =
            self.found.lock().expect("the lock is held for reads of files, which cannot panic");
        if let Some(file) = found.get(&arch) {
            return Ok(file.clone());
        }
        let file = self.look(arch)?;
        found.insert(arch, file.clone());
        Ok(file)
    }
}

/// The file, if it is an agent for this architecture; otherwise why not.
fn program(path: &Path, arch: Arch) -> Result<AgentFile, String> {
    let bytes = std::fs::read(path)
        .map_err(|error| format!("`{}` cannot be read ({error})", path.display()))?;
    let needs = elf_requirements::needs(&bytes)
        .ok_or_else(|| format!("`{}` is no program for Linux machines", path.display()))?;
    if needs.arch != arch {
        return Err(format!("`{}` is for {} machines", path.display(), needs.arch));
    }
    if !is_agent(&bytes) {
        return Err(format!(
            "`{}` is a program, but not `lamp-agent`: machines would boot, run it in vain and bill",
            path.display()
        ));
    }
    Ok(AgentFile {
        path: path.to_owned(),
        sha256: hex::encode(Sha256::digest(&bytes)),
        bytes: bytes.len() as u64,
        glibc: needs.glibc,
    })
}

fn mark() -> Vec<u8> {
    MARK_BACKWARDS.iter().rev().copied().collect()
}

fn is_agent(program: &[u8]) -> bool {
    memchr::memmem::find(program, &mark()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with the mark.
    fn agent(path: &Path) {
        std::fs::write(path, [std::fs::read("/bin/true").unwrap(), mark()].concat()).unwrap();
    }

    const OURS: Arch = if cfg!(target_arch = "x86_64") { Arch::X86_64 } else { Arch::Arm64 };
    const OTHER: Arch = if cfg!(target_arch = "x86_64") { Arch::Arm64 } else { Arch::X86_64 };

    #[test]
    fn portable_one_comes_before_the_plain_one() {
        let folder = tempfile::tempdir().unwrap();
        let error = AgentFiles::beside(folder.path()).find(OURS).unwrap_err().to_string();
        assert!(
            error.contains("just agent-portable") && error.contains("LAMP_AGENT_BINARY"),
            "{error}"
        );

        agent(&folder.path().join("lamp-agent"));
        let plain = AgentFiles::beside(folder.path()).find(OURS).unwrap();
        assert_eq!(plain.path, folder.path().join("lamp-agent"));
        assert_eq!((plain.bytes, plain.sha256.len()), (plain.path.metadata().unwrap().len(), 64));
        let wrong = AgentFiles::beside(folder.path()).find(OTHER).unwrap_err().to_string();
        assert!(
            wrong.starts_with(&format!("there is no agent for {OTHER} machines"))
                && wrong.contains(&format!("is for {OURS} machines")),
            "{wrong}"
        );

        let portable = folder.path().join(format!("lamp-agent-{OURS}"));
        agent(&portable);
        assert_eq!(AgentFiles::beside(folder.path()).find(OURS).unwrap().path, portable);
    }

    #[test]
    fn what_is_named_is_taken_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        let error = AgentFiles::new(Some(script)).find(OURS).unwrap_err().to_string();
        assert!(error.contains("is no program for Linux machines"), "{error}");
        let named = folder.path().join("named");
        agent(&named);
        assert_eq!(AgentFiles::new(Some(named.clone())).find(OURS).unwrap().path, named);
    }

    /// Otherwise each machine boots, runs it in vain until `limits.boot`, and is replaced.
    #[test]
    fn program_that_is_no_agent_is_not_shipped() {
        for wrong in ["/bin/ls", "/proc/self/exe"] {
            let error = AgentFiles::new(Some(wrong.into())).find(OURS).unwrap_err().to_string();
            assert!(error.contains("is a program, but not `lamp-agent`"), "{error}");
        }
    }
}
