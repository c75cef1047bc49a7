//! Whether two ranks print the same. A script that ignores its rank does all the work on each
//! machine.

use crate::app::unpack::{UNPACKED_MAX, unpacked};
use crate::jobdir::{JobDir, layout};

/// Fewer lines, such as a banner, are often the same.
const LINES_MIN: usize = 20;

/// Pieces of a log that are read at most. A piece has the lines of some seconds.
const PIECES_MAX: u64 = 8;

/// Compares the beginnings of what their commands print. `false` also if one cannot be read.
pub async fn print_the_same(one: &JobDir, other: &JobDir) -> bool {
    let (one, other) = tokio::join!(beginning(one), beginning(other));
    one.zip(other).is_some_and(|(one, other)| is_same(&one, &other))
}

/// The log of the last attempt, until it has enough lines of the command.
async fn beginning(dir: &JobDir) -> Option<Vec<u8>> {
    let last = dir.attempts().await.ok()?.pop()?;
    let mut text = Vec::new();
    for piece in 1..=PIECES_MAX {
        let key = layout::log_piece(dir.job(), last, piece);
        let Some(piece) = dir.store().get_at_most(&key, UNPACKED_MAX).await.ok()? else { break };
        text.extend(unpacked(&piece).ok()?);
        if lines(&text).len() >= LINES_MIN {
            break;
        }
    }
    Some(text)
}

fn is_same(one: &[u8], other: &[u8]) -> bool {
    let (one, other) = (lines(one), lines(other));
    let both = one.len().min(other.len());
    both >= LINES_MIN && one[..both] == other[..both]
}

/// Whole lines of the command: those after the first word of its rank. The output of `setup` comes
/// before, and is the same on all machines.
fn lines(text: &[u8]) -> Vec<&[u8]> {
    let is_ours = |line: &&[u8]| line.starts_with(b"lamp: rank ");
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    // The last one may go on in the next piece.
    lines.pop();
    let begin = lines.iter().position(is_ours).unwrap_or(lines.len());
    lines.split_off(begin).into_iter().filter(|line| !is_ours(line)).collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn log(rank: u32, lines: u32, loss: impl Fn(u32) -> u32) -> Vec<u8> {
        let setup = "fetched a package\n".repeat(30);
        let mut text = format!("{setup}lamp: rank {rank}: is ready\n");
        for step in 0..lines {
            let _infallible = writeln!(text, "step {step} loss {}", loss(step));
        }
        text.into_bytes()
    }

    #[test]
    fn many_equal_lines_are_the_same_output() {
        let (one, longer) = (log(0, 20, |step| 99 - step), log(1, 30, |step| 99 - step));
        assert!(is_same(&one, &longer));
        assert!(!is_same(&one, &log(1, 20, |step| 99 - step / 2)), "another loss");
        assert!(!is_same(&log(0, 19, |step| step), &log(1, 19, |step| step)), "too few");
        assert!(!is_same(&one, b""), "rank 1 prints nothing");
    }
}
