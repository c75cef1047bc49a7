//! Finds the wrong field of a cron expression, and its allowed range.
//!
//! It reports only numbers out of range. The parser checks names of days and months, `L`, `W` and
//! `#`.

const FIELDS: [(&str, u32, u32); 5] = [
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of the month", 1, 31),
    ("month", 1, 12),
    ("day of the week", 0, 7),
];

const NUMBERS: [&str; 5] = ["first", "second", "third", "fourth", "fifth"];

/// The problem, to be appended to the expression; `None`: no problem found here.
pub(crate) fn wrong_field(text: &str) -> Option<String> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    if text.trim().starts_with('@') {
        return None;
    }
    if fields.len() != FIELDS.len() {
        let has = if fields.len() == 1 {
            "1 field".to_owned()
        } else {
            format!("{} fields", fields.len())
        };
        return Some(format!("has {has}, and cron takes five"));
    }
    FIELDS.iter().zip(NUMBERS).zip(fields).find_map(|(((name, least, most), number), field)| {
        let wrong = numbers(field).find(|value| !(*least..=*most).contains(value))?;
        Some(format!(
            "is `{wrong}` in its {number} field, the {name}, which is from {least} to {most}"
        ))
    })
}

/// The numbers of a field that name a moment: not the step after a `/`.
fn numbers(field: &str) -> impl Iterator<Item = u32> {
    let moments = field.split(',').filter_map(|part| part.split('/').next());
    moments.flat_map(|moments| moments.split('-')).filter_map(|number| number.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_that_is_out_of_range_is_named_with_its_range() {
        let said = |text: &str| wrong_field(text).unwrap_or_default();
        assert_eq!(
            said("0 25 * * *"),
            "is `25` in its second field, the hour, which is from 0 to 23"
        );
        assert_eq!(
            said("0,61 2 * * *"),
            "is `61` in its first field, the minute, which is from 0 to 59"
        );
        assert_eq!(
            said("0 2 0 * *"),
            "is `0` in its third field, the day of the month, which is from 1 to 31"
        );
        assert_eq!(
            said("0 2 * 1-13 *"),
            "is `13` in its fourth field, the month, which is from 1 to 12"
        );
        assert_eq!(
            said("0 2 * * 8"),
            "is `8` in its fifth field, the day of the week, which is from 0 to 7"
        );
        assert_eq!(said("0 2 * *"), "has 4 fields, and cron takes five");
        for good in ["*/90 2 * * *", "0 22 * * MON-FRI", "0 0 L * *", "0 0 1-7 */2 0,7", "@daily"] {
            assert_eq!(wrong_field(good), None, "{good}");
        }
    }
}
