//! Shapes of secrets: the rules of the scan, and the words that mark a placeholder.
//!
//! A file without any of the literals is harmless. In a file with one, the rules are matched
//! against each line. A match is a secret unless it is a placeholder or one repeated letter.
//!
//! A rule checks shape *and* length of a real secret. Not here: a file, or a finding.

use std::sync::LazyLock;

use regex::bytes::{Regex, RegexSet};

pub struct SecretRule {
    pub name: &'static str,
    pub what: &'static str,
    /// Matched against a line.
    pattern: &'static str,
    /// Words that must be in the file too, all of one group: files without a secret can have the
    /// shape.
    beside: &'static [&'static [&'static str]],
    /// Ordinary words match too, so the value must look random.
    drawn: bool,
}

impl SecretRule {
    const fn new(name: &'static str, what: &'static str, pattern: &'static str) -> Self {
        SecretRule { name, what, pattern, beside: &[], drawn: false }
    }

    const fn drawn(self) -> Self {
        SecretRule { drawn: true, ..self }
    }

    const fn beside(self, beside: &'static [&'static [&'static str]]) -> Self {
        SecretRule { beside, ..self }
    }

    /// Whether the file holds the words in `beside`.
    pub fn is_of(&self, file: &[u8]) -> bool {
        let holds =
            |word: &str| Regex::new(&regex::escape(word)).is_ok_and(|word| word.is_match(file));
        self.beside.is_empty()
            || self.beside.iter().any(|group| group.iter().all(|word| holds(word)))
    }

    /// Whether a match can be a secret of this rule.
    pub fn takes(&self, hit: &[u8]) -> bool {
        is_real(hit) && (!self.drawn || is_drawn(hit))
    }
}

pub const PRIVATE_KEY: &str = "private-key";

/// The text between a name and its value in programs, notebooks (with backslashes), shells and
/// Dockerfiles.
macro_rules! given {
    () => {
        r#"[\\"'\]]{0,4}(?:\s*[:=,]\s*|\s+)[\\"']{0,2}"#
    };
}

pub const RULES: &[SecretRule] = &[
    SecretRule::new("aws-access-key", "an AWS access key id", r"(?-u:\b)(?:AKIA|ASIA)[A-Z2-7]{16}(?-u:\b)"),
    SecretRule::new(
        "aws-secret-key",
        "an AWS secret access key",
        concat!(r"(?i)(?:aws_?(?:secret|session)_?(?:access_?)?(?:key|token)|secret_?access_?key)", given!(), r"[A-Za-z0-9/+=]{40,}"),
    ),
    SecretRule::new(PRIVATE_KEY, "a private key", r"-----? ?BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)? ?-----?"),
    SecretRule::new("age-key", "a private key of age", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    SecretRule::new("wireguard-key", "a private key of WireGuard", r"(?i)^\s*PrivateKey\s*=\s*[A-Za-z0-9+/]{43}="),
    SecretRule::new("putty-key", "a private key of PuTTY", r"^PuTTY-User-Key-File-[23]: \S+").beside(&[&["Private-Lines:"]]),
    SecretRule::new(
        "huggingface-token",
        "a Hugging Face token",
        r"(?-u:\b)hf_[A-Za-z0-9]{30,}(?-u:\b)|(?-u:\b)api_org_[A-Za-z0-9]{30,}(?-u:\b)",
    ),
    SecretRule::new("github-token", "a GitHub token", r"(?-u:\b)(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,})"),
    SecretRule::new(
        "gitlab-token",
        "a GitLab token",
        r"(?-u:\b)(?:gl(?:pat|dt|rt|rtr|ft|soat|cbt|ptt|imt|agent|oas|ffct|wt)-[A-Za-z0-9_.-]{20,}|GR1348941[A-Za-z0-9_-]{20,})",
    ),
    SecretRule::new(
        "openai-key",
        "an API key of OpenAI or Anthropic",
        r"(?-u:\b)sk-(?:[A-Za-z0-9]{40,}|[0-9a-f]{32}(?-u:\b)|(?:proj|svcacct|admin|None|ant|lf)-[A-Za-z0-9_-]{20,})",
    ),
    SecretRule::new("openrouter-key", "an API key of OpenRouter", r"(?-u:\b)sk-or-v1-[0-9a-f]{40,}"),
    SecretRule::new("nvidia-key", "an API key of NVIDIA", r"(?-u:\b)nvapi-[A-Za-z0-9_-]{40,}"),
    SecretRule::new("groq-key", "an API key of Groq", r"(?-u:\b)gsk_[A-Za-z0-9]{40,}"),
    SecretRule::new("replicate-token", "a Replicate token", r"(?-u:\b)r8_[A-Za-z0-9]{37}(?-u:\b)"),
    SecretRule::new("xai-key", "an API key of xAI", r"(?-u:\b)xai-[A-Za-z0-9]{60,}"),
    SecretRule::new("perplexity-key", "an API key of Perplexity", r"(?-u:\b)pplx-[A-Za-z0-9]{40,}"),
    SecretRule::new("runpod-key", "an API key of RunPod", r"(?-u:\b)rpa_[A-Za-z0-9]{40,}"),
    SecretRule::new("databricks-token", "a Databricks token", r"(?-u:\b)dapi[0-9a-f]{32}(?:-\d)?(?-u:\b)"),
    SecretRule::new("docker-token", "a Docker Hub token", r"(?-u:\b)dckr_[po]at_[A-Za-z0-9_-]{27,}"),
    SecretRule::new(
        "slack-token",
        "a Slack token",
        r"(?-u:\b)(?:xox[abceoprs]-[0-9]+-[A-Za-z0-9-]{10,}|xoxe\.xox[bp]-[0-9]-[A-Za-z0-9]{20,}|xapp-[0-9]-A[A-Z0-9]+-[0-9]+-[0-9a-f]{40,})",
    ),
    SecretRule::new("slack-webhook", "a Slack webhook", r"hooks\.slack\.com/services/T[A-Z0-9]{6,}/B[A-Z0-9]{6,}/[A-Za-z0-9]{16,}"),
    SecretRule::new("discord-webhook", "a Discord webhook", r"discord(?:app)?\.com/api/webhooks/[0-9]{17,20}/[A-Za-z0-9_-]{60,}"),
    SecretRule::new("telegram-token", "the token of a Telegram bot", r"(?-u:\b|bot)[0-9]{8,10}:AA[A-Za-z0-9_-]{32,34}(?-u:\b)"),
    SecretRule::new("google-api-key", "a Google API key", r"(?-u:\b)AIza[A-Za-z0-9_-]{35}"),
    SecretRule::new(
        "google-oauth",
        "a secret of Google OAuth",
        r"(?-u:\b)(?:GOCSPX-[A-Za-z0-9_-]{28}|ya29\.(?:[a-z]\.)?[A-Za-z0-9_-]{30,}|1//0[A-Za-z0-9_-]{60,})",
    ),
    SecretRule::new("gcp-service-account", "the key of a Google service account", r#""private_key_id"\s*:\s*"[0-9a-f]{40}""#),
    SecretRule::new("stripe-key", "a Stripe live key", r"(?-u:\b)[rs]k_live_[A-Za-z0-9]{20,}"),
    SecretRule::new("pypi-token", "a PyPI token", r"(?-u:\b)pypi-AgE[A-Za-z0-9_-]{50,}"),
    SecretRule::new("npm-token", "an npm token", r"(?-u:\b)npm_[A-Za-z0-9]{36}(?-u:\b)|_authToken\s*=\s*[A-Za-z0-9-]{20,}|(?:^\s*|:)_auth\s*=\s*[A-Za-z0-9+/=]{20,}"),
    SecretRule::new(
        "wandb-key",
        "a Weights & Biases key",
        concat!(
            r"(?i)(?:wandb_?(?:api_?)?key",
            given!(),
            r#"|wandb\s+login\s+(?:--?\S+\s+)*|wandb\.login\((?:[^)]*key\s*=\s*)?[\\"']{1,2})[0-9a-f]{40}(?-u:\b)|(?-u:\b)wandb_v1_[A-Za-z0-9_-]{40,}"#
        ),
    ),
    SecretRule::new(
        "kaggle-key",
        "a Kaggle key",
        concat!(r"(?i)kaggle_?key", given!(), r"[0-9a-f]{32}(?-u:\b)|(?-u:\b)KGAT_[0-9a-f]{32}(?-u:\b)"),
    ),
    SecretRule::new("gcp-user-credentials", "a Google user's credentials", r#""refresh_token"\s*:\s*"1//[A-Za-z0-9_-]{30,}""#),
    SecretRule::new("azure-storage-key", "an Azure storage key", r"(?:Account|SharedAccess)Key=[A-Za-z0-9+/]{43,86}="),
    SecretRule::new("azure-sas", "a shared access signature of Azure", r"(?:[?&]|SharedAccessSignature=\S*)sig=(?:[A-Za-z0-9/+]|%[0-9A-Fa-f]{2}){43,}"),
    SecretRule::new("azure-client-secret", "a client secret of Azure", r"(?-u:\b)[A-Za-z0-9_~.-]{3}[78]Q~[A-Za-z0-9_~.-]{31,34}"),
    SecretRule::new(
        "json-web-token",
        "a JSON web token",
        r"(?-u:\b)eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{40,}\.[A-Za-z0-9_-]{40,}",
    ),
    SecretRule::new(
        "service-token",
        "a token of a service",
        concat!(
            r"(?-u:\b)(?:do[opr]_v1_[0-9a-f]{64}|SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}|hv[sbr]\.[A-Za-z0-9_-]{24,}",
            r"|lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}|pcsk_[A-Za-z0-9_]{50,}|tgp_v1_[A-Za-z0-9_-]{40,}|fw_[A-Za-z0-9]{24}(?-u:\b)",
            r"|ntn_[A-Za-z0-9]{40,}|lin_api_[A-Za-z0-9]{40}|glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}|glc_eyJ[A-Za-z0-9+/=]{60,}",
            r"|sntry[su]_[A-Za-z0-9+/=_]{60,}|NRAK-[A-Z0-9]{27}|PMAK-[0-9a-f]{24}-[0-9a-f]{34}|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
            r"|sq0(?:atp|csp)-[A-Za-z0-9_-]{22,}|nfp_[A-Za-z0-9]{36}|rnd_[A-Za-z0-9]{28}|pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{32,}",
            r"|dp\.(?:pt|st|ct|sa)\.[A-Za-z0-9_.-]{40,}|pul-[0-9a-f]{40}|[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{60,}|ops_eyJ[A-Za-z0-9+/=_-]{100,}",
            r"|tskey-[a-z]+-[A-Za-z0-9]+-[A-Za-z0-9]{20,}|rubygems_[0-9a-f]{48}|cio[A-Za-z0-9]{32}(?-u:\b)|oy2[a-z0-9]{43}|AKCp[A-Za-z0-9]{60,}",
            r"|sq[pua]_[0-9a-f]{40}|ATATT3[A-Za-z0-9_=-]{100,}|ATBB[A-Za-z0-9]{32}|LTAI[A-Za-z0-9]{20}(?-u:\b)|AKID[A-Za-z0-9]{32}(?-u:\b)",
            r"|eyJhcGlfYWRkcmVzcyI6[A-Za-z0-9+/=]{40,}|sk_[0-9a-f]{48}(?-u:\b)|as-[A-Za-z0-9]{22}(?-u:\b)|secret_[A-Za-z0-9]{43}(?-u:\b)",
            r"|pat[A-Za-z0-9]{14}\.[0-9a-f]{64}|[MNO][A-Za-z0-9]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}|FlyV1 fm[12][a-z]?_[A-Za-z0-9+/=,_]{60,})",
        ),
    ),
    SecretRule::new(
        "credentials-file",
        "the credentials of a registry",
        r#""(?:auth|identitytoken)"\s*:\s*"[A-Za-z0-9+/=._-]{16,}""#,
    )
    .beside(&[&["\"auths\""], &["\"https://index.docker.io/v1/\""]]),
    SecretRule::new(
        "cluster-credentials",
        "the credentials of a cluster",
        r#"^\s*"?(?:client-key-data"?\s*:\s*"?[A-Za-z0-9+/=]{40,}|(?:token|password)"?\s*:\s*["']?[A-Za-z0-9+/=._~-]{8,})"#,
    )
    .beside(&[&["clusters", "users", "current-context"], &["client-key-data"]]),
    SecretRule::new("netrc", "a login of a netrc file", r"^\s*password\s+\S{6,}\s*$|\bmachine\s+\S+\s+login\s+\S+\s+password\s+[^\s$<{]{6,}").beside(&[&["machine ", "login "]]),
    SecretRule::new("password-setting", "a password in a settings file", r#"(?i)^\s*(?:password|pass|secret_key)\s*[:=]\s*["']?[^\s"'${%<]{6,}"#).drawn().beside(&[
        &["[distutils]"],
        &["[pypi]"],
        &["[testpypi]"],
        &["[client]"],
        &["[mysql]"],
        &["host_bucket"],
        &["type = sftp"],
        &["type = webdav"],
    ]),
    SecretRule::new(
        "command-password",
        "a password on a command line",
        concat!(
            r#"(?:(?-u:\b)(?:PGPASSWORD|MYSQL_PWD|SSHPASS|REDISCLI_AUTH)=["']?|(?-u:\b)sshpass\s+-p\s*["']?|(?-u:\b)mysql\s[^|;]*\s-p"#,
            r#"|(?-u:\b)curl\s[^|;]*(?:-u|--user)[ =]["']?[A-Za-z0-9_.@-]+:|(?-u:\b)docker\s+login\s[^|;]*(?:-p|--password)[ =]["']?)[A-Za-z0-9!#%&*+=^.~_-]{8,}"#
        ),
    )
    .drawn(),
    SecretRule::new(
        "connection-password",
        "a password of a connection",
        concat!(
            r#"(?i)(?:(?-u:\b)host=\S+\s[^"']*(?-u:\b)password=|jdbc:[a-z0-9]+:\S*[?&;]password="#,
            r#"|(?-u:\b)pwd=|(?-u:\b)password=|["']?(?-u:\b)password["']?\s*[:=]\s*["'])[A-Za-z0-9!#%*+^.~_-]{8,}"#
        ),
    )
    .drawn()
    .beside(&[
        &["host="],
        &["jdbc:"],
        &["Server="],
        &["'ENGINE'"],
        &["\"ENGINE\""],
        &["username="],
        &["connect("],
    ]),
    SecretRule::new("bearer", "the token of a request", r"(?i)(?:authorization|bearer)[\\\x22']{0,3}\s*[:=]?\s*[\\\x22']{0,2}(?:bearer|token|basic)\s+[A-Za-z0-9+/=._~-]{24,}")
        .drawn(),
    SecretRule::new(
        "api-key",
        "a key by its name",
        concat!(
            r"(?i)(?:api_?key|apikey|api_?secret(?:_?key)?|api_?token|access_?token|auth_?token|client_?secret|account_?key|hub_?token|secret_?token)",
            given!(),
            r"[A-Za-z0-9_+/=-]{24,}"
        ),
    )
    .drawn(),
    SecretRule::new(
        "url-password",
        "a password in a URL",
        // Any scheme, with SQLAlchemy's driver suffix; Redis has no user. The host may be a
        // variable.
        r"(?i)(?-u:\b)[a-z][a-z0-9]*(?:\+[a-z0-9_]+)?://[a-z0-9._%+-]*:[a-z0-9!#$%&*+=^._~-]{6,}@[a-z0-9.\[${%-][a-z0-9.-]*",
    ),
];

/// Every match of the rules contains one of these. This fast search runs first.
const LITERALS: &[&str] = &[
    "AKIA",
    "ASIA",
    "PRIVATE KEY",
    "AGE-SECRET-KEY-1",
    "PuTTY-User-Key",
    "hf_",
    "api_org_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "GR1348941",
    "sk-",
    "nvapi-",
    "gsk_",
    "r8_",
    "xai-",
    "pplx-",
    "rpa_",
    "dapi",
    "dckr_",
    "xox",
    "xapp-",
    "hooks.slack.com",
    "/api/webhooks/",
    ":AA",
    "AIza",
    "GOCSPX-",
    "ya29.",
    "1//0",
    "private_key_id",
    "k_live_",
    "pypi-AgE",
    "npm_",
    "_auth",
    "wandb_v1_",
    "KGAT_",
    "Key=",
    "sig=",
    "Q~",
    "eyJ",
    "refresh_token",
    "\"auths\"",
    "index.docker.io",
    "client-key-data",
    "current-context",
    "://",
    // Tokens of services.
    "_v1_",
    "SG.",
    "lsv2_",
    "pcsk_",
    "fw_",
    "ntn_",
    "lin_api_",
    "glsa_",
    "glc_",
    "sntry",
    "NRAK-",
    "PMAK-",
    "shp",
    "sq0",
    "nfp_",
    "rnd_",
    "pscale_",
    "dp.",
    "pul-",
    ".atlasv1.",
    "ops_",
    "tskey-",
    "rubygems_",
    "cio",
    "oy2",
    "AKCp",
    "sqp_",
    "squ_",
    "sqa_",
    "ATATT3",
    "ATBB",
    "LTAI",
    "AKID",
    "sk_",
    "as-",
    "secret_",
    "pat",
    "FlyV1",
    "hvs.",
    "hvb.",
    "hvr.",
];

/// Literals in any case, and shapes without a literal.
const LITERALS_ANY_CASE: &[&str] = &[
    "aws_?(?:secret|session)",
    "secret_?access_?key",
    "wandb_?(?:api_?)?key",
    r"wandb(?:\s+|\.)login",
    "kaggle_?key",
    "gl(?:pat|dt|rt|rtr|ft|soat|cbt|ptt|imt|agent|oas|ffct|wt)-",
    r"privatekey\s*=",
    "passw(?:or)?d",
    r"pwd\s*=",
    "sshpass",
    "rediscli_auth",
    r"mysql\s",
    r"curl\s",
    r"docker\s+login",
    "bearer|authorization",
    r"secret_?key|host_bucket|\[mysql\]|type = (?:sftp|webdav)",
    "api_?key|api_?secret|api_?token|access_?token|auth_?token|client_?secret|account_?key|hub_?token|secret_?token",
    r"[MNO][A-Za-z0-9]{23,25}\.[A-Za-z0-9_-]{6}\.",
];

/// Text that marks a placeholder; searched in the match only. In a URL: a user or password that is
/// itself such a word, a variable as password, or the digest of an image.
pub static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
    let words = r"example|placeholder|changeme|change[_-]me|your[_-]|dummy|xxxxx|abcdefghij|1234567890|insert[_-]|replace[_-]|redacted|notasecret|czZCaGRSa3F0|eyJzdWIiOiIxMjM0NTY3ODkwI|\.\.\.|\*\*\*|<[a-z_ -]+>|\$\{|\{\{";
    let of_urls = r"://(?:user|username):|:(?:password|passwd|pass|secret)@|:(?:\$\w+|%\w+%)@|@sha(?:256|512)$";
    Regex::new(&format!("(?i){words}|{of_urls}")).expect("a constant pattern, tested")
});
pub static PREFILTER: LazyLock<Regex> = LazyLock::new(|| {
    let literals = LITERALS.iter().map(|literal| regex::escape(literal));
    let any_case = LITERALS_ANY_CASE.iter().map(|pattern| format!("(?i:{pattern})"));
    Regex::new(&literals.chain(any_case).collect::<Vec<_>>().join("|"))
        .expect("constant patterns, tested")
});
pub static SET: LazyLock<RegexSet> = LazyLock::new(|| {
    RegexSet::new(RULES.iter().map(|rule| rule.pattern)).expect("constant patterns, tested")
});
pub static EACH: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    RULES.iter().map(|rule| Regex::new(rule.pattern).expect("constant patterns, tested")).collect()
});

/// The text after a private key's header: base64, or headers of an encrypted key.
pub static KEY_BODY: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[A-Za-z0-9+/=]{32,}|Proc-Type:|Version:|Comment:")
        .expect("a constant pattern, tested")
});

/// A line between header and key: empty in GnuPG, quotes in a program's string.
pub static KEY_GAP: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"^[\s"',>#|*+]*(?:\\[nr])*["',+\s]*$"#).expect("a constant pattern, tested")
});

/// A `.env` line that sets a name which sounds secret.
pub static ENV_SECRET: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?i)^\s*(?:export\s+)?[A-Z0-9_]*(?:key|token|secret|password|passwd|pwd|credential|auth|dsn)[A-Z0-9_]*\s*[:=]\s*["']?[^\s"'#]{6,}"#)
        .expect("a constant pattern, tested")
});

/// Whether a match can be a secret: not a placeholder, a repeated character or a well-known login.
pub fn is_real(hit: &[u8]) -> bool {
    const TAIL: usize = 16;
    const DIFFERENT_MIN: usize = 5;
    let mut seen = [false; 256];
    hit.iter().rev().take(TAIL).for_each(|byte| seen[usize::from(*byte)] = true);
    seen.iter().filter(|seen| **seen).count() >= DIFFERENT_MIN
        && !PLACEHOLDER.is_match(hit)
        && !names_itself(hit)
}

/// Whether the last word of a match looks random, unlike a name, path or sentence.
fn is_drawn(hit: &[u8]) -> bool {
    let is_value = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/_-=.~!#%*^".contains(byte);
    let from = hit
        .iter()
        .rposition(|byte| b" \t\"'=:".contains(byte) && !hit.ends_with(&[*byte]))
        .map_or(0, |at| at + 1);
    let value: Vec<u8> = hit[from..].iter().copied().filter(is_value).collect();
    let count = |of: fn(&u8) -> bool| value.iter().filter(|byte| of(byte)).count();
    let (digits, lower, upper) =
        (count(u8::is_ascii_digit), count(u8::is_ascii_lowercase), count(u8::is_ascii_uppercase));
    let kind =
        |byte: u8| (byte.is_ascii_digit(), byte.is_ascii_lowercase(), byte.is_ascii_uppercase());
    let changes = value.windows(2).filter(|pair| kind(pair[0]) != kind(pair[1])).count();
    // `readConfigV2` changes case only between words; a random value does at every second
    // character.
    let is_mixed = lower >= 2 && upper >= 2 && (digits >= 2 || changes * 5 >= value.len() * 2);
    let is_of_one_case = digits >= 2 && digits * 8 >= value.len();
    digits >= 1 && lower + upper >= 2 && (is_mixed || is_of_one_case)
}

/// `postgres:postgres@`: password and user of a development database are the same.
fn names_itself(hit: &[u8]) -> bool {
    let login = str::from_utf8(hit)
        .ok()
        .and_then(|hit| hit.split_once("://")?.1.rsplit_once('@')?.0.split_once(':'));
    login.is_some_and(|(user, password)| user.eq_ignore_ascii_case(password))
}
