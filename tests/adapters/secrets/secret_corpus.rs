//! How much of what is secret the scan finds, and how often it cries wolf: on two corpora of our
//! own, drawn from one seed.
//!
//! The first asks whether each kind that has a rule is found in every place where people write it
//! down. It was made beside the rules, so that what it says is the recall of the places and not
//! that of the kinds. The second asks what a person may expect: ways to log in as the documents of
//! services and libraries write them, with or without a rule here. What is missed there is listed
//! by its name.
//!
//! No key in it is anybody's, and none stands in this file: each is drawn, and its beginning is
//! joined from two halves.

use std::fs;

use lamplighter::adapters::workdir::pack::survey;
use lamplighter::adapters::workdir::secret_scan::scan;

/// What is true of this corpus; the design asked for 95 % and 2 %.
const FOUND_MIN_PERCENT: f64 = 99.0;
const FALSE_MAX_PERCENT: f64 = 0.5;

/// Credentials that other programs document and that have no rule here. A new rule removes its line
/// from this list.
const MISSED: &[&str] = &[];

struct Dice(u64);

const BASE62: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE32: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const HEX: &[u8] = b"0123456789abcdef";

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % bound
    }

    fn text(&mut self, letters: &[u8], length: usize) -> String {
        (0..length).map(|_| char::from(letters[self.below(letters.len())])).collect()
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    fn uuid(&mut self) -> String {
        [8, 4, 4, 4, 12].map(|length| self.text(HEX, length)).join("-")
    }
}

/// Every kind of secret, under the name that people give it.
fn secrets(dice: &mut Dice) -> Vec<(&'static str, String)> {
    let with = |first: &str, second: &str, rest: String| [first, second, &rest].concat();
    vec![
        ("AWS_ACCESS_KEY_ID", with("AK", "IA", dice.text(BASE32, 16))),
        ("AWS_ACCESS_KEY_ID", with("AS", "IA", dice.text(BASE32, 16))),
        ("AWS_SECRET_ACCESS_KEY", dice.text(BASE64, 40)),
        ("HF_TOKEN", with("h", "f_", dice.text(BASE62, 34))),
        ("GITHUB_TOKEN", with("gh", "p_", dice.text(BASE62, 36))),
        ("GH_PAT", with("github", "_pat_", dice.text(BASE62, 82))),
        ("GITLAB_TOKEN", with("glp", "at-", dice.text(BASE62, 20))),
        ("OPENAI_API_KEY", with("s", "k-proj-", dice.text(BASE62, 48))),
        ("ANTHROPIC_API_KEY", with("sk", "-ant-api03-", dice.text(BASE62, 90))),
        (
            "SLACK_BOT_TOKEN",
            with("xo", "xb-2", dice.text(b"0123456789", 11) + "-" + &dice.text(BASE62, 24)),
        ),
        (
            "SLACK_URL",
            with(
                "https://hooks.sl",
                "ack.com/services/T0",
                dice.text(BASE32, 8) + "/B0" + &dice.text(BASE32, 8) + "/" + &dice.text(BASE62, 24),
            ),
        ),
        ("GOOGLE_API_KEY", with("AI", "za", dice.text(BASE62, 35))),
        ("STRIPE_KEY", with("sk_l", "ive_", dice.text(BASE62, 24))),
        ("TWINE_PASSWORD", with("pypi-A", "gE", dice.text(BASE62, 120))),
        ("NPM_TOKEN", with("np", "m_", dice.text(BASE62, 36))),
        ("WANDB_API_KEY", dice.text(HEX, 40)),
        (
            "AZURE_STORAGE",
            with(
                "DefaultEndpointsProtocol=https;AccountName=a;Account",
                "Key=",
                dice.text(BASE64, 86) + "==",
            ),
        ),
        (
            "DATABASE_URL",
            format!("postgres://trainer:{}@db.internal:5432/runs", dice.text(BASE62, 14)),
        ),
        (
            "DATABASE_URL",
            format!("postgres://appuser:{}@db.internal:5432/runs", dice.text(BASE62, 14)),
        ),
        (
            "SQLALCHEMY_URL",
            format!("postgresql+psycopg2://trainer:{}@db.internal/runs", dice.text(BASE62, 14)),
        ),
        (
            "MYSQL_URL",
            format!("mysql+pymysql://trainer:{}@db.internal:3306/runs", dice.text(BASE62, 14)),
        ),
        ("REDIS_URL", format!("rediss://default:{}@cache.internal:6379/0", dice.text(BASE62, 24))),
        ("CELERY_BROKER", format!("redis://:{}@cache.internal:6379/0", dice.text(BASE62, 24))),
        ("REPO", format!("https://bot:{}@git.internal/team/code.git", dice.text(BASE62, 20))),
        (
            "GIT_REMOTE",
            format!("https://gituser:{}@git.internal/team/code.git", dice.text(BASE62, 20)),
        ),
    ]
}

/// Where people write such a thing down.
fn written(name: &str, value: &str) -> Vec<(&'static str, String)> {
    let lower = name.to_lowercase();
    vec![
        (".env", format!("DEBUG=1\n{name}={value}\n")),
        ("prod.env", format!("export {name}=\"{value}\"\n")),
        ("config.json", format!("{{\n  \"epochs\": 3,\n  \"{lower}\": \"{value}\"\n}}\n")),
        ("settings.yaml", format!("train:\n  lr: 0.1\n  {lower}: {value}\n")),
        (
            "compose.yaml",
            format!("services:\n  train:\n    environment:\n      - {name}={value}\n"),
        ),
        ("conf.toml", format!("[keys]\n{lower} = '{value}'\n")),
        ("train.py", format!("import os\n\n{name} = \"{value}\"\n")),
        ("main.py", format!("import os\nos.environ[\"{name}\"] = \"{value}\"\n")),
        ("client.py", format!("client = connect({lower}='{value}', timeout=3)\n")),
        (
            "explore.ipynb",
            format!(
                "{{\"cells\": [{{\"source\": [\"import os\\n\", \"os.environ[\\\"{name}\\\"] = \\\"{value}\\\"\\n\"]}}]}}\n"
            ),
        ),
        ("run.ipynb", format!("{{\"cells\": [{{\"source\": [\"%env {name}={value}\\n\"]}}]}}\n")),
        (".bash_history", format!("ls\nexport {name}={value}\npython train.py\n")),
        ("run.sh", format!("#!/bin/sh\n{name}={value} python train.py\n")),
        ("Dockerfile", format!("FROM python:3.12\nENV {name} {value}\n")),
        ("Containerfile", format!("FROM python:3.12\nENV {name}={value}\n")),
        ("app.js", format!("const config = {{ {lower}: '{value}' }};\n")),
        ("NOTES.md", format!("The key for the cluster:\n\n    {name}: {value}\n")),
        ("debug.log", format!("12:00:01 DEBUG starting with {name}={value} LANG=C\n")),
        ("min.json", format!("{{\"a\":1,\"{name}\":\"{value}\"}}\n")),
        (
            "dump.json",
            format!("{{\"losses\":[{}0],\"{name}\":\"{value}\"}}\n", "0.125,".repeat(14_000)),
        ),
    ]
}

/// Whole files that are secret, or hold keys of several lines.
fn files_of_keys(dice: &mut Dice) -> Vec<(&'static str, String)> {
    let kind = dice.pick(&["RSA ", "EC ", "OPENSSH ", ""]);
    let (begin, end) = (
        [&format!("-----BEGIN {kind}PRIV"), "ATE KEY-----"].concat(),
        [&format!("-----END {kind}PRIV"), "ATE KEY-----"].concat(),
    );
    let lines: Vec<String> = (0..12).map(|_| dice.text(BASE64, 64)).collect();
    let pem = format!("{begin}\n{}\n{end}\n", lines.join("\n"));
    let (secret, access) = (dice.text(BASE64, 40), ["AK", "IA", &dice.text(BASE32, 16)].concat());
    let (hex, wandb) = (dice.text(HEX, 32), dice.text(HEX, 40));
    vec![
        ("deploy.pem", pem.clone()),
        ("keys/server.key", pem.clone()),
        ("keys/id_ed25519", pem.clone()),
        ("keys/id_ecdsa_sk", pem.clone()),
        ("tunnel.py", format!("KEY = \"\"\"{pem}\"\"\"\n")),
        ("secret.yaml", format!("tls:\n  key: |\n    {}\n", pem.replace('\n', "\n    "))),
        (
            "account.json",
            format!(
                "{{\"type\": \"service_account\", \"private_key\": \"{}\"}}\n",
                pem.replace('\n', "\\n")
            ),
        ),
        ("keys.json", format!("{{\"private_{}\": \"{}\"}}\n", "key_id", dice.text(HEX, 40))),
        (
            "cell.ipynb",
            format!("{{\"source\": [\n  \"key = '''{begin}\\n\",\n  \"{}\\n\"\n]}}\n", lines[0]),
        ),
        (
            ".aws/credentials",
            format!("[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n"),
        ),
        ("aws-copy.ini", format!("[default]\naws_secret_access_key = {secret}\n")),
        (
            "sts.json",
            format!(
                "{{\"Credentials\": {{\"SecretAccessKey\": \"{secret}\", \"Expiration\": \"x\"}}}}\n"
            ),
        ),
        ("setup.sh", format!("aws configure set aws_secret_access_key {secret}\n")),
        (".netrc", format!("machine api.wandb.ai\n  login user\n  password {wandb}\n")),
        ("_netrc", format!("machine api.wandb.ai\n  login user\n  password {wandb}\n")),
        (".bash_history", format!("cd x\nwandb login {wandb}\n")),
        ("log.py", format!("import wandb\nwandb.login(key=\"{wandb}\")\n")),
        ("log.ipynb", format!("{{\"source\": [\"wandb.login(key=\\\"{wandb}\\\")\"]}}\n")),
        ("kaggle.json", format!("{{\"username\":\"someone\",\"key\":\"{hex}\"}}\n")),
        ("kaggle.sh", format!("export KAGGLE_KEY={hex}\n")),
        ("huggingface/token", ["h", "f_", &dice.text(BASE62, 34)].concat()),
        (".npmrc", format!("//registry.npmjs.org/:_auth{}={}\n", "Token", dice.uuid())),
        (".git-credentials", format!("https://someone:{}@example.org\n", dice.text(BASE62, 20))),
        (
            ".docker/config.json",
            format!("{{\"auths\": {{\"r.io\": {{\"auth\": \"{}\"}}}}}}\n", dice.text(BASE64, 24)),
        ),
        (
            "application_default_credentials.json",
            format!(
                "{{\"type\": \"authorized_user\", \"refresh_token\": \"1//0{}\"}}\n",
                dice.text(BASE62, 60)
            ),
        ),
        ("store.p12", dice.text(BASE64, 200)),
    ]
}

/// Ways to log in, one each, as the documents of the service or library write them; with the name
/// under which one that is not found stands in [`MISSED`]. Written down from those documents and
/// not from the rules: half of them have none.
fn as_documented(dice: &mut Dice) -> Vec<(&'static str, String)> {
    let pw = dice.text(BASE62, 16);
    let with = |first: &str, second: &str, rest: String| [first, second, &rest].concat();
    vec![
        (
            "SQLAlchemy, psycopg",
            format!("create_engine('postgresql+psycopg://scott:{pw}@db.corp:5432/test')"),
        ),
        (
            "SQLAlchemy, MariaDB",
            format!(
                "create_engine('mariadb+mariadbconnector://scott:{pw}@127.0.0.1:3307/company')"
            ),
        ),
        ("SQLAlchemy, ODBC", format!("create_engine('mssql+pyodbc://scott:{pw}@mydsn')")),
        (
            "SQLAlchemy, Oracle",
            format!("create_engine('oracle+oracledb://scott:{pw}@db.corp:1521/?service_name=x')"),
        ),
        (
            "SQLAlchemy, a quoted password",
            format!("create_engine('postgresql+pg8000://dbuser:kx%40{pw}%2F@pghost10/appdb')"),
        ),
        (
            "SQLAlchemy, by parts",
            format!("URL.create('postgresql', username='scott', password='{pw}', host='db')"),
        ),
        ("Snowflake", format!("snowflake://trainer:{pw}@xy12345.eu-central-1/db/schema")),
        ("ClickHouse", format!("clickhouse+native://default:{pw}@ch.corp/default")),
        (
            "MongoDB",
            format!("mongodb+srv://trainer:{pw}@cluster0.ab1cd.mongodb.net/?retryWrites=true"),
        ),
        ("redis-py", format!("redis.from_url('rediss://:{pw}@cache.corp:6380/0')")),
        ("Celery, RabbitMQ", format!("broker_url = 'amqp://worker:{pw}@mq.corp:5672/vhost'")),
        (
            "Django",
            format!(
                "DATABASES = {{'default': {{'ENGINE': 'postgresql', 'USER': 'django', 'PASSWORD': '{pw}'}}}}"
            ),
        ),
        (
            "libpq, words",
            format!("psycopg.connect(\"host=db.corp dbname=runs user=trainer password={pw}\")"),
        ),
        ("libpq, PGPASSWORD", format!("PGPASSWORD={pw} psql -h db.corp -U trainer runs")),
        ("MySQL's client", format!("mysql -h db.corp -u trainer -p{pw} runs")),
        ("JDBC", format!("jdbc:postgresql://db.corp/runs?user=trainer&password={pw}")),
        ("Elasticsearch", format!("Elasticsearch('https://elastic:{pw}@es.corp:9200')")),
        ("Neo4j", format!("neo4j+s://neo4j:{pw}@ab12cd34.databases.neo4j.io")),
        ("NATS", format!("nats.connect('nats://trainer:{pw}@nats.corp:4222')")),
        ("SMTP", format!("EMAIL_URL=smtp://mailer:{pw}@smtp.corp:587")),
        ("MLflow", format!("mlflow.set_tracking_uri('https://mlflow:{pw}@mlflow.corp')")),
        ("pip's index", format!("--extra-index-url https://reader:{pw}@pypi.corp/simple")),
        ("a proxy", format!("https_proxy=http://trainer:{pw}@proxy.corp:3128")),
        ("curl", format!("curl -u trainer:{pw} https://api.corp/v1/runs")),
        ("sshpass", format!("sshpass -p {pw} ssh trainer@gpu.corp")),
        ("a bearer", format!("headers = {{'Authorization': 'Bearer {}'}}", dice.text(BASE62, 40))),
        (
            "a JSON web token",
            format!("eyJhbGciOiJIUzI1NiJ9.{}.{}", dice.text(BASE62, 60), dice.text(BASE62, 43)),
        ),
        (
            "Hugging Face",
            format!("huggingface-cli login --token {}", with("h", "f_", dice.text(BASE62, 34))),
        ),
        (
            "Weights & Biases, in a machine's netrc",
            format!("wandb login --relogin {}", dice.text(HEX, 40)),
        ),
        ("Comet", format!("comet_ml.init(api_key='{}')", dice.text(BASE62, 25))),
        ("Databricks", format!("token = {}", with("da", "pi", dice.text(HEX, 32)))),
        ("Replicate", format!("REPLICATE_API_TOKEN={}", with("r", "8_", dice.text(BASE62, 37)))),
        (
            "OpenAI",
            format!("client = OpenAI(api_key='{}')", with("s", "k-proj-", dice.text(BASE62, 120))),
        ),
        (
            "GitHub, of an app",
            format!(
                "git clone https://x-access-token:{}@github.com/a/b",
                with("gh", "s_", dice.text(BASE62, 36))
            ),
        ),
        (
            "Docker Hub",
            format!("docker login -u a -p {}", with("dckr", "_pat_", dice.text(BASE62, 27))),
        ),
        (
            "Azure storage",
            format!(
                "AccountName=a;Account{}{}==;EndpointSuffix=core.windows.net",
                "Key=",
                dice.text(BASE64, 86)
            ),
        ),
        (
            "Azure, shared access",
            format!(
                "https://a.blob.core.windows.net/c?sv=2024-11-04&sig={}%3D",
                dice.text(BASE62, 43)
            ),
        ),
        ("DigitalOcean", with("dop", "_v1_", dice.text(HEX, 64))),
        ("SendGrid", with("S", "G.", dice.text(BASE62, 22) + "." + &dice.text(BASE62, 43))),
        ("Vault", format!("VAULT_TOKEN={}", with("hv", "s.", dice.text(BASE62, 90)))),
        (
            "Telegram",
            format!(
                "https://api.telegram.org/bot{}:AA{}/sendMessage",
                dice.text(b"123456789", 10),
                dice.text(BASE62, 33)
            ),
        ),
        (
            "Discord's webhook",
            format!(
                "https://discord.com/api/webhooks/{}/{}",
                dice.text(b"123456789", 18),
                dice.text(BASE62, 68)
            ),
        ),
    ]
}

/// What is no secret, and looks like one to whoever is careless.
fn harmless(dice: &mut Dice) -> Vec<(&'static str, String)> {
    let (sha, commit, uuid, image) =
        (dice.text(HEX, 64), dice.text(HEX, 40), dice.uuid(), dice.text(BASE64, 4000));
    let words = dice.pick(&[
        "sk-learn-pipeline-of-many-words-and-more-of-them",
        "task-learning-rate-0123456789-0123456789-0123",
        "risk-of-rain",
    ]);
    let integrity = dice.text(BASE64, 86);
    let access = ["AK", "IAIOSFODNN7EXAMPLE"].concat();
    vec![
        ("Cargo.lock", format!("[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"{sha}\"\n")),
        ("package-lock.json", format!("{{\"integrity\": \"sha512-{integrity}==\", \"resolved\": \"https://registry.npmjs.org/a/-/a-1.0.0.tgz\"}}\n")),
        ("poetry.lock", format!("files = [\n    {{file = \"a-1.0-py3-none-any.whl\", hash = \"sha256:{sha}\"}},\n]\n")),
        ("uv.lock", format!("wheels = [{{ url = \"https://files.pythonhosted.org/packages/{}/a.whl\", hash = \"sha256:{sha}\" }}]\n", &sha[..60])),
        ("requirements.txt", format!("a==1.0 --hash=sha256:{sha}\n-e git+https://github.com/x/y@{commit}#egg=y\n")),
        ("SHA256SUMS", format!("{sha}  weights.safetensors\n")),
        ("git.log", format!("commit {commit}\nAuthor: A <a@example.org>\n    key: use token {uuid}\n")),
        ("ids.csv", format!("run,uuid\n1,{uuid}\n2,{}\n", dice.uuid())),
        ("plots.ipynb", format!("{{\"outputs\": [{{\"data\": {{\"image/png\": \"{image}\"}}}}], \"id\": \"{}\"}}\n", &commit[..8])),
        ("page.html", format!("<img src=\"data:image/png;base64,{image}\">\n<div class=\"{words}\">\n")),
        ("style.css", format!(".{words} {{ color: red }}\n")),
        ("bundle.min.js", format!("var a=\"{}\",b=\"{}\";function c(){{return a+b}}\n", dice.text(BASE62, 300), dice.text(BASE64, 300))),
        ("tokenizer.json", format!("{{\"vocab\": {{\"hf_\": 1, \"sk-\": 2, \"AKIA\": 3, \"{}\": 4}}}}\n", dice.text(BASE62, 12))),
        ("model.py", "hf_model = AutoModel.from_pretrained(name)\nhf_hub_download(repo_id=\"org/name\", filename=\"model.safetensors\")\n".into()),
        (
            "login.py",
            "import os\nkey = os.environ[\"AWS_SECRET_ACCESS_KEY\"]\nos.environ[\"WANDB_API_KEY\"] = os.environ.get(\"KEY\", \"\")\n".into(),
        ),
        ("read.py", "if '-----BEGIN RSA PRIVATE KEY-----' in text:\n    raise ValueError('a private key')\n".into()),
        ("cert.pem", format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", dice.text(BASE64, 64))),
        ("id_ed25519.pub", format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{} someone@laptop\n", dice.text(BASE64, 43))),
        ("public.pem", format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", dice.text(BASE64, 64))),
        ("README.md", format!("Set `AWS_ACCESS_KEY_ID={access}` and `AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCY{}`.\n", "EXAMPLEKEY")),
        ("docs.md", "export HF_TOKEN=hf_your_token_goes_here_and_not_in_git\nexport OPENAI_API_KEY=sk-...\nexport GH=<your token>\n".into()),
        ("test_scan.py", format!("FAKE = '{}'\nOTHER = '{}'\n", ["gh", "p_", &"x".repeat(36)].concat(), ["AK", "IA", &"A".repeat(16)].concat())),
        ("ci.yml", "env:\n  HF_TOKEN: ${{ secrets.HF_TOKEN }}\n  WANDB_API_KEY: ${{ secrets.WANDB_API_KEY }}\n".into()),
        ("run.sh", "git clone https://$USER:$TOKEN@github.com/a/b\ncurl -H \"Authorization: Bearer $HF_TOKEN\" https://x.org\n".into()),
        ("db.py", "engine = create_engine('postgres://user:password@localhost/db')\nurl = f'postgres://{name}:{word}@{host}/db'\n".into()),
        ("urls.txt", "https://github.com/a/b@v1\nhttps://x.org:8080/p@q\nssh://git@github.com/a/b\nhttps://x.org/?at=12:30@home\n".into()),
        ("Apptainer", format!("Bootstrap: docker\nFrom: docker://ubuntu:22.04-slim@sha256:{sha}\n")),
        ("engine.py", "url = f'postgresql+psycopg2://{user}:{word}@{host}/db'\nother = 'mysql+pymysql://trainer:%s@%s/db' % (word, host)\n".into()),
        ("compose.yaml", "  url: redis://:$REDIS_PASSWORD@cache:6379\n  db: postgres://appuser:${DB_PASSWORD}@db/runs\n".into()),
        ("ci.yaml", "  env:\n    DATABASE_URL: postgres://postgres:postgres@localhost:5432/test\n".into()),
        (
            "docs.rst",
            "    postgresql+psycopg2://user:password@host:port/dbname[?key=value]\n    rediss://username:password@localhost:6379/0\n".into(),
        ),
        ("hosts.txt", "ssh://git@git.corp:2222/a/b\ntcp://10.0.0.1:29500\nhttps://x.org:8443/p@q\ns3://bucket/run:12345678@v2\n".into()),
        (".env", "DEBUG=1\nMODE=offline\nEPOCHS=10\n".into()),
        (".env.example", "DB_PASSWORD=correct-horse-battery\n".into()),
        (
            "main.tf",
            "variable \"aws_secret_access_key\" { type = string }\nresource \"x\" \"y\" { arn = \"arn:aws:iam::123456789012:role/lamp\" }\n".into(),
        ),
        ("wandb.log", format!("wandb: run {} at https://wandb.ai/team/project/runs/{}\nwandb: commit {commit}\n", &commit[..8], &commit[..8])),
        ("train.log", format!("step 1 loss 0.31 checkpoint sha256 {sha} in s3://bucket/jobs/digits-2b3c4d/checkpoints/1\n")),
        ("grammar.py", "aws_secret_access_key_is_needed_for_this_and_that = False\nwandb_key_from_the_environment_of_the_user_only = True\n".into()),
    ]
}

/// One file in a folder of its own; gives the folder's name.
fn put(root: &std::path::Path, number: usize, (path, text): &(&str, String)) -> String {
    let folder = format!("f{number}");
    let file = root.join(&folder).join(path);
    fs::create_dir_all(file.parent().expect("a file has a folder")).expect("writable");
    fs::write(file, text).expect("writable");
    folder
}

/// How many of these files the scan names, and which it does not.
fn named(files: &[(&'static str, String)]) -> (usize, Vec<String>) {
    let place = tempfile::tempdir().expect("a folder");
    let folders: Vec<String> =
        files.iter().enumerate().map(|(number, file)| put(place.path(), number, file)).collect();
    let surveyed = survey(place.path(), &[], 1 << 30);
    let found = scan(&surveyed).expect("it can be read");
    let told: std::collections::BTreeSet<&str> =
        found.iter().filter_map(|secret| secret.path.split('/').next()).collect();
    let unnamed = folders
        .iter()
        .zip(files)
        .filter(|(folder, _)| !told.contains(folder.as_str()))
        .map(|(_, (path, text))| format!("{path}: {text}"));
    (told.len(), unnamed.collect())
}

fn percent(part: usize, whole: usize) -> f64 {
    part as f64 * 100.0 / whole as f64
}

#[test]
fn secret_scan_finds_nearly_all_secrets_and_few_lookalikes() {
    let mut dice = Dice(0x5eed_1234_5678_9abd);
    let (mut secret, mut other) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        for (name, value) in secrets(&mut dice) {
            secret.extend(written(name, &value));
        }
        secret.extend(files_of_keys(&mut dice));
    }
    for _ in 0..30 {
        other.extend(harmless(&mut dice));
    }
    let (found, missed) = named(&secret);
    let (wrong, quiet) = named(&other);
    println!(
        "found {found} of {} secret files, {:.1} %; {wrong} of {} others, {:.2} %",
        secret.len(),
        percent(found, secret.len()),
        other.len(),
        percent(wrong, other.len())
    );
    assert!(
        percent(found, secret.len()) >= FOUND_MIN_PERCENT,
        "{found} of {}; missed: {missed:#?}",
        secret.len()
    );
    let told: Vec<&String> = other
        .iter()
        .filter(|(path, text)| !quiet.contains(&format!("{path}: {text}")))
        .map(|(_, text)| text)
        .collect();
    assert!(
        percent(wrong, other.len()) <= FALSE_MAX_PERCENT,
        "{wrong} of {}: {told:#?}",
        other.len()
    );
}

#[test]
fn secret_scan_of_documented_logins_misses_only_those_listed() {
    let mut dice = Dice(0x0dd5_eed0_1234_5677);
    let forms = as_documented(&mut dice);
    let files: Vec<(&'static str, String)> = forms
        .iter()
        .map(|(_, text)| ("notes.txt", format!("some words before\n{text}\n")))
        .collect();
    let (found, unnamed) = named(&files);
    let is_missed = |text: &str| unnamed.iter().any(|file| file.contains(text));
    let missed: Vec<&str> =
        forms.iter().filter(|(_, text)| is_missed(text)).map(|(name, _)| *name).collect();
    println!("found {found} of {} ways to log in; missed: {missed:#?}", forms.len());
    assert_eq!(missed, MISSED, "found {found} of {}", forms.len());
}
