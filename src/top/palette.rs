//! The styles of the view. Without colour, bold and reversed letters remain.

use ratatui::style::{Color, Modifier, Style};

use crate::app::overview::overview::JobRow;
use crate::job::JobState;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Palette {
    pub is_colored: bool,
}

impl Palette {
    fn colour(self, colour: Color) -> Style {
        if self.is_colored { Style::new().fg(colour) } else { Style::new() }
    }

    pub fn good(self) -> Style {
        self.colour(Color::Green)
    }

    pub fn warn(self) -> Style {
        self.colour(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    pub fn bad(self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// A command to type.
    pub fn command(self) -> Style {
        self.colour(Color::Cyan)
    }

    pub fn quiet(self) -> Style {
        self.colour(Color::DarkGray)
    }

    pub fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub fn bar(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub fn state(self, row: &JobRow) -> Style {
        let verdict = row.summary.verdict.as_deref();
        match row.summary.state {
            _ if row.summary.silence.is_some() => self.warn(),
            JobState::Failed => self.bad(),
            JobState::Running if verdict == Some("stalled") => self.bad(),
            JobState::Running if verdict == Some("idle") => self.warn(),
            JobState::Running | JobState::Draining | JobState::Succeeded => self.good(),
            JobState::Interrupted | JobState::Held | JobState::Ended => self.warn(),
            _ => Style::new(),
        }
    }
}
