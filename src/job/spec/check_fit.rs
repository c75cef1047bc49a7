//! Strings that the kernel refuses to execute: with a zero byte, too long, or too many.

use crate::job::{Command, Finding, Spec};

/// The longest string for one argument or variable, with its zero byte (`MAX_ARG_STRLEN`,
/// execve(2)).
const STRING_BYTES_MAX: usize = 128 * 1024;

/// The most for all arguments and variables: a quarter of the usual 8 MiB stack (`ARG_MAX`,
/// execve(2)).
const ALL_BYTES_MAX: usize = 2 * 1024 * 1024;

/// For the variables that the machine and the agent add.
const OWN_BYTES: usize = 128 * 1024;

/// The zero byte at the end of a string, and its pointer.
const PER_STRING: usize = 1 + 8;

pub(crate) fn check_fit(spec: &Spec, found: &mut Vec<Finding>) {
    let argv: Vec<&str> = match &spec.command {
        Command::Args(args) => args.iter().map(String::as_str).collect(),
        Command::Shell(script) => vec![script],
    };
    let mut texts: Vec<(String, &str)> = vec![("name".to_owned(), &spec.name)];
    texts.extend(argv.iter().map(|text| ("command".to_owned(), *text)));
    texts.extend(spec.setup.iter().map(|script| ("setup".to_owned(), script.as_str())));
    texts.extend(spec.outputs.iter().map(|path| ("outputs".to_owned(), path.as_str())));
    texts.extend(
        spec.checkpoint
            .iter()
            .map(|checkpoint| ("checkpoint.path".to_owned(), checkpoint.path.as_str())),
    );
    texts.extend(
        spec.watch
            .done_marker
            .iter()
            .map(|marker| ("watch.done_marker".to_owned(), marker.as_str())),
    );
    texts.extend(spec.env.iter().map(|(name, value)| (format!("env.{name}"), value.as_str())));
    for (path, text) in &texts {
        if text.contains('\0') {
            found.push(Finding::error(
                path,
                "has a zero character (NUL), which no program can be given",
            ));
        }
        // The variable's name and its `=` are part of the string.
        let name = path.strip_prefix("env.").map_or(0, |name| name.len() + 1);
        if name + text.len() >= STRING_BYTES_MAX {
            let message = format!(
                "is {} bytes long, and no machine takes {STRING_BYTES_MAX} or more",
                name + text.len()
            );
            found.push(
                Finding::error(path, message)
                    .hint("write it to a file of the workdir, and let the command read that"),
            );
        }
    }
    let arguments: usize = argv.iter().map(|text| text.len() + PER_STRING).sum();
    let variables: usize =
        spec.env.iter().map(|(name, value)| name.len() + 1 + value.len() + PER_STRING).sum();
    if arguments + variables > ALL_BYTES_MAX - OWN_BYTES {
        let path = if variables > arguments { "env" } else { "command" };
        let message = format!(
            "is {} bytes together with the rest, and no machine takes more than 2 MiB",
            arguments + variables
        );
        found.push(
            Finding::error(path, message)
                .hint("write it to a file of the workdir, and let the command read that"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::CheckpointSpec;
    use crate::market::Span;

    fn paths(change: impl FnOnce(&mut Spec)) -> Vec<String> {
        let mut spec = Spec::bare();
        change(&mut spec);
        let mut found = Vec::new();
        check_fit(&spec, &mut found);
        found.into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn what_no_machine_can_execute_is_refused() {
        let long = |bytes: usize| "x".repeat(bytes);
        assert_eq!(paths(|_| {}), [""; 0]);
        assert_eq!(
            paths(|spec| spec.command = Command::Args(vec!["true".into(), "a\0b".into()])),
            ["command"]
        );
        assert_eq!(paths(|spec| drop(spec.env.insert("A".into(), "a\0".into()))), ["env.A"]);
        assert_eq!(paths(|spec| spec.setup = Some("a\0".into())), ["setup"]);
        let checkpoint = |path: &str| CheckpointSpec {
            path: path.into(),
            interval: Span::from_secs(1),
            signal: None,
            grace: Span::from_secs(1),
        };
        assert_eq!(paths(|spec| spec.checkpoint = Some(checkpoint("a\0b"))), ["checkpoint.path"]);
        assert_eq!(paths(|spec| spec.command = Command::Shell(long(131_071))), [""; 0]);
        assert_eq!(paths(|spec| spec.command = Command::Shell(long(131_072))), ["command"]);
        assert_eq!(
            paths(|spec| drop(spec.env.insert("A".into(), long(131_069)))),
            [""; 0],
            "with `A=`"
        );
        assert_eq!(paths(|spec| drop(spec.env.insert("A".into(), long(131_070)))), ["env.A"]);
        assert_eq!(paths(|spec| spec.name = long(131_072)), ["name"]);
        let many =
            |spec: &mut Spec| spec.env.extend((0..30).map(|n| (format!("V{n}"), long(100_000))));
        assert_eq!(paths(many), ["env"]);
    }
}
