//! Tables and counts for people: plain columns, no frames, so that `grep` and `awk` work on them.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::wrap::{columns, cut, wrap};

/// Columns with a heading line. Columns whose index is in `right` are numbers, aligned right.
///
/// The width is never cut to the terminal: a cut job id cannot be pasted.
pub fn render(headings: &[&str], rows: &[Vec<String>], right: &[usize]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.iter().map(|heading| heading.to_uppercase()));
    table.add_rows(rows.iter().cloned());
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, GAP));
        if right.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

const GAP: u16 = 2;

/// How a table shrinks on a narrow terminal.
#[derive(Clone, Copy, Debug)]
pub struct Give<'a> {
    pub cut: &'a [usize],
    /// Columns that may go, the least important first; empty ones go before them.
    pub go: &'a [usize],
}

/// A cut cell keeps this many columns: fewer would be useless.
const CUT_TO_MIN: usize = 12;

/// The same, fitted into `width` columns if possible. `None`: no terminal, so everything is shown.
pub fn render_within(
    width: Option<usize>,
    headings: &[&str],
    rows: &[Vec<String>],
    right: &[usize],
    give: Give<'_>,
) -> String {
    let Some(width) = width else { return render(headings, rows, right) };
    let widest = |column: usize| {
        rows.iter()
            .map(|row| columns(&row[column]))
            .chain([headings[column].len()])
            .max()
            .unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..headings.len()).map(widest).collect();
    let mut kept: Vec<usize> = (0..headings.len()).collect();
    let says_nothing = |column: &&usize| rows.iter().all(|row| row[**column] == "-");
    let (empty, full): (Vec<&usize>, Vec<&usize>) = give.go.iter().partition(says_nothing);
    let mut to_go = empty.into_iter().chain(full);
    loop {
        let over = (kept.iter().map(|column| widths[*column] + usize::from(GAP)).sum::<usize>())
            .saturating_sub(width + usize::from(GAP));
        let spare = |column: &usize| {
            widths[*column].saturating_sub(CUT_TO_MIN.max(headings[*column].len()))
        };
        let cuttable: Vec<usize> =
            give.cut.iter().copied().filter(|column| kept.contains(column)).collect();
        let enough = cuttable.iter().map(spare).sum::<usize>() >= over;
        let next = if enough { None } else { to_go.next() };
        if let Some(column) = next {
            kept.retain(|kept| kept != column);
            continue;
        }
        let mut over = over;
        for column in cuttable {
            let less =
                over.min(widths[column].saturating_sub(CUT_TO_MIN.max(headings[column].len())));
            (widths[column], over) = (widths[column] - less, over - less);
        }
        break;
    }
    let cell = |row: &Vec<String>, column: &usize| {
        if give.cut.contains(column) {
            cut(&row[*column], widths[*column])
        } else {
            row[*column].clone()
        }
    };
    let narrow: Vec<Vec<String>> =
        rows.iter().map(|row| kept.iter().map(|column| cell(row, column)).collect()).collect();
    let shown: Vec<&str> = kept.iter().map(|column| headings[*column]).collect();
    let to_the_right: Vec<usize> =
        (0..kept.len()).filter(|at| right.contains(&kept[*at])).collect();
    render(&shown, &narrow, &to_the_right)
}

/// The same without a cut: what does not fit stands below its row, with its headings. `fold` has
/// the columns that may move, the first ones first.
pub fn render_folded(
    width: usize,
    headings: &[&str],
    rows: &[Vec<String>],
    right: &[usize],
    fold: &[usize],
) -> String {
    let mut kept: Vec<usize> = (0..headings.len()).collect();
    let widest = |column: &usize| {
        let cells = rows.iter().map(|row| columns(&row[*column]));
        cells.chain([headings[*column].len()]).max().unwrap_or(0) + usize::from(GAP)
    };
    for column in fold {
        if kept.iter().map(widest).sum::<usize>() <= width + usize::from(GAP) {
            break;
        }
        kept.retain(|kept| kept != column);
    }
    let narrow: Vec<Vec<String>> =
        rows.iter().map(|row| kept.iter().map(|column| row[*column].clone()).collect()).collect();
    let shown: Vec<&str> = kept.iter().map(|column| headings[*column]).collect();
    let numbers: Vec<usize> = (0..kept.len()).filter(|at| right.contains(&kept[*at])).collect();
    let table = render(&shown, &narrow, &numbers);
    let mut lines = table.lines().map(str::to_owned);
    let mut folded: Vec<String> = lines.next().into_iter().collect();
    for (row, line) in rows.iter().zip(lines) {
        folded.push(line);
        let moved = (0..headings.len()).filter(|column| !kept.contains(column));
        let told = moved.filter(|column| row[*column] != "-");
        let told: Vec<String> =
            told.map(|column| format!("{} {}", headings[column], row[column])).collect();
        if !told.is_empty() {
            folded.push(wrap(&format!("  {}", told.join("; ")), width, 4));
        }
    }
    folded.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_have_no_trailing_blanks() {
        let rows =
            vec![vec!["digits-7f3k2q".into(), "1.50".into()], vec!["x".into(), "12.25".into()]];
        let text = render(&["job", "usd"], &rows, &[1]);
        assert_eq!(text, "JOB              USD\ndigits-7f3k2q   1.50\nx              12.25");
    }

    #[test]
    fn pipe_has_every_cell_within_its_width() {
        let progress = "step 120 of 1000, 12%, 29m left, loss 0.31";
        let rows = [
            vec!["digits-7f3k2q".to_owned(), progress.to_owned(), "1.50".to_owned()],
            vec!["x-222222".to_owned(), "-".to_owned(), "12.25".to_owned()],
        ];
        let at = |width| render_folded(width, &["job", "progress", "usd"], &rows, &[2], &[1]);
        assert_eq!(at(80), render(&["job", "progress", "usd"], &rows, &[2]));
        assert_eq!(
            at(40),
            "JOB              USD\ndigits-7f3k2q   1.50\n  progress step 120 of 1000, 12%, 29m\n    left, loss 0.31\nx-222222       12.25"
        );
    }

    #[test]
    fn narrow_terminal_gets_what_matters() {
        let row = |job: &str, attempt: &str, text: &str| {
            vec![
                job.to_owned(),
                attempt.to_owned(),
                text.to_owned(),
                "2026-11-21 08:00:00".to_owned(),
            ]
        };
        let rows = [
            row("digits-7f3k2q", "1", "step 120 of 1000, 12%, 29m left, loss 0.31"),
            row("x-222222", "2", "-"),
        ];
        let headings = ["job", "attempt", "progress", "started"];
        let at =
            |width| render_within(width, &headings, &rows, &[1], Give { cut: &[2], go: &[1, 3] });
        assert_eq!(at(None), render(&headings, &rows, &[1]), "what is piped is whole");
        assert_eq!(at(Some(200)), at(None));
        assert!(
            at(Some(80)).contains("step 120 of 1000, 12%, 29m left, l…  2026")
                && at(Some(80)).contains("ATTEMPT"),
            "{}",
            at(Some(80))
        );
        assert!(
            !at(Some(50)).contains("ATTEMPT") && at(Some(50)).contains("STARTED"),
            "{}",
            at(Some(50))
        );
        assert_eq!(
            at(Some(30)),
            "JOB            PROGRESS\ndigits-7f3k2q  step 120 of 10…\nx-222222       -"
        );
        for width in 28..120 {
            assert!(
                at(Some(width)).lines().all(|line| columns(line) <= width),
                "{width}: {}",
                at(Some(width))
            );
        }
        let silent =
            [vec!["a-222222".to_owned(), "-".to_owned(), "2026-11-21 08:00:00".to_owned()]];
        let text = render_within(
            Some(30),
            &["job", "verdict", "started"],
            &silent,
            &[],
            Give { cut: &[], go: &[2, 1] },
        );
        assert!(!text.contains("VERDICT") && text.contains("STARTED"), "{text}");
    }
}
