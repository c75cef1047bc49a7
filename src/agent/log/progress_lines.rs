//! Reads progress from a line of the log: bars of tqdm, rich, Keras and Ultralytics, `epoch 3/10`,
//! `step 120`, the lines of Hugging Face's Trainer.
//!
//! Only numbers in these programs' places count. A line with another possible meaning is ignored.
//! Not here: the total over lines ([`super::progress_steps`]).

use regex_lite::Regex;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Count {
    pub at: f64,
    pub of: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PrintedLine {
    pub epoch: Option<Count>,
    /// A bar, or a counter of steps.
    pub count: Option<Count>,
    /// The letters before the count: they identify the counter.
    pub name: String,
    pub is_bar: bool,
    /// The line with the loss of Hugging Face's Trainer: its bar covers the whole training.
    pub is_trainer: bool,
    pub loss: Option<f64>,
}

/// Words before a count that is not part of training.
const ASIDE: [&str; 6] = ["valid", "eval", "test", "sanity", "predict", "instances"];
/// The same, unless the line names an epoch or training.
const WORK: [&str; 18] = [
    "download", "load", "map", "token", "filter", "generat", "fetch", "extract", "sav", "upload",
    "cach", "writ", "check", "prepar", "compil", "resolv", "scan", "collect",
];
/// Words before `epoch 3` and `step 120` that change their meaning.
const OTHER: [&str; 13] = [
    "best", "resum", "load", "max", "total", "every", "until", "most", "valid", "eval", "test",
    "from", "restor",
];

pub(crate) struct Reader {
    epoch: Regex,
    step: Regex,
    count: Regex,
    columns: Regex,
    dict_epoch: Regex,
    dict_loss: Regex,
}

impl Reader {
    pub(crate) fn new() -> Self {
        let regex = |text: &str| Regex::new(text).expect("the test reads lines with each of them");
        const NUMBER: &str = r"(\d[\d,]{0,14}(?:\.\d+)?)";
        const OF: &str = r"(?:\s*(?:/|of)\s*(\d[\d,]{0,14}))?";
        const SIGN: &str = r"\s*[:=#]?\s*[\[(]?\s*";
        Reader {
            epoch: regex(&format!("(?i)(?:^|[^a-z0-9_])epoch{SIGN}{NUMBER}{OF}")),
            step: regex(&format!(
                "(?i)(?:^|[^a-z0-9_])(?:global[ _]step|step|iter|iteration)[\"']?{SIGN}{NUMBER}{OF}"
            )),
            count: regex(r"^\s*(\d+)/(\d+)(?:\s|$)"),
            columns: regex(r"^\s*(\d+)/(\d+)\s+\S"),
            dict_epoch: regex(r#"['"]epoch['"]:\s*['"]?(\d+(?:\.\d+)?)"#),
            dict_loss: regex(r#"['"]loss['"]:\s*['"]?(-?\d+(?:\.\d+)?(?:[eE]-?\d+)?)"#),
        }
    }

    /// `None`: the line has no progress.
    pub(crate) fn read(&self, line: &str) -> Option<PrintedLine> {
        if !line.bytes().any(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let line = without_escapes(line);
        if let Some((before, after)) = bar(&line) {
            return self.bar(before, after);
        }
        if line.trim_start().starts_with('{') {
            return self.dict(&line);
        }
        let epoch = self.counted(&self.epoch, &line);
        let count = self.counted(&self.step, &line);
        (epoch.is_some() || count.is_some()).then(|| PrintedLine {
            epoch,
            count,
            name: "step".to_owned(),
            ..PrintedLine::default()
        })
    }

    fn counted(&self, regex: &Regex, line: &str) -> Option<Count> {
        let found = regex.captures(line)?;
        let before = line.get(..found.get(0)?.start())?.to_ascii_lowercase();
        let count = count(found.get(1)?.as_str(), found.get(2).map(|of| of.as_str()))?;
        (!OTHER.iter().any(|word| before.contains(word))).then_some(count)
    }

    fn bar(&self, before: &str, after: &str) -> Option<PrintedLine> {
        // Keras prints the count before the bar, all others after it.
        let found = self.count.captures(after).or_else(|| {
            self.count.captures(before.get(before.trim_end().rfind(' ').unwrap_or(0)..)?)
        })?;
        let count = count(found.get(1)?.as_str(), found.get(2).map(|of| of.as_str()));
        let name: String = before
            .chars()
            .filter(|letter| letter.is_alphabetic())
            .take(40)
            .flat_map(char::to_lowercase)
            .collect();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        let columns = || {
            self.columns
                .captures(before)
                .filter(|_| !before.trim_end().ends_with('%') || before.trim().contains(' '))
        };
        let epoch = self.counted(&self.epoch, before).or_else(|| {
            let found = columns()?;
            self::count(found.get(1)?.as_str(), found.get(2).map(|of| of.as_str()))
        });
        if has(&ASIDE) || (has(&WORK) && epoch.is_none() && !name.contains("train")) {
            return None;
        }
        count.filter(|count| count.of.is_some_and(|of| of >= count.at && of > 0.0))?;
        Some(PrintedLine { epoch, count, name, is_bar: true, ..PrintedLine::default() })
    }

    fn dict(&self, line: &str) -> Option<PrintedLine> {
        let number = |regex: &Regex| regex.captures(line)?.get(1)?.as_str().parse::<f64>().ok();
        if line.contains("eval_") || line.contains("train_runtime") {
            return None;
        }
        let count = self.counted(&self.step, line);
        let epoch = number(&self.dict_epoch).map(|at| Count { at, of: None });
        let (is_trainer, loss) =
            (line.contains("'learning_rate'") && epoch.is_some(), number(&self.dict_loss));
        (epoch.is_some() || count.is_some()).then(|| PrintedLine {
            epoch,
            count,
            name: "step".to_owned(),
            is_trainer,
            loss,
            ..PrintedLine::default()
        })
    }
}

fn count(at: &str, of: Option<&str>) -> Option<Count> {
    let number = |text: &str| text.replace(',', "").parse::<f64>().ok();
    Some(Count { at: number(at)?, of: of.and_then(number) })
}

/// The text before a bar, and after it.
fn bar(line: &str) -> Option<(&str, &str)> {
    const DRAWN: [char; 4] = ['━', '╸', '╺', '─'];
    if let Some(begin) = line.find("%|") {
        let end = line.rfind('|')?;
        return (end > begin + 1).then(|| (&line[..begin], &line[end + 1..]));
    }
    if let Some(begin) = line.find("━━").or_else(|| line.find("╸━")).or_else(|| line.find("──"))
    {
        let rest = &line[begin..];
        let end = rest.find(|letter: char| !DRAWN.contains(&letter) && letter != ' ')?;
        return Some((&line[..begin], &rest[end..]));
    }
    let begin = line.find("[=").or_else(|| line.find("[>"))?;
    let end = line[begin..].find(']')?;
    Some((&line[..begin], &line[begin + end + 1..]))
}

fn without_escapes(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' if letters.as_str().starts_with('[') => {
                letters.next();
                let _ = letters.find(|letter| !(' '..'@').contains(letter));
            }
            '\x1b' | '\x08' => {}
            _ => plain.push(letter),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The epoch, its total, the count, and its total.
    type Shown = (Option<f64>, Option<f64>, Option<f64>, Option<f64>);

    fn read(line: &str) -> Option<Shown> {
        let line = Reader::new().read(line)?;
        let (epoch, count) = (line.epoch, line.count);
        Some((
            epoch.map(|it| it.at),
            epoch.and_then(|it| it.of),
            count.map(|it| it.at),
            count.and_then(|it| it.of),
        ))
    }

    #[test]
    fn lines_of_common_programs_are_read() {
        let cases = [
            (
                " 37%|███▋      | 37/100 [00:10<00:17,  3.60it/s]",
                (None, None, Some(37.0), Some(100.0)),
            ),
            (
                "Epoch 3:  50%|█████     | 10/20 [00:01<00:01,  8.5it/s, v_num=0]",
                (Some(3.0), None, Some(10.0), Some(20.0)),
            ),
            (
                "Epoch 2/3:  50%|█████     | 10/20 [00:01<00:01,  8.5it/s]",
                (Some(2.0), Some(3.0), Some(10.0), Some(20.0)),
            ),
            (
                "Epoch 1/9  ━━━━━━━━━━━━━━ 10/20 0:00:00 • 0:00:01 8.50it/s v_num: 0.000",
                (Some(1.0), Some(9.0), Some(10.0), Some(20.0)),
            ),
            (
                "\x1b[1m12/50\x1b[0m \x1b[32m━━━━\x1b[0m\x1b[37m━━━━\x1b[0m \x1b[1m1s\x1b[0m 20ms/step - loss: 0.68",
                (None, None, Some(12.0), Some(50.0)),
            ),
            (
                " 12/50 [======>.......] - ETA: 1s - loss: 0.68",
                (None, None, Some(12.0), Some(50.0)),
            ),
            (
                "        1/3         0G        1.2        8        640: 15% ━╸────────── 3/20 6.5it/s 0.3s<2.6s",
                (Some(1.0), Some(3.0), Some(3.0), Some(20.0)),
            ),
            ("Epoch 2/5", (Some(2.0), Some(5.0), None, None)),
            (
                "Epoch [1/5], Step [100/600], Loss: 0.31",
                (Some(1.0), Some(5.0), Some(100.0), Some(600.0)),
            ),
            ("epoch 3 loss 0.2500 accuracy 0.7", (Some(3.0), None, None, None)),
            (
                "{'loss': '1.984', 'grad_norm': '5.6', 'learning_rate': '4.4e-05', 'epoch': '0.4'}",
                (Some(0.4), None, None, None),
            ),
            (
                "{'loss': 1.98, 'learning_rate': 4.4e-05, 'epoch': 0.4}",
                (Some(0.4), None, None, None),
            ),
            ("step 1,200 | loss 3.1", (None, None, Some(1200.0), None)),
            ("iter 120: loss 3.1, time 12ms", (None, None, Some(120.0), None)),
            ("INFO:root:global_step=120 loss=1", (None, None, Some(120.0), None)),
        ];
        for (line, said) in cases {
            assert_eq!(read(line), Some(said), "{line}");
        }
    }

    #[test]
    fn lines_without_progress_are_ignored() {
        let cases = [
            "Downloading model.safetensors:  37%|███▋      | 37/100 [00:10<00:17]",
            "Validation DataLoader 0:  50%|█████     | 10/20 [00:00<00:00]",
            "                 Class     Images  Instances      Box(P          R      mAP50: 66% ━━━━────── 4/6 10.0it/s",
            "model.safetensors:  37%|███▋      | 1.2G/4.0G [00:10<00:17, 90MB/s]",
            "  Num Epochs = 3",
            "  Total optimization steps = 500",
            "max_steps: 1000",
            "warmup_steps=100",
            "saves every 10 steps",
            "step_size: 5",
            "best epoch 3",
            "Resuming from epoch 5",
            "{'eval_loss': 1.2, 'epoch': 1.0}",
            "{'train_runtime': 12.0, 'epoch': 3.0}",
            "loss 0.25",
            "",
        ];
        for line in cases {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
