//! Searches the shipped files for secrets, which would end up in a bucket and on a rented machine.
//!
//! A file with the name of a secret gives one finding. Other files with one of the literals are
//! matched line by line against `secret_rules`; a long line is matched in windows.
//!
//! A fast search for literals runs first. Only a file with one of them is matched line by line.
//! Placeholders do not count: users disable a scanner with false alarms. Not here: the secret
//! itself, its shape (`secret_rules`), or whether to ship.

#![expect(
    clippy::disallowed_methods,
    reason = "this is the adapter that reads the files about to ship"
)]

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::pack::{PackEntry, PackError, PackKind, Survey};
use super::secret_rules::{
    EACH, ENV_SECRET, KEY_BODY, KEY_GAP, PLACEHOLDER, PREFILTER, PRIVATE_KEY, RULES, SET,
};

/// A likely secret. It never holds the secret itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Secret {
    /// Relative to the workdir.
    pub path: String,
    /// From 1; 0 if the whole file is a secret.
    pub line: usize,
    /// As `--allow-secret PATH:RULE` takes it.
    pub rule: &'static str,
    /// For people.
    pub what: &'static str,
}

/// Larger files are data: weights, images, logs. Only their ends are read, since gigabytes would
/// delay every `run`. Ten MB holds any notebook with its images.
const FILE_BYTES_MAX: u64 = 10 << 20;

/// Bytes read at both ends of a larger file: the settings and the last output of a log.
const END_BYTES: u64 = 1 << 20;

/// A file with a NUL in this many first bytes is binary, as for git.
const BINARY_PROBE_BYTES: usize = 8000;

/// A file with more findings is a list of keys, and the first ones show it.
const FINDINGS_PER_FILE_MAX: usize = 10;

/// Longer lines (minified data, dumps) are searched in windows of this size. A rule can take
/// quadratic time, so one line of ten MB would delay a `run`.
const WINDOW_BYTES: usize = 64 * 1024;

/// Overlap of two windows: longer than any secret with its name, so that none is cut.
const OVERLAP_BYTES: usize = 4 * 1024;

/// Searches every file that ships, with one thread per core.
///
/// # Errors
/// When a file cannot be read.
pub fn scan(survey: &Survey) -> Result<Vec<Secret>, PackError> {
    let files: Vec<&PackEntry> =
        survey.entries.iter().filter(|entry| matches!(entry.kind, PackKind::File { .. })).collect();
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let results: Vec<Result<Vec<Secret>, PackError>> = std::thread::scope(|scope| {
        let work = || {
            let mut found = Vec::new();
            while let Some(entry) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                scan_file(&survey.root, entry, &mut found)?;
            }
            Ok(found)
        };
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .map(|worker| {
                worker.join().expect("the scan cannot panic: it checks each index and result")
            })
            .collect()
    });
    let mut found = Vec::new();
    for result in results {
        found.extend(result?);
    }
    found.sort();
    Ok(found)
}

fn scan_file(root: &Path, entry: &PackEntry, found: &mut Vec<Secret>) -> Result<(), PackError> {
    let PackKind::File { bytes } = entry.kind else { return Ok(()) };
    let path = entry.path.to_string_lossy().into_owned();
    let unreadable = |source| PackError::Read { path: entry.path.clone(), source };
    if let Some((rule, what)) = secret_by_name(&entry.path)
        && bytes > 0
    {
        found.push(Secret { path, line: 0, rule, what });
        return Ok(());
    }
    let Some(texts) = read_text(&root.join(&entry.path)).map_err(unreadable)? else {
        return Ok(());
    };
    let name = entry.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_env = is_env_file(name);
    for (number, text) in texts.iter().enumerate() {
        if is_env || PREFILTER.is_match(text) {
            let first = found.len();
            scan_text(&path, text, is_env, found);
            // Line numbers at the end of a large file are unknown.
            found[first..].iter_mut().filter(|_| number > 0).for_each(|secret| secret.line = 0);
        }
    }
    Ok(())
}

/// Searches text outside files: the environment, `setup`, the command.
pub fn scan_words(place: &str, text: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    scan_text(place, text.as_bytes(), false, &mut found);
    found
}

/// Whether a variable's name suggests a secret. Only for a warning: `TOKENIZER` matches too.
pub fn sounds_secret(name: &str, value: &str) -> bool {
    let line = format!("{name}={value}");
    ENV_SECRET.is_match(line.as_bytes()) && !PLACEHOLDER.is_match(line.as_bytes())
}

/// A file whose name alone marks it as a secret.
fn secret_by_name(path: &Path) -> Option<(&'static str, &'static str)> {
    let name = path.file_name()?.to_str()?;
    let parent =
        path.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default();
    match (parent, name) {
        (_, "id_rsa" | "id_dsa" | "id_ecdsa" | "id_ed25519" | "id_ecdsa_sk" | "id_ed25519_sk") => {
            Some(("ssh-key-file", "an SSH private key"))
        }
        (".aws", "credentials") => Some(("aws-credentials-file", "AWS credentials")),
        (
            _,
            ".netrc" | "_netrc" | ".pgpass" | ".git-credentials" | ".vault-token" | ".dockercfg"
            | ".htpasswd" | ".terraformrc",
        ) => Some(("credentials-file", "a file of passwords")),
        (_, "kaggle.json") => Some(("kaggle-key", "a Kaggle key")),
        (".kaggle", "access_token") => Some(("kaggle-key", "a Kaggle key")),
        (
            _,
            "credentials.tfrc.json"
            | "rclone.conf"
            | ".s3cfg"
            | ".passwd-s3fs"
            | "msal_token_cache.json",
        ) => Some(("credentials-file", "a file of passwords")),
        (".cargo", "credentials" | "credentials.toml")
        | (".gem", "credentials")
        | (".streamlit", "secrets.toml") => Some(("credentials-file", "a file of passwords")),
        (".kube", "config") => Some(("credentials-file", "the credentials of a cluster")),
        (".docker", "config.json") => Some(("credentials-file", "the credentials of a registry")),
        ("huggingface" | ".huggingface", "token") => {
            Some(("huggingface-token", "a Hugging Face token"))
        }
        _ if [".p12", ".pfx", ".ppk", ".jks", ".keystore", ".kdbx"]
            .iter()
            .any(|end| name.ends_with(end)) =>
        {
            Some((PRIVATE_KEY, "a private key"))
        }
        _ => None,
    }
}

/// `.env`, `.env.local`, `prod.env`; but no templates, which projects commit.
fn is_env_file(name: &str) -> bool {
    let is_template =
        ["example", "sample", "template", "dist"].iter().any(|word| name.contains(word));
    !is_template
        && (name == ".env"
            || [".envrc", ".pypirc", ".my.cnf"].contains(&name)
            || name.starts_with(".env.")
            || name.ends_with(".env"))
}

/// The text, unless it is binary; for a large file its beginning and end.
fn read_text(path: &Path) -> io::Result<Option<Vec<Vec<u8>>>> {
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let first = if bytes > FILE_BYTES_MAX { END_BYTES } else { FILE_BYTES_MAX };
    let mut text = Vec::with_capacity(usize::try_from(bytes.min(first)).unwrap_or(0) + 1);
    Read::by_ref(&mut file).take(BINARY_PROBE_BYTES as u64).read_to_end(&mut text)?;
    let coding = Coding::of(&text);
    if coding == Coding::Utf8 && text.contains(&0) {
        return Ok(None);
    }
    Read::by_ref(&mut file).take(first.saturating_sub(text.len() as u64)).read_to_end(&mut text)?;
    let mut texts = vec![coding.decoded(text)];
    if bytes > FILE_BYTES_MAX {
        // An even position, so that UTF-16 pairs stay together.
        file.seek(SeekFrom::Start((bytes - END_BYTES) & !1))?;
        let mut last = Vec::new();
        file.take(END_BYTES + 1).read_to_end(&mut last)?;
        texts.push(coding.decoded(last));
    }
    Ok(Some(texts))
}

/// The text encoding of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Utf8,
    /// Little-endian, as PowerShell and Windows editors write.
    Utf16Little,
    Utf16Big,
}

impl Coding {
    /// By the byte order mark; otherwise by zeros at every second byte, as in English text.
    fn of(probe: &[u8]) -> Self {
        match probe {
            [0xff, 0xfe, ..] => return Coding::Utf16Little,
            [0xfe, 0xff, ..] => return Coding::Utf16Big,
            _ => {}
        }
        let zeros =
            |from: usize| probe.iter().skip(from).step_by(2).filter(|byte| **byte == 0).count();
        let (even, odd, most) = (zeros(0), zeros(1), probe.len() * 2 / 5);
        match probe.len() {
            0..8 => Coding::Utf8,
            _ if even == 0 && odd >= most => Coding::Utf16Little,
            _ if odd == 0 && even >= most => Coding::Utf16Big,
            _ => Coding::Utf8,
        }
    }

    /// As UTF-8, without the mark.
    fn decoded(self, text: Vec<u8>) -> Vec<u8> {
        const MARK: &[u8] = "\u{feff}".as_bytes();
        let units = |of: fn([u8; 2]) -> u16| {
            text.chunks_exact(2).map(|pair| of([pair[0], pair[1]])).collect::<Vec<u16>>()
        };
        let decoded = match self {
            Coding::Utf8 => text,
            Coding::Utf16Little => {
                String::from_utf16_lossy(&units(u16::from_le_bytes)).into_bytes()
            }
            Coding::Utf16Big => String::from_utf16_lossy(&units(u16::from_be_bytes)).into_bytes(),
        };
        decoded.strip_prefix(MARK).map_or(decoded.clone(), <[u8]>::to_vec)
    }
}

fn scan_text(path: &str, text: &[u8], is_env: bool, found: &mut Vec<Secret>) {
    let first = found.len();
    let seen: Vec<OnceCell<bool>> = vec![OnceCell::new(); RULES.len()];
    let applies = |index: usize| *seen[index].get_or_init(|| RULES[index].is_of(text));
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    for (at, line) in lines.iter().enumerate() {
        let here = found.len();
        for (number, window) in windows(line).enumerate() {
            // A setting's name is at the beginning of its line.
            for (rule, what) in
                secrets_in(window, &lines[at + 1..], is_env && number == 0, &applies)
            {
                // Two windows or two matches in a line give one finding.
                if found[here..].iter().all(|known| known.rule != rule) {
                    found.push(Secret { path: path.to_owned(), line: at + 1, rule, what });
                }
            }
        }
        if found.len() - first >= FINDINGS_PER_FILE_MAX {
            return;
        }
    }
}

/// The whole line, or overlapping pieces of a long line.
fn windows(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let starts = (0..line.len().max(1)).step_by(WINDOW_BYTES - OVERLAP_BYTES);
    // A window that lies wholly in the previous one is skipped.
    let starts = starts.take_while(|start| *start == 0 || start + OVERLAP_BYTES < line.len());
    starts.map(|start| &line[start..line.len().min(start + WINDOW_BYTES)])
}

/// `applies`: whether a rule applies to this file.
fn secrets_in(
    line: &[u8],
    next: &[&[u8]],
    is_env: bool,
    applies: &dyn Fn(usize) -> bool,
) -> Vec<(&'static str, &'static str)> {
    let is_secret = |index: &usize| match RULES[*index].name {
        // Every program that reads keys contains the header. The key follows on this line or the
        // next.
        PRIVATE_KEY => {
            EACH[*index].find_iter(line).any(|hit| KEY_BODY.is_match(&line[hit.end()..]))
                || is_key_next(next)
        }
        _ => {
            EACH[*index].find_iter(line).any(|hit| RULES[*index].takes(hit.as_bytes()))
                && applies(*index)
        }
    };
    let hits = SET.matches(line).into_iter().filter(is_secret);
    let mut found: Vec<_> = hits.map(|index| (RULES[index].name, RULES[index].what)).collect();
    // A service's rule says more than a rule by name.
    if found.len() > 1 {
        found.retain(|(rule, _)| !BY_NAME.contains(rule));
    }
    if found.is_empty() && is_env && ENV_SECRET.is_match(line) && !PLACEHOLDER.is_match(line) {
        found.push(("env-file", "a secret in an environment file"));
    }
    found
}

/// Rules that match only by a preceding name.
const BY_NAME: [&str; 3] = ["api-key", "bearer", "connection-password"];

/// Lines between header and key: GnuPG writes an empty one, a program's string another.
const KEY_GAP_LINES: usize = 3;

fn is_key_next(next: &[&[u8]]) -> bool {
    let mut lines =
        next.iter().map(|line| &line[..line.len().min(WINDOW_BYTES)]).take(KEY_GAP_LINES);
    lines.find(|line| !KEY_GAP.is_match(line)).is_some_and(|line| KEY_BODY.is_match(line))
}

/// Whether the user allowed this one: `path`, `path:rule`, or a folder that ends in `/`.
pub fn is_allowed(secret: &Secret, allowed: &[String]) -> bool {
    allowed.iter().any(|entry| {
        let entry = entry.strip_prefix("./").unwrap_or(entry);
        let (path, rule) = match entry.rsplit_once(':') {
            Some((path, rule)) => (path, Some(rule)),
            None => (entry, None),
        };
        let is_path = path == secret.path || (path.ends_with('/') && secret.path.starts_with(path));
        is_path && rule.is_none_or(|rule| rule == secret.rule)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In pieces, so that this file itself contains nothing that looks like a secret.
    fn samples() -> Vec<(&'static str, String)> {
        let body = "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8".repeat(4);
        let some = |n: usize| body[..n].to_owned();
        let hex = "0123456789abcdef".repeat(3)[..40].to_owned();
        vec![
            (
                "aws-access-key",
                ["key = 'AK", "IA2E0A8F3B244C9986"].concat().replace(['0', '8', '9'], "Q"),
            ),
            ("aws-secret-key", ["aws_secret", "_access_key = "].concat() + &some(40)),
            ("private-key", ["-----BEGIN RSA PRIV", "ATE KEY-----"].concat() + &some(40)),
            ("huggingface-token", ["h", "f_"].concat() + &some(34)),
            ("github-token", ["gh", "p_"].concat() + &some(36)),
            ("gitlab-token", ["glp", "at-"].concat() + &some(20)),
            ("openai-key", ["s", "k-proj-"].concat() + &some(40)),
            ("slack-token", ["xo", "xb-1234-"].concat() + &some(24)),
            (
                "slack-webhook",
                ["https://hooks.sl", "ack.com/services/T0AB12CD3/B0AB12CD3/"].concat() + &some(24),
            ),
            ("google-api-key", ["AI", "za"].concat() + &some(35)),
            ("gcp-service-account", ["\"private_", "key_id\": \""].concat() + &hex + "\""),
            ("stripe-key", ["sk_l", "ive_"].concat() + &some(24)),
            ("pypi-token", ["pypi-A", "gE"].concat() + &some(60)),
            ("npm-token", ["np", "m_"].concat() + &some(36)),
            ("wandb-key", ["WANDB_API", "_KEY="].concat() + &hex),
            ("kaggle-key", ["os.environ[\\\"KAGGLE", "_KEY\\\"] = \\\""].concat() + &hex[..32]),
            ("gcp-user-credentials", ["\"refresh", "_token\": \"1//0"].concat() + &some(40) + "\""),
            ("azure-storage-key", ["Account", "Key="].concat() + &some(86) + "=="),
            ("url-password", ["postgres://trainer:", "hunter2hunter@db.internal/x"].concat()),
            ("url-password", ["postgres://appuser:", "hunter2hunter@db.internal/x"].concat()),
            ("url-password", ["https://gituser:", "hunter2hunter@git.internal/x"].concat()),
            ("url-password", ["postgresql+psycopg2://trainer:", "hunter2hunter@db/x"].concat()),
            ("url-password", ["mysql+pymysql://trainer:", "hunter2hunter@${DB_HOST}/x"].concat()),
            ("url-password", ["rediss://default:", "hunter2hunter@{host}:6379/0"].concat()),
            ("url-password", ["REDIS_URL=redis://:", "hunter2hunter@cache:6379"].concat()),
        ]
    }

    fn found_in(text: &str) -> Vec<&'static str> {
        let mut found = Vec::new();
        scan_text("a.py", text.as_bytes(), false, &mut found);
        found.into_iter().map(|secret| secret.rule).collect()
    }

    #[test]
    fn each_rule_matches_its_sample_and_the_prefilter_does_too() {
        for (rule, text) in samples() {
            assert!(PREFILTER.is_match(text.as_bytes()), "the prefilter stops {rule}");
            let found = found_in(&text);
            assert!(found.contains(&rule), "{rule} is not found, but {found:?}");
        }
    }

    #[test]
    fn what_only_resembles_a_secret_is_left_alone() {
        for text in [
            ["AK", "IAIOSFODNN7EXAMPLE"].concat(),
            ["AK", "IAAAAAAAAAAAAAAAAAA"].concat(),
            "task-learning-rate-sk-learn-pipeline-of-many-words".into(),
            "hf_model = AutoModel.from_pretrained(name)".into(),
            "https://user:password@localhost/db and https://github.com/a/b@v1".into(),
            "postgres://user:hunter2hunter@localhost/db and postgres://postgres:postgres@db:5432/test".into(),
            "postgres://appuser:password@localhost/db and redis://:$REDIS_PASSWORD@cache:6379".into(),
            "FROM docker://ubuntu:22.04-slim@sha256:0123456789abcdef0123456789abcdef".into(),
            "if '-----BEGIN PRIVATE KEY-----' in text: raise".into(),
            "aws_secret_access_key = os.environ['KEY']".into(),
            "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".into(),
            "x = 'xoxo-love-and-kisses'".into(),
            "risk-assessment-of-models-with-a-long-name-0123456789".into(),
        ] {
            assert_eq!(found_in(&format!("{text}\nimport os")), Vec::<&str>::new(), "{text}");
        }
    }

    #[test]
    fn secret_in_a_long_line_is_found_once_wherever_it_stands() {
        let token = ["gh", "p_", "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8bC3dF5gH7"].concat();
        let step = WINDOW_BYTES - OVERLAP_BYTES;
        for before in [
            0,
            80_000,
            step - 40,
            step - 20,
            step,
            WINDOW_BYTES - 20,
            WINDOW_BYTES,
            2 * step + OVERLAP_BYTES - 20,
            1 << 20,
        ] {
            let line =
                format!("first\n{}'{token}',{}\nlast", "0,".repeat(before / 2), "1,".repeat(100));
            let mut found = Vec::new();
            scan_text("dump.json", line.as_bytes(), false, &mut found);
            let told: Vec<_> = found.iter().map(|secret| (secret.line, secret.rule)).collect();
            assert_eq!(told, [(2, "github-token")], "behind {before} bytes");
        }
    }

    #[test]
    fn acknowledged_is_a_path_a_rule_or_a_folder() {
        let secret = Secret { path: "conf/key.py".into(), line: 3, rule: "github-token", what: "" };
        let allowed = |entry: &str| is_allowed(&secret, &[entry.to_owned()]);
        assert!(
            allowed("conf/key.py")
                && allowed("./conf/key.py")
                && allowed("conf/key.py:github-token")
                && allowed("conf/")
        );
        assert!(
            !allowed("conf/key.py:aws-access-key")
                && !allowed("conf")
                && !allowed("key.py")
                && !allowed("con/")
        );
    }
}
