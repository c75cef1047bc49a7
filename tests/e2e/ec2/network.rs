//! The network of one machine: loopback, its metadata service and a relay to the API. Nothing else
//! answers.
//!
//! It is a network namespace that no file names, held by a thread of the test: it is gone with the
//! test, however that ends.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use lamp_test_support::imds::FalseImds;

const METADATA: &str = "169.254.169.254";
const RELAY: &str = "169.254.169.253";

/// Where a machine reaches the API: `aws.box_endpoint_url`.
pub const API: &str = "http://169.254.169.253:5000";

pub struct Network {
    /// For `--network-namespace-path`.
    pub path: String,
    relay: Arc<Relay>,
    /// Its thread ends when this is dropped.
    _held: Sender<()>,
}

struct Relay {
    to: String,
    cut: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Network {
    /// `Err`: why it cannot be had.
    pub fn new(imds: &FalseImds, api: &str) -> Result<Self, String> {
        let (tell, told) = channel();
        let (held, until) = channel();
        std::thread::spawn(move || {
            let made = make();
            let holds = made.is_ok();
            // Whoever asked may be gone.
            let _heard = tell.send(made);
            if holds {
                wait(&until);
            }
        });
        let (path, metadata, listener) = told.recv().expect("the thread answers")?;
        imds.serve(metadata);
        let relay = Arc::new(Relay {
            to: api.trim_start_matches("http://").into(),
            cut: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let shared = Arc::clone(&relay);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                shared.pass_on(stream);
            }
        });
        Ok(Network { path, relay, _held: held })
    }

    /// The API cannot be reached from the machine; what was open is cut.
    pub fn partition(&self, on: bool) {
        self.relay.cut.store(on, Ordering::Relaxed);
        if on {
            for stream in self.relay.open.lock().expect("nobody fails with it").drain(..) {
                // Closed already: all the better.
                let _cut = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

fn wait(until: &Receiver<()>) {
    // An error: the other end was dropped, which is the sign.
    let _dropped = until.recv();
}

type Made = (String, TcpListener, TcpListener);

/// On a thread of its own, which lives in the new network from then on; what it starts and listens
/// to is there, too.
fn make() -> Result<Made, String> {
    // SAFETY: a system call that changes this thread alone.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(format!("no network namespace: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: it always succeeds.
    let thread = unsafe { libc::gettid() };
    let ip = |words: &str| match Command::new("ip").args(words.split(' ')).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("ip (iproute2): {error}")),
    };
    ip("link set lo up")?;
    ip(&format!("addr add {METADATA}/32 dev lo"))?;
    ip(&format!("addr add {RELAY}/32 dev lo"))?;
    // A rank of a gang asks the kernel for its address on the way there. Nothing is there.
    ip(&format!("route add 192.0.2.0/24 dev lo src {RELAY}"))?;
    let listen = |address: String| {
        TcpListener::bind(&address).map_err(|error| format!("{address}: {error}"))
    };
    let (metadata, relay) = (listen(format!("{METADATA}:80"))?, listen(format!("{RELAY}:5000"))?);
    Ok((format!("/proc/{}/task/{thread}/ns/net", std::process::id()), metadata, relay))
}

impl Relay {
    fn pass_on(self: &Arc<Self>, inside: TcpStream) {
        if self.cut.load(Ordering::Relaxed) {
            return;
        }
        let Ok(outside) = TcpStream::connect(&self.to) else { return };
        let copies = || Some([inside.try_clone().ok()?, outside.try_clone().ok()?]);
        let (Some(there), Some(back), Some(kept)) = (copies(), copies(), copies()) else { return };
        self.open.lock().expect("nobody fails with it").extend(kept);
        let [back_inside, back_outside] = back;
        for [mut from, mut to] in [there, [back_outside, back_inside]] {
            std::thread::spawn(move || {
                // Either end went away, or the cable was cut.
                let _ended = std::io::copy(&mut from, &mut to);
                let _closed = to.shutdown(Shutdown::Write);
            });
        }
    }
}
