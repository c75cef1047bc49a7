//! GPUs as SkyPilot and dstack write them, in our words.
//!
//! ```text
//! A100:8   A100-80GB   {A100: 8}   24GB+   nvidia:24GB..:2   A10G,L4:1..4   {name, memory, count}
//! ```

use super::imported_job::gib;
use super::yaml_node::{YamlNode, YamlValue};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuWish {
    /// In the order of the file.
    pub models: Vec<String>,
    pub memory_gib: Option<u64>,
    pub count: u32,
    /// A range or a fraction was rounded to this count.
    pub is_rounded: bool,
}

const VENDORS: [&str; 6] = ["nvidia", "amd", "google", "tpu", "intel", "tenstorrent"];

const SOCKETS: [&str; 4] = ["-SXM", "-SXM5", "-SXM4", "-PCIe"];

impl GpuWish {
    /// The value of `accelerators` or `gpu`. `None`: it asks for no GPU, or cannot be read.
    pub fn read(node: &YamlNode) -> Option<GpuWish> {
        let wish = match &node.value {
            YamlValue::Null => return None,
            YamlValue::Text(text) => GpuWish::of_text(text),
            YamlValue::List(items) => {
                let wishes: Vec<GpuWish> = items.iter().filter_map(GpuWish::read).collect();
                let models = wishes.iter().flat_map(|wish| wish.models.clone()).collect();
                GpuWish { models, ..wishes.into_iter().next()? }
            }
            YamlValue::Map(pairs) if is_dstack(node) => GpuWish::of_keys(node, pairs),
            // `{A100:8, L4:1}` without a space is a set: its keys hold the counts.
            YamlValue::Map(pairs) if pairs.first().is_some_and(|(name, _)| name.contains(':')) => {
                let texts = pairs.iter().map(|(name, _)| GpuWish::of_text(name));
                let wishes: Vec<GpuWish> = texts.collect();
                let models = wishes.iter().flat_map(|wish| wish.models.clone()).collect();
                GpuWish { models, ..wishes.into_iter().next()? }
            }
            YamlValue::Map(pairs) => {
                let models = pairs.iter().map(|(name, _)| name.clone()).collect();
                let (count, is_rounded) = count_of(pairs.first()?.1.text().unwrap_or("1"))?;
                GpuWish { models, memory_gib: None, count, is_rounded }
            }
        };
        Some(wish).filter(|wish| wish.count > 0)
    }

    fn of_text(text: &str) -> GpuWish {
        let mut wish = GpuWish { count: 1, ..GpuWish::default() };
        let inner = text.trim().trim_matches(['{', '}']);
        for token in inner.split(':').map(str::trim).filter(|token| !token.is_empty()) {
            if VENDORS.contains(&token.to_ascii_lowercase().as_str()) {
                continue;
            }
            if let Some((count, is_rounded)) = count_of(token) {
                (wish.count, wish.is_rounded) = (count, is_rounded);
            } else if token.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') {
                wish.memory_gib = gib(token);
            } else {
                wish.models.extend(token.split(',').map(|name| name.trim().to_owned()));
            }
        }
        wish
    }

    fn of_keys(node: &YamlNode, pairs: &[(String, YamlNode)]) -> GpuWish {
        let count = node.text_of("count").and_then(count_of).unwrap_or((1, false));
        GpuWish {
            models: node.get("name").map(YamlNode::texts).unwrap_or_default(),
            memory_gib: node.text_of("memory").and_then(gib),
            count: count.0,
            is_rounded: count.1 || pairs.iter().any(|(key, _)| key == "total_memory"),
        }
    }

    /// As `gpus` of our job file.
    pub fn words(&self) -> String {
        let Some(model) = self.models.first() else {
            return format!("{} x {}GiB", self.count, self.memory_gib.unwrap_or(1));
        };
        // Other clouds name the socket too.
        let model = SOCKETS.iter().find_map(|end| model.strip_suffix(end)).unwrap_or(model);
        let memory = match (model, self.memory_gib) {
            ("A100", Some(gib @ (40 | 80))) => format!("-{gib}GB"),
            _ => String::new(),
        };
        format!("{model}{memory}:{}", self.count)
    }
}

fn is_dstack(node: &YamlNode) -> bool {
    ["name", "memory", "count", "vendor", "total_memory"].iter().any(|key| node.get(key).is_some())
}

/// `4`, `0.5`, `1..8` or `2+`, and whether it was rounded.
fn count_of(text: &str) -> Option<(u32, bool)> {
    let text = text.trim();
    if let Some((from, to)) = text.split_once("..") {
        let bound = if from.is_empty() { to } else { from };
        return bound.parse().ok().map(|count| (count, from != to));
    }
    let number = text.trim_end_matches('+');
    let count: f64 = number.parse().ok()?;
    let is_rounded = number != text || count.fract() != 0.0;
    (0.0..=1024.0).contains(&count).then(|| (count.ceil() as u32, is_rounded))
}

#[cfg(test)]
mod tests {
    use super::super::yaml_node::documents;
    use super::*;

    #[test]
    fn gpus_are_read_as_both_tools_write_them() {
        let cases = [
            ("A100:8", "A100:8", false),
            ("V100", "V100:1", false),
            ("A100-80GB:4", "A100-80GB:4", false),
            ("T4:0.5", "T4:1", true),
            ("H100-SXM:1", "H100:1", false),
            ("{A100: 8, V100: 4}", "A100:8", false),
            ("[L4, A10G]", "L4:1", false),
            ("{L4:1, A10G:2}", "L4:1", false),
            ("24GB", "1 x 24GiB", false),
            ("24GB+", "1 x 24GiB", false),
            ("nvidia:24GB..:2", "2 x 24GiB", false),
            ("A10G,L4:1..4", "A10G:1", true),
            ("A100:80GB:2", "A100-80GB:2", false),
            ("1", "1 x 1GiB", false),
            ("1..8", "1 x 1GiB", true),
            ("{name: H100, memory: 80GB, count: 2}", "H100:2", false),
        ];
        for (text, expected, is_rounded) in cases {
            let read = documents(&format!("gpu: {text}\n")).unwrap();
            let wish = GpuWish::read(read[0].get("gpu").unwrap()).unwrap();
            assert_eq!((wish.words().as_str(), wish.is_rounded), (expected, is_rounded), "{text}");
        }
        assert_eq!(GpuWish::read(documents("gpu: 0").unwrap()[0].get("gpu").unwrap()), None);
    }
}
