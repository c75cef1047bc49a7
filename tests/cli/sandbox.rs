//! A folder of its own for each test, and `lamp` run in it with an environment that holds nothing
//! of the developer's.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Longer than anything that a test waits for takes on a machine with ten compilers on it; what
/// takes longer never comes, and would hold up all that runs these tests.
pub const PATIENCE: Duration = Duration::from_secs(300);

pub struct Sandbox {
    folder: tempfile::TempDir,
}

/// How a command ended. The sandbox's own path reads `[DIR]`.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Sandbox {
    pub fn new() -> Self {
        Sandbox { folder: tempfile::tempdir().expect("a temporary folder can be made") }
    }

    /// With a script that a job can run.
    pub fn with_script() -> Self {
        let sandbox = Sandbox::new();
        sandbox.write("train.py", "print('step 1')\n");
        sandbox
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().expect("the folder is there")
    }

    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a file has a folder"))
            .expect("the sandbox is writable");
        std::fs::write(path, text).expect("the sandbox is writable");
    }

    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path().join(path))
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lamp"));
        command.args(args).current_dir(self.path()).env_clear().stdin(Stdio::null());
        command
            .env("HOME", self.path().join("home"))
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("USER", "alice")
            // Sentences are compared as a whole.
            .env("COLUMNS", "9999")
            .env("TZ", "UTC");
        command
    }

    pub fn lamp(&self, args: &[&str]) -> Ended {
        self.end(&mut self.command(args))
    }

    pub fn end(&self, command: &mut Command) -> Ended {
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("lamp was built for this test");
        let output = heard(child);
        let text = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes).replace(&self.path().display().to_string(), "[DIR]")
        };
        Ended {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    pub fn json(&self, args: &[&str]) -> (i32, serde_json::Value) {
        let ended = self.lamp(args);
        let value =
            serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        (ended.code, value)
    }
}

/// All that a command says until it ends: one that never ends, or whose pipes are held by what it
/// has left running, fails its test.
pub fn heard(child: Child) -> Output {
    let pid = child.id();
    let Some(output) = soon(move || child.wait_with_output()) else {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        panic!(
            "within {PATIENCE:?} nobody has heard the end of: {}",
            String::from_utf8_lossy(&words).replace('\0', " ")
        );
    };
    output.expect("it was started here")
}

/// What this gives, which waits for somebody; `None`: it is not given in time.
pub fn soon<T: Send + 'static>(waits: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(waits()));
    told.recv_timeout(PATIENCE).ok()
}

/// The repository, for documents that a test compares or rewrites.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Of words that say none: no machine is bought without one.
pub fn limit(args: &[&str]) -> &'static [&'static str] {
    let is_one = |word: &&str| ["--max-runtime", "--budget", "--deadline"].contains(word);
    if args.iter().any(is_one) { &[] } else { &["--max-runtime", "24h"] }
}
