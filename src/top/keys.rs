//! The effect of each key on the model.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::act_order::{Order, amount};
use super::model::{Dialog, Preset, TopModel, TopScreen};
use crate::app::job_act::JobAct;

/// The work that the view must do outside of the model.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Nothing,
    Quit,
    Foretell(Order),
    CarryOut(Order),
    /// Writes the filters that the person keeps.
    KeepFilters(Vec<String>),
}

/// Lines of a page key. It fits the smallest screen.
const PAGE: usize = 10;

pub fn press(model: &mut TopModel, key: KeyEvent) -> Effect {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Effect::Quit,
            _ => Effect::Nothing,
        };
    }
    match model.dialog.take() {
        None => on_screen(model, key.code),
        Some(dialog) => in_dialog(model, dialog, key.code),
    }
}

fn on_screen(model: &mut TopModel, key: KeyCode) -> Effect {
    match key {
        KeyCode::Char('q') | KeyCode::Esc => return back(model, key),
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => model.dialog = Some(Dialog::Help),
        KeyCode::Char('p') => model.is_paused = !model.is_paused,
        KeyCode::Char('S') => return ask(model, JobAct::Stop),
        KeyCode::Char('C') => return ask(model, JobAct::Cancel),
        KeyCode::Char('W') => return ask(model, JobAct::Save),
        KeyCode::Char('K') => return ask(model, JobAct::Keep),
        KeyCode::Char('E') => {
            model.dialog = model.current_job().map(|job| Dialog::Amount {
                job,
                typed: String::new(),
                wrong: None,
            });
        }
        KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => enter(model),
        KeyCode::Left => return back(model, KeyCode::Esc),
        KeyCode::Up | KeyCode::Char('k') => travel(model, true, 1),
        KeyCode::Down | KeyCode::Char('j') => travel(model, false, 1),
        KeyCode::PageUp => travel(model, true, PAGE),
        KeyCode::PageDown | KeyCode::Char(' ') => travel(model, false, PAGE),
        KeyCode::Home | KeyCode::Char('g') => travel(model, true, usize::MAX),
        KeyCode::End | KeyCode::Char('G') => travel(model, false, usize::MAX),
        _ if model.place == TopScreen::Overview => return on_overview(model, key),
        _ if model.place == TopScreen::Job => on_job(model, key),
        KeyCode::Char(letter @ ('[' | ']')) => choose_attempt(model, letter == ']'),
        _ => {}
    }
    Effect::Nothing
}

fn on_overview(model: &mut TopModel, key: KeyCode) -> Effect {
    match key {
        KeyCode::Char('/') => model.dialog = Some(Dialog::Filter { before: model.filter.clone() }),
        KeyCode::Char('f') => model.filter = next_kept(model),
        KeyCode::Char('F') => return keep_or_forget(model),
        KeyCode::Char('s') => model.order = model.order.next(),
        _ => {}
    }
    Effect::Nothing
}

/// The kept filter after the one that is shown. After the last: no filter.
fn next_kept(model: &TopModel) -> String {
    let shown = model.filter.trim();
    let at = model.kept_filters.iter().position(|kept| kept == shown);
    let next = model.kept_filters.get(at.map_or(0, |at| at + 1));
    next.cloned().unwrap_or_default()
}

fn keep_or_forget(model: &mut TopModel) -> Effect {
    let shown = model.filter.trim().to_owned();
    if shown.is_empty() {
        return Effect::Nothing;
    }
    match model.kept_filters.iter().position(|kept| *kept == shown) {
        Some(at) => drop(model.kept_filters.remove(at)),
        None => model.kept_filters.push(shown),
    }
    Effect::KeepFilters(model.kept_filters.clone())
}

fn on_job(model: &mut TopModel, key: KeyCode) {
    match key {
        KeyCode::Char('/') => {
            model.dialog = Some(Dialog::Find { before: model.find.clone() });
            model.finds_errors = false;
            (model.preset, model.scroll) = (Preset::Log, 0);
        }
        KeyCode::Char('e') => {
            model.find.clear();
            model.finds_errors = true;
            (model.preset, model.scroll) = (Preset::Log, 0);
        }
        _ => {}
    }
    let chosen = match key {
        KeyCode::Tab => Some(model.preset.next()),
        KeyCode::Char(digit @ '1'..='4') => {
            digit.to_digit(10).map(|digit| Preset::EACH[digit as usize - 1])
        }
        _ => None,
    };
    if let Some(preset) = chosen {
        (model.preset, model.scroll) = (preset, 0);
    }
    if let KeyCode::Char(letter @ ('[' | ']')) = key {
        choose_attempt(model, letter == ']');
    }
}

fn choose_attempt(model: &mut TopModel, is_later: bool) {
    let Some(look) = model.open_look() else { return };
    let numbers: Vec<u32> = look.explained.attempts.iter().map(|it| it.attempt.number()).collect();
    let shown = model.attempt.unwrap_or(look.attempt.number());
    let Some(at) = numbers.iter().position(|number| *number == shown) else { return };
    let at = if is_later { at + 1 } else { at.saturating_sub(1) };
    let chosen = numbers.get(at).copied();
    // At the newest one, the view follows the job to the next.
    model.attempt = chosen.filter(|number| Some(number) != numbers.last());
    model.scroll = 0;
}

fn enter(model: &mut TopModel) {
    match model.place {
        TopScreen::Overview => {
            let Some(job) = model.current_job() else { return };
            if model.opened.as_ref() != Some(&job) {
                (model.attempt, model.look, model.look_fault) = (None, None, None);
            }
            model.find.clear();
            model.finds_errors = false;
            (model.selected, model.opened) = (Some(job.clone()), Some(job));
            (model.place, model.preset, model.scroll) = (TopScreen::Job, Preset::All, 0);
        }
        TopScreen::Job => (model.place, model.scroll) = (TopScreen::Attempt, 0),
        TopScreen::Attempt => (model.place, model.scroll) = (TopScreen::Gpus, 0),
        TopScreen::Gpus => (model.place, model.scroll) = (TopScreen::Processes, 0),
        TopScreen::Processes => {}
    }
}

fn back(model: &mut TopModel, key: KeyCode) -> Effect {
    match model.place {
        TopScreen::Processes => (model.place, model.scroll) = (TopScreen::Gpus, 0),
        TopScreen::Gpus => (model.place, model.scroll) = (TopScreen::Attempt, 0),
        TopScreen::Attempt => (model.place, model.scroll) = (TopScreen::Job, 0),
        TopScreen::Job if model.is_of_one_job => return Effect::Quit,
        TopScreen::Job => (model.place, model.scroll) = (TopScreen::Overview, 0),
        // Esc only goes back, so that one press too many does not end the view.
        TopScreen::Overview if key == KeyCode::Esc => model.filter.clear(),
        TopScreen::Overview => return Effect::Quit,
    }
    Effect::Nothing
}

fn travel(model: &mut TopModel, is_up: bool, by: usize) {
    let moved = |from: usize| if is_up { from.saturating_sub(by) } else { from.saturating_add(by) };
    if model.place == TopScreen::Overview {
        let rows = model.rows();
        let last = rows.len().saturating_sub(1);
        let row = rows.get(moved(model.selected_at()).min(last));
        model.selected = row.map(|row| row.summary.job.clone());
    } else if model.place == TopScreen::Gpus {
        let gpus = model.open_look().and_then(|look| look.summary.as_ref());
        let last = gpus.map_or(0, |summary| summary.gpus.len().saturating_sub(1));
        model.gpu = moved(model.gpu).min(last);
    } else if model.preset == Preset::Log && model.place == TopScreen::Job {
        // A log is read from its end.
        model.scroll =
            if is_up { model.scroll.saturating_add(by) } else { model.scroll.saturating_sub(by) };
    } else {
        model.scroll = moved(model.scroll);
    }
}

fn ask(model: &mut TopModel, act: JobAct) -> Effect {
    let Some(job) = model.current_job() else { return Effect::Nothing };
    foretell(model, Order::new(act, job))
}

fn foretell(model: &mut TopModel, order: Order) -> Effect {
    let text = format!("Reading what it would do to {}", order.job);
    model.dialog = Some(Dialog::Wait { text });
    Effect::Foretell(order)
}

fn in_dialog(model: &mut TopModel, dialog: Dialog, key: KeyCode) -> Effect {
    match dialog {
        Dialog::Help | Dialog::Told { .. } => Effect::Nothing,
        Dialog::Wait { text } => {
            if key != KeyCode::Esc {
                model.dialog = Some(Dialog::Wait { text });
            }
            Effect::Nothing
        }
        Dialog::Filter { before } => {
            type_filter(model, before, key);
            Effect::Nothing
        }
        Dialog::Find { before } => {
            type_find(model, before, key);
            Effect::Nothing
        }
        Dialog::Amount { job, typed, .. } => type_amount(model, job, typed, key),
        Dialog::Question { order, sentence, typed } => answer(model, order, sentence, typed, key),
    }
}

fn type_filter(model: &mut TopModel, before: String, key: KeyCode) {
    match key {
        KeyCode::Enter => {}
        KeyCode::Esc => model.filter = before,
        key => {
            edit(&mut model.filter, key);
            model.dialog = Some(Dialog::Filter { before });
        }
    }
}

fn type_find(model: &mut TopModel, before: String, key: KeyCode) {
    match key {
        KeyCode::Enter => {}
        KeyCode::Esc => model.find = before,
        key => {
            edit(&mut model.find, key);
            model.dialog = Some(Dialog::Find { before });
        }
    }
}

fn edit(text: &mut String, key: KeyCode) {
    match key {
        KeyCode::Char(letter) if !letter.is_control() => text.push(letter),
        KeyCode::Backspace => drop(text.pop()),
        _ => {}
    }
}

fn type_amount(model: &mut TopModel, job: String, mut typed: String, key: KeyCode) -> Effect {
    let mut wrong = None;
    match key {
        KeyCode::Esc => return Effect::Nothing,
        KeyCode::Enter => match amount(&typed) {
            Ok(more) => {
                let order = Order { more, ..Order::new(JobAct::Extend, job) };
                return foretell(model, order);
            }
            Err(text) => wrong = Some(text),
        },
        key => edit(&mut typed, key),
    }
    model.dialog = Some(Dialog::Amount { job, typed, wrong });
    Effect::Nothing
}

/// `y` is enough, unless work is lost: then the verb is typed.
fn answer(
    model: &mut TopModel,
    order: Order,
    sentence: String,
    mut typed: String,
    key: KeyCode,
) -> Effect {
    let is_typed = order.act == JobAct::Cancel;
    let is_yes = match key {
        KeyCode::Enter => is_typed && typed == order.act.verb(),
        KeyCode::Char('y' | 'Y') => !is_typed,
        _ => false,
    };
    if is_yes {
        model.dialog = Some(Dialog::Wait { text: format!("Recording it for {}", order.job) });
        return Effect::CarryOut(order);
    }
    let is_left = key == KeyCode::Esc || (!is_typed && matches!(key, KeyCode::Char('n' | 'q')));
    if !is_left {
        edit(&mut typed, key);
        model.dialog = Some(Dialog::Question { order, sentence, typed });
    }
    Effect::Nothing
}
