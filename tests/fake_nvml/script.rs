//! Reading the script; its language is in the module doc of the library.
//!
//! A line that does not parse is shouted to stderr and ends the process: a test with a misspelled
//! script must not pass.

use std::path::PathBuf;

use crate::abi::*;

pub struct Script {
    pub init: Return,
    pub broken: Return,
    pub driver: String,
    pub cuda: i32,
    pub legacy: bool,
    pub dry: bool,
    pub time: Option<f64>,
    pub period: f64,
    pub block: f64,
    pub gpus: Vec<Gpu>,
}

#[derive(Clone)]
pub struct Gpu {
    pub util: Series,
    pub memory_util: Option<Series>,
    pub power: Series,
    pub power_limit: Option<u32>,
    pub temperature: u32,
    pub memory_mib: (u64, u64),
    pub compute: Pids,
    pub graphics: Pids,
    pub ecc: u64,
    /// Corrected, uncorrected, pending, failed.
    pub remapped: Option<[u64; 4]>,
    pub pcie_replays: Option<u64>,
    /// Bytes a second, received and sent.
    pub pcie: Option<(f64, f64)>,
    pub xids: Vec<u64>,
    pub fault: Return,
    pub unsupported: Vec<String>,
}

/// Values with lengths in seconds; it repeats unless the last value has no length.
#[derive(Clone)]
pub struct Series(Vec<(f64, Option<f64>)>);

#[derive(Clone)]
pub enum Pids {
    These(Vec<u32>),
    InFile(PathBuf),
}

impl Default for Script {
    fn default() -> Self {
        Script {
            init: SUCCESS,
            broken: SUCCESS,
            driver: "550.54.15".into(),
            cuda: 12_040,
            legacy: false,
            dry: false,
            time: None,
            period: 1.0 / 6.0,
            block: 0.0,
            gpus: vec![Gpu::default()],
        }
    }
}

impl Default for Gpu {
    fn default() -> Self {
        Gpu {
            util: Series::constant(0.0),
            memory_util: None,
            power: Series::constant(50.0),
            power_limit: None,
            temperature: 40,
            memory_mib: (0, 81_920),
            compute: Pids::These(Vec::new()),
            graphics: Pids::These(Vec::new()),
            ecc: 0,
            remapped: None,
            pcie_replays: None,
            pcie: None,
            xids: Vec::new(),
            fault: SUCCESS,
            unsupported: Vec::new(),
        }
    }
}

impl Script {
    pub fn parse(text: &str) -> Result<Script, String> {
        let mut script = Script::default();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                script.statement(line).ok_or_else(|| format!("cannot read `{line}`"))?;
            }
        }
        Ok(script)
    }

    fn statement(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        match word {
            "gpus" => self.gpus.resize(rest.parse().ok()?, Gpu::default()),
            "driver" => self.driver = rest.into(),
            "cuda" => self.cuda = rest.parse().ok()?,
            "init" => self.init = code(rest)?,
            "broken" => self.broken = code(rest)?,
            "legacy" => self.legacy = true,
            "dry" => self.dry = true,
            "time" => self.time = Some(rest.parse().ok()?),
            "period" => self.period = rest.parse().ok().filter(|period| *period > 0.0)?,
            "block" => self.block = rest.parse().ok()?,
            "gpu" => {
                let mut words = rest.splitn(3, char::is_whitespace);
                let (which, key, value) =
                    (words.next()?, words.next()?, words.next().unwrap_or_default().trim());
                if which == "*" {
                    for gpu in &mut self.gpus {
                        gpu.set(key, value)?;
                    }
                } else {
                    self.gpus.get_mut(which.parse::<usize>().ok()?)?.set(key, value)?;
                }
            }
            _ => return None,
        }
        Some(())
    }
}

impl Gpu {
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "util" => self.util = Series::parse(value)?,
            "memory-util" => self.memory_util = Some(Series::parse(value)?),
            "power" => self.power = Series::parse(value)?,
            "power-limit" => self.power_limit = Some(value.parse().ok()?),
            "temperature" => self.temperature = value.parse().ok()?,
            "memory" => {
                let (used, total) = value.split_once('/')?;
                self.memory_mib = (used.trim().parse().ok()?, total.trim().parse().ok()?);
            }
            "pids" => self.compute = Pids::parse(value)?,
            "graphics" => self.graphics = Pids::parse(value)?,
            "ecc" => self.ecc = value.parse().ok()?,
            "remapped" => {
                let numbers = value.split(',').map(|word| word.trim().parse().ok());
                let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
                self.remapped = Some(numbers.try_into().ok()?);
            }
            "pcie-replays" => self.pcie_replays = Some(value.parse().ok()?),
            "pcie" => {
                let (received, sent) = value.split_once('/')?;
                self.pcie = Some((received.trim().parse().ok()?, sent.trim().parse().ok()?));
            }
            "xid" => self.xids.push(value.parse().ok()?),
            "fault" => self.fault = code(value)?,
            "unsupported" => {
                self.unsupported = value.split(',').map(|word| word.trim().to_owned()).collect()
            }
            _ => return None,
        }
        Some(())
    }

    pub fn refuses(&self, what: &str) -> bool {
        self.unsupported.iter().any(|word| word == what)
    }

    /// The value of a field of `nvmlDeviceGetFieldValues`. `None`: this GPU does not have it.
    pub fn field(&self, id: u32, seconds: f64) -> Option<u64> {
        match id {
            FIELD_REMAPPED..=FIELD_REMAP_FAILED => {
                Some(self.remapped?[(id - FIELD_REMAPPED) as usize])
            }
            FIELD_PCIE_REPLAYS => self.pcie_replays,
            FIELD_PCIE_SENT => Some((self.pcie?.1 * seconds) as u64),
            FIELD_PCIE_RECEIVED => Some((self.pcie?.0 * seconds) as u64),
            _ => None,
        }
    }

    pub fn memory_bytes(&self) -> (u64, u64) {
        (self.memory_mib.0 << 20, self.memory_mib.1 << 20)
    }

    pub fn memory_util_at(&self, seconds: f64) -> f64 {
        self.memory_util
            .as_ref()
            .map_or_else(|| self.util.at(seconds) / 2.0, |series| series.at(seconds))
    }
}

impl Series {
    fn constant(value: f64) -> Self {
        Series(vec![(value, None)])
    }

    fn parse(text: &str) -> Option<Series> {
        let segment = |part: &str| match part.split_once(" for ") {
            Some((value, length)) => Some((
                value.trim().parse().ok()?,
                Some(length.trim().parse().ok().filter(|length| *length > 0.0)?),
            )),
            None => Some((part.trim().parse().ok()?, None)),
        };
        text.split(',')
            .map(segment)
            .collect::<Option<Vec<_>>>()
            .filter(|segments| !segments.is_empty())
            .map(Series)
    }

    /// Before the beginning, the first value.
    pub fn at(&self, seconds: f64) -> f64 {
        let lengths: Option<f64> = self.0.iter().map(|(_, length)| *length).sum();
        let mut left = seconds.max(0.0);
        if let Some(whole) = lengths {
            left %= whole;
        }
        for (value, length) in &self.0 {
            match length {
                Some(length) if left >= *length => left -= length,
                _ => return *value,
            }
        }
        self.0.last().map_or(0.0, |(value, _)| *value)
    }
}

impl Pids {
    fn parse(text: &str) -> Option<Pids> {
        match text.strip_prefix("file:") {
            Some(path) => Some(Pids::InFile(path.into())),
            None if text.is_empty() => Some(Pids::These(Vec::new())),
            None => text
                .split(',')
                .map(|number| number.trim().parse().ok())
                .collect::<Option<Vec<u32>>>()
                .map(Pids::These),
        }
    }

    /// The processes now; none if the file is missing.
    pub fn now(&self) -> Vec<u32> {
        match self {
            Pids::These(pids) => pids.clone(),
            Pids::InFile(path) => {
                let text = std::fs::read_to_string(path).unwrap_or_default();
                text.split(|letter: char| !letter.is_ascii_digit())
                    .filter_map(|number| number.parse().ok())
                    .collect()
            }
        }
    }
}

fn code(word: &str) -> Option<Return> {
    Some(match word {
        "ok" => SUCCESS,
        "mismatch" => LIB_RM_VERSION_MISMATCH,
        "not-loaded" => DRIVER_NOT_LOADED,
        "no-permission" => NO_PERMISSION,
        "library-not-found" => LIBRARY_NOT_FOUND,
        "uninitialized" => UNINITIALIZED,
        "lost" => GPU_IS_LOST,
        "reset-required" => RESET_REQUIRED,
        "unknown" => UNKNOWN,
        _ => return None,
    })
}
