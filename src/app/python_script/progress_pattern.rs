//! How a script prints its progress: a pattern for its log lines. Pure.

use regex::Regex;

use super::python_source::PythonScript;

/// The pattern of the framework's lines, or of the script's own.
pub fn progress(script: &PythonScript, framework: Option<&str>) -> Option<String> {
    match framework {
        // The agent reads their bars and state files directly.
        Some("Hugging Face Trainer" | "Lightning" | "Ultralytics") => return None,
        Some("XGBoost") if !script.calls("train").is_empty() && script.has("evals") => {
            return Some(r"^\[(\d+)\]".to_owned());
        }
        Some("Keras") if !script.calls("fit").is_empty() => {
            return Some(r"^Epoch (\d+)/\d+".to_owned());
        }
        _ => {}
    }
    let word = Regex::new(r#"(?i)\b((?:global[_ ])?step|iteration|iter|epoch|round)(["']?[ :=#\[]{0,3})(?:\{[^{}]*\}|%d|["'], )"#)
        .expect("tried by the tests");
    let once = Regex::new(r"(?i)resum|restor|load|from scratch|saved").expect("five words");
    let mut found: Vec<(usize, String)> = Vec::new();
    for text in script.printed() {
        for part in word.captures_iter(&text) {
            let (name, between) = (&part[1], &part[2]);
            // A line that is printed once, about a resumed checkpoint, is not progress.
            let once = once.is_match(&text);
            let rank = ["step", "iter", "epoch", "round"]
                .iter()
                .position(|word| name.to_ascii_lowercase().contains(word))
                .unwrap_or(9);
            let rank = if once { rank + 10 } else { rank };
            let between =
                if part[0].ends_with(", ") { " ".to_owned() } else { regex::escape(between) };
            found.push((rank, format!(r"{}{}(\d+)", regex::escape(name), between)));
        }
    }
    found
        .into_iter()
        .filter(|(rank, _)| *rank < 10)
        .min_by_key(|(rank, _)| *rank)
        .map(|(_, pattern)| pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_prints_is_its_progress() {
        for (script, pattern) in [
            ("print(f'epoch {epoch + 1}/{n} loss {x:.4f}')", Some(r"epoch (\d+)")),
            (
                "print(f'resumed at epoch {e}')\nprint(f'Epoch: {epoch} loss')",
                Some(r"Epoch: (\d+)"),
            ),
            ("print(f'epoch {e} step {s}')", Some(r"step (\d+)")),
            ("print({'step': step, 'loss': x})", None),
            ("print('step %d' % s)", Some(r"step (\d+)")),
            ("print('step', step, loss)", Some(r"step (\d+)")),
            ("print(f'[RANK{r}] Epoch {e} | x')", Some(r"Epoch (\d+)")),
            ("logger.info(f'step={step}, loss={x}')", Some(r"step=(\d+)")),
            ("print('done')", None),
        ] {
            assert_eq!(progress(&PythonScript::new(script), None).as_deref(), pattern, "{script}");
        }
    }
}
