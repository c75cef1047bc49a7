//! A real Chromium that a test drives: it opens pages, presses buttons and reads what is shown.
//!
//! The commands of the DevTools protocol go through two pipes, a zero byte after each.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use lamp_test_support::skipped;
use serde_json::{Value, json};

use crate::pages::Served;
use crate::place::{Place, wait_until};
use crate::sandbox::PATIENCE;

pub(crate) struct Browser {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<Value>,
    session: String,
    number: u64,
}

impl Browser {
    /// A browser that may read the pages. `None`: there is no Chromium here.
    pub(crate) fn of(place: &Place, page: &Served<'_>) -> Option<Browser> {
        let found = Command::new("chromium").arg("--version").env("HOME", place.0.path()).output();
        if let Err(error) = found {
            skipped("chromium", format!("chromium is needed: {error}"));
            return None;
        }
        let mut browser = Browser::start(place);
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        let port = page.root.rsplit(':').next().expect("a port");
        let cookie =
            json!({ "name": format!("lamp_{port}"), "value": page.token(), "url": page.root });
        browser.call("Network.setCookie", cookie);
        Some(browser)
    }

    fn start(place: &Place) -> Browser {
        // Its profile has a link that no job may ship.
        place.0.write(".lampignore", "driven\n");
        // The browser reads its descriptor 3 and writes its descriptor 4.
        let script = r#"exec chromium "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;
        let mut child = Command::new("sh")
            .args(["-c", script, "chromium", "--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--remote-debugging-pipe", "--window-size=1200,900"])
            .arg(format!("--user-data-dir={}", place.0.path().join("driven").display()))
            .env("HOME", place.0.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("a shell");
        let commands = child.stdin.take().expect("a pipe");
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for message in said.split(0).map_while(Result::ok) {
                let value = serde_json::from_slice::<Value>(&message).expect("JSON");
                // Events have no number, and nothing waits for them.
                if value["id"].is_u64() && sender.send(value).is_err() {
                    return;
                }
            }
        });
        Browser { child, commands, answers, session: String::new(), number: 0 }
    }

    /// The result of a command.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        let answer = self.answer(method, params);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    fn answer(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut command = json!({ "id": self.number, "method": method, "params": params });
        if !self.session.is_empty() {
            command["sessionId"] = self.session.clone().into();
        }
        self.commands.write_all(command.to_string().as_bytes()).expect("it listens");
        self.commands.write_all(&[0]).expect("it listens");
        loop {
            let answer = self.answers.recv_timeout(PATIENCE).expect("the browser answers");
            if answer["id"] == self.number {
                return answer;
            }
        }
    }

    /// Opens an address, and waits until the page is there.
    pub(crate) fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({ "url": address }));
        self.until(
            "the page is there",
            "document.readyState === 'complete' && !!document.querySelector('main')",
        );
    }

    /// The value of an expression on the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let asked =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true. A page that is being replaced gives no answer, and is
    /// asked again.
    pub(crate) fn until(&mut self, what: &str, expression: &str) {
        let asked = json!({ "expression": expression, "returnByValue": true });
        wait_until(what, || {
            let answer = self.answer("Runtime.evaluate", asked.clone());
            (answer["result"]["result"]["value"] == true).then_some(())
        });
    }

    /// Presses the link or button with these words.
    pub(crate) fn press(&mut self, words: &str) {
        let found = format!(
            "[...document.querySelectorAll('a, button')].find((one) => one.textContent.trim() === {})",
            json!(words)
        );
        let pressed = self
            .value(&format!("(() => {{ const one = {found}; one?.click(); return !!one; }})()"));
        assert_eq!(pressed, true, "no link or button {words}");
    }

    pub(crate) fn text(&mut self) -> String {
        let text = self.value("document.body.innerText");
        text.as_str().unwrap_or_default().to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its helpers are in its group.
        let group = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}
