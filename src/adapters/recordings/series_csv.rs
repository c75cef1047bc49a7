//! The CSV form of a recording.
//!
//! ```text
//!   t_seconds,gpu_index,gpu_util_pct,gpu_mem_used_mib,cpu_util_pct       a row per GPU and moment
//!   t_seconds,proc_cpu_pct,disk_*_mb_cum,net_*_mb_cum,gpu_power_w_total  beside it, other moments
//! ```
//! `cpu_util_pct` is the whole machine. `proc_cpu_pct` is the main process as a share of **all**
//! cores. The file lacks their number, so the value is a lower bound in percent of one core. Not
//! here: files.

use super::series_error::LineError;
use crate::instance::{Rates, Reading};

/// How old a row of the second table may be: two of the slowest usual intervals (30 s), or three of
/// its own.
const HOST_AGE_SECS: f64 = 60.0;
const HOST_AGE_INTERVALS: f64 = 3.0;

/// A row of the second table, with counters turned into rates.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostRow {
    t_secs: f64,
    cpu_percent: Option<f64>,
    main_cpu_percent: Option<f64>,
    power_watts: Option<f64>,
    disk_bytes_per_sec: Option<f64>,
    net_bytes_per_sec: Option<f64>,
}

/// The rows of all GPUs at one moment.
#[derive(Default)]
struct GpuRows {
    t_secs: f64,
    utils: Vec<Option<f64>>,
    memories: Vec<Option<f64>>,
    cpu: Option<f64>,
}

const BYTES_PER_MB: f64 = 1e6;

pub(crate) fn rates(
    text: &str,
    host: &[HostRow],
    gpus: Option<&[u32]>,
) -> Result<Vec<Rates>, LineError> {
    let moments = moments(text, gpus)?;
    let gpu_ever = moments.iter().any(|moment| moment.utils.iter().any(Option::is_some));
    let memory_ever = moments.iter().any(|moment| moment.memories.iter().any(Option::is_some));
    let cpu_ever = moments.iter().any(|moment| moment.cpu.is_some());
    let beside = HostTable::new(host);
    let mut before: Option<f64> = None;
    let mut series = Vec::with_capacity(moments.len());
    for moment in &moments {
        let interval_secs = before.map_or(0.0, |before| moment.t_secs - before);
        before = Some(moment.t_secs);
        let mut rates = Rates {
            t_secs: moment.t_secs,
            interval_secs,
            gpu_percent: joined(gpu_ever, &moment.utils, |values| {
                values.iter().copied().fold(0.0, f64::max)
            }),
            gpu_memory_used_mib: joined(memory_ever, &moment.memories, |values| {
                values.iter().sum()
            }),
            machine_cpu_percent: reading(cpu_ever, moment.cpu),
            ..Rates::default()
        };
        beside.fill(&mut rates);
        series.push(rates);
    }
    Ok(series)
}

pub(crate) fn host_rows(text: &str) -> Result<Vec<HostRow>, LineError> {
    let mut table = Table::new(text)?;
    let t = table.column_needed("t_seconds")?;
    let columns =
        ["cpu_util_pct", "proc_cpu_pct", "gpu_power_w_total"].map(|name| table.column(name));
    let (disk, net) = (table.columns("disk_", "_mb_cum"), table.columns("net_", "_mb_cum"));
    let mut rows: Vec<HostRow> = Vec::new();
    let mut counters: Option<(f64, Option<f64>, Option<f64>)> = None;
    while let Some(row) = table.row()? {
        let t_secs = row.time(t, rows.last().map(|row| row.t_secs))?;
        let (disk_mb, net_mb) = (row.sum(&disk)?, row.sum(&net)?);
        let per_sec = |then: Option<f64>, now: Option<f64>, interval: f64| match (then, now) {
            (Some(then), Some(now)) if interval > 0.0 => {
                Some((now - then).max(0.0) * BYTES_PER_MB / interval)
            }
            _ => None,
        };
        let (disk_rate, net_rate) = match counters {
            Some((t, disk, net)) => {
                (per_sec(disk, disk_mb, t_secs - t), per_sec(net, net_mb, t_secs - t))
            }
            None => (None, None),
        };
        counters = Some((t_secs, disk_mb, net_mb));
        rows.push(HostRow {
            t_secs,
            cpu_percent: row.number(columns[0])?,
            main_cpu_percent: row.number(columns[1])?,
            power_watts: row.number(columns[2])?,
            disk_bytes_per_sec: disk_rate,
            net_bytes_per_sec: net_rate,
        });
    }
    Ok(rows)
}

fn moments(text: &str, gpus: Option<&[u32]>) -> Result<Vec<GpuRows>, LineError> {
    let mut table = Table::new(text)?;
    let (t, util) = (table.column_needed("t_seconds")?, table.column_needed("gpu_util_pct")?);
    let (index, memory, cpu) =
        (table.column("gpu_index"), table.column("gpu_mem_used_mib"), table.column("cpu_util_pct"));
    let mut moments: Vec<GpuRows> = Vec::new();
    while let Some(row) = table.row()? {
        let t_secs = row.time(t, moments.last().map(|moment| moment.t_secs))?;
        if moments.last().is_none_or(|moment| moment.t_secs < t_secs) {
            moments.push(GpuRows { t_secs, ..GpuRows::default() });
        }
        let moment = moments.last_mut().expect("one was pushed if there was none");
        let counts = match (row.number(index)?, gpus) {
            (Some(index), Some(gpus)) => gpus.iter().any(|gpu| f64::from(*gpu) == index),
            _ => true,
        };
        let (util, used) = (row.number(Some(util))?, row.number(memory)?);
        if counts {
            moment.utils.push(util);
            moment.memories.push(used);
        }
        moment.cpu = row.number(cpu)?.or(moment.cpu);
    }
    if !moments.is_empty() && moments.iter().all(|moment| moment.utils.is_empty()) {
        let asked =
            gpus.unwrap_or_default().iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        return Err(LineError {
            line: 1,
            message: format!(
                "none of the GPUs that were asked for ({asked}) is in its `gpu_index`"
            ),
        });
    }
    Ok(moments)
}

/// The second table, for lookups by moment.
struct HostTable<'a> {
    rows: &'a [HostRow],
    age_secs_max: f64,
    filled: [bool; FIELDS.len()],
}

/// The columns of the second table, in the order of `HostTable::filled`.
const FIELDS: [fn(&HostRow) -> Option<f64>; 5] = [
    |row| row.main_cpu_percent,
    |row| row.power_watts,
    |row| row.disk_bytes_per_sec,
    |row| row.net_bytes_per_sec,
    |row| row.cpu_percent,
];

impl<'a> HostTable<'a> {
    fn new(rows: &'a [HostRow]) -> Self {
        let mut intervals: Vec<f64> =
            rows.windows(2).map(|pair| pair[1].t_secs - pair[0].t_secs).collect();
        intervals.sort_by(f64::total_cmp);
        let usual = intervals.get(intervals.len() / 2).copied().unwrap_or(0.0);
        let filled = FIELDS.map(|field| rows.iter().any(|row| field(row).is_some()));
        HostTable { rows, age_secs_max: HOST_AGE_SECS.max(HOST_AGE_INTERVALS * usual), filled }
    }

    fn fill(&self, rates: &mut Rates) {
        // One second of slack: one recorder writes both tables, a moment apart.
        let after = self.rows.partition_point(|row| row.t_secs <= rates.t_secs + 1.0);
        let row = after
            .checked_sub(1)
            .map(|index| &self.rows[index])
            .filter(|row| rates.t_secs - row.t_secs <= self.age_secs_max);
        let pick = |index: usize| reading(self.filled[index], row.and_then(FIELDS[index]));
        rates.cpu_percent_min = pick(0);
        rates.gpu_power_watts = pick(1);
        rates.disk_bytes_per_sec = pick(2);
        rates.net_bytes_per_sec = pick(3);
        if rates.machine_cpu_percent == Reading::Absent {
            rates.machine_cpu_percent = pick(4);
        }
    }
}

/// An empty cell is unknown if the column is filled elsewhere, else absent.
fn reading(ever: bool, value: Option<f64>) -> Reading<f64> {
    match value {
        Some(value) => Reading::Known(value),
        None if ever => Reading::unknown("not recorded at this moment"),
        None => Reading::Absent,
    }
}

/// All GPUs of a moment in one number. A missing cell makes it unknown.
fn joined(ever: bool, values: &[Option<f64>], join: impl Fn(&[f64]) -> f64) -> Reading<f64> {
    let known: Option<Vec<f64>> = values.iter().copied().collect();
    reading(ever, known.filter(|known| !known.is_empty()).map(|known| join(&known)))
}

/// A table with named columns. Cells are numbers or empty; quotes around a cell are dropped.
struct Table<'a> {
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
    names: Vec<&'a str>,
}

struct CsvRow<'a> {
    line: usize,
    cells: Vec<&'a str>,
}

impl<'a> Table<'a> {
    fn new(text: &'a str) -> Result<Self, LineError> {
        let mut lines = text.trim_start_matches('\u{feff}').lines().enumerate();
        let names = lines.next().map(|(_, line)| cells(line)).unwrap_or_default();
        Ok(Table { lines, names })
    }

    fn column(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|column| *column == name)
    }

    fn column_needed(&self, name: &str) -> Result<usize, LineError> {
        self.column(name).ok_or_else(|| LineError {
            line: 1,
            message: format!("the header has no column `{name}`"),
        })
    }

    fn columns(&self, begin: &str, end: &str) -> Vec<usize> {
        (0..self.names.len())
            .filter(|index| {
                self.names[*index].starts_with(begin) && self.names[*index].ends_with(end)
            })
            .collect()
    }

    fn row(&mut self) -> Result<Option<CsvRow<'a>>, LineError> {
        let Some((index, line)) = self.lines.find(|(_, line)| !line.trim().is_empty()) else {
            return Ok(None);
        };
        let row = CsvRow { line: index + 1, cells: cells(line) };
        if row.cells.len() != self.names.len() {
            return Err(row.wrong(format!(
                "{} cells, but the header has {}",
                row.cells.len(),
                self.names.len()
            )));
        }
        Ok(Some(row))
    }
}

impl CsvRow<'_> {
    fn wrong(&self, message: String) -> LineError {
        LineError { line: self.line, message }
    }

    fn number(&self, column: Option<usize>) -> Result<Option<f64>, LineError> {
        let Some(cell) = column.map(|column| self.cells[column]).filter(|cell| !cell.is_empty())
        else {
            return Ok(None);
        };
        match cell.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(self.wrong(format!("`{cell}` is not a number"))),
        }
    }

    fn time(&self, column: usize, before: Option<f64>) -> Result<f64, LineError> {
        let t_secs = self.number(Some(column))?.ok_or_else(|| self.wrong("no time".into()))?;
        match before {
            Some(before) if t_secs < before => {
                Err(self.wrong(format!("time steps back from {before} s to {t_secs} s")))
            }
            _ => Ok(t_secs),
        }
    }

    fn sum(&self, columns: &[usize]) -> Result<Option<f64>, LineError> {
        let mut sum = None;
        for column in columns {
            if let Some(value) = self.number(Some(*column))? {
                sum = Some(sum.unwrap_or(0.0) + value);
            }
        }
        Ok(sum)
    }
}

fn cells(line: &str) -> Vec<&str> {
    line.split(',').map(|cell| cell.trim().trim_matches('"').trim()).collect()
}
