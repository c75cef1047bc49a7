//! Where the prices of `lamp prices` come from: EC2 now, or the shipped catalogue with its date.
//!
//! A document has it once, rows have it each, people read it beside the table. Not here: a price.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::launch::region_hint;
use crate::cli::{Context, Fault};
use crate::market::Catalog;

/// The field names are an interface.
#[derive(Clone, Debug, Serialize)]
pub struct PriceSource {
    pub name: &'static str,
    pub as_of: String,
    /// Why it is not EC2.
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<String>,
    #[serde(skip)]
    hint: Option<String>,
}

impl PriceSource {
    pub fn ec2(now: Timestamp) -> Self {
        PriceSource { name: "ec2", as_of: now.to_string(), because: None, hint: None }
    }

    /// From the shipped catalogue, because EC2 did not answer.
    pub fn catalogue(because: &Fault) -> Self {
        let as_of = Catalog::shipped().prices_as_of().to_owned();
        PriceSource {
            name: "catalogue",
            as_of,
            because: Some(because.sentence()),
            hint: because.hint.clone(),
        }
    }

    pub fn is_asked(&self) -> bool {
        self.because.is_none()
    }

    /// For each row; the reason is given once, beside them.
    pub fn of_a_row(&self) -> Value {
        json!({ "name": self.name, "as_of": self.as_of })
    }

    pub fn warn(&self, context: &Context) {
        let Some(because) = &self.because else { return };
        context.printer.warn(format!("this is not from EC2: {because}"));
        let slip = region_hint::hint(because);
        slip.iter().chain(&self.hint).for_each(|hint| context.printer.hint(hint));
    }
}
