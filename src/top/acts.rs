//! Stop, cancel, extend and save: what each would do, and doing it.
//!
//! ```text
//! key ─> foretell ─> question ─ yes ─> carry_out ─> what was recorded
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use super::act_order::{Order, TopAct};
use super::model::TopNews;
use super::source::TopSource;
use crate::app::extend::extend;
use crate::app::session::{Face, Said, Session};
use crate::app::stop::{self, How, Named};
use crate::app::{ExitCode, Fault, find_job, save_now};
use crate::job::Wish;

/// Says what the act would do to the job and to its bill.
///
/// # Errors
/// Fails when the job has ended, or its records cannot be read.
pub async fn foretell(source: &TopSource, order: &Order) -> Result<String, Fault> {
    let dir = find_job::find(&source.store, Some(&order.job)).await?;
    let now = source.clock.now();
    match order.act {
        TopAct::Stop => stop::foretell(&dir, Wish::Stop, now).await,
        TopAct::Cancel => stop::foretell(&dir, Wish::Cancel, now).await,
        TopAct::Save => save_now::foretell(&dir).await,
        TopAct::Extend => {
            find_job::must_be_under_way(&dir).await?;
            let what = match (order.more.time, order.more.budget) {
                (Some(time), _) => format!("the job may run {time} longer"),
                (_, Some(usd)) => format!("the job may spend {usd} more"),
                _ => "the job gets nothing more".to_owned(),
            };
            Ok(format!("{what}; its machine bills until its new end at the latest"))
        }
    }
}

/// An act asks its face in between, so it stays on one thread of its own.
pub async fn carry_out(source: Arc<TopSource>, order: Order) -> TopNews {
    let runtime = tokio::runtime::Handle::current();
    let face = Arc::new(TopFace { is_confirmed: order.is_confirmed, ..TopFace::default() });
    let (asked, ordered) = (Arc::clone(&face), order.clone());
    let work =
        tokio::task::spawn_blocking(move || runtime.block_on(act(&source, &asked, &ordered)));
    let done = work.await.unwrap_or_else(|error| {
        Err(Fault::new(ExitCode::INTERNAL, "the act was not finished").because(&error))
    });
    match (done, face.question()) {
        (Ok(()), _) => TopNews::Done { order, said: Ok(face.heard()) },
        (Err(_), Some(question)) => TopNews::Asked { order, question },
        (Err(fault), None) => TopNews::Done { order, said: Err(fault) },
    }
}

async fn act(source: &TopSource, face: &TopFace, order: &Order) -> Result<(), Fault> {
    let session = Session {
        store: &source.store,
        workstation: &source.workstation,
        clock: &source.clock,
        is_misread: source.is_misread,
        face,
    };
    let wish = match order.act {
        TopAct::Stop => Wish::Stop,
        TopAct::Cancel => Wish::Cancel,
        TopAct::Save => {
            let dir = find_job::find_under_way(&source.store, Some(&order.job)).await?;
            return save_now::save_now(&session, &dir).await.map(drop);
        }
        TopAct::Extend => return extend(&session, &order.job, order.more).await.map(drop),
    };
    let dir = find_job::find_under_way(&source.store, Some(&order.job)).await?;
    // A question that is open since before its end must not give up what the job keeps.
    find_job::must_be_under_way(&dir).await?;
    let how = How { wish, wait: false, named: Named::Itself, several: false };
    stop::ask(&session, dir, how).await.map(drop)
}

/// The view answers later: a question ends the act, and is shown in a box.
#[derive(Default)]
struct TopFace {
    is_confirmed: bool,
    asked: Mutex<Option<String>>,
    said: Mutex<Vec<String>>,
}

impl TopFace {
    fn question(&self) -> Option<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn heard(&self) -> Vec<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Face for TopFace {
    fn confirm(&self, what: &str, otherwise: &str) -> Result<(), Fault> {
        if self.is_confirmed {
            return Ok(());
        }
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(what.to_owned());
        Err(Fault::new(ExitCode::REFUSED, what).meaning(otherwise))
    }

    fn tell(&self, said: Said) {
        let text = match said {
            Said::Note(text) => text,
            Said::Warning(text) => format!("warning: {text}"),
            Said::Hint(text) => format!("hint: {text}"),
        };
        self.said.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
}
