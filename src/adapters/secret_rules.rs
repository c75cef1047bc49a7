//! What a secret looks like: the rules of the scan, and the words that say that something is none.
//!
//! ```text
//!   bytes ── one of the literals? ── no ──> no secret
//!            yes ──> each line by the rules ──> no placeholder, and not one letter over and over? ──> a secret
//! ```
//! A rule asks for the shape *and* the length of a real secret. What must never live here: a file, or a finding.

use std::sync::LazyLock;

use regex::bytes::{Regex, RegexSet};

pub struct Rule {
    pub name: &'static str,
    pub what: &'static str,
    /// Matched against a line.
    pattern: &'static str,
}

pub const PRIVATE_KEY: &str = "private-key";

/// Between a name and its value, as programs, notebooks (with their backslashes), shells and Dockerfiles write it.
macro_rules! given {
    () => {
        r#"[\\"'\]]{0,4}(?:\s*[:=,]\s*|\s+)[\\"']{0,2}"#
    };
}

pub const RULES: &[Rule] = &[
    Rule { name: "aws-access-key", what: "an AWS access key id", pattern: r"(?-u:\b)(?:AKIA|ASIA)[A-Z2-7]{16}(?-u:\b)" },
    Rule {
        name: "aws-secret-key",
        what: "an AWS secret access key",
        pattern: concat!(r"(?i)(?:aws_?(?:secret|session)_?(?:access_?)?(?:key|token)|secret_?access_?key)", given!(), r"[A-Za-z0-9/+=]{40,}"),
    },
    Rule { name: PRIVATE_KEY, what: "a private key", pattern: r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----" },
    Rule { name: "huggingface-token", what: "a Hugging Face token", pattern: r"(?-u:\b)hf_[A-Za-z0-9]{30,}(?-u:\b)" },
    Rule { name: "github-token", what: "a GitHub token", pattern: r"(?-u:\b)(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,})" },
    Rule { name: "gitlab-token", what: "a GitLab token", pattern: r"(?-u:\b)glpat-[A-Za-z0-9_-]{20,}" },
    Rule {
        name: "openai-key",
        what: "an API key of OpenAI or Anthropic",
        pattern: r"(?-u:\b)sk-(?:[A-Za-z0-9]{40,}|(?:proj|svcacct|admin|ant)-[A-Za-z0-9_-]{20,})",
    },
    Rule { name: "slack-token", what: "a Slack token", pattern: r"(?-u:\b)xox[abeoprs]-[0-9]+-[A-Za-z0-9-]{10,}" },
    Rule { name: "slack-webhook", what: "a Slack webhook", pattern: r"hooks\.slack\.com/services/T[A-Z0-9]{6,}/B[A-Z0-9]{6,}/[A-Za-z0-9]{16,}" },
    Rule { name: "google-api-key", what: "a Google API key", pattern: r"(?-u:\b)AIza[A-Za-z0-9_-]{35}" },
    Rule { name: "gcp-service-account", what: "the key of a Google service account", pattern: r#""private_key_id"\s*:\s*"[0-9a-f]{40}""# },
    Rule { name: "stripe-key", what: "a Stripe live key", pattern: r"(?-u:\b)[rs]k_live_[A-Za-z0-9]{20,}" },
    Rule { name: "pypi-token", what: "a PyPI token", pattern: r"(?-u:\b)pypi-AgE[A-Za-z0-9_-]{50,}" },
    Rule { name: "npm-token", what: "an npm token", pattern: r"(?-u:\b)npm_[A-Za-z0-9]{36}(?-u:\b)|_authToken\s*=\s*[A-Za-z0-9-]{20,}" },
    Rule {
        name: "wandb-key",
        what: "a Weights & Biases key",
        pattern: concat!(
            r"(?i)(?:wandb_?(?:api_?)?key",
            given!(),
            r#"|wandb\s+login\s+(?:--?\S+\s+)*|wandb\.login\((?:[^)]*key\s*=\s*)?[\\"']{1,2})[0-9a-f]{40}(?-u:\b)"#
        ),
    },
    Rule { name: "kaggle-key", what: "a Kaggle key", pattern: concat!(r"(?i)kaggle_?key", given!(), r"[0-9a-f]{32}(?-u:\b)") },
    Rule { name: "gcp-user-credentials", what: "a Google user's credentials", pattern: r#""refresh_token"\s*:\s*"1//[A-Za-z0-9_-]{30,}""# },
    Rule { name: "azure-storage-key", what: "an Azure storage key", pattern: r"AccountKey=[A-Za-z0-9+/]{86}==" },
    Rule {
        name: "url-password",
        what: "a password in a URL",
        // Of any scheme, with the driver that SQLAlchemy writes behind it; Redis has no user. The host may be a variable.
        pattern: r"(?i)(?-u:\b)[a-z][a-z0-9]*(?:\+[a-z0-9_]+)?://[a-z0-9._%+-]*:[a-z0-9!#$%&*+=^._~-]{6,}@[a-z0-9.\[${%-][a-z0-9.-]*",
    },
];

/// One of these stands in every match of the rules; found first, at the speed of memory.
const LITERALS: &[&str] = &[
    "AKIA",
    "ASIA",
    "PRIVATE KEY",
    "hf_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "sk-",
    "xox",
    "hooks.slack.com",
    "AIza",
    "private_key_id",
    "k_live_",
    "pypi-AgE",
    "npm_",
    "_authToken",
    "AccountKey=",
    "refresh_token",
    "://",
];

/// Literals in any case.
const LITERALS_ANY_CASE: &[&str] =
    &["aws_?(?:secret|session)", "secret_?access_?key", "wandb_?(?:api_?)?key", r"wandb(?:\s+|\.)login", "kaggle_?key"];

/// What nobody uses as a secret; looked for in the matched text alone. Of a URL: a user or a password that is as a whole a word
/// for one (`appuser` is somebody), a password that is a variable, and the digest of an image, which stands behind its tag.
pub static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
    let words = r"example|placeholder|changeme|your[_-]|dummy|xxxxx|\*\*\*|<[a-z_ -]+>|\$\{|\{\{";
    let of_urls = r"://(?:user|username):|:(?:password|passwd|pass|secret)@|:(?:\$\w+|%\w+%)@|@sha(?:256|512)$";
    Regex::new(&format!("(?i){words}|{of_urls}")).expect("a constant pattern, tested")
});
pub static PREFILTER: LazyLock<Regex> = LazyLock::new(|| {
    let literals = LITERALS.iter().map(|literal| regex::escape(literal));
    let any_case = LITERALS_ANY_CASE.iter().map(|pattern| format!("(?i:{pattern})"));
    Regex::new(&literals.chain(any_case).collect::<Vec<_>>().join("|")).expect("constant patterns, tested")
});
pub static SET: LazyLock<RegexSet> = LazyLock::new(|| RegexSet::new(RULES.iter().map(|rule| rule.pattern)).expect("constant patterns, tested"));
pub static EACH: LazyLock<Vec<Regex>> =
    LazyLock::new(|| RULES.iter().map(|rule| Regex::new(rule.pattern).expect("constant patterns, tested")).collect());

/// What follows the header of a private key: base64, or the headers of an encrypted one.
pub static KEY_BODY: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[A-Za-z0-9+/=]{32,}|Proc-Type:|Version:").expect("a constant pattern, tested"));

/// A line of a `.env` file that gives a value to a name that sounds secret.
pub static ENV_SECRET: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?i)^\s*(?:export\s+)?[A-Z0-9_]*(?:key|token|secret|password|passwd|pwd|credential|auth|dsn)[A-Z0-9_]*\s*=\s*["']?[^\s"'#]{6,}"#)
        .expect("a constant pattern, tested")
});

/// Whether a match can be a secret: no placeholder, not one character over and over, and no login that everybody knows.
pub fn is_real(hit: &[u8]) -> bool {
    const TAIL: usize = 16;
    const DIFFERENT_MIN: usize = 5;
    let mut seen = [false; 256];
    hit.iter().rev().take(TAIL).for_each(|byte| seen[usize::from(*byte)] = true);
    seen.iter().filter(|seen| **seen).count() >= DIFFERENT_MIN && !PLACEHOLDER.is_match(hit) && !names_itself(hit)
}

/// `postgres:postgres@`: the password of a development database is the name of its user.
fn names_itself(hit: &[u8]) -> bool {
    let login = str::from_utf8(hit).ok().and_then(|hit| hit.split_once("://")?.1.rsplit_once('@')?.0.split_once(':'));
    login.is_some_and(|(user, password)| user.eq_ignore_ascii_case(password))
}
