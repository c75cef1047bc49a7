//! Progress of work that takes more than a second: a bar or a spinner in a terminal, plain lines
//! elsewhere.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

use super::printer::{CLEAR, Printer, Stream};
use crate::app::session::{Bytes, Told};
use crate::cli::Context;
use crate::market::Span;
use crate::wire::show_bytes;

/// Shorter work shows nothing.
const PATIENCE: Duration = Duration::from_secs(1);
const SHOW_EVERY: Duration = Duration::from_millis(200);
/// Without a terminal a progress line comes this often. More fills a log; less looks like a hang.
const WORD_EVERY: Duration = Duration::from_secs(10);

/// An unchanged line is repeated this often, so that a long wait does not look like a hang.
const SAME_WORD_EVERY: Duration = Duration::from_secs(300);

/// Runs `work`, and shows what it does.
pub async fn with_progress<T>(
    context: &Context,
    told: impl Fn() -> String,
    work: impl Future<Output = T>,
) -> T {
    with_bytes(context, || (told(), None), work).await
}

/// Runs `work`, and shows what it does, with its bytes once these are known.
pub async fn with_bytes<T>(
    context: &Context,
    told: impl Fn() -> (String, Option<Bytes>),
    work: impl Future<Output = T>,
) -> T {
    tokio::select! {
        done = work => done,
        () = show(context, &told) => unreachable!("it is shown until the work is done"),
    }
}

/// Shows what work does, until this is dropped.
pub fn show<'a>(
    context: &'a Context,
    told: &'a Told<'a>,
) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
    let is_terminal = std::io::stderr().is_terminal()
        && !context.is_machine_output()
        && !context.printer.is_quiet();
    let rate = TransferRate::default();
    if let (_, Some(bytes)) = told() {
        rate.look(bytes, context.clock.mono());
    }
    Box::pin(async move {
        context.clock.sleep(PATIENCE).await;
        if is_terminal { draw(context, told).await } else { write(context, told, &rate).await }
    })
}

async fn draw(context: &Context, told: &Told<'_>) {
    let spinner = ProgressStyle::with_template("{spinner} {msg}").expect("a constant template");
    let bar = ProgressStyle::with_template(
        "{msg} [{bar:20}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left",
    )
    .expect("a constant template")
    .progress_chars("=> ");
    let terminal = PrinterTerminal(Arc::clone(&context.printer));
    let target = ProgressDrawTarget::term_like(Box::new(terminal));
    let shown = Cleared(ProgressBar::with_draw_target(None, target));
    let mut counts = false;
    shown.0.set_style(spinner.clone());
    loop {
        let (text, bytes) = told();
        shown.0.set_message(text);
        if bytes.is_some() != counts {
            counts = bytes.is_some();
            shown.0.set_style(if counts { bar.clone() } else { spinner.clone() });
            if let Some(bytes) = bytes {
                shown.0.set_position(bytes.come);
                shown.0.reset_eta();
            }
        }
        match bytes {
            Some(bytes) => {
                shown.0.set_length(bytes.total);
                shown.0.set_position(bytes.come);
            }
            None => shown.0.tick(),
        }
        context.clock.sleep(SHOW_EVERY).await;
    }
}

async fn write(context: &Context, told: &Told<'_>, rate: &TransferRate) {
    let mut said: Option<(String, Duration)> = None;
    loop {
        let now = context.clock.mono();
        let (mut text, bytes) = told();
        if let Some(bytes) = bytes {
            text = format!("{text}, {}", rate.look(bytes, now));
        }
        if is_news(said.as_ref(), &text, now) {
            context.printer.note(&text);
            said = Some((text, now));
        }
        context.clock.sleep(WORD_EVERY).await;
    }
}

fn is_news(said: Option<&(String, Duration)>, text: &str, now: Duration) -> bool {
    said.is_none_or(|(before, at)| before != text || now.saturating_sub(*at) >= SAME_WORD_EVERY)
}

/// Removes the bar also when Ctrl-C drops the work.
struct Cleared(ProgressBar);

impl Drop for Cleared {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The transfer rate over the last seconds, since a slow line may become fast.
#[derive(Default)]
struct TransferRate {
    seen: std::cell::RefCell<VecDeque<(Duration, u64)>>,
}

/// The window of the rate: two plain lines.
const RATE_OF: Duration = Duration::from_secs(20);

impl TransferRate {
    /// `1.2 GiB of 20.0 GiB, 45.1 MiB/s, 7m 7s left`.
    fn look(&self, Bytes { come, before, total }: Bytes, now: Duration) -> String {
        let mut seen = self.seen.borrow_mut();
        let moved = come.saturating_sub(before);
        if seen.back().is_some_and(|(_, last)| moved < *last) {
            seen.clear();
        }
        seen.push_back((now, moved));
        while seen.len() > 2 && now.saturating_sub(seen[1].0) >= RATE_OF {
            seen.pop_front();
        }
        let (since, first) = seen[0];
        let a_second = (moved - first) as f64 / now.saturating_sub(since).as_secs_f64().max(0.001);
        let mut text = format!("{} of {}", show_bytes(come), show_bytes(total));
        if a_second >= 1.0 {
            let left = total.saturating_sub(come) as f64 / a_second;
            text.push_str(&format!(
                ", {}/s, {} left",
                show_bytes(a_second as u64),
                Span::from_secs(left.ceil() as u64)
            ));
        }
        text
    }
}

/// The bar draws through the printer, so that a message of the printer clears it.
#[derive(Debug)]
struct PrinterTerminal(Arc<Printer>);

impl PrinterTerminal {
    fn put(&self, text: &str) -> std::io::Result<()> {
        self.0.raw_err(text);
        Ok(())
    }
}

impl TermLike for PrinterTerminal {
    fn width(&self) -> u16 {
        self.0.columns(Stream::Err).and_then(|width| u16::try_from(width).ok()).unwrap_or(80)
    }

    fn move_cursor_up(&self, lines: usize) -> std::io::Result<()> {
        if lines == 0 { Ok(()) } else { self.put(&format!("\x1b[{lines}A")) }
    }

    fn move_cursor_down(&self, lines: usize) -> std::io::Result<()> {
        if lines == 0 { Ok(()) } else { self.put(&format!("\x1b[{lines}B")) }
    }

    fn move_cursor_right(&self, columns: usize) -> std::io::Result<()> {
        if columns == 0 { Ok(()) } else { self.put(&format!("\x1b[{columns}C")) }
    }

    fn move_cursor_left(&self, columns: usize) -> std::io::Result<()> {
        if columns == 0 { Ok(()) } else { self.put(&format!("\x1b[{columns}D")) }
    }

    fn write_line(&self, line: &str) -> std::io::Result<()> {
        self.put(&format!("{line}\n"))
    }

    fn write_str(&self, text: &str) -> std::io::Result<()> {
        self.put(text)
    }

    fn clear_line(&self) -> std::io::Result<()> {
        self.put(CLEAR)
    }

    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_line_is_written_to_a_file_only_every_five_minutes() {
        let said = Some(("waiting".to_owned(), Duration::from_secs(100)));
        let news = |text: &str, secs: u64| is_news(said.as_ref(), text, Duration::from_secs(secs));
        assert_eq!(
            [
                news("waiting", 110),
                news("waiting", 399),
                news("waiting", 400),
                news("fetched", 110)
            ],
            [false, false, true, true]
        );
        assert!(is_news(None, "waiting", Duration::ZERO));
    }

    #[test]
    fn rate_and_time_left_follow_the_last_seconds() {
        let (gib, rate) = (1 << 30, TransferRate::default());
        let look = |come: u64, before: u64, secs: u64| {
            rate.look(Bytes { come, before, total: 11 * gib }, Duration::from_secs(secs))
        };
        assert_eq!(look(0, 0, 2), "0 B of 11.0 GiB");
        assert_eq!(look(gib, 0, 18), "1.0 GiB of 11.0 GiB, 64.0 MiB/s, 2m 40s left");
        assert_eq!(look(gib, 0, 28), "1.0 GiB of 11.0 GiB, 39.4 MiB/s, 4m 20s left");
        assert_eq!(look(gib + (10 << 20), 0, 38), "1.0 GiB of 11.0 GiB, 512.0 KiB/s, 5h 41m left");
        // A new try, which counts the existing bytes as fast as it reads them.
        assert_eq!(look(gib / 2, gib / 2, 50), "512.0 MiB of 11.0 GiB");
        assert_eq!(look(gib, gib, 51), "1.0 GiB of 11.0 GiB");
        assert_eq!(look(gib + (10 << 20), gib, 60), "1.0 GiB of 11.0 GiB, 1.0 MiB/s, 2h 50m left");
    }
}
