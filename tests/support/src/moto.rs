//! moto's server, an S3 that is right about conditional puts.
//!
//! Without it a test is skipped with a message: `pip install 'moto[server]'`, or name the program
//! in `LAMP_TEST_MOTO`. The gate installs it.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use lamplighter::adapters::store::open;
use lamplighter::ports::Store;

use crate::skipped;

pub struct Moto {
    server: Child,
    pub endpoint: String,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Moto {
    /// A job root in this bucket.
    pub fn open(&self, url: &str) -> Arc<dyn Store> {
        let settings = [
            ("aws_endpoint_url", &*self.endpoint),
            ("aws_region", "us-east-1"),
            ("aws_access_key_id", "test"),
            ("aws_secret_access_key", "test"),
        ];
        open::open_with(url, &settings).expect("a store of this URL")
    }

    /// Creates the bucket, which needs no more than a PUT.
    pub async fn bucket(&self, name: &str) {
        open::install_crypto();
        let made = reqwest::Client::new()
            .put(format!("{}/{name}", self.endpoint))
            .send()
            .await
            .expect("moto answers");
        assert!(made.status().is_success());
    }
}

/// `None`, with a message, if it is not installed.
pub fn moto() -> Option<Moto> {
    moto_with(&[])
}

/// The same with more words on its command line.
pub fn moto_with(words: &[&str]) -> Option<Moto> {
    let program = std::env::var("LAMP_TEST_MOTO").unwrap_or_else(|_| "moto_server".into());
    let mut command = Command::new(&program);
    // moto chooses its port. A port that a test found free may be taken seconds later, when moto
    // listens.
    command.args(["-H", "127.0.0.1", "-p", "0"]).args(words);
    // moto would load images for each account and region, which takes half of its time.
    // The images of the false EC2 are its own.
    command.env("MOTO_EC2_LOAD_DEFAULT_AMIS", "false");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // SAFETY: between fork and exec, only a system call. A test that is killed leaves no server
    // behind.
    unsafe {
        command.pre_exec(|| {
            Ok(rustix::process::set_parent_process_death_signal(Some(
                rustix::process::Signal::KILL,
            ))?)
        })
    };
    let Ok(mut server) = command.spawn() else {
        skipped("moto", format!("`{program}` is not installed (pip install 'moto[server]')"));
        return None;
    };
    let words = BufReader::new(server.stderr.take().expect("it is piped"));
    let mut moto = Moto { server, endpoint: String::new() };
    let (tell, told) = channel();
    // Read to the end: moto blocks if its log of requests is not read.
    std::thread::spawn(move || {
        for line in words.split(b'\n').map_while(Result::ok) {
            if let Some((_, url)) = String::from_utf8_lossy(&line).split_once("Running on ") {
                let _known = tell.send(url.trim().to_owned());
            }
        }
    });
    match told.recv_timeout(Duration::from_secs(300)) {
        Ok(url) => moto.endpoint = url,
        Err(RecvTimeoutError::Timeout) => panic!("moto does not listen"),
        Err(RecvTimeoutError::Disconnected) => {
            let ended = moto.server.wait().expect("it was started here");
            skipped(
                "moto",
                format!("`{program}` ended at once with {ended} (pip install 'moto[server]')"),
            );
            return None;
        }
    }
    Some(moto)
}
