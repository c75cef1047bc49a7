//! The rows of a batch of samples, read field by field.
//!
//! ```text
//! text ─> each line: as an agent writes it ─> row
//!                    in another shape ─> serde ─> row, or left out
//! ```
//! A week of eight GPUs is 600 MB of text. `serde` needs twice as long, because it builds each
//! process of each GPU. Plots and tables of samples show none of those, so they are skipped here.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::{GpuStatus, Rates, Reading};

/// The rows of an unpacked batch, in order. A line that cannot be read is left out.
pub fn sample_rows(text: &[u8]) -> Vec<Rates> {
    let mut rows = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut scan = RowScan { text: rest, at: 0 };
        if let Some(row) = scan.row() {
            rows.push(row);
            rest = &rest[scan.at..];
            continue;
        }
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        rows.extend(serde_json::from_slice::<Rates>(&rest[..end]).ok());
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    rows
}

/// A place in a text. Each method reads one thing, or returns `None` where another stands.
struct RowScan<'a> {
    text: &'a [u8],
    at: usize,
}

/// Powers of ten that a double holds exactly.
const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Whole numbers up to this one are doubles.
const EXACT_MAX: u64 = 1 << 53;

/// So many digits fit in 64 bits.
const DIGITS_MAX: usize = 19;

/// An agent's lines are not deeper. A torn one must not use up the stack.
const DEPTH_MAX: u32 = 8;

impl<'a> RowScan<'a> {
    /// A line with its line feed.
    fn row(&mut self) -> Option<Rates> {
        let (mut rates, mut expected) = (Rates::default(), 0);
        self.object(|scan, name| {
            match name {
                b"t_secs" => rates.t_secs = scan.number()?,
                b"interval_secs" => rates.interval_secs = scan.number()?,
                b"step" => rates.step = scan.unless_null(RowScan::number)?,
                b"at" => rates.at = scan.unless_null(RowScan::moment)?,
                b"gpus" => rates.gpus = scan.gpus()?,
                name => {
                    let read = scan.unless_null(RowScan::number)?;
                    let place = place_of(name, expected)?;
                    expected = place + 1;
                    *FIELDS[place].1(&mut rates) = read.map_or(Reading::Absent, Reading::Known);
                }
            }
            Some(())
        })?;
        match self.next() {
            None => {}
            Some(b'\n') => self.at += 1,
            Some(_) => return None,
        }
        Some(rates)
    }

    fn gpus(&mut self) -> Option<Vec<GpuStatus>> {
        let mut gpus = Vec::with_capacity(8);
        self.list(|scan| {
            gpus.push(scan.gpu()?);
            Some(())
        })?;
        Some(gpus)
    }

    /// The values that have a plot.
    fn gpu(&mut self) -> Option<GpuStatus> {
        let (mut gpu, mut index) = (GpuStatus::default(), None);
        self.object(|scan, name| {
            match name {
                b"index" => index = Some(u32::try_from(scan.whole()?).ok()?),
                b"util_percent" => gpu.util_percent = scan.unless_null(RowScan::number)?,
                b"memory_used_mib" => gpu.memory_used_mib = scan.unless_null(RowScan::whole)?,
                b"power_watts" => gpu.power_watts = scan.unless_null(RowScan::number)?,
                b"clock_mhz" => gpu.clock_mhz = scan.unless_null(RowScan::number)?,
                b"temperature_celsius" => {
                    gpu.temperature_celsius = scan.unless_null(RowScan::number)?;
                }
                _ => scan.skip(0)?,
            }
            Some(())
        })?;
        Some(GpuStatus { index: index?, ..gpu })
    }

    fn next(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then(|| self.at += 1)
    }

    /// `,` goes on, `end` ends. `None`: something else stands here.
    fn goes_on(&mut self, end: u8) -> Option<bool> {
        let next = self.next()?;
        self.at += 1;
        (next == b',' || next == end).then_some(next == b',')
    }

    fn object(&mut self, mut field: impl FnMut(&mut Self, &[u8]) -> Option<()>) -> Option<()> {
        self.take(b'{')?;
        loop {
            let name = self.word()?;
            self.take(b':')?;
            field(self, name)?;
            if !self.goes_on(b'}')? {
                return Some(());
            }
        }
    }

    fn list(&mut self, mut value: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.take(b'[')?;
        if self.next()? == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            value(self)?;
            if !self.goes_on(b']')? {
                return Some(());
            }
        }
    }

    /// A text without escapes.
    fn word(&mut self) -> Option<&'a [u8]> {
        self.take(b'"')?;
        let rest = &self.text[self.at..];
        let length = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=31))?;
        self.at += length;
        self.take(b'"')?;
        Some(&rest[..length])
    }

    fn moment(&mut self) -> Option<Timestamp> {
        let word = self.word()?;
        utc(word).or_else(|| std::str::from_utf8(word).ok()?.parse().ok())
    }

    fn unless_null<T>(&mut self, value: fn(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.text[self.at..].starts_with(b"null") {
            self.at += 4;
            return Some(None);
        }
        value(self).map(Some)
    }

    fn whole(&mut self) -> Option<u64> {
        let (value, digits) = self.digits(0)?;
        let is_whole = !matches!(self.next(), Some(b'.' | b'e' | b'E'));
        (is_whole && digits < DIGITS_MAX).then_some(value)
    }

    /// The digits here as a number after `before`, and how many there are.
    fn digits(&mut self, before: u64) -> Option<(u64, usize)> {
        let begin = self.at;
        let mut value = before;
        while let Some(digit @ b'0'..=b'9') = self.next() {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            self.at += 1;
        }
        let digits = self.at - begin;
        (digits > 0).then_some((value, digits))
    }

    fn number(&mut self) -> Option<f64> {
        let begin = self.at;
        let is_negative = self.take(b'-').is_some();
        let has_zero = self.next()? == b'0';
        let (mut value, mut digits) = self.digits(0)?;
        // JSON has no `01`.
        if has_zero && digits > 1 {
            return None;
        }
        let mut decimals = 0;
        if self.take(b'.').is_some() {
            (value, decimals) = self.digits(value)?;
            digits += decimals;
        }
        let has_exponent = self.exponent()?;
        if has_exponent || digits > DIGITS_MAX || value > EXACT_MAX || decimals > 22 {
            let text = std::str::from_utf8(&self.text[begin..self.at]).ok()?;
            return text.parse().ok().filter(|value: &f64| value.is_finite());
        }
        // Both are exact, so the quotient is rounded once.
        let value = value as f64 / EXACT_POWERS[decimals];
        Some(if is_negative { -value } else { value })
    }

    fn exponent(&mut self) -> Option<bool> {
        if !matches!(self.next(), Some(b'e' | b'E')) {
            return Some(false);
        }
        self.at += 1;
        if matches!(self.next(), Some(b'+' | b'-')) {
            self.at += 1;
        }
        self.digits(0).map(|_| true)
    }

    fn skip(&mut self, depth: u32) -> Option<()> {
        match self.next()? {
            _ if depth > DEPTH_MAX => None,
            b'"' => self.word().map(drop),
            b'{' => self.object(|scan, _| scan.skip(depth + 1)),
            b'[' => self.list(|scan| scan.skip(depth + 1)),
            b'-' | b'0'..=b'9' => self.number().map(drop),
            _ => {
                let rest = &self.text[self.at..];
                let words: [&[u8]; 3] = [b"null", b"true", b"false"];
                let found = words.into_iter().find(|word| rest.starts_with(word))?;
                self.at += found.len();
                Some(())
            }
        }
    }
}

/// The moment of `2026-11-01T00:00:07.25Z`, as an agent writes it, in a tenth of the time that a
/// reader of all shapes needs. `None`: it has another shape.
fn utc(word: &[u8]) -> Option<Timestamp> {
    let (whole, rest) = word.split_at_checked(19)?;
    let digits = |digits: &[u8]| -> Option<i32> {
        digits.iter().try_fold(0, |value, byte| match byte {
            b'0'..=b'9' => Some(value * 10 + i32::from(byte - b'0')),
            _ => None,
        })
    };
    // Two digits fit.
    let two = |from: usize| digits(&whole[from..from + 2]).map(|number| number as i8);
    let is_shaped = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')]
        .into_iter()
        .all(|(at, byte)| whole[at] == byte);
    let decimals = rest.strip_suffix(b"Z")?.strip_prefix(b".").unwrap_or_default();
    let is_whole = rest == b"Z" || (1..=9).contains(&decimals.len());
    if !is_shaped || !is_whole {
        return None;
    }
    let nanos = digits(decimals)? * 10_i32.pow(9 - decimals.len() as u32);
    // A leap second is no such time: it is for the reader of all shapes.
    let year = digits(&whole[..4])? as i16;
    let at = DateTime::new(year, two(5)?, two(8)?, two(11)?, two(14)?, two(17)?, nanos).ok()?;
    Offset::UTC.to_timestamp(at).ok()
}

/// A value of a row, by its name.
type Field = (&'static [u8], fn(&mut Rates) -> &mut Reading<f64>);

/// In the order of an agent.
const FIELDS: [Field; 21] = [
    (b"gpu_percent", |rates| &mut rates.gpu_percent),
    (b"gpu_memory_percent", |rates| &mut rates.gpu_memory_percent),
    (b"gpu_memory_used_mib", |rates| &mut rates.gpu_memory_used_mib),
    (b"gpu_power_watts", |rates| &mut rates.gpu_power_watts),
    (b"cpu_percent", |rates| &mut rates.cpu_percent),
    (b"cpu_percent_min", |rates| &mut rates.cpu_percent_min),
    (b"machine_cpu_percent", |rates| &mut rates.machine_cpu_percent),
    (b"rest_cpu_percent", |rates| &mut rates.rest_cpu_percent),
    (b"disk_bytes_per_sec", |rates| &mut rates.disk_bytes_per_sec),
    (b"net_bytes_per_sec", |rates| &mut rates.net_bytes_per_sec),
    (b"log_bytes", |rates| &mut rates.log_bytes),
    (b"progress_marks", |rates| &mut rates.progress_marks),
    (b"checkpoint_marks", |rates| &mut rates.checkpoint_marks),
    (b"typing_secs", |rates| &mut rates.typing_secs),
    (b"net_received_bytes_per_sec", |rates| &mut rates.net_received_bytes_per_sec),
    (b"gpu_power_limit_watts", |rates| &mut rates.gpu_power_limit_watts),
    (b"gpu_temperature_celsius", |rates| &mut rates.gpu_temperature_celsius),
    (b"gpu_clock_mhz", |rates| &mut rates.gpu_clock_mhz),
    (b"memory_bytes", |rates| &mut rates.memory_bytes),
    (b"machine_memory_percent", |rates| &mut rates.machine_memory_percent),
    (b"disk_free_bytes", |rates| &mut rates.disk_free_bytes),
];

/// The place of a field. Agents write the fields in order, so that the first look mostly finds it.
/// `None`: a newer agent's value.
fn place_of(name: &[u8], expected: usize) -> Option<usize> {
    let places = (expected..FIELDS.len()).chain(0..expected.min(FIELDS.len()));
    places.into_iter().find(|place| FIELDS[*place].0 == name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Each field with a number of its own, as an agent writes it.
    fn full() -> Value {
        let mut row = serde_json::to_value(Rates::default()).expect("JSON");
        let fields = row.as_object_mut().expect("an object");
        let names = FIELDS.iter().filter_map(|(name, _)| std::str::from_utf8(name).ok());
        fields.extend(names.map(|name| (name.to_owned(), Value::Null)));
        for (at, value) in fields.values_mut().enumerate() {
            *value = json!(at as f64 + 0.1);
        }
        fields.insert("at".to_owned(), json!("2026-11-01T00:00:07.25Z"));
        let gpu = json!({ "index": 3, "name": "H100 \u{e9}", "util_percent": 97.5, "memory_used_mib": 75_000,
            "power_watts": 612.25, "clock_mhz": 1980.0, "temperature_celsius": null, "throttled_by": [], "xids": [79],
            "ecc_uncorrected": 0, "lost": null, "processes": [{ "pid": 7, "of_workload": true, "x": [[-1e-3], {"a": false}] }] });
        fields.insert("gpus".to_owned(), json!([gpu]));
        row
    }

    fn by_serde(line: &str) -> Option<Rates> {
        let mut rates: Rates = serde_json::from_str(line).ok()?;
        // These are skipped.
        for gpu in &mut rates.gpus {
            *gpu = GpuStatus {
                index: gpu.index,
                util_percent: gpu.util_percent,
                memory_used_mib: gpu.memory_used_mib,
                power_watts: gpu.power_watts,
                clock_mhz: gpu.clock_mhz,
                temperature_celsius: gpu.temperature_celsius,
                ..GpuStatus::default()
            };
        }
        Some(rates)
    }

    #[test]
    fn line_of_agent_is_read_without_serde() {
        let full = full();
        let line = full.to_string();
        let mut scan = RowScan { text: line.as_bytes(), at: 0 };
        let row = scan.row();
        assert!(row.is_some(), "stopped before {}", &line[scan.at..]);
        assert_eq!(row, by_serde(&line));
        let written = serde_json::to_value(row.expect("a row")).expect("JSON");
        for (name, value) in full.as_object().expect("an object") {
            assert!(name == "gpus" || written[name] == *value, "{name}: {}", written[name]);
        }
    }

    #[test]
    fn line_of_another_shape_is_read_by_serde_or_left_out() {
        let text = concat!(
            "{\"t_secs\":1.0,\"gpu_percent\":{\"unknown\":\"no driver\"}}\n",
            "{ \"t_secs\": 2.0, \"of_a_newer_agent\": [1] }\n",
            "{}\n",
            "\n",
            "{\"t_secs\":01.0}\n",
            "{\"t_secs\":null}\n",
            "{\"t_secs\":1e999}\n",
            "{\"t_secs\":4.0,\"gpus\":[{\"index\":0,\"name\":\"a \\\"b\\\"\"}]}\n",
            "{\"t_secs\":5,\"step\":-7e0}\r\n",
            "{\"t_secs\":6.0,\"gpu_per"
        );
        let rows = sample_rows(text.as_bytes());
        let secs: Vec<f64> = rows.iter().map(|row| row.t_secs).collect();
        assert_eq!(secs, [1.0, 2.0, 0.0, 4.0, 5.0]);
        assert_eq!(rows[0].gpu_percent, Reading::unknown("no driver"));
        assert_eq!(rows[3].gpus[0].name.as_deref(), Some("a \"b\""));
        assert_eq!(rows[4].step, Some(-7.0));
    }

    #[test]
    fn deep_line_is_not_read() {
        let deep = format!("{{\"gpus\":[{{\"index\":0,\"x\":{}", "[".repeat(1_000_000));
        assert_eq!(sample_rows(deep.as_bytes()), []);
    }

    #[test]
    fn moment_of_another_shape_is_not_read_in_the_short_way() {
        for other in [
            "2026-11-01T00:00:07+00:00",
            "2026-11-31T00:00:07Z",
            "2026-11-01 00:00:07Z",
            "2026-11-01T00:00:60Z",
            "2026-11-01T00:00:07.Z",
            "2026-11-01T00:00:07.1234567891Z",
            "2026-11-01T00:00:07.1x",
            "2026-1\u{e9}-01T00:00:07Z",
            "",
        ] {
            assert_eq!(utc(other.as_bytes()), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn moments_are_those_that_were_written(secs in 0_i64..253_000_000_000, nanos in 0_i32..1_000_000_000) {
            for nanos in [0, nanos / 10_000_000 * 10_000_000, nanos] {
                let at = Timestamp::new(secs, nanos).expect("a moment");
                let told = at.to_string();
                let line = format!("{{\"at\":\"{told}\"}}");
                let mut scan = RowScan { text: line.as_bytes(), at: 0 };
                prop_assert_eq!(scan.row().and_then(|row| row.at), Some(at));
                let short = utc(told.as_bytes());
                prop_assert_eq!(short, Some(at), "{}", told);
            }
        }

        #[test]
        fn numbers_are_those_that_were_written(
            exact in any::<f64>().prop_filter("JSON has no others", |value| value.is_finite()),
            tenths in -1_000_000_000_i64..1_000_000_000,
        ) {
            for value in [exact, tenths as f64 / 10.0, tenths as f64] {
                let line = format!("{{\"t_secs\":{}}}", json!(value));
                let mut scan = RowScan { text: line.as_bytes(), at: 0 };
                let read = scan.row().map(|row| row.t_secs.to_bits());
                prop_assert_eq!(read, Some(value.to_bits()), "{}", line);
            }
        }

        #[test]
        fn torn_text_never_panics(cut in 0_usize..2_000, byte in any::<u8>()) {
            let mut line = full().to_string().into_bytes();
            let at = cut % line.len();
            line[at] = byte;
            let _any = sample_rows(&line);
            line.truncate(at);
            prop_assert_eq!(sample_rows(&line), []);
        }
    }
}
