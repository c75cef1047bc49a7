//! The job of a trial: the user's job with the values in its command and environment.
//!
//! A value reaches the program as one word `--name=value`: Python's argparse takes a separate word
//! like `-1e-3` for a flag. If the command names a parameter as `{name}`, nothing is appended.

use crate::job::{Command, ParamValues, Spec, TunedTrial, shell_word};

/// The spec of one trial.
pub fn spec_of_trial(spec: &Spec, trial: &TunedTrial) -> Spec {
    let mut spec = spec.clone();
    spec.name = format!("{}-{}", trial.tuning, trial.number);
    spec.command = command_with(&spec.command, &trial.params);
    spec.env.extend(trial.params.iter().map(|(name, value)| (variable(name), value.to_string())));
    spec
}

/// The variable of a parameter: `LAMP_PARAM_LEARNING_RATE`.
pub fn variable(name: &str) -> String {
    let plain = name.replace(|sign: char| !sign.is_ascii_alphanumeric(), "_");
    format!("LAMP_PARAM_{}", plain.to_ascii_uppercase())
}

/// Whether a command says itself where the values stand.
pub fn has_places<'a>(command: &Command, mut names: impl Iterator<Item = &'a String>) -> bool {
    names.any(|name| {
        let place = place(name);
        match command {
            Command::Args(words) => words.iter().any(|word| word.contains(&place)),
            Command::Shell(line) => line.contains(&place),
        }
    })
}

fn place(name: &str) -> String {
    format!("{{{name}}}")
}

/// The command of one trial.
pub fn command_with(command: &Command, params: &ParamValues) -> Command {
    let is_placed = has_places(command, params.keys());
    let fill = |text: &str, quote: bool| {
        params.iter().fold(text.to_owned(), |text, (name, value)| {
            let value = value.to_string();
            text.replace(&place(name), &if quote { shell_word(&value) } else { value })
        })
    };
    let flags = || {
        let all = params.iter().map(|(name, value)| format!("--{name}={value}"));
        all.filter(|_| !is_placed).collect::<Vec<_>>()
    };
    match command {
        Command::Args(words) => {
            Command::Args(words.iter().map(|word| fill(word, false)).chain(flags()).collect())
        }
        Command::Shell(line) => {
            let words =
                flags().iter().map(|flag| format!(" {}", shell_word(flag))).collect::<String>();
            Command::Shell(format!("{}{words}", fill(line, true)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::ParamValue;

    fn params() -> ParamValues {
        ParamValues::from([
            ("act".to_owned(), ParamValue::Text("re lu".into())),
            ("learning-rate".to_owned(), ParamValue::Float(-1e-5)),
        ])
    }

    #[test]
    fn values_are_single_words_of_the_command() {
        let words = |words: &[&str]| Command::Args(words.iter().map(|w| (*w).to_owned()).collect());
        for (command, expected) in [
            (
                words(&["python", "t.py"]),
                words(&["python", "t.py", "--act=re lu", "--learning-rate=-1e-5"]),
            ),
            (
                words(&["python", "t.py", "-l", "{learning-rate}"]),
                words(&["python", "t.py", "-l", "-1e-5"]),
            ),
            (
                Command::Shell("python t.py".into()),
                Command::Shell("python t.py '--act=re lu' --learning-rate=-1e-5".into()),
            ),
            (
                Command::Shell("a {act} | tee log".into()),
                Command::Shell("a 're lu' | tee log".into()),
            ),
        ] {
            assert_eq!(command_with(&command, &params()), expected);
        }
        assert_eq!(variable("learning-rate"), "LAMP_PARAM_LEARNING_RATE");
    }
}
