//! "Did you mean": the closest known word, when one is close enough.

use crate::job::KeySuggestion;

/// At this Jaro-Winkler similarity a word is worth suggesting. At 0.7 `env` is offered for `idle`;
/// at 0.9 `comand` finds nothing but `command`, and so does little else.
const SIMILAR_ENOUGH: f64 = 0.8;

/// Words that other launchers use, and ours for the same thing.
const FOREIGN: [(&str, &str); 30] = [
    ("run", "command"),
    ("commands", "command"),
    ("cmd", "command"),
    ("args", "command"),
    ("envs", "env"),
    ("secrets", "env"),
    ("file_mounts", "workdir"),
    ("resources", "machine"),
    ("accelerators", "machine.gpus"),
    ("gpu", "machine.gpus"),
    ("infra", "machine.cloud"),
    ("cpus", "machine.instance_types"),
    ("instance_type", "machine.instance_types"),
    ("region", "machine.regions"),
    ("image_id", "machine.image"),
    ("disk_size", "machine.disk"),
    ("use_spot", "machine.market"),
    ("spot", "machine.market"),
    ("spot_policy", "machine.market"),
    ("bid", "machine.max_price"),
    ("autostop", "watch.idle"),
    ("idle_duration", "watch.idle"),
    ("idle_minutes", "watch.idle"),
    ("max_duration", "limits.max_runtime"),
    ("timeout", "limits.max_runtime"),
    ("ttl", "limits.max_runtime"),
    ("cost_limit", "limits.budget"),
    ("job_recovery", "interruptions"),
    ("retry", "retries"),
    ("stop_duration", "watch.grace"),
];

pub fn closest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    known
        .map(|candidate| (strsim::jaro_winkler(&plain(word), &plain(candidate)), candidate))
        .filter(|(likeness, _)| *likeness >= SIMILAR_ENOUGH)
        .max_by(|(left, _), (right, _)| left.total_cmp(right))
        .map(|(_, candidate)| candidate)
}

pub fn did_you_mean(name: &str) -> String {
    format!("did you mean `{name}`?")
}

/// The key that was probably meant at `table` (empty: above all tables). It is a key of the same
/// table, a key of another table, or our word for a key of another launcher. `paths`: all dotted
/// keys that exist.
pub fn for_key(table: &str, key: &str, paths: &[String]) -> Option<KeySuggestion> {
    let below = if table.is_empty() { String::new() } else { format!("{table}.") };
    let neighbours = paths
        .iter()
        .filter_map(|path| path.strip_prefix(&below))
        .filter(|name| !name.contains('.'));
    if let Some(name) = closest(key, neighbours) {
        return Some(KeySuggestion { name: name.to_owned(), tables: Vec::new() });
    }
    let plain = key.replace('-', "_");
    let tables: Vec<String> = paths
        .iter()
        .filter_map(|path| path.rsplit_once('.'))
        .filter(|(_, name)| *name == plain)
        .map(|(table, _)| table.to_owned())
        .collect();
    if !tables.is_empty() {
        return Some(KeySuggestion { name: plain, tables });
    }
    let (_, ours) = FOREIGN.iter().find(|(foreign, _)| *foreign == plain)?;
    Some(match ours.rsplit_once('.') {
        Some((table, name)) => {
            KeySuggestion { name: name.to_owned(), tables: vec![table.to_owned()] }
        }
        None => KeySuggestion { name: (*ours).to_owned(), tables: Vec::new() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_suggestion_prefers_same_table_then_others_then_aliases() {
        let paths: Vec<String> =
            ["command", "machine", "machine.gpus", "machine.max_price", "limits", "limits.budget"]
                .map(String::from)
                .into();
        assert_eq!(for_key("", "comand", &paths).unwrap().to_string(), "did you mean `command`?");
        assert_eq!(for_key("machine", "gpu", &paths).unwrap().to_string(), "did you mean `gpus`?");
        assert_eq!(
            for_key("", "budget", &paths).unwrap().to_string(),
            "did you mean `budget` in `[limits]`?"
        );
        assert_eq!(
            for_key("", "accelerators", &paths).unwrap().to_string(),
            "did you mean `gpus` in `[machine]`?"
        );
        assert_eq!(for_key("", "zzz", &paths), None);
        let twice: Vec<String> = ["on.idle", "watch.idle"].map(String::from).into();
        assert_eq!(
            for_key("", "idle", &twice).unwrap().to_string(),
            "did you mean `idle` in `[on]` or `[watch]`?"
        );
    }
}
