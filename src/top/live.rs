//! The view on a terminal, from the first frame until the person leaves.
//!
//! The terminal is restored at each end: a key, a signal, a fault, a panic.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crossterm::event::{self, Event, KeyEventKind};
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::sync::{mpsc, oneshot, watch};

use super::frame::draw;
use super::keys::{Effect, press};
use super::model::{Followed, TopModel, TopNews};
use super::overview_sheet::overview_sheet;
use super::palette::Palette;
use super::reader;
use super::source::TopSource;
use crate::app::overview::overview::Overview;
use crate::wire::ClockHandle;

/// Between two looks at the keys. A person notices more than 0.1 s; less costs processor time.
const KEYS_EVERY: Duration = Duration::from_millis(80);

/// One frame as text, with all jobs, for a pipe or a report.
pub async fn once(
    overview: Arc<Overview>,
    source: &TopSource,
    palette: Palette,
    width: usize,
) -> String {
    let mut model = TopModel::new(source.place.store.url(), palette, source.now());
    model.traces = source.traces(&overview).await;
    model.overview = Some(overview);
    let lines = overview_sheet(&model, width, true).lines;
    let lines: Vec<String> =
        lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Shows the view until the person leaves, or until `left` resolves. With a job, only this one.
///
/// # Errors
/// Fails when the terminal cannot be used.
pub async fn live(
    source: TopSource,
    palette: Palette,
    job: Option<String>,
    left: impl Future<Output = ()>,
) -> io::Result<()> {
    let source = Arc::new(source);
    let (news_sender, news) = channel();
    let (watched_sender, watched) = watch::channel(Followed::default());
    let (effect_sender, effects) = mpsc::unbounded_channel();
    reader::start(&source, &watched, &news_sender);
    let acts = tokio::spawn(reader::serve_effects(Arc::clone(&source), effects, news_sender));
    let is_left = Arc::new(AtomicBool::new(false));
    let _leaves = LeavesOnDrop(Arc::clone(&is_left));
    let mut model = TopModel::new(source.place.store.url(), palette, source.now());
    model.kept_filters = source.place.workstation.kept_filters();
    let model = match job {
        Some(job) => model.of_job(job),
        None => model,
    };
    watched_sender.send_replace(model.watched());
    let screen = Screen {
        model,
        clock: Arc::clone(&source.place.clock),
        news,
        watched: watched_sender,
        effects: effect_sender,
        is_left: Arc::clone(&is_left),
    };
    let (ends, mut drawn) = oneshot::channel();
    // Not a thread of the runtime, which would wait for it: see `LEAVES_WITHIN`.
    std::thread::spawn(move || drop(ends.send(screen.show())));
    let shown = tokio::select! {
        shown = &mut drawn => shown,
        () = left => {
            is_left.store(true, Ordering::Relaxed);
            tokio::select! {
                shown = &mut drawn => shown,
                () = source.place.clock.sleep(LEAVES_WITHIN) => {
                    ratatui::restore();
                    return Ok(());
                }
            }
        }
    };
    is_left.store(true, Ordering::Relaxed);
    let _ = acts.await;
    shown.unwrap_or_else(|_| Err(io::Error::other("the drawing ended in a panic")))
}

/// crossterm reads for ever from a terminal that was closed. A person who leaves waits at most this
/// long for the drawing.
const LEAVES_WITHIN: Duration = Duration::from_secs(1);

/// The drawing side: it waits for keys, and never for records.
struct Screen {
    model: TopModel,
    clock: ClockHandle,
    news: Receiver<TopNews>,
    watched: watch::Sender<Followed>,
    effects: mpsc::UnboundedSender<Effect>,
    is_left: Arc<AtomicBool>,
}

/// A caller that gives the view up must not leave the drawing behind.
struct LeavesOnDrop(Arc<AtomicBool>);

impl Drop for LeavesOnDrop {
    fn drop(&mut self) {
        if !self.0.swap(true, Ordering::Relaxed) {
            ratatui::restore();
        }
    }
}

/// Restores the terminal when it is dropped.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

impl Screen {
    fn show(mut self) -> io::Result<()> {
        // Its panic hook restores the terminal before the message is printed.
        let mut terminal = ratatui::try_init()?;
        let _restored = Restored;
        let mut is_new = true;
        while !self.is_left.load(Ordering::Relaxed) {
            while let Ok(news) = self.news.try_recv() {
                self.model.hear(news);
                is_new = true;
            }
            let now = self.clock.now();
            // A frame has all jobs, so one that would look the same is not drawn.
            if is_new || now.as_second() != self.model.now.as_second() {
                self.model.now = now;
                terminal.draw(|frame| draw(frame, &mut self.model))?;
            }
            is_new = match self.take_keys()? {
                KeysTaken::Left => break,
                KeysTaken::Some => true,
                KeysTaken::None => false,
            };
        }
        Ok(())
    }

    /// Waits for keys and takes them. A window of another size counts as a key.
    fn take_keys(&mut self) -> io::Result<KeysTaken> {
        if is_closed_after(KEYS_EVERY)? {
            return Ok(KeysTaken::Left);
        }
        let mut taken = KeysTaken::None;
        while event::poll(Duration::ZERO)? {
            taken = KeysTaken::Some;
            let Event::Key(key) = event::read()? else { continue };
            if key.kind == KeyEventKind::Release {
                continue;
            }
            match press(&mut self.model, key) {
                Effect::Quit => return Ok(KeysTaken::Left),
                Effect::Nothing => {}
                effect => drop(self.effects.send(effect)),
            }
            let wanted = self.model.watched();
            self.watched.send_if_modified(|watched| {
                let is_new = *watched != wanted;
                *watched = wanted;
                is_new
            });
        }
        Ok(taken)
    }
}

/// What came from the terminal.
enum KeysTaken {
    None,
    Some,
    /// The person leaves, or the terminal is closed.
    Left,
}

/// Waits for a key, at most so long. The end of the terminal is seen here, before crossterm.
fn is_closed_after(wait: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    let wait = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
    match rustix::event::poll(&mut polled, Some(&wait)) {
        // A changed size of the window interrupts the wait.
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
        Ok(_) => {
            let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
            Ok(polled[0].revents().intersects(gone))
        }
    }
}
