//! The step that the files of a checkpoint report.
//!
//! Frameworks write it into a small file (`trainer_state.json`, `latest`) or a name
//! (`epoch=3-step=400.ckpt`). Other numbers are not steps: epochs, saves (`checkpoint_3` of
//! Accelerate), runs (`version_0`) and parts (`rank_1`).

/// The most that is read of one file. `trainer_state.json` grows with its log; its step comes
/// earlier.
pub const STEP_FILE_BYTES_MAX: u64 = 64 * 1024;

/// Whether a file of this name may hold the step: only such files are read.
pub fn may_tell_step(path: &str) -> bool {
    matches!(
        file_name(path),
        TRAINER_STATE | "latest" | "last_checkpoint" | "latest_checkpointed_iteration.txt"
    )
}

/// The state file in each checkpoint of Hugging Face's Trainer.
const TRAINER_STATE: &str = "trainer_state.json";

/// Words before a number that make it a step, without `-`, `_`, `=` and the like.
const STEP_WORDS: [&str; 8] =
    ["step", "steps", "iter", "iters", "iteration", "iterations", "globalstep", "gstep"];

/// The step of the newest checkpoint among the files; `None` if no file gives one.
///
/// `paths` are relative to the checkpoint folder. `contents` holds the beginnings of the files for
/// which [`may_tell_step`] is true. Pass only files of one complete snapshot: a name appears before
/// its file is complete.
pub fn checkpoint_step<'a>(
    paths: impl IntoIterator<Item = &'a str>,
    contents: &[(&str, &str)],
) -> Option<f64> {
    let paths: Vec<&str> = paths.into_iter().collect();
    // The script loads the checkpoint that a pointer names, even if a newer one exists.
    if let Some(step) = contents
        .iter()
        .filter(|(path, _)| !path.contains('/'))
        .find_map(|(path, text)| pointed_to(file_name(path), text))
    {
        return Some(step);
    }
    let states = contents.iter().filter(|(path, _)| file_name(path) == TRAINER_STATE);
    if let Some(step) = states.filter_map(|(_, text)| global_step(text)).max_by(f64::total_cmp) {
        return Some(step);
    }
    let orbax = |root: &str| {
        paths
            .iter()
            .any(|path| path.strip_prefix(root).is_some_and(|rest| rest == "/_CHECKPOINT_METADATA"))
    };
    let mut newest: Option<f64> = None;
    for path in &paths {
        // A checkpoint of Trainer is complete once its state file exists.
        let is_state = file_name(path) == TRAINER_STATE;
        let parts = path.split('/').filter(|part| !is_log_name(part));
        let named = parts.filter_map(|part| step_in_name(part, is_state)).next_back();
        let numbered = path
            .split_once('/')
            .map(|(root, _)| root)
            .filter(|root| is_number(root) && orbax(root))
            .and_then(number);
        newest = [newest, named, numbered].into_iter().flatten().max_by(f64::total_cmp);
    }
    newest
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Texts of these names are logs: `log.txt`, `train_log.txt`. Other texts may be a vocabulary.
const LOG_TEXTS: [&str; 6] = ["log", "logs", "out", "output", "stdout", "stderr"];

/// Whether a file is a log, by its name. A log does not show a save.
pub fn is_log_name(name: &str) -> bool {
    let is_log_text = |stem: &str| {
        let last = stem.rsplit(['_', '-', '.']).next().unwrap_or(stem);
        LOG_TEXTS.contains(&last)
    };
    name.contains(".tfevents.")
        || [".log", ".csv", ".jsonl", ".wandb"].iter().any(|end| name.ends_with(end))
        || name.strip_suffix(".txt").is_some_and(is_log_text)
}

/// Numbers beside these words count pieces of one checkpoint, not checkpoints.
const PIECES: [&str; 13] = [
    "rank",
    "shard",
    "part",
    "piece",
    "worker",
    "layer",
    "fsdp",
    "distcp",
    "gpu",
    "expert",
    "chunk",
    "rng_state",
    "random_states",
];

/// Whether the number in a name counts pieces of one checkpoint, such as ranks and shards: the
/// number stands beside such a word, as in `rank_0` or `0.distcp`. `#` counts as a number.
pub fn counts_pieces(name: &str) -> bool {
    const BETWEEN: [char; 4] = ['_', '-', '.', '='];
    let lower = name.to_ascii_lowercase();
    let is_number = |letter: char| letter == '#' || letter.is_ascii_digit();
    let is_letter = |letter: char| letter.is_ascii_alphabetic();
    let is_counted = |(before, after): (&str, &str)| {
        let after = after.strip_prefix('s').unwrap_or(after);
        !before.ends_with(is_letter)
            && !after.starts_with(is_letter)
            && (before.trim_end_matches(BETWEEN).ends_with(is_number)
                || after.trim_start_matches(BETWEEN).starts_with(is_number))
    };
    PIECES.iter().any(|word| {
        let found = lower.match_indices(word);
        found.map(|(at, _)| (&lower[..at], &lower[at + word.len()..])).any(is_counted)
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A number with more digits than a step is a time or a sum.
fn number(text: &str) -> Option<f64> {
    (is_number(text) && text.len() <= 12).then(|| text.parse().ok()).flatten()
}

/// The step in a file that holds only the newest checkpoint's name or step.
fn pointed_to(name: &str, text: &str) -> Option<f64> {
    let first = text.lines().next()?.trim().trim_matches('"');
    match name {
        // Megatron: the number alone, or `release`.
        "latest_checkpointed_iteration.txt" => number(first),
        // DeepSpeed and Detectron2.
        "latest" | "last_checkpoint" => step_in_name(file_name(first), true),
        _ => None,
    }
}

/// `"global_step": 150` in a JSON text that may be cut off.
fn global_step(text: &str) -> Option<f64> {
    let (_, rest) = text.split_once("\"global_step\"")?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    // A number at the very end may be cut off.
    if digits == rest.len() { None } else { number(&rest[..digits]) }
}

/// The last number after a word for steps. `of_trainer`: `checkpoint-50` is step 50.
fn step_in_name(name: &str, of_trainer: bool) -> Option<f64> {
    let mut step = None;
    let mut at = 0;
    while let Some(begin) =
        name[at..].find(|letter: char| letter.is_ascii_digit()).map(|found| at + found)
    {
        let end = begin + name[begin..].bytes().take_while(u8::is_ascii_digit).count();
        if let Some(number) =
            number(&name[begin..end]).filter(|_| is_step_word(&name[..begin], of_trainer))
        {
            step = Some(number);
        }
        at = end;
    }
    step
}

fn is_step_word(before: &str, of_trainer: bool) -> bool {
    let bare = before.trim_end_matches(['-', '_', '=', '.', ' ']);
    let begin = bare
        .rfind(|letter: char| !letter.is_ascii_alphabetic() && letter != '_')
        .map_or(0, |at| at + 1);
    let word: String = bare[begin..]
        .chars()
        .filter(|letter| *letter != '_')
        .collect::<String>()
        .to_ascii_lowercase();
    let last = bare[begin..].rsplit('_').next().unwrap_or_default().to_ascii_lowercase();
    let is_trainers = of_trainer && word == "checkpoint" && before.ends_with('-');
    is_trainers || STEP_WORDS.contains(&word.as_str()) || STEP_WORDS.contains(&last.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(paths: &[&str]) -> Option<f64> {
        checkpoint_step(paths.iter().copied(), &[])
    }

    #[test]
    fn number_counts_pieces_only_beside_such_a_word() {
        for name in [
            "zero_pp_rank_0_mp_rank_00_optim_states.pt",
            "pytorch_model_fsdp_0",
            "__0_0.distcp",
            "layer_01-model_00-model_states.pt",
            "random_states_#.pkl",
            "part-00000",
            "model_world_size_8_rank_3.pt",
            "worker0",
            "3_shards.bin",
        ] {
            assert!(counts_pieces(name), "{name}");
        }
        for name in [
            "player_1000_steps.zip",
            "multi_gpu_model_100.pt",
            "epoch_5_partial.pt",
            "department-7.pt",
            "frank_3.ckpt",
            "model-5.pt",
        ] {
            assert!(!counts_pieces(name), "{name}");
        }
    }

    #[test]
    fn number_behind_a_word_for_steps_is_the_step() {
        for (paths, step) in [
            (
                &["version_0/checkpoints/epoch=3-step=400.ckpt", "version_0/checkpoints/last.ckpt"]
                    [..],
                400.0,
            ),
            (&["epoch=3-step=400.ckpt", "epoch=4-step=500.ckpt"], 500.0),
            (
                &[
                    "global_step120/mp_rank_00_model_states.pt",
                    "global_step40/mp_rank_00_model_states.pt",
                ],
                120.0,
            ),
            (&["step_60/model-00001-of-00002.safetensors"], 60.0),
            (&["iter_0001000/mp_rank_00/model_optim_rng.pt"], 1000.0),
            (&["model-step-20.pt"], 20.0),
            (&["model_iter_300.pth"], 300.0),
            (
                &[
                    "50/_CHECKPOINT_METADATA",
                    "50/default/d/1234",
                    "100/_CHECKPOINT_METADATA",
                    "100/default/_METADATA",
                ],
                100.0,
            ),
        ] {
            assert_eq!(named(paths), Some(step), "{paths:?}");
        }
    }

    #[test]
    fn what_counts_something_else_is_no_step() {
        for paths in [
            &["checkpoints/checkpoint_3/model.safetensors"][..],
            &["version_0/hparams.yaml"],
            &["epoch_003.pt"],
            &["model-00001-of-00002.safetensors"],
            &["rank_1.pt", "resnet50.pt", "model.pt"],
            &["lightning_logs/version_0/events.out.tfevents.1795828344.vm.1.0"],
            &["step-1795828344123456789.pt"],
            &["50/model.pt"],
            &["checkpoint-50/model.pt"],
            &["timesteps_per_second.csv", "step_9.log"],
        ] {
            assert_eq!(named(paths), None, "{paths:?}");
        }
    }

    #[test]
    fn checkpoint_step_is_that_of_the_state_file_not_a_folder_name() {
        let state = |step: u32| {
            format!("{{\n  \"epoch\": 1.5,\n  \"global_step\": {step},\n  \"log_history\": [")
        };
        let (one, two) = (state(100), state(150));
        let paths = [
            "checkpoint-100/trainer_state.json",
            "checkpoint-150/trainer_state.json",
            "checkpoint-200/model.safetensors",
        ];
        let contents = [(paths[0], one.as_str()), (paths[1], two.as_str())];
        assert_eq!(
            checkpoint_step(paths, &contents),
            Some(150.0),
            "checkpoint-200 has no state yet"
        );
        assert_eq!(global_step("{\"global_step\": 15"), None, "cut off in the number");
        // Files that were not read: the names of Trainer's folders count.
        let names = [
            "checkpoint-100/trainer_state.json",
            "checkpoint-150/trainer_state.json",
            "checkpoint-200/model.safetensors",
        ];
        assert_eq!(named(&names), Some(150.0));
    }

    #[test]
    fn what_a_pointer_names_goes_before_newer_names() {
        let paths = ["latest", "global_step40/x.pt", "global_step80/x.pt"];
        assert_eq!(checkpoint_step(paths, &[("latest", "global_step40")]), Some(40.0));
        assert_eq!(checkpoint_step(paths, &[("latest", "")]), Some(80.0));
        assert_eq!(
            checkpoint_step(
                ["latest_checkpointed_iteration.txt"],
                &[("latest_checkpointed_iteration.txt", "2000\n")]
            ),
            Some(2000.0)
        );
        assert!(
            may_tell_step("checkpoint-50/trainer_state.json")
                && may_tell_step("latest")
                && !may_tell_step("model.pt")
        );
    }
}
