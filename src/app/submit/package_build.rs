//! The archives of a training job, built by the user's own Python in a copy of the source.
//!
//! ```text
//! parent of the package ─ copy ─ setup.py sdist | pip wheel ─> packages/
//! ```
//!
//! Nothing is written into the user's folder. Not here: the installation on the machine.

#![expect(clippy::disallowed_methods, reason = "copies and writes files of its own folder")]

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::user_python::UserPython;
use crate::app::{ExitCode, Fault};
use crate::config::WORKDIR_BYTES_MAX;
use crate::job::shell_word;

/// The package to build, and the archives to add.
#[derive(Clone, Debug)]
pub struct PackageSource {
    /// The folder with `__init__.py`; its parent is built.
    pub package: Option<PathBuf>,
    /// Archives that exist already.
    pub archives: Vec<PathBuf>,
}

/// A folder of this call alone. It is removed with the value.
#[derive(Debug)]
pub struct BuildFolder(pub PathBuf);

impl BuildFolder {
    /// `token`: letters that no other call has.
    ///
    /// # Errors
    /// Fails when the folder for temporary files cannot be written.
    pub fn new(token: &str) -> Result<BuildFolder, Fault> {
        let folder = std::env::temp_dir().join(format!("lamp-submit-{token}"));
        fs::create_dir(&folder).map_err(|error| unwritten(&folder, &error))?;
        Ok(BuildFolder(folder))
    }

    /// # Errors
    /// Fails when the folder cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, Fault> {
        let path = self.0.join(name);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::write(&path, text)).map_err(|error| unwritten(&path, &error))?;
        Ok(path)
    }
}

impl Drop for BuildFolder {
    fn drop(&mut self) {
        // If the delete fails, the folder stays until the next start of the workstation.
        let _left = fs::remove_dir_all(&self.0);
    }
}

fn unwritten(path: &Path, error: &io::Error) -> Fault {
    Fault::new(ExitCode::UNREACHABLE, format!("cannot write `{}`", path.display()))
        .because(error)
        .meaning("nothing was started or billed")
}

/// Builds and collects the archives in `into`. Returns their names, the built ones first.
///
/// # Errors
/// Fails when the package is none, the build fails, or an archive is missing or there twice.
pub fn collect(
    source: &PackageSource,
    python: &UserPython,
    folder: &BuildFolder,
    into: &Path,
) -> Result<Vec<String>, Fault> {
    fs::create_dir_all(into).map_err(|error| unwritten(into, &error))?;
    if let Some(package) = &source.package {
        build(package, python, &folder.0, into)?;
    }
    let mut names = names_in(into)?;
    let mut taken: BTreeSet<String> = names.iter().cloned().collect();
    for archive in &source.archives {
        let name = base_name(archive);
        if !taken.insert(name.clone()) {
            return Err(Fault::new(
                ExitCode::USAGE,
                format!("two packages have the name `{name}`"),
            )
            .meaning("nothing was started or billed")
            .hint("leave one of them out of `--packages`"));
        }
        fs::copy(archive, into.join(&name)).map_err(|error| unread(archive, &error))?;
        names.push(name);
    }
    if names.is_empty() {
        return Err(Fault::new(ExitCode::USAGE, "the job has no package")
            .meaning("nothing was started or billed")
            .hint("`--package-path trainer` builds the package of that folder, `--packages FILE` takes one that is built"));
    }
    Ok(names)
}

fn base_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn unread(path: &Path, error: &io::Error) -> Fault {
    let code = match error.kind() {
        io::ErrorKind::NotFound => ExitCode::NOT_FOUND,
        _ => ExitCode::UNREACHABLE,
    };
    let fault = Fault::new(code, format!("cannot read the package `{}`", path.display()))
        .because(error)
        .meaning("nothing was started or billed");
    if path.to_string_lossy().contains("://") {
        return fault
            .hint("packages are files of this workstation: fetch it first, and name the file");
    }
    fault
}

fn names_in(folder: &Path) -> Result<Vec<String>, Fault> {
    let entries = fs::read_dir(folder).map_err(|error| unread(folder, &error))?;
    let mut names: Vec<String> = entries.flatten().map(|entry| base_name(&entry.path())).collect();
    names.sort();
    Ok(names)
}

fn build(package: &Path, python: &UserPython, scratch: &Path, into: &Path) -> Result<(), Fault> {
    let (root, name) = source_root(package)?;
    let copy = scratch.join("source");
    let mut bytes_left = WORKDIR_BYTES_MAX;
    copy_tree(&root, &copy, &mut bytes_left)?;
    let has = |name: &str| copy.join(name).is_file();
    if !has("setup.py") && !has("pyproject.toml") {
        let text = written_setup(&name);
        let path = copy.join("setup.py");
        fs::write(&path, text).map_err(|error| unwritten(&path, &error))?;
    }
    let out = into.display().to_string();
    let words = if has("setup.py") {
        refuse_without_setuptools(python)?;
        vec![
            "setup.py".to_owned(),
            "-q".into(),
            "sdist".into(),
            "--formats=gztar".into(),
            format!("--dist-dir={out}"),
        ]
    } else {
        [
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--wheel-dir",
            &out,
            ".",
        ]
        .map(str::to_owned)
        .to_vec()
    };
    let what =
        if has("setup.py") { "setup.py of the package" } else { "the build by pyproject.toml" };
    python.run(&words, &copy, what).map_err(|fault| {
        let line = words[0..3.min(words.len())].join(" ");
        fault.hint(format!(
            "run it yourself: `cd {} && python3 {line}`",
            shell_word(&root.display().to_string())
        ))
    })
}

/// The folder that is built, and the name of the package.
fn source_root(package: &Path) -> Result<(PathBuf, String), Fault> {
    let refused = |what: String, hint: String| {
        Fault::new(ExitCode::USAGE, what).meaning("nothing was started or billed").hint(hint)
    };
    let shown = package.display();
    let package = package.canonicalize().map_err(|error| {
        Fault::new(ExitCode::NOT_FOUND, format!("there is no package folder `{shown}`"))
            .because(&error)
            .meaning("nothing was started or billed")
            .hint("`--package-path` names the folder with the `__init__.py` of the trainer")
    })?;
    if !package.join("__init__.py").is_file() {
        return Err(refused(
            format!("`{shown}` is no package: it has no `__init__.py`"),
            match package.is_dir() {
                true => format!(
                    "make it: `touch {}`; `--package-path` names the package itself, and not the folder above it",
                    shell_word(&format!("{shown}/__init__.py"))
                ),
                false => "`--package-path` names the folder of the package".to_owned(),
            },
        ));
    }
    match (package.parent(), package.file_name()) {
        (Some(root), Some(name)) => Ok((root.to_owned(), name.to_string_lossy().into_owned())),
        _ => Err(refused(
            format!("`{shown}` has no folder above it"),
            "move it into a folder of its own".to_owned(),
        )),
    }
}

/// The packages beside each other, as the service's own file had them.
fn written_setup(name: &str) -> String {
    format!(
        "from setuptools import find_packages, setup\n\nsetup(name={name:?}, version=\"0.0.0\", packages=find_packages())\n"
    )
}

fn refuse_without_setuptools(python: &UserPython) -> Result<(), Fault> {
    if python.has_module("setuptools") {
        return Ok(());
    }
    let program = python.program.display();
    Err(Fault::new(ExitCode::FINDINGS, format!("`{program}` has no setuptools, which builds the package"))
        .meaning("nothing was started or billed")
        .hint(format!("`{program} -m pip install setuptools`, or build it elsewhere and name the file: `--packages FILE`")))
}

/// Folders that no package needs, and that can be large.
const LEFT_OUT: [&str; 9] =
    [".git", ".hg", ".svn", ".venv", "venv", "__pycache__", "node_modules", "lamp-outputs", ".tox"];

/// Copies files and links. `bytes_left`: what may still be copied.
fn copy_tree(from: &Path, to: &Path, bytes_left: &mut u64) -> Result<(), Fault> {
    fs::create_dir_all(to).map_err(|error| unwritten(to, &error))?;
    let entries = fs::read_dir(from).map_err(|error| unread(from, &error))?;
    for entry in entries.flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            let is_left_out = LEFT_OUT.iter().any(|name| entry.file_name() == *name);
            if !is_left_out && !source.join("pyvenv.cfg").is_file() {
                copy_tree(&source, &target, bytes_left)?;
            }
            continue;
        }
        let linked = source.canonicalize().unwrap_or_else(|_| source.clone());
        if kind.is_symlink() && linked.is_dir() {
            std::os::unix::fs::symlink(&linked, &target)
                .map_err(|error| unwritten(&target, &error))?;
            continue;
        }
        // A pipe or a socket would never end.
        if !linked.is_file() {
            continue;
        }
        let bytes = fs::copy(&linked, &target).map_err(|error| unread(&source, &error))?;
        *bytes_left = bytes_left.checked_sub(bytes).ok_or_else(|| too_large(from))?;
    }
    Ok(())
}

fn too_large(folder: &Path) -> Fault {
    let what =
        format!("the folder above the package holds more than 2 GiB, as in `{}`", folder.display());
    Fault::new(ExitCode::REFUSED, what)
        .meaning("nothing was started or billed")
        .hint("move the data out of the folder of setup.py, or build the package elsewhere and name it: `--packages FILE`")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Trainer(BuildFolder);

    impl Trainer {
        fn new(name: &str) -> Trainer {
            let folder = BuildFolder::new(&format!("test-{}-{name}", std::process::id())).unwrap();
            folder.write("src/trainer/__init__.py", "").unwrap();
            folder.write("src/trainer/task.py", "print('trained')\n").unwrap();
            folder.write("src/.git/large", "x").unwrap();
            Trainer(folder)
        }

        fn collect(&self, archives: &[&str]) -> Result<Vec<String>, Fault> {
            let python = UserPython { program: PathBuf::from("/bin/false") };
            let source = PackageSource {
                package: Some(self.0.0.join("src/trainer")),
                archives: archives.iter().map(|name| self.0.0.join(name)).collect(),
            };
            collect(&source, &python, &self.0, &self.0.0.join("out"))
        }
    }

    #[test]
    fn folder_without_init_is_no_package() {
        let trainer = Trainer::new("init");
        fs::remove_file(trainer.0.0.join("src/trainer/__init__.py")).unwrap();
        let fault = trainer.collect(&[]).unwrap_err();
        assert!(fault.what.contains("no `__init__.py`"), "{}", fault.what);
        assert!(fault.hint.as_ref().unwrap().contains("touch"));
    }

    #[test]
    fn copy_leaves_out_what_no_package_needs() {
        let trainer = Trainer::new("copy");
        let (from, to) = (trainer.0.0.join("src"), trainer.0.0.join("copy"));
        copy_tree(&from, &to, &mut 1_000).unwrap();
        assert!(to.join("trainer/task.py").is_file() && !to.join(".git").exists());
        let fault = copy_tree(&from, &trainer.0.0.join("copy2"), &mut 3).unwrap_err();
        assert_eq!(fault.code, ExitCode::REFUSED);
    }

    #[test]
    fn missing_archive_and_a_name_twice_are_refused() {
        let trainer = Trainer::new("archive");
        let python = UserPython { program: PathBuf::from("/bin/false") };
        let into = trainer.0.0.join("out");
        let source = |archives: &[&str]| PackageSource {
            package: None,
            archives: archives.iter().map(|name| trainer.0.0.join(name)).collect(),
        };
        let missing =
            collect(&source(&["gs://b/a.tar.gz"]), &python, &trainer.0, &into).unwrap_err();
        assert!(missing.hint.as_ref().unwrap().contains("fetch it first"), "{missing:?}");
        trainer.0.write("one/a.whl", "1").unwrap();
        trainer.0.write("two/a.whl", "2").unwrap();
        let twice =
            collect(&source(&["one/a.whl", "two/a.whl"]), &python, &trainer.0, &into).unwrap_err();
        assert!(twice.what.contains("`a.whl`"), "{}", twice.what);
        let none =
            collect(&source(&[]), &python, &trainer.0, &trainer.0.0.join("empty")).unwrap_err();
        assert!(none.hint.as_ref().unwrap().contains("--package-path"));
    }
}
