//! The words of the job file as regular expressions, for editors that check a file against its
//! schema while it is written.
//!
//! A pattern takes all that the pages teach and refuses what can be seen without thinking; the rest
//! (a month 13, a GPU that does not exist) is found by the parser in `words`. Not here: the parsing
//! itself.

pub const SECRET: &str = r"^\s*(env(:[A-Za-z_][A-Za-z0-9_]*)?|file:.+|ssm:[A-Za-z0-9/_+=.@:-]+|secretsmanager:[A-Za-z0-9/_+=.@:-]+(#.+)?)\s*$";
pub const SPAN: &str = r"^\s*([0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d|w)\s*)+$";
pub const SPAN_OR_OFF: &str = r"^(off|\s*([0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d|w)\s*)+)$";
pub const ALARM: &str = r"^\s*(off|heartbeat(\s+for\s+[0-9]+\s*[mh])?|cpu\s*<=\s*[0-9]+(\.[0-9]+)?\s*%?\s+for\s+[0-9]+\s*[mh])\s*$";
pub const LISTEN: &str = r"^\s*((localhost:|[0-9.]+:|\[[0-9A-Fa-f:.]+\]:)?[0-9]{1,5})\s*$";
pub const NODES: &str = r"^\s*[1-9][0-9]*(\s*\.\.=?\s*[1-9][0-9]*)?\s*$";
pub const DOLLARS: &str = r"^\s*\$?\s*[0-9]+(\.[0-9]+)?(\s*USD)?\s*$";
pub const HOURLY: &str = r"^\s*\$?\s*[0-9]+(\.[0-9]+)?(\s*USD)?(/h)?\s*$";
pub const PRICE: &str = concat!(
    r"^\s*(auto|\$?\s*[0-9]+(\.[0-9]+)?(\s*USD)?|[0-9]+(\.[0-9]+)?\s*%(\s*of on-demand)?",
    r"|p[0-9]+(\.[0-9]+)? of ([0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d|w)\s*)+)\s*$"
);
pub const FALLBACK_COST: &str = r"^\s*(any|[0-9]+(\.[0-9]+)?x?)\s*$";
pub const CUDA: &str = r"^\s*[0-9]+(\.[0-9]+)?\s*$";
pub const GPUS: &str = r"^\s*(none|0|([0-9]+ x )?(at least )?[0-9]+(\.[0-9]+)?\s*(GiB|GB)|([0-9]+ x )?[A-Za-z][A-Za-z0-9_.-]*(:\s*[0-9]+)?)\s*$";
pub const DISK: &str = r"^\s*[0-9]+(\.[0-9]+)?\s*(MiB|GiB|TiB|MB|GB|TB)\s*$";
pub const BYTES: &str = r"^\s*[0-9]+(\.[0-9]+)?\s*(B|[kK]B|KiB|MB|MiB|GB|GiB|TB|TiB)\s*$";
pub const RATE: &str = r"^\s*[0-9]+(\.[0-9]+)?\s*(B|[kK]B|KiB|MB|MiB|GB|GiB|TB|TiB)\s*/s\s*$";
pub const REACTION: &str =
    r"^\s*(terminate|stop|notify|keep\s+([0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d|w)\s*)+)\s*$";
pub const MOMENT: &str = r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}(:[0-9]{2}){1,2}(\.[0-9]+)?(Z|[+-][0-9]{2}:?[0-9]{2})?(\[[^\]]+\])?\s*$";
pub const COUNT_OR_UNLIMITED: &str = r"^\s*(unlimited|[0-9]+)\s*$";
/// Five fields, without seconds and years, or a nickname.
pub const CRON: &str = r"^\s*(@[a-z]+|[^\s@]+(\s+\S+){4})\s*$";

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::str::FromStr;

    use super::*;
    use crate::config::values::*;

    /// Both agree on each of these.
    #[track_caller]
    fn agree<W: FromStr<Err: Debug>>(pattern: &str, right: &[&str], wrong: &[&str]) {
        let pattern = regex_lite::Regex::new(pattern).expect("a pattern");
        for text in right {
            assert!(
                pattern.is_match(text) && text.parse::<W>().is_ok(),
                "right: {text}, {:?}",
                text.parse::<W>().err()
            );
        }
        for text in wrong {
            assert!(!pattern.is_match(text) && text.parse::<W>().is_err(), "wrong: {text}");
        }
    }

    #[test]
    fn editor_and_the_program_agree() {
        agree::<SpanWord>(
            SPAN,
            &["30s", "1h30m", "1.5h", " 2 d "],
            &["", "30", "off", "h", "30 seconds"],
        );
        agree::<SpanOrOff>(SPAN_OR_OFF, &["off", "15m"], &["Off please", "15"]);
        agree::<AlarmWord>(
            ALARM,
            &["off", "heartbeat", "heartbeat for 15m", "cpu<=0.3 for 5m", "cpu <= 1 % for 1h"],
            &["on", "heartbeat for", "cpu<=0.3", "cpu<0.3 for 5m"],
        );
        agree::<Dollars>(
            DOLLARS,
            &["5", "0.65", "$5", "$ 5", "5 USD"],
            &["", "five", "5 EUR", "$", "5/h"],
        );
        agree::<Hourly>(HOURLY, &["0.25", "$0.25", "$0.25/h"], &["-1", "0.25 per hour"]);
        agree::<Price>(
            PRICE,
            &["0.65", "$0.65", "auto", "80% of on-demand", "80%", "p95 of 14d", "p99.5 of 1w"],
            &["automatic", "80% of spot", "p95", "p95 of 14"],
        );
        agree::<FallbackCostWord>(
            FALLBACK_COST,
            &["2", "3.5", "3x", "any"],
            &["", "-1", "all", "2 times"],
        );
        agree::<CudaWord>(CUDA, &["12.4", "12"], &["12.x", "cuda12", ""]);
        agree::<Gpus>(
            GPUS,
            &[
                "A10G:1",
                "A10G",
                "H100:8",
                "RTX-PRO-6000:2",
                "at least 24GiB",
                "2 x 24GiB",
                "2 x at least 24 GB",
                "2 x A10G",
                "none",
                "0",
            ],
            &["", "24", "1 A10G", "A10G:one", "A10G x 2", "at least"],
        );
        agree::<DiskGib>(
            DISK,
            &["100GiB", "1TiB", "1.5 TB"],
            &["100", "GiB", "100 gigabytes", "-1GiB"],
        );
        agree::<Bytes>(BYTES, &["200MiB", "2GiB", "10B"], &["200", "2 gib"]);
        agree::<Rate>(RATE, &["100kB/s", "1 MB /s"], &["100kB", "100", "100kB/h"]);
        agree::<ReactionWord>(
            REACTION,
            &["terminate", "stop", "notify", "keep 2h", "keep 1h30m"],
            &["keep", "keep 2", "keep it", "kill"],
        );
        agree::<Moment>(
            MOMENT,
            &[
                "2026-11-21T18:00:00Z",
                "2026-11-21 18:00",
                "2026-11-21T18:00[Europe/Berlin]",
                "2026-11-21T18:00:00+01:00",
            ],
            &["tomorrow", "18:00", "2026-11-21", "21.11.2026 18:00"],
        );
        agree::<CountOrUnlimited>(COUNT_OR_UNLIMITED, &["3", "unlimited"], &["-1", "many", "1.5"]);
    }
}
