//! Tables and counts for people: plain columns, no frames, so that `grep` and `awk` work on them.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// Columns with a heading line. Columns whose index is in `right` hold numbers and stand to the right.
///
/// The width is never cut to the terminal: a cut job id cannot be pasted.
pub fn render(headings: &[&str], rows: &[Vec<String>], right: &[usize]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.iter().map(|heading| heading.to_uppercase()));
    table.add_rows(rows.iter().cloned());
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if right.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// `1 file`, `2 files`.
pub fn counted(number: u64, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_have_no_trailing_blanks() {
        let rows = vec![vec!["digits-7f3k2q".into(), "1.50".into()], vec!["x".into(), "12.25".into()]];
        let text = render(&["job", "usd"], &rows, &[1]);
        assert_eq!(text, "JOB              USD\ndigits-7f3k2q   1.50\nx              12.25");
    }
}
