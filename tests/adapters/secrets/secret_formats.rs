//! Formats of secrets as services and programs of today write them, one each, and what only
//! resembles them.
//!
//! Each sample is joined here from parts, so that no scanner of a forge takes this file for a leak.
//! No key is anybody's.

use std::fs;
use std::path::Path;

use lamplighter::adapters::workdir::pack::survey;
use lamplighter::adapters::workdir::secret_scan::scan;

/// Letters as a service draws them; the same in each run.
fn drawn(letters: &[u8], length: usize, seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).expect("31 bits")
    };
    (0..length).map(|_| char::from(letters[next() % letters.len()])).collect()
}

const BASE62: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const HEX: &[u8] = b"0123456789abcdef";
const UPPER: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const DIGITS: &[u8] = b"123456789";

/// A format: what it is, the file, and what stands in the file.
type Sample = (&'static str, &'static str, Vec<u8>);

/// One key of a shape, as a line of a script.
fn keys() -> Vec<Sample> {
    let a = |length: usize| drawn(BASE62, length, length as u64 + 7);
    let h = |length: usize| drawn(HEX, length, length as u64 + 3);
    let u = |length: usize| drawn(UPPER, length, length as u64 + 5);
    let d = |length: usize| drawn(DIGITS, length, length as u64 + 2);
    let keys: Vec<(&'static str, [&str; 2], String)> = vec![
        ("W&B, v1", ["wandb", "_v1_"], a(80)),
        ("NVIDIA", ["nva", "pi-"], a(64)),
        ("Groq", ["gs", "k_"], a(52)),
        ("OpenRouter", ["sk-", "or-v1-"], h(64)),
        ("Replicate", ["r", "8_"], a(37)),
        ("xAI", ["xa", "i-"], a(80)),
        ("Perplexity", ["ppl", "x-"], a(48)),
        ("RunPod", ["rp", "a_"], u(42)),
        ("Databricks", ["da", "pi"], h(32)),
        ("Databricks, numbered", ["da", "pi"], h(32) + "-2"),
        ("Slack, app", ["xap", "p-1-A"], u(10) + "-" + &d(13) + "-" + &h(64)),
        ("Slack, bot", ["xox", "b-"], d(12) + "-" + &d(12) + "-" + &a(24)),
        ("Slack, session", ["xox", "c-"], d(12) + "-" + &d(12) + "-" + &h(64)),
        ("Slack, refresh", ["xoxe.", "xoxb-1-"], a(60)),
        ("Google OAuth, client", ["GOC", "SPX-"], a(28)),
        ("Google OAuth, access", ["ya", "29."], "a0".to_owned() + &a(160)),
        ("Google OAuth, refresh", ["1/", "/0"], a(80)),
        ("Google, API", ["AI", "za"], a(35)),
        ("GitLab, personal", ["glp", "at-"], a(20)),
        ("GitLab, routable", ["glp", "at-"], a(27) + ".01." + &h(9)),
        ("GitLab, deploy", ["gld", "t-"], a(20)),
        ("GitLab, runner", ["glr", "t-"], a(20)),
        ("GitLab, runner of old", ["GR13", "48941"], a(20)),
        ("GitLab, feed", ["glf", "t-"], a(20)),
        ("GitLab, CI job", ["glcb", "t-64_"], a(20)),
        ("GitLab, trigger", ["glpt", "t-"], h(40)),
        ("GitLab, agent", ["glag", "ent-"], a(50)),
        ("GitLab, SCIM", ["glso", "at-"], a(20)),
        ("Docker Hub, personal", ["dckr", "_pat_"], a(27)),
        ("Docker Hub, organisation", ["dckr", "_oat_"], a(32)),
        ("Hugging Face", ["h", "f_"], a(34)),
        ("Hugging Face, organisation", ["api", "_org_"], a(34)),
        ("Anthropic", ["sk-", "ant-api03-"], a(93) + "AA"),
        ("Anthropic, admin", ["sk-", "ant-admin01-"], a(93) + "AA"),
        ("OpenAI, project", ["sk-", "proj-"], a(70) + "T3BlbkFJ" + &a(70)),
        ("OpenAI, service", ["sk-", "svcacct-"], a(70) + "T3BlbkFJ" + &a(70)),
        ("OpenAI, admin", ["sk-", "admin-"], a(58) + "T3BlbkFJ" + &a(58)),
        ("OpenAI, of old", ["s", "k-"], a(20) + "T3BlbkFJ" + &a(20)),
        ("DeepSeek", ["s", "k-"], h(32)),
        ("GitHub, personal", ["gh", "p_"], a(36)),
        ("GitHub, fine-grained", ["github", "_pat_"], a(22) + "_" + &a(59)),
        ("GitHub, app", ["gh", "s_"], a(36)),
        ("AWS, key id", ["AK", "IA"], drawn(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16, 9)),
        ("Stripe", ["sk_l", "ive_"], a(99)),
        ("PyPI", ["pypi-A", "gE"], a(160)),
        ("npm", ["np", "m_"], a(36)),
        ("Kaggle, token", ["KG", "AT_"], h(32)),
        ("DigitalOcean", ["dop", "_v1_"], h(64)),
        ("SendGrid", ["S", "G."], a(22) + "." + &a(43)),
        ("Vault", ["hv", "s."], a(90)),
        ("LangSmith", ["lsv2", "_pt_"], h(32) + "_" + &h(10)),
        ("Langfuse", ["sk-", "lf-"], h(8) + "-" + &h(4) + "-" + &h(4) + "-" + &h(4) + "-" + &h(12)),
        ("Pinecone", ["pc", "sk_"], a(6) + "_" + &a(63)),
        ("Together", ["tgp", "_v1_"], a(43)),
        ("Notion", ["nt", "n_"], a(46)),
        ("Linear", ["lin", "_api_"], a(40)),
        ("Grafana", ["gl", "sa_"], a(32) + "_" + &h(8)),
        ("Sentry, user", ["sntr", "yu_"], h(64)),
        ("New Relic", ["NR", "AK-"], u(27)),
        ("Postman", ["PM", "AK-"], h(24) + "-" + &h(34)),
        ("Shopify", ["shp", "at_"], h(32)),
        ("Netlify", ["nf", "p_"], a(36)),
        ("PlanetScale", ["pscale", "_tkn_"], a(43)),
        ("Doppler", ["dp", ".pt."], a(43)),
        ("Pulumi", ["pu", "l-"], h(40)),
        ("Terraform Cloud", ["aB3dE5gH7jK9mN", ".atlasv1."], a(67)),
        ("Tailscale", ["tsk", "ey-auth-"], a(12) + "-" + &a(32)),
        ("RubyGems", ["ruby", "gems_"], h(48)),
        ("crates.io", ["ci", "o"], a(32)),
        ("Artifactory", ["AK", "Cp"], a(69)),
        ("SonarQube", ["sq", "p_"], h(40)),
        ("Atlassian", ["ATA", "TT3xFfGF0"], a(180)),
        ("Bitbucket", ["AT", "BB"], a(32)),
        ("Alibaba", ["LT", "AI"], a(20)),
        ("Tencent", ["AK", "ID"], a(32)),
        ("Neptune", ["eyJhcGlf", "YWRkcmVzcyI6"], a(120)),
        ("ElevenLabs", ["s", "k_"], h(48)),
        ("Modal", ["a", "s-"], a(22)),
        ("age", ["AGE-SECRET", "-KEY-1"], u(58)),
        ("Telegram", ["70", "12345678:AA"], a(33)),
        ("Airtable", ["pat", "aB3dE5gH7jK9mN."], h(64)),
        ("Azure, client secret", ["aB3", "8Q~"], a(34)),
        ("a JSON web token", ["eyJhbGciOiJIUzI1NiJ9", ".eyJ"], a(60) + "." + &a(43)),
    ];
    keys.into_iter()
        .map(|(what, [one, other], rest)| {
            (what, "app.py", format!("client = Client(\"{one}{other}{rest}\")\n").into_bytes())
        })
        .collect()
}

/// Settings, commands and whole files.
fn files() -> Vec<Sample> {
    let a = |length: usize| drawn(BASE62, length, length as u64 + 17);
    let h = |length: usize| drawn(HEX, length, length as u64 + 13);
    let line = |length: usize, seed: u64| drawn(BASE64, length, seed);
    let key = |kind: &str, gap: &str, end: &str| {
        let body: Vec<String> = (0..6).map(|seed| line(64, seed + 40)).collect();
        format!(
            "-----BEGIN {kind}{}{gap}\n{}\n-----END {kind}{end}",
            ["PRIVATE", " KEY"].concat() + end,
            body.join("\n"),
            end = end
        )
    };
    let pgp = key("PGP ", "\n", " BLOCK-----");
    let word = ["pass", "word"].concat();
    let mut samples: Vec<(&'static str, &'static str, String)> = vec![
        ("PGP, as GnuPG 2.4 writes it", "key.asc", format!("{pgp}\n")),
        ("PGP, in a program", "sign.py", format!("KEY = \"\"\"\n{pgp}\"\"\"\n")),
        ("PGP, with a comment", "key.txt", key("PGP ", "\nComment: build key", " BLOCK-----")),
        ("OpenSSH", "deploy", key("OPENSSH ", "", "-----")),
        ("PKCS 8, encrypted", "tls.txt", key("ENCRYPTED ", "", "-----")),
        (
            "PuTTY",
            "key.txt",
            format!(
                "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n{}-Lines: 1\n{}\n",
                "Private",
                line(44, 3)
            ),
        ),
        ("WireGuard", "wg0.conf", format!("[Interface]\n{}Key = {}=\n", "Private", line(43, 4))),
        (".envrc", ".envrc", format!("export DB_{}={}\n", "PASSWORD", a(12))),
        (
            ".pypirc",
            ".pypirc",
            format!("[distutils]\nindex-servers = corp\n[corp]\nusername: me\n{word}: {}\n", a(14)),
        ),
        (".netrc", ".netrc", format!("machine api.wandb.ai\n  login user\n  {word} {}\n", h(40))),
        (
            "netrc, moved",
            "docker/netrc.txt",
            format!("machine api.wandb.ai\n  login user\n  {word} {}\n", h(40)),
        ),
        (
            "netrc, in one line",
            "setup.sh",
            format!("echo \"machine x.org login me {word} {}\" > f\n", a(20)).replace('"', ""),
        ),
        (
            "docker, moved",
            "ci/registry.json",
            format!("{{\"auths\": {{\"r.io\": {{\"auth\": \"{}\"}}}}}}\n", line(24, 5)),
        ),
        (
            "docker, of old",
            "dockercfg.json",
            format!("{{\"https://index.docker.io/v1/\": {{\"auth\": \"{}\"}}}}\n", line(24, 6)),
        ),
        (
            "kube, moved",
            "cluster.yaml",
            format!(
                "clusters: []\nusers:\n- user:\n    client-key-{}: {}\ncurrent-context: x\n",
                "data",
                line(120, 7)
            ),
        ),
        (
            "kube, token",
            "k8s/conf.yml",
            format!(
                "clusters: []\ncurrent-context: x\nusers:\n- user:\n    tok{}: {}\n",
                "en",
                a(40)
            ),
        ),
        ("MySQL", "my.cnf", format!("[client]\nuser=me\n{word}={}\n", a(14))),
        ("Vault, file", ".vault-token", a(26)),
        ("Streamlit", ".streamlit/secrets.toml", format!("db = '{}'\n", a(12))),
        ("Cargo", ".cargo/credentials.toml", format!("[registry]\ntoken = '{}'\n", a(35))),
        ("Kaggle", "kaggle.json", format!("{{\"username\": \"me\", \"key\": \"{}\"}}\n", h(32))),
        ("Java", "store.jks", a(64)),
        ("W&B, netrc of old", "train.sh", format!("wandb login {}\n", h(40))),
        ("AWS, secret", "conf.ini", format!("aws_secret_{}_key = {}\n", "access", line(40, 8))),
        (
            "Azure, storage",
            "conn.txt",
            format!("AccountName=a;Account{}={}==\n", "Key", line(86, 9)),
        ),
        (
            "Azure, service bus",
            "bus.txt",
            format!(
                "Endpoint=sb://x/;SharedAccessKeyName=r;SharedAccess{}={}=\n",
                "Key",
                line(43, 10)
            ),
        ),
        (
            "Azure, shared access",
            "blob.txt",
            format!("https://a.blob.core.windows.net/c?sv=2024-11-04&s{}={}%3D\n", "ig", a(43)),
        ),
        (
            "Discord",
            "hook.txt",
            format!("https://discord.com/api/{}/{}/{}\n", "webhooks", drawn(DIGITS, 18, 3), a(68)),
        ),
        (
            "Slack, webhook",
            "hook.txt",
            format!("https://hooks.{}.com/services/T0AB12CD3/B0AB12CD3/{}\n", "slack", a(24)),
        ),
        ("PostgreSQL", "run.sh", format!("PG{}={} psql -h db\n", "PASSWORD", a(16))),
        ("sshpass", "run.sh", format!("ssh{} -p {} ssh me@x\n", "pass", a(16))),
        ("MySQL's client", "run.sh", format!("mysql -h db -u me -{}{} runs\n", "p", a(16))),
        ("curl", "run.sh", format!("curl -{} me:{} https://api.corp\n", "u", a(16))),
        ("docker login", "run.sh", format!("docker login -u me -{} {}\n", "p", a(20))),
        (
            "libpq, words",
            "db.py",
            format!("psycopg.connect(\"host=db user=me {word}={}\")\n", a(16)),
        ),
        ("JDBC", "app.conf", format!("jdbc:postgresql://db/runs?user=me&{word}={}\n", a(16))),
        ("ODBC", "app.conf", format!("Server=db;Uid=me;P{}={};\n", "wd", a(16))),
        (
            "SQLAlchemy, by parts",
            "db.py",
            format!("URL.create('postgresql', username='me', {word}='{}')\n", a(16)),
        ),
        (
            "Django",
            "settings.py",
            format!("D = {{'ENGINE': 'x', 'PASS{}': '{}'}}\n", "WORD", a(16)),
        ),
        ("URL", "app.conf", format!("redis://:{}@cache.corp:6379/0\n", a(20))),
        (
            "a bearer",
            "call.py",
            format!("headers = {{'Authorization': 'Bear{} {}'}}\n", "er", a(40)),
        ),
        ("Cohere, by name", "app.py", format!("COHERE_API_{} = '{}'\n", "KEY", a(40))),
        ("Mistral, by name", ".bash_history", format!("export MISTRAL_API_{}={}\n", "KEY", a(32))),
        ("Comet, by name", "app.py", format!("comet_ml.init(api_{}='{}')\n", "key", a(25))),
        (
            "ClearML",
            "clearml.conf",
            format!(
                "api {{ credentials {{ \"secret_{}\" = \"x\", \"api_secret\": \"{}\" }} }}\n",
                "key",
                a(48)
            ),
        ),
        ("Azure OpenAI, by name", "app.yaml", format!("azure_openai_api_{}: {}\n", "key", h(32))),
        (
            "OAuth client, by name",
            "web.json",
            format!("{{\"client_{}\": \"{}\"}}\n", "secret", a(32)),
        ),
    ];
    samples.push((
        "a log, at its end",
        "train.log",
        format!(
            "step 1\n{}\nexport GH_TOKEN={}{}\n",
            "x".repeat(100),
            ["gh", "p_"].concat(),
            a(36)
        ),
    ));
    samples.into_iter().map(|(what, path, text)| (what, path, text.into_bytes())).collect()
}

/// The same secret in other codings, and in files that are too large to be read as a whole.
fn codings() -> Vec<Sample> {
    let token = ["gh", "p_"].concat() + &drawn(BASE62, 36, 5);
    let text = format!("# settings of the run\r\n$env:GH_TOKEN = \"{token}\"\r\n");
    let wide = |of: fn(u16) -> [u8; 2], mark: bool| {
        let mark = mark.then_some(0xfeff_u16);
        mark.into_iter().chain(text.encode_utf16()).flat_map(of).collect::<Vec<u8>>()
    };
    let filler = "0.125 0.250 0.500 1.000\n".repeat((11 << 20) / 24);
    vec![
        ("UTF-16, little", "run.ps1", wide(u16::to_le_bytes, true)),
        ("UTF-16, big", "run.ps1", wide(u16::to_be_bytes, true)),
        ("UTF-16, without a mark", "run.txt", wide(u16::to_le_bytes, false)),
        (
            "UTF-8, with a mark",
            ".env",
            format!("\u{feff}DB_{}={}\n", "PASSWORD", drawn(BASE62, 12, 4)).into_bytes(),
        ),
        ("large, at its beginning", "data.txt", format!("{token}\n{filler}").into_bytes()),
        ("large, at its end", "data.txt", format!("{filler}{token}\n").into_bytes()),
    ]
}

/// Samples without a secret.
fn harmless() -> Vec<Sample> {
    let a = |length: usize| drawn(BASE62, length, length as u64 + 27);
    let h = |length: usize| drawn(HEX, length, length as u64 + 23);
    let b = |length: usize| drawn(BASE64, length, length as u64 + 29);
    let uuid = [h(8), h(4), h(4), h(4), h(12)].join("-");
    let samples: Vec<(&'static str, &'static str, String)> = vec![
        ("hashes", "SHA256SUMS", format!("{}  weights.safetensors\n{}  other\n", h(64), h(40))),
        ("UUIDs", "ids.csv", format!("run,uuid\n1,{uuid}\n")),
        ("a block of base64", "data.txt", (0..40).map(|seed| drawn(BASE64, 76, seed + 1) + "\n").collect()),
        ("a picture in a notebook", "plot.ipynb", format!("{{\"image/png\": \"{}\", \"id\": \"{}\"}}\n", b(9000), h(8))),
        ("Cargo.lock", "Cargo.lock", format!("[[package]]\nname = \"token\"\nchecksum = \"{}\"\n", h(64))),
        ("package-lock.json", "package-lock.json", format!("{{\"integrity\": \"sha512-{}==\", \"node_modules/api-key\": {{}}}}\n", b(86))),
        ("pnpm-lock.yaml", "pnpm-lock.yaml", format!("  resolution: {{integrity: sha512-{}==}}\n", b(86))),
        ("poetry.lock", "poetry.lock", format!("files = [{{file = \"a.whl\", hash = \"sha256:{}\"}}]\n", h(64))),
        ("uv.lock", "uv.lock", format!("sdist = {{ url = \"https://files.pythonhosted.org/packages/{}/a.tar.gz\" }}\n", h(60))),
        ("go.sum", "go.sum", format!("github.com/a/b v1.0.0 h1:{}=\n", b(43))),
        ("git", "git.log", format!("commit {}\nindex {}..{} 100644\n", h(40), h(7), h(7))),
        ("model card", "README.md", format!("revision: {}\naccess_token: optional, see the documents of the library\n", h(40))),
        (
            "placeholders",
            "docs.md",
            "OPENAI_API_KEY=sk-...\nHF_TOKEN=hf_xxx\nHF_TOKEN=hf_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\nkey=sk-proj-...\n".into(),
        ),
        ("more placeholders", "docs2.md", "export GROQ_API_KEY=<your key>\nexport WANDB_API_KEY=your-api-key-goes-here-and-nowhere-else\n".into()),
        ("placeholder of letters", "docs3.md", ["api_key = 'h", "f_abcdefghijklmnopqrstuvwxyz12345678'\n"].concat()),
        ("placeholder in a URL", "docs4.md", "postgres://user:password@localhost/db\nhttps://me:<token>@host/x\n".into()),
        (
            "from the environment",
            "app.py",
            "client = OpenAI(api_key=os.environ['OPENAI_API_KEY'])\napi_key=config.get_api_key_from_environment_2(name1)\n".into(),
        ),
        ("from an argument", "cli.py", "parser.add_argument('--api-key', help='the api_key of the service, see documentation2')\n".into()),
        (
            "names of tokens",
            "tok.py",
            "access_token = response_of_the_login_request_number_2\nauth_token: AuthenticationTokenProviderOfTheService\n".into(),
        ),
        (
            "special tokens",
            "tokenizer.json",
            "{\"pad_token\": \"<|endoftext|>\", \"unk_token\": \"[UNK]\", \"sk-\": 2, \"hf_\": 3, \"r8_\": 4}\n".into(),
        ),
        ("words with hyphens", "page.css", ".sk-learn-pipeline-of-many-words-and-more { x: y }\n.task-xai-explainable { color: red }\n".into()),
        (
            "identifiers",
            "a.py",
            "rpa_robot = 1\ngsk_config_of_the_model = 2\nnvapi_handle = 3\ndapi_client_of_the_databricks_sdk = 4\npplx = ppl(x)\n".into(),
        ),
        ("certificates", "ca.pem", format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", b(64))),
        ("a public key of PGP", "key.asc", format!("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{}\n-----END PGP PUBLIC KEY BLOCK-----\n", b(64))),
        ("a signed message", "msg.asc", format!("-----BEGIN PGP SIGNATURE-----\n\n{}\n-----END PGP SIGNATURE-----\n", b(64))),
        ("a reader of keys", "read.py", "if '-----BEGIN PGP PRIVATE KEY BLOCK-----' in text:\n\n    raise ValueError('refused')\n".into()),
        ("JSON of a form", "form.json", "{\"password\": \"required\", \"auth\": \"bearer\", \"token\": null}\n".into()),
        ("netrc in prose", "notes.md", "the machine needs a login and a\npassword that is long\n".into()),
        ("YAML of a cluster job", "job.yaml", "kind: Job\nclusters: 3\nusers: 4\ntoken: from-secret\n".into()),
        (
            "variables in commands",
            "run.sh",
            "PGPASSWORD=$PW psql\ncurl -u me:$TOKEN https://x\nsshpass -p \"$PW\" ssh x\ndocker login -p ${PW} r.io\n".into(),
        ),
        (
            "variables in headers",
            "call.sh",
            "curl -H \"Authorization: Bearer $HF_TOKEN\" https://x\ncurl -H 'Authorization: token ${{ secrets.T }}' y\n".into(),
        ),
        ("CI", "ci.yml", "env:\n  API_KEY: ${{ secrets.API_KEY }}\n  CLIENT_SECRET: ${{ secrets.CLIENT_SECRET_OF_PRODUCTION_2024 }}\n".into()),
        ("a minified script", "b.min.js", format!("var a=\"{}\",pat=b.token,as=c.secret_of;fn(\"{}\")\n", a(300), b(300))),
        ("configuration without secrets", "app.ini", "[mysql]\nuser = me\npassword =\n[client]\npassword = ${PW}\n".into()),
        ("a template", ".env.example", "DB_PASSWORD=correct-horse-battery-9\n".into()),
        ("settings that are no secrets", ".envrc", "layout python3\nexport WANDB_MODE=offline\nPATH_add bin\n".into()),
        ("time stamps", "log.txt", "2026-11-28T13:58:08Z 1234567890:AAbb request_id=0a1b2c3d sig=ok\n".into()),
        ("a plain large file", "big.csv", "0.125,0.250,0.500,1.000\n".repeat((11 << 20) / 24)),
    ];
    let mut samples: Vec<Sample> =
        samples.into_iter().map(|(what, path, text)| (what, path, text.into_bytes())).collect();
    samples.push(("weights", "model.bin", (0..40_000_u32).flat_map(u32::to_le_bytes).collect()));
    samples.push((
        "UTF-16 without secrets",
        "notes.txt",
        "some notes, and no key\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect(),
    ));
    samples
}

/// The findings of the scan, each sample in a folder of its own.
fn told(samples: &[Sample]) -> Vec<Vec<String>> {
    let place = tempfile::tempdir().expect("a folder");
    for (number, (_, path, text)) in samples.iter().enumerate() {
        let file = place.path().join(format!("f{number}")).join(path);
        fs::create_dir_all(file.parent().expect("a file has a folder")).expect("writable");
        fs::write(file, text).expect("writable");
    }
    let found = scan(&survey(place.path(), &[], 1 << 30)).expect("it can be read");
    let of = |number: usize| {
        let here =
            found.iter().filter(|secret| Path::new(&secret.path).starts_with(format!("f{number}")));
        here.map(|secret| format!("{}:{}", secret.rule, secret.line)).collect()
    };
    (0..samples.len()).map(of).collect()
}

#[test]
fn formats_of_today_are_found() {
    let samples: Vec<Sample> = keys().into_iter().chain(files()).chain(codings()).collect();
    let told = told(&samples);
    let missed: Vec<&str> = samples
        .iter()
        .zip(&told)
        .filter(|(_, told)| told.is_empty())
        .map(|((what, ..), _)| *what)
        .collect();
    println!("found {} of {}", samples.len() - missed.len(), samples.len());
    assert!(samples.len() >= 127, "{} formats", samples.len());
    assert_eq!(missed, Vec::<&str>::new(), "of {}", samples.len());
}

#[test]
fn what_resembles_a_secret_is_not_told() {
    let samples = harmless();
    let told = told(&samples);
    let wrong: Vec<_> = samples
        .iter()
        .zip(&told)
        .filter(|(_, told)| !told.is_empty())
        .map(|((what, ..), told)| (*what, told))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
