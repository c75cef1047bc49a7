//! Signals by the names that people know, and the usual cause when one ends a program.

/// Linux's numbers, the same on x86-64 and ARM.
const SIGNALS: [(i32, &str, &str); 19] = [
    (1, "SIGHUP", "its terminal was closed"),
    (2, "SIGINT", "Ctrl-C"),
    (3, "SIGQUIT", "somebody asked it to quit"),
    (4, "SIGILL", "built for another processor"),
    (5, "SIGTRAP", "a debugger's trap"),
    (6, "SIGABRT", "it gave up by itself: a failed assertion, an uncaught error in native code"),
    (7, "SIGBUS", "most often a full /dev/shm, or a mapped file that shrank"),
    (8, "SIGFPE", "a whole number divided by zero"),
    (9, "SIGKILL", "`kill -9`, or the kernel when the whole machine ran out of memory"),
    (10, "SIGUSR1", "it has no handler for it"),
    (11, "SIGSEGV", "a crash in native code"),
    (12, "SIGUSR2", "it has no handler for it"),
    (13, "SIGPIPE", "it wrote to a program that was gone"),
    (14, "SIGALRM", "its own timer, without a handler"),
    (15, "SIGTERM", "it was told to end"),
    (24, "SIGXCPU", "its limit of CPU time"),
    (25, "SIGXFSZ", "its limit of a file's size"),
    (30, "SIGPWR", "the power fails"),
    (31, "SIGSYS", "a system call that it may not use"),
];

pub fn signal_name(number: i32) -> Option<&'static str> {
    SIGNALS.iter().find(|(known, ..)| *known == number).map(|(_, name, _)| *name)
}

/// `SIGSEGV (a crash in native code)`; an unknown number stays a number.
pub fn signal_text(number: i32) -> String {
    match SIGNALS.iter().find(|(known, ..)| *known == number) {
        Some((_, name, meaning)) => format!("{name} ({meaning})"),
        None => format!("signal {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_has_a_name_and_a_meaning() {
        assert_eq!(signal_text(11), "SIGSEGV (a crash in native code)");
        assert_eq!(
            (signal_text(42).as_str(), signal_name(42), signal_name(9)),
            ("signal 42", None, Some("SIGKILL"))
        );
        assert!(SIGNALS.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order, each once");
    }
}
