//! A command or a `setup` that is written as text, and the shell that runs it.
//!
//! ```text
//!   no pipe ───────────────────────────> /bin/sh
//!   pipes into readers of everything ──> bash with `pipefail`: a part that fails fails the command
//!   a pipe in the last line ───────────> bash; the status of each part of that line is checked
//! ```
//! `pipefail` does not suit every script: under it `yes | head -1` ends with 141, and `if cat x |
//! grep -q y` depends on timing (docs/decisions.md, 34). Without bash, the machine's own sh runs
//! the text as it is. The machine looks for bash when it starts the text.

use super::script::{Part, parts};

/// Programs that read all their input, so the programs before them never get SIGPIPE. If one is
/// missing here, only the last line is checked. If one here stops reading early, a good command
/// fails.
const READERS: [&str; 17] = [
    "tee", "ts", "cat", "tail", "sort", "wc", "logger", "gzip", "zstd", "xz", "tar", "bash", "sh",
    "pv", "tr", "cut", "column",
];

/// The last word of a text whose last line ends a compound command.
const COMPOUND_ENDS: [&str; 5] = ["fi", "done", "esac", "}", ")"];

/// Added to a text whose last line has a pipe. It returns the text's own failure, otherwise the
/// first failed part of the pipe. 141 is a part whose reader stopped reading, and counts as
/// success.
const LOOKS_BACK: &str = "\nlamp_ends=(\"$?\" \"${PIPESTATUS[@]}\"); [ \"${lamp_ends[0]}\" = 0 ] || exit \"${lamp_ends[0]}\"; \
    for lamp_end in \"${lamp_ends[@]}\"; do [ \"$lamp_end\" = 0 ] || [ \"$lamp_end\" = 141 ] || exit \"$lamp_end\"; done; exit 0";

/// The arguments that run a command written as text.
pub fn command_argv(script: &str) -> Vec<String> {
    match guard(script) {
        Guard::None => vec!["/bin/sh".into(), "-c".into(), script.to_owned()],
        guard => with_bash(script, guard, ""),
    }
}

/// The arguments that run `setup`: in bash if there is bash; a line that fails fails it.
pub fn setup_argv(script: &str) -> Vec<String> {
    with_bash(script, guard(script), "e")
}

/// The command as it was run, for people.
pub fn shown(argv: &[String]) -> String {
    match argv {
        [_, _, chooser, name, _, script] if name == CHOOSER_NAME => {
            // The form that records have always used for a setup.
            let setup = chooser.contains("-ec \"$1\"").then_some("/bin/sh -ec");
            let pipefail =
                if chooser.contains("-o pipefail") { "bash -o pipefail -c" } else { "bash -c" };
            format!("{} {script}", setup.unwrap_or(pipefail))
        }
        _ => argv.join(" "),
    }
}

/// One word for a shell; plain text stays as typed.
pub fn shell_word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-:~+,=@%".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    None,
    Pipefail,
    LooksBack,
}

fn guard(script: &str) -> Guard {
    let all = parts(script);
    // The user sets it in the script: that needs bash, since the sh of Debian and Ubuntu lacks it.
    if script.contains("pipefail") {
        let has_pipe = all.has_inner_pipe || all.parts.iter().any(|part| part.piped);
        return if has_pipe || all.is_odd { Guard::Pipefail } else { Guard::None };
    }
    let is_read = |part: &Part<'_>| !part.piped || READERS.contains(&part.program());
    if all.parts.iter().any(|part| part.piped)
        && !all.is_odd
        && !all.has_inner_pipe
        && all.parts.iter().all(|part| is_read(part) && part.program() != "yes")
    {
        return Guard::Pipefail;
    }
    let last = script
        .lines()
        .rfind(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
        .unwrap_or_default()
        .trim();
    let is_plain = !all.is_odd
        && !last.ends_with(['\\', '&', '|'])
        && !COMPOUND_ENDS.iter().any(|end| last.ends_with(end));
    let last = parts(last);
    let has_pipe = last.parts.iter().any(|part| part.piped) && !last.has_inner_pipe;
    if is_plain && has_pipe && !last.is_odd { Guard::LooksBack } else { Guard::None }
}

/// Programs that hardly fail, and words whose condition is meant to fail.
const UNCHECKED: [&str; 9] =
    ["echo", "printf", "yes", "cat", "true", "if", "elif", "while", "until"];

/// The part before a pipe whose failure the job would not see: the pipe does not end the command.
pub(crate) fn unseen_failure(script: &str) -> Option<String> {
    let (all, guard) = (parts(script), guard(script));
    if all.is_odd || script.contains("pipefail") || guard == Guard::Pipefail {
        return None;
    }
    let mut earlier = all.parts.as_slice();
    if guard == Guard::LooksBack && earlier.last().is_some_and(|part| part.piped) {
        // Each part of the last pipe is looked at.
        let head = earlier.iter().rposition(|part| !part.piped).unwrap_or(0);
        earlier = &earlier[..head];
    }
    let mut pairs = earlier.iter().zip(earlier.iter().skip(1));
    let is_unseen = |(before, reader): &(&Part<'_>, &Part<'_>)| {
        reader.piped && !UNCHECKED.contains(&before.program())
    };
    pairs.find(is_unseen).map(|(before, _)| before.text.trim().to_owned())
}

const CHOOSER_NAME: &str = "lamp-shell";

/// sh finds bash and executes it. `echo` then treats escapes as this machine's sh does: users
/// notice only this difference.
fn with_bash(script: &str, guard: Guard, errexit: &str) -> Vec<String> {
    let pipefail = if guard == Guard::Pipefail { "-o pipefail " } else { "" };
    let chooser = format!(
        "lamp_bash=$(command -v bash) || exec /bin/sh -{errexit}c \"$2\"; lamp_echo=; [ \"$(echo '\\061')\" = 1 ] && lamp_echo='-O xpg_echo'; \
         exec \"$lamp_bash\" $lamp_echo {pipefail}-{errexit}c \"$1\""
    );
    let guarded =
        if guard == Guard::LooksBack { format!("{script}{LOOKS_BACK}") } else { script.to_owned() };
    vec!["/bin/sh".into(), "-c".into(), chooser, CHOOSER_NAME.into(), guarded, script.to_owned()]
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn status(argv: &[String]) -> (i32, String) {
        let said = Command::new(&argv[0]).args(&argv[1..]).output().expect("a shell");
        (said.status.code().unwrap_or(-1), String::from_utf8_lossy(&said.stdout).into_owned())
    }

    fn ends(script: &str) -> i32 {
        status(&command_argv(script)).0
    }

    /// skypilot#8928
    #[test]
    fn failure_before_a_pipe_is_one_of_the_command() {
        for script in [
            "(exit 3) | tee /dev/null",
            "(exit 3) 2>&1 | tee /dev/null",
            "true && (exit 3) |& tee /dev/null",
            "(exit 3) | sort | tee -a /dev/null",
            "(exit 3) | tee /dev/null && echo done",
            "set -e\n(exit 3) | tee /dev/null\necho done",
            "(exit 3) | awk 1",
            "echo begins | grep begins\n(exit 3) | sed s/a/b/",
            "(exit 3) | sudo -n cat",
        ] {
            assert_ne!(ends(script), 0, "{script}");
        }
        assert_eq!(ends("(exit 3) | tee /dev/null"), 3);
        assert_eq!(ends("(exit 4) | awk 1"), 4);
    }

    #[test]
    fn what_was_well_stays_well() {
        for script in [
            "yes | head -1",
            "yes | tee /dev/null | head -1",
            "yes | cat | sed 1q",
            "seq 100000 | head -1 | tee /dev/null",
            "if seq 100000 | grep -q 5; then exit 0; else exit 7; fi",
            "if false | grep -q x; then exit 7; fi",
            "for i in 1 2; do false | grep -q x; done; true",
            "false | true; exit 0",
            "echo 'a | b'",
            "echo \"a | $(seq 100000 | head -1)\" | cat",
            "cat <<'X' | tee /dev/null\nfalse | true\nX",
            "case a in a|b) true;; esac",
            "! false | cat",
            "(exit 3) | cat || true",
        ] {
            assert_eq!(ends(script), 0, "{script}");
        }
        assert_eq!(ends("true | false"), 1);
        assert_eq!(ends("true | exit 5"), 5);
    }

    #[test]
    fn pipe_before_another_command_is_found() {
        for script in [
            "python a.py | grep -v warn\necho finished",
            "python a.py | grep 1 > log; echo done",
            "for i in 1 2; do python a.py | grep 1; done",
        ] {
            assert!(
                unseen_failure(script).is_some_and(|part| part.contains("python a.py")),
                "{script}"
            );
        }
        for script in [
            "python a.py | tee log",
            "echo begins; python a.py | grep 1",
            "echo y | pip install x; python a.py",
            "set -o pipefail; python a.py | grep 1; echo done",
            "if python a.py | grep -q 1; then echo one; fi",
            "python a.py",
        ] {
            assert_eq!(unseen_failure(script), None, "{script}");
        }
    }

    #[test]
    fn without_a_pipe_nothing_is_different() {
        for script in [
            "python train.py",
            "a || b",
            "a && b; c",
            "echo 'x | y'",
            "echo \\| # a | b",
            "a >| file",
        ] {
            assert_eq!(command_argv(script), ["/bin/sh", "-c", script]);
        }
        // `echo` acts as in this machine's sh in both.
        let (plain, piped) = (
            status(&command_argv("echo 'a\\tb'")).1,
            status(&command_argv("echo 'a\\tb' | cat")).1,
        );
        assert_eq!(plain, piped);
    }

    #[test]
    fn setup_fails_where_a_line_of_it_does() {
        for (script, well) in [
            ("true\nfalse\ntrue", false),
            ("set -e\n(exit 22) | bash\ntrue", false),
            ("(exit 22) | tar x\ntrue", false),
            ("yes | head -1\ntrue", true),
            ("[[ a == a ]]\nsource /dev/null", true),
            ("false || true", true),
        ] {
            assert_eq!(status(&setup_argv(script)).0 == 0, well, "{script}");
        }
    }

    #[test]
    fn people_see_the_text_and_not_what_chooses_the_shell() {
        assert_eq!(shown(&command_argv("a | tee b")), "bash -o pipefail -c a | tee b");
        assert_eq!(shown(&command_argv("a | awk 1")), "bash -c a | awk 1");
        assert_eq!(shown(&command_argv("a")), "/bin/sh -c a");
        assert_eq!(shown(&["python".into(), "x.py".into()]), "python x.py");
    }
}
