//! Secrets in the workdir: refused with file, line and rule, unless somebody acknowledged them.

use crate::sandbox::Sandbox;

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
fn token_is_refused_with_file_line_and_rule_and_never_shown() {
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
    assert_eq!(
        (&finding["file"], &finding["line"], &finding["rule"]),
        (&"lib/hub.py".into(), &2.into(), &"github-token".into())
    );
}

#[test]
fn acknowledged_by_flag_or_in_the_file_it_ships() {
    let sandbox = with_secret();
    assert_eq!(
        sandbox.lamp(&["check", "job.toml", "--allow-secret", "lib/hub.py:github-token"]).code,
        0
    );
    assert_eq!(
        sandbox.lamp(&["check", "job.toml", "--allow-secret", "lib/hub.py:aws-access-key"]).code,
        100
    );
    sandbox.write("job.toml", "command = ['sh', 'train.py']\nsecrets_allowed = ['lib/']\n");
    assert_eq!(sandbox.lamp(&["check", "job.toml"]).code, 0);
}

#[test]
fn token_in_env_setup_or_command_is_refused_and_never_shown() {
    let token = github_token();
    for (args, place) in [
        (["--env", &format!("GH={token}"), "--setup", "true", "--", "sh", "train.py"], "env.GH"),
        (
            [
                "--env",
                "A=b",
                "--setup",
                &format!("git clone https://{token}@github.com/a/b"),
                "--",
                "sh",
                "train.py",
            ],
            "setup",
        ),
        (["--env", "A=b", "--setup", "true", "--", "sh", &format!("--token={token}")], "command"),
    ] {
        let sandbox = Sandbox::with_script();
        let run = |before: &[&str]| sandbox.lamp(&[before, &args[..]].concat());
        let ended = run(&["run", "--dry-run", "--job-root", "root"]);
        assert_eq!((ended.code, ended.out.as_str()), (102, ""), "{ended:?}");
        assert!(
            ended
                .err
                .contains(&format!("`{place}`: looks like a GitHub token (rule github-token)")),
            "{ended:?}"
        );
        assert!(!ended.err.contains(&token[4..]), "{ended:?}");
        let allowed = run(&["check", "--allow-secret", &format!("{place}:github-token")]);
        assert_eq!(allowed.code, 0, "{allowed:?}");
    }
}

/// As SQLAlchemy, Redis and Git write them, in `env` and in a file alike.
#[test]
fn password_in_a_url_is_refused_whoever_logs_in_by_it() {
    for login in [
        "postgres://appuser:",
        "postgresql+psycopg2://trainer:",
        "rediss://default:",
        "redis://:",
        "https://gituser:",
    ] {
        let url = format!("{login}{}@db.corp:5432/runs", "kX29vTq7Lm");
        let sandbox = Sandbox::with_script();
        let ended = sandbox.lamp(&[
            "check",
            "--env",
            &format!("DATABASE_URL={url}"),
            "--",
            "sh",
            "train.py",
        ]);
        assert_eq!(ended.code, 100, "{login}: {ended:?}");
        assert!(
            ended
                .out
                .contains("`env.DATABASE_URL`: looks like a password in a URL (rule url-password)"),
            "{login}: {ended:?}"
        );
        sandbox.write("conf.py", format!("URL = '{url}'\n"));
        let ended = sandbox.lamp(&["check", "--", "sh", "train.py"]);
        assert!(
            ended.code == 100
                && ended.out.starts_with("conf.py:1: error: looks like a password in a URL"),
            "{login}: {ended:?}"
        );
        assert!(!ended.out.contains("kX29"), "{ended:?}");
    }
}

#[test]
fn name_that_sounds_like_a_secret_is_a_warning_until_allowed() {
    let sandbox = Sandbox::with_script();
    sandbox.write("job.toml", "command = ['sh', 'train.py']\nenv = { DB_PASSWORD = 'correct-horse', TOKENIZERS_PARALLELISM = 'false' }\n");
    let ended = sandbox.lamp(&["check", "job.toml"]);
    assert_eq!(ended.code, 0);
    assert!(
        ended.out.starts_with("job.toml: warning: `env.DB_PASSWORD`: sounds like a secret"),
        "{ended:?}"
    );
    assert!(
        ended.out.contains("1 warning\n")
            && ended.out.contains("name it in [secrets]: DB_PASSWORD = \"env\""),
        "{ended:?}"
    );
    let answered = sandbox.lamp(&["check", "job.toml", "--allow-secret", "env.DB_PASSWORD"]);
    assert!(answered.out.contains("no findings"), "{answered:?}");
}

#[test]
fn token_in_the_job_file_is_told_once() {
    let sandbox = Sandbox::with_script();
    sandbox.write(
        "job.toml",
        format!("command = ['sh', 'train.py']\nenv = {{ GH = '{}' }}\n", github_token()),
    );
    let ended = sandbox.lamp(&["check", "job.toml"]);
    assert_eq!((ended.code, ended.out.matches("error: ").count()), (100, 1), "{ended:?}");
    assert_eq!(
        sandbox.lamp(&["check", "job.toml", "--allow-secret", "job.toml:github-token"]).code,
        0
    );
}

#[test]
fn ignored_secret_does_not_ship_and_is_no_finding() {
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
        (
            "cert.pem",
            "-----BEGIN CERTIFICATE-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA\n",
            None,
        ),
    ] {
        let sandbox = Sandbox::with_script();
        sandbox.write(path, text);
        let ended = sandbox.lamp(&["check", "--", "sh", "train.py"]);
        match rule {
            Some(rule) => {
                assert!(ended.out.contains(&format!("(rule {rule})")), "{path}: {ended:?}")
            }
            None => assert_eq!(ended.code, 0, "{path}: {ended:?}"),
        }
    }
}

#[test]
fn private_key_is_its_body_and_not_the_word() {
    let header = ["-----BEGIN OPENSSH PRIV", "ATE KEY-----"].concat();
    let body = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAAB";
    let sandbox = Sandbox::with_script();
    sandbox.write("deploy.pem", format!("{header}\n{body}\n"));
    sandbox.write("reader.py", format!("if text.startswith('{header}'):\n    raise ValueError\n"));
    let ended = sandbox.lamp(&["check", "--", "sh", "train.py"]);
    assert_eq!(ended.code, 100);
    assert!(
        ended.out.starts_with("deploy.pem:1: error: looks like a private key (rule private-key)"),
        "{ended:?}"
    );
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
fn secret_in_env_is_reported_beside_an_unknown_key() {
    let sandbox = Sandbox::with_script();
    let env = format!("[env]\nHUB = '{}'\n", github_token());
    sandbox.write(
        "job.toml",
        format!("command = ['python3', 'train.py']\n{env}[checkpont]\npath = 'ckpt'\n"),
    );
    let ended = sandbox.lamp(&["check", "job.toml"]);
    assert_eq!(ended.code, 100, "{ended:?}");
    assert!(
        ended.out.contains("`checkpont`")
            && ended.out.contains("`env.HUB`: looks like a GitHub token"),
        "{ended:?}"
    );
    assert!(!ended.out.contains(&github_token()[4..]), "{ended:?}");
}

/// Every file below a folder that holds a text.
fn holding(folder: &std::path::Path, text: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => holding(&entry.path(), text),
            Ok(kind) if kind.is_file() => {
                let held = std::fs::read(entry.path()).unwrap_or_default();
                let found = held.windows(text.len()).any(|part| part == text.as_bytes());
                found.then(|| entry.path().display().to_string()).into_iter().collect()
            }
            _ => Vec::new(),
        })
        .collect()
}

#[test]
fn secrets_from_env_and_file_reach_the_command_and_no_record() {
    let place = crate::place::Place::new(
        "echo ${#HF_TOKEN} ${#WANDB_API_KEY} ${#RENAMED}; while [ ! -e GO ]; do sleep 0.1; done",
    );
    place.0.write(
        "lamp.toml",
        "name = 'trains'\ncommand = ['sh', 'job.sh']\n[secrets]\nHF_TOKEN = 'env'\nWANDB_API_KEY = 'file:~/wandb'\nRENAMED = 'env:OTHER'\n",
    );
    place.0.write(".lampignore", "home\n");
    place.0.write("home/wandb", "canary-of-a-file\n");
    let mut run = place.0.command(&["run", "-d", "-vv"]);
    let ran = place.0.end(run.env("HF_TOKEN", "canary-of-the-env").env("OTHER", "canary-other"));
    assert_eq!(ran.code, 0, "{ran:?}");
    let job = ran.out.trim().to_owned();
    crate::place::wait_until("it prints", || {
        place.0.lamp(&["logs", &job]).out.contains("17 16 12").then_some(())
    });
    let state = place.0.path().join("home/.local");
    let kept = holding(&state, "canary-");
    assert!(
        kept.iter().all(|file| file.contains("/local/environments/")),
        "the job's own environment alone holds them: {kept:?}"
    );
    assert!(!ran.err.contains("canary-"), "{ran:?}");
    let shown =
        ["status", "explain", "receipt"].map(|verb| place.0.lamp(&[verb, &job, "-o", "json"]));
    assert!(shown.iter().all(|shown| !shown.out.contains("canary-")), "{shown:?}");
    place.0.write("go", "");
    crate::place::wait_until("it ends", || {
        (place.status(&job)["state"] == "succeeded").then_some(())
    });
    crate::place::wait_until("its environment goes", || {
        holding(&state, "canary-").is_empty().then_some(())
    });
    place.nothing_is_left();
}

#[test]
fn missing_secret_is_an_error_before_anything_starts() {
    let sandbox = Sandbox::with_script();
    sandbox.write("job.toml", "command = ['sh', 'train.py']\n[secrets]\nHF_TOKEN = 'env'\nWANDB_API_KEY = 'file:nowhere'\n");
    let here = sandbox.lamp(&["check", "job.toml"]);
    assert_eq!((here.code, here.out.matches("error: ").count()), (100, 2), "{here:?}");
    assert!(
        here.out.contains("has no HF_TOKEN") && here.out.contains("cannot be read from `nowhere`"),
        "{here:?}"
    );
    let aws = |flags: &[&str]| {
        sandbox.lamp(
            &[
                &["check", "job.toml", "--cloud", "aws", "--budget", "5", "--region", "us-east-2"]
                    [..],
                flags,
            ]
            .concat(),
        )
    };
    let refused = aws(&[]);
    assert!(
        refused.code == 100
            && refused
                .out
                .contains("aws ssm put-parameter --type SecureString --name /secrets/HF_TOKEN"),
        "{refused:?}"
    );
    let named = [
        "--secret",
        "HF_TOKEN=ssm:/secrets/hf",
        "--secret",
        "WANDB_API_KEY=secretsmanager:wandb#key",
    ];
    let not_allowed = aws(&named);
    assert!(
        not_allowed.code == 100
            && not_allowed.out.contains("the role of the machines may not read"),
        "{not_allowed:?}"
    );
    sandbox.write(
        "home/.config/lamplighter/config.toml",
        "[aws]\nsecrets = ['ssm:/secrets/hf', 'secretsmanager:wandb']\n",
    );
    let allowed = aws(&named);
    assert_eq!(allowed.code, 0, "{allowed:?}");
    let policy = sandbox.lamp(&["iam", "box", "--bucket", "jobs", "--region", "us-east-2"]);
    assert!(
        policy.out.contains("arn:aws:ssm:*:*:parameter/secrets/hf")
            && policy.out.contains(":secret:wandb-??????"),
        "{policy:?}"
    );
    let typed = sandbox.lamp(&["check", "--secret", "HF_TOKEN=hf_abc", "--", "true"]);
    assert!(
        typed.code == 2 && typed.err.contains("the secret itself does not belong in the job file"),
        "{typed:?}"
    );
}
