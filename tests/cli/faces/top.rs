//! `lamp top`: one frame for a pipe, and the view in a real terminal (tmux).

use std::process::Command;

use lamp_test_support::skipped;

use crate::place::{Place, signal, wait_until};

/// A log that tries to set the title of the terminal and to clear it.
const WAITS: &str = r"printf '\033]2;owned\007\033[2Jfirst line\n'; trap 'exit 5' TERM; while :; do sleep 0.1; done";

fn with_job(name: &str) -> Place {
    let place = Place::new(WAITS);
    let run = ["run", "-d", "--name", name, "--idle", "off", "--", "sh", "job.sh"];
    assert_eq!(place.0.lamp(&run).code, 0);
    place.until(name, "running");
    place
}

#[test]
fn one_frame_of_top_is_text_and_its_json_is_the_overview() {
    let place = with_job("walks");
    let once = place.0.end(place.0.command(&["top", "--once"]).env_remove("COLUMNS"));
    assert_eq!(once.code, 0, "{}", once.err);
    assert!(once.out.starts_with("Now "), "the money comes first: {}", once.out);
    assert!(once.out.contains("running     walks"), "{}", once.out);
    assert!(!once.out.contains('\u{1b}'), "no escape sequence: {:?}", once.out);
    assert!(once.out.lines().all(|line| line.chars().count() <= 80), "{}", once.out);
    let narrow = place.0.end(place.0.command(&["status"]).env("COLUMNS", "60"));
    assert!(narrow.out.lines().all(|line| line.chars().count() <= 60), "{}", narrow.out);
    let piped = place.0.end(place.0.command(&["status"]).env_remove("COLUMNS"));
    assert!(piped.out.lines().all(|line| line.chars().count() <= 80), "{}", piped.out);
    assert!(piped.out.contains("started "), "nothing is left out: {}", piped.out);
    let (code, overview) = place.0.json(&["top", "-o", "json"]);
    assert_eq!(code, 0);
    assert_eq!(overview["jobs"][0]["summary"]["name"], "walks", "{overview}");
    assert!(overview["money"]["spent"].is_number(), "{overview}");
    assert_eq!(place.0.lamp(&["cancel", "walks"]).code, 0);
    place.nothing_is_left();
}

/// A terminal in a server of its own.
struct Tmux<'a>(&'a Place);

impl Tmux<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let lamp = self.0.0.command(&[]);
        let mut tmux = Command::new("tmux");
        tmux.args(["-f", "/dev/null", "-u", "-S"]).arg(self.0.0.path().join("tmux"));
        tmux.env_clear().envs(lamp.get_envs().filter_map(|(name, value)| Some((name, value?))));
        tmux.env("TERM", "xterm-256color").env("SHELL", "/bin/sh").env("LC_ALL", "C.UTF-8");
        tmux.args(words);
        tmux
    }

    /// Starts `sh view.sh` in a screen of so many columns and lines.
    fn open(&self, columns: &str, lines: &str) {
        let folder = self.0.0.path().display().to_string();
        let new = ["new-session", "-d", "-s", "top", "-x", columns, "-y", lines, "-c", &folder];
        self.say(&[&new[..], &["sh view.sh; sleep 60"]].concat());
    }

    /// The program under test.
    fn lamp(&self) -> String {
        self.0.0.command(&[]).get_program().to_string_lossy().into_owned()
    }

    fn say(&self, words: &[&str]) -> String {
        let output = self.command(words).output().expect("tmux is there");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn screen(&self) -> String {
        self.say(&["capture-pane", "-p", "-t", "top"])
    }

    fn until(&self, text: &str) {
        let mut last = String::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until(text, || {
                last = self.screen();
                last.contains(text).then_some(())
            });
        }));
        assert!(found.is_ok(), "`{text}` is never on the screen:\n{last}");
    }

    fn press(&self, keys: &[&str]) {
        self.say(&[&["send-keys", "-t", "top"], keys].concat());
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}

/// The live line stays, `t` opens the view of this job, and `q` comes back to the line.
#[test]
fn attached_run_opens_its_view_and_comes_back() {
    if let Err(error) = Command::new("tmux").arg("-V").output() {
        return skipped("tmux", format!("tmux is needed: {error}"));
    }
    let place =
        Place::new("echo first line; while [ ! -e GO ]; do sleep 0.1; done; echo last line");
    let tmux = Tmux(&place);
    let lamp = tmux.lamp();
    let script = format!(
        "stty -g > before; {lamp} run --name walks --idle off -- sh job.sh; echo ended $?; stty -g > after; echo restored"
    );
    place.0.write("view.sh", script);
    tmux.open("100", "30");
    tmux.until("first line");
    tmux.until("t: view");
    for leaves in ["q", "Escape"] {
        tmux.press(&["t"]);
        tmux.until("q to the log");
        tmux.until("Attempts");
        tmux.press(&[leaves]);
        tmux.until("t: view");
    }
    // A key without a meaning disturbs nothing.
    tmux.press(&["x"]);
    place.until("walks", "running");
    place.0.write("go", "");
    tmux.until("last line");
    tmux.until("restored");
    assert!(tmux.screen().contains("ended 0"), "{}", tmux.screen());
    let stty = |file: &str| place.0.read(file);
    assert_eq!(stty("before"), stty("after"), "the terminal is as it was");
    drop(tmux);
    place.nothing_is_left();
}

#[test]
fn top_lives_in_a_terminal_and_gives_it_back() {
    if let Err(error) = Command::new("tmux").arg("-V").output() {
        return skipped("tmux", format!("tmux is needed: {error}"));
    }
    let place = with_job("walks");
    let tmux = Tmux(&place);
    let lamp = tmux.lamp();
    // The second one ends by a signal, as from a service manager.
    let script = format!(
        "stty -g > before; {lamp} top; echo left $?; read next; sh -c 'echo $$ > pid; exec {lamp} top'; code=$?; stty -g > after; echo gone $code"
    );
    place.0.write("view.sh", script);
    tmux.open("80", "24");
    tmux.until("> running     walks");
    tmux.press(&["Enter"]);
    tmux.until("Attempts");
    tmux.press(&["3"]);
    tmux.until("first line");
    let title = tmux.say(&["display-message", "-p", "-t", "top", "#{pane_title}"]);
    assert!(!title.contains("owned"), "the log reached the terminal: {title}");
    tmux.press(&["S"]);
    tmux.until("The same: lamp stop walks");
    tmux.press(&["y"]);
    tmux.until("Asked to stop");
    tmux.press(&["x"]);
    tmux.press(&["q"]);
    tmux.until("by newest");
    tmux.press(&["q"]);
    // The second one would hide the line at once.
    tmux.until("left 0");
    tmux.press(&["Enter"]);
    tmux.until("by newest");
    signal(place.0.read("pid").trim().parse().expect("a process id"), "TERM");
    tmux.until("gone 0");
    let stty = |file: &str| place.0.read(file);
    assert_eq!(stty("before"), stty("after"), "the terminal is as it was");
    drop(tmux);
    place.until("walks", "stopped");
    place.nothing_is_left();
}
