//! Secrets in the workdir: refused with file, line and rule, unless somebody acknowledged them.

use super::sandbox::Sandbox;

/// Joined here, so that this file itself holds nothing that looks like a secret.
fn github_token() -> String {
    ["gh", "p_", "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8bC3dF5gH7"].concat()
}

fn with_secret() -> Sandbox {
    let sandbox = Sandbox::with_script();
    sandbox.write("lib/hub.py", format!("import os\nTOKEN = '{}'\n", github_token()));
    sandbox.write("job.toml", "command = ['sh', 'train.py']\n");
    sandbox
}

#[test]
fn a_token_is_refused_with_file_line_and_rule_and_never_shown() {
    let sandbox = with_secret();
    let ended = sandbox.lamp(&["check", "job.toml"]);
    assert_eq!(ended.code, 100);
    assert_eq!(
        ended.out.lines().take(2).collect::<Vec<_>>(),
        [
            "lib/hub.py:2: error: looks like a GitHub token (rule github-token)",
            "  hint: remove it, ignore the file in .lampignore, or allow it with `--allow-secret lib/hub.py:github-token`"
        ]
    );
    assert!(!ended.out.contains(&github_token()[4..]), "{ended:?}");
    let (_, document) = sandbox.json(&["check", "job.toml", "-o", "json"]);
    let finding = &document["findings"][0];
    assert_eq!((&finding["file"], &finding["line"], &finding["rule"]), (&"lib/hub.py".into(), &2.into(), &"github-token".into()));
}

#[test]
fn acknowledged_by_flag_or_in_the_file_it_ships() {
    let sandbox = with_secret();
    assert_eq!(sandbox.lamp(&["check", "job.toml", "--allow-secret", "lib/hub.py:github-token"]).code, 0);
    assert_eq!(sandbox.lamp(&["check", "job.toml", "--allow-secret", "lib/hub.py:aws-access-key"]).code, 100);
    sandbox.write("job.toml", "command = ['sh', 'train.py']\nsecrets_allowed = ['lib/']\n");
    assert_eq!(sandbox.lamp(&["check", "job.toml"]).code, 0);
}

#[test]
fn a_token_in_the_environment_setup_or_command_is_refused_and_never_shown() {
    let token = github_token();
    for (args, place) in [
        (["--env", &format!("GH={token}"), "--setup", "true", "--", "sh", "train.py"], "env.GH"),
        (["--env", "A=b", "--setup", &format!("git clone https://{token}@github.com/a/b"), "--", "sh", "train.py"], "setup"),
        (["--env", "A=b", "--setup", "true", "--", "sh", &format!("--token={token}")], "command"),
    ] {
        let sandbox = Sandbox::with_script();
        let run = |before: &[&str]| sandbox.lamp(&[before, &args[..]].concat());
        let ended = run(&["run", "--dry-run", "--job-root", "root"]);
        assert_eq!((ended.code, ended.out.as_str()), (102, ""), "{ended:?}");
        assert!(ended.err.contains(&format!("`{place}`: looks like a GitHub token (rule github-token)")), "{ended:?}");
        assert!(!ended.err.contains(&token[4..]), "{ended:?}");
        let allowed = run(&["check", "--allow-secret", &format!("{place}:github-token")]);
        assert_eq!(allowed.code, 0, "{allowed:?}");
    }
}

/// As SQLAlchemy, Redis and Git write them, in `env` and in a file alike.
#[test]
fn a_password_in_a_url_is_refused_whoever_logs_in_by_it() {
    for login in ["postgres://appuser:", "postgresql+psycopg2://trainer:", "rediss://default:", "redis://:", "https://gituser:"] {
        let url = format!("{login}{}@db.corp:5432/runs", "kX29vTq7Lm");
        let sandbox = Sandbox::with_script();
        let ended = sandbox.lamp(&["check", "--env", &format!("DATABASE_URL={url}"), "--", "sh", "train.py"]);
        assert_eq!(ended.code, 100, "{login}: {ended:?}");
        assert!(ended.out.contains("`env.DATABASE_URL`: looks like a password in a URL (rule url-password)"), "{login}: {ended:?}");
        sandbox.write("conf.py", format!("URL = '{url}'\n"));
        let ended = sandbox.lamp(&["check", "--", "sh", "train.py"]);
        assert!(ended.code == 100 && ended.out.starts_with("conf.py:1: error: looks like a password in a URL"), "{login}: {ended:?}");
        assert!(!ended.out.contains("kX29"), "{ended:?}");
    }
}

#[test]
fn what_only_sounds_like_a_secret_is_a_warning_that_can_be_answered() {
    let sandbox = Sandbox::with_script();
    sandbox.write("job.toml", "command = ['sh', 'train.py']\nenv = { DB_PASSWORD = 'correct-horse', TOKENIZERS_PARALLELISM = 'false' }\n");
    let ended = sandbox.lamp(&["check", "job.toml"]);
    assert_eq!(ended.code, 0);
    assert!(ended.out.starts_with("job.toml: warning: `env.DB_PASSWORD`: sounds like a secret"), "{ended:?}");
    assert!(ended.out.contains("1 warning\n"), "{ended:?}");
    let answered = sandbox.lamp(&["check", "job.toml", "--allow-secret", "env.DB_PASSWORD"]);
    assert!(answered.out.contains("no findings"), "{answered:?}");
}

#[test]
fn a_token_in_the_job_file_is_told_once() {
    let sandbox = Sandbox::with_script();
    sandbox.write("job.toml", format!("command = ['sh', 'train.py']\nenv = {{ GH = '{}' }}\n", github_token()));
    let ended = sandbox.lamp(&["check", "job.toml"]);
    assert_eq!((ended.code, ended.out.matches("error: ").count()), (100, 1), "{ended:?}");
    assert_eq!(sandbox.lamp(&["check", "job.toml", "--allow-secret", "job.toml:github-token"]).code, 0);
}

#[test]
fn an_ignored_secret_does_not_ship_and_is_no_finding() {
    let sandbox = with_secret();
    sandbox.write(".lampignore", "lib/hub.py\n");
    assert_eq!(sandbox.lamp(&["check", "job.toml"]).code, 0);
}

#[test]
fn environment_files_and_key_files_are_known_by_name() {
    for (path, text, rule) in [
        (".env", "DEBUG=1\nDB_PASSWORD=correct-horse-battery\n", Some("env-file")),
        (".env.example", "DB_PASSWORD=correct-horse-battery\n", None),
        (".env", "DEBUG=1\nMODE=offline\n", None),
        ("keys/id_ed25519", "anything", Some("ssh-key-file")),
        ("keys/id_ed25519.pub", "ssh-ed25519 AAAAC3Nz alice", None),
        (".aws/credentials", "[default]\n", Some("aws-credentials-file")),
        (".netrc", "machine x\n", Some("credentials-file")),
        ("cert.pem", "-----BEGIN CERTIFICATE-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA\n", None),
    ] {
        let sandbox = Sandbox::with_script();
        sandbox.write(path, text);
        let ended = sandbox.lamp(&["check", "--", "sh", "train.py"]);
        match rule {
            Some(rule) => assert!(ended.out.contains(&format!("(rule {rule})")), "{path}: {ended:?}"),
            None => assert_eq!(ended.code, 0, "{path}: {ended:?}"),
        }
    }
}

#[test]
fn a_private_key_is_its_body_and_not_the_word() {
    let header = ["-----BEGIN OPENSSH PRIV", "ATE KEY-----"].concat();
    let body = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAAB";
    let sandbox = Sandbox::with_script();
    sandbox.write("deploy.pem", format!("{header}\n{body}\n"));
    sandbox.write("reader.py", format!("if text.startswith('{header}'):\n    raise ValueError\n"));
    let ended = sandbox.lamp(&["check", "--", "sh", "train.py"]);
    assert_eq!(ended.code, 100);
    assert!(ended.out.starts_with("deploy.pem:1: error: looks like a private key (rule private-key)"), "{ended:?}");
    assert!(!ended.out.contains("reader.py"), "{ended:?}");
}

#[test]
fn binary_and_large_files_are_not_read_as_text() {
    let sandbox = Sandbox::with_script();
    let token = github_token();
    sandbox.write("weights.bin", [&[0_u8, 1, 2][..], token.as_bytes()].concat());
    sandbox.write("log.txt", [vec![b'x'; 11 << 20], token.into_bytes()].concat());
    assert_eq!(sandbox.lamp(&["check", "--", "sh", "train.py"]).code, 0);
}

/// All at once: what is wrong with the keys hides nothing that the words give away.
#[test]
fn a_secret_in_the_environment_is_told_beside_a_key_that_nobody_knows() {
    let sandbox = Sandbox::with_script();
    let env = format!("[env]\nHUB = '{}'\n", github_token());
    sandbox.write("job.toml", format!("command = ['python3', 'train.py']\n{env}[checkpont]\npath = 'ckpt'\n"));
    let ended = sandbox.lamp(&["check", "job.toml"]);
    assert_eq!(ended.code, 100, "{ended:?}");
    assert!(ended.out.contains("`checkpont`") && ended.out.contains("`env.HUB`: looks like a GitHub token"), "{ended:?}");
    assert!(!ended.out.contains(&github_token()[4..]), "{ended:?}");
}
