//! Stop, cancel, extend and save: what each would do, and doing it.
//!
//! ```text
//! key ─> foretell ─> question ─ yes ─> carry_out ─> what was recorded
//! ```

use std::sync::Arc;

use super::act_order::Order;
use super::model::TopNews;
use super::source::TopSource;
use crate::app::job_act::{self, LaterFace};
use crate::app::session::SessionLine;
use crate::app::{Fault, find_job};

/// Says what the act would do to the job and to its bill.
///
/// # Errors
/// Fails when the job has ended, or its records cannot be read.
pub async fn foretell(source: &TopSource, order: &Order) -> Result<String, Fault> {
    let dir = find_job::find(&source.place.store, Some(&order.job)).await?;
    job_act::foretell(&dir, order.act, &order.more, source.now()).await
}

/// A question ends the act, and is shown in a box.
pub async fn carry_out(source: Arc<TopSource>, order: Order) -> TopNews {
    let face = Arc::new(LaterFace::new(order.is_confirmed));
    let (place, job) = (source.place.clone(), order.job.clone());
    let done = job_act::carry_out(place, Arc::clone(&face), job, order.act, order.more).await;
    match (done, face.question()) {
        (Ok(_), _) => {
            TopNews::Done { order, said: Ok(face.said().into_iter().map(text).collect()) }
        }
        (Err(_), Some(question)) => TopNews::Asked { order, question },
        (Err(fault), None) => TopNews::Done { order, said: Err(fault) },
    }
}

fn text(said: SessionLine) -> String {
    match said {
        SessionLine::Note(text) => text,
        SessionLine::Warning(text) => format!("warning: {text}"),
        SessionLine::Hint(text) => format!("hint: {text}"),
    }
}
