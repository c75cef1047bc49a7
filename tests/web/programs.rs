//! `/api/v1` and `/metrics`: the real binary, asked by a real HTTP client.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, ORIGIN};
use serde_json::{Value, json};

use crate::pages::Served;
use crate::place::{Place, Words, signal, wait_until};
use crate::six_jobs::{STRAY, SixJobs};
use lamp_test_support::skipped;

const WAITS: &str = "echo hello; while [ ! -e GO ]; do sleep 0.1; done";

fn run(place: &Place, name: &str) -> String {
    let words = ["run", "-d", "-q", "--usd-per-hour", "2", "--idle", "off", "--name", name];
    let rest = ["--max-runtime", "1h", "--", "sh", "job.sh"];
    place.0.lamp(&[&words[..], &rest].concat()).out.trim().to_owned()
}

fn value(page: &Served<'_>, path: &str) -> Value {
    let answer = page.get(path);
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
    assert_eq!(answer.header(CONTENT_TYPE), "application/json", "{path}");
    serde_json::from_str(&answer.text).expect("JSON")
}

#[test]
fn programs_read_the_same_values_as_the_command_line_prints() {
    let place = Place::new(WAITS);
    let name = "a \"b\"";
    let job = run(&place, name);
    place.until(&job, "running");
    let page = Served::of(&place);
    let row = value(&page, &format!("/api/v1/jobs/{job}"));
    let status = place.status(&job);
    for field in ["job", "name", "state", "usd_per_hour", "most_job_usd", "started", "machine"] {
        assert_eq!(row["summary"][field], status[field], "{field}");
    }
    let jobs = |filter: &str| {
        let found = value(&page, &format!("/api/v1/jobs?filter={filter}"));
        found["jobs"].as_array().expect("jobs").len()
    };
    assert_eq!([jobs("state:running"), jobs("state:failed"), jobs("")], [1, 0, 1]);
    let refused = page.get("/api/v1/jobs?filter=colour:red");
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "a wrong term must not choose all jobs");
    assert!(refused.text.contains("colour:red"), "{}", refused.text);
    wait_until("its log is there", || {
        let log = page.get(&format!("/api/v1/jobs/{job}/log?lines=1"));
        (log.text == "hello\n").then_some(())
    });
    assert_eq!(value(&page, "/api/v1/costs")["rows"][0]["job"], job.as_str());
    assert_eq!(value(&page, "/api/v1/machines")["recorded"][0]["job"], job.as_str());
    assert_eq!(value(&page, &format!("/api/v1/jobs/{job}/explain"))["job"], job.as_str());
    for missing in ["jobs/none-222222", &format!("jobs/{job}/receipt"), "nothing"] {
        let answer = page.get(&format!("/api/v1/{missing}"));
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{missing}: {}", answer.text);
        let problem: Value = serde_json::from_str(&answer.text).expect("a problem");
        assert!(problem["error"].is_string() && problem["hint"].is_string(), "{problem}");
    }
    let metrics = page.get("/metrics");
    assert!(metrics.header(CONTENT_TYPE).starts_with("application/openmetrics-text"));
    let state = format!("lamp_job_state{{job_id=\"{job}\",name=\"a \\\"b\\\"\",state=\"running\"");
    assert!(metrics.text.contains(&state), "{}", metrics.text);
    assert!(metrics.text.contains("lamp_rate_dollars_per_hour 2.0"), "{}", metrics.text);
    place.0.write("go", "");
    place.until(&job, "succeeded");
    let receipt = value(&page, &format!("/api/v1/jobs/{job}/receipt"));
    assert_eq!(receipt, place.receipt(&job));
}

/// Without credentials the machines of the clouds stay unknown, and the answer says so.
#[test]
fn machines_are_those_of_the_last_look_until_a_new_one_is_asked() {
    let six = SixJobs::new();
    let page = Served::by(&six.place, six.command(&["web", "--port", "0"]));
    let machines = |query: &str| value(&page, &format!("/api/v1/machines{query}"));
    let kept = machines("");
    assert_eq!(kept["look"]["machines"][0]["id"], STRAY, "{kept}");
    let age = kept["look_age_secs"].as_u64().expect("an age");
    assert!(age < 300, "the look is new: {kept}");
    assert!(kept["recorded"].as_array().is_some_and(|all| all.len() >= 4), "{kept}");
    let now = machines("?look=1");
    assert!(now["look"]["at"].as_str() > kept["look"]["at"].as_str(), "{now}");
    let unknown = now["look"]["unknown"].as_array().expect("a list");
    assert!(!unknown.is_empty(), "AWS does not answer here: {now}");
    assert_eq!(machines("?look=1")["look"]["at"], now["look"]["at"], "one look for both");
    assert_eq!(page.get("/api/v1/machines?look=soon").status, StatusCode::BAD_REQUEST);
}

#[test]
fn programs_act_only_with_the_token_in_a_header() {
    let place = Place::new(WAITS);
    let job = run(&place, "acts");
    place.until(&job, "running");
    let page = Served::of(&place);
    let path = |act: &str| format!("/api/v1/jobs/{job}/{act}");
    let port = page.root.rsplit(':').next().expect("a port").to_owned();
    let cookie = format!("lamp_{port}={}", page.token());
    let by_cookie = page.ask(|client| {
        let request = client.post(format!("{}{}", page.root, path("cancel")));
        request.header(COOKIE, &cookie).header(ORIGIN, &page.root)
    });
    assert_eq!(by_cookie.status, StatusCode::FORBIDDEN, "{}", by_cookie.text);
    assert_eq!(place.status(&job)["state"], "running");
    let post = |act: &str, body: &Value| {
        page.ask(|client| {
            let request = client.post(format!("{}{}", page.root, path(act)));
            let bearer = format!("Bearer {}", page.token());
            request.header(AUTHORIZATION, bearer).body(body.to_string())
        })
    };
    for wrong in [json!({}), json!({ "time": "2" }), json!({ "colour": 1 }), json!([])] {
        let answer = post("extend", &wrong);
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{wrong}: {}", answer.text);
    }
    let extended = post("extend", &json!({ "time": "2h" }));
    assert_eq!(extended.status, StatusCode::OK, "{}", extended.text);
    assert!(extended.text.contains("\"max_runtime\":\"3h\""), "{}", extended.text);
    assert_eq!(post("keep", &json!({ "time": "2" })).status, StatusCode::BAD_REQUEST);
    let kept = post("keep", &json!({ "time": "3h" }));
    assert_eq!(kept.status, StatusCode::OK, "{}", kept.text);
    let status = place.status(&job);
    assert!(
        status["kept_until"].is_string() && status["ends"][0]["what"] == "run time",
        "{status}"
    );
    let sentence = page.get("/").text;
    assert!(
        sentence.contains("kept until") && sentence.contains("its run time ends at"),
        "{sentence}"
    );
    let stopped = post("stop", &json!({}));
    assert_eq!(stopped.status, StatusCode::OK, "{}", stopped.text);
    place.until(&job, "stopped");
    assert_eq!(post("stop", &json!({})).status, StatusCode::CONFLICT);
}

#[test]
fn openapi_document_has_each_address_and_no_open_reference() {
    let place = Place::new("true");
    let page = Served::of(&place);
    let document = value(&page, "/api/v1/openapi.json");
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    let text = document.to_string();
    let named = text.split("\"#/components/schemas/").skip(1);
    for name in named.filter_map(|rest| rest.split('"').next()) {
        assert!(schemas.contains_key(name), "{name} is described nowhere");
    }
    let paths = document["paths"].as_object().expect("paths");
    assert_eq!(paths.len(), 13, "{:?}", paths.keys());
    for (path, item) in paths {
        let answer = page.get(&path.replace("{job}", "none-222222"));
        let is_act = item.get("post").is_some();
        assert_eq!(answer.status == StatusCode::METHOD_NOT_ALLOWED, is_act, "{path}");
    }
}

#[test]
fn daemon_serves_the_page_and_drives_on_when_the_port_is_taken() {
    let place = Place::new("true");
    let serves = |words: &Words| {
        let line = words.until("this link works once");
        line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).map(str::to_owned)
    };
    let page = ["daemon", "--web", "127.0.0.1:0", "--host", "lamp.example"];
    let (mut daemon, words) = place.driving(&page);
    let address = serves(&words).expect("an address");
    let page = Served::at(&place, &address);
    assert_eq!(value(&page, "/api/v1/overview")["jobs"], json!([]));
    let named = |host: &str| {
        let request = page.ask(|client| {
            let token = format!("Bearer {}", page.token().trim());
            client
                .get(format!("{}/api/v1/overview", page.root))
                .header("authorization", token)
                .header("host", host)
        });
        request.status
    };
    assert_eq!(named("lamp.example"), StatusCode::OK);
    assert_ne!(named("evil.example"), StatusCode::OK);
    signal(daemon.id(), "TERM");
    assert!(daemon.wait().expect("it ends").success());
    // Its port is taken by another program now.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let (mut daemon, words) = place.driving(&["daemon", "--web", &address]);
    words.until("the jobs are driven on");
    let job = run(&place, "driven");
    place.until(&job, "succeeded");
    signal(daemon.id(), "TERM");
    assert!(daemon.wait().expect("it ends").success());
    let refused = place.0.lamp(&["daemon", "--web", "0.0.0.0:0"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
}

/// Asks as a fuzzer asks: `LAMP_TEST_SCHEMATHESIS` is the path of the program.
#[test]
fn fuzzer_finds_nothing_that_the_document_does_not_say() {
    let Ok(program) = std::env::var("LAMP_TEST_SCHEMATHESIS") else {
        return skipped("schemathesis", "LAMP_TEST_SCHEMATHESIS does not name schemathesis");
    };
    let place = Place::new("echo hello");
    for name in ["one", "two"] {
        let job = run(&place, name);
        place.until(&job, "succeeded");
    }
    let page = Served::of(&place);
    let ended = Command::new(program)
        .arg("run")
        .arg(format!("{}/api/v1/openapi.json", page.root))
        .args(["--header", &format!("Authorization: Bearer {}", page.token())])
        .args(["--max-examples", "20", "--seed", "1"])
        // No schema says that one of two fields must be there.
        .args(["--exclude-checks", "positive_data_acceptance"])
        .current_dir(place.0.path())
        .output()
        .expect("schemathesis runs");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{said}");
}

/// Loads a dashboard into the types that Grafana publishes, and prints each field that they lack.
const LOADER: &str = r#"import json, sys
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

def lost(given, kept, path):
    if isinstance(given, dict):
        for key, value in given.items():
            if isinstance(kept, dict) and key in kept:
                yield from lost(value, kept[key], f"{path}/{key}")
            else:
                yield f"{path}/{key}"
    elif isinstance(given, list):
        for at, value in enumerate(given):
            yield from lost(value, kept[at], f"{path}/{at}")
    elif given != kept:
        yield path

register_default_plugins()
given = json.load(sys.stdin)
kept = json.loads(JSONEncoder().encode(Dashboard.from_json(given)))
print("panels", len(kept["panels"]), *lost(given, kept, ""))
"#;

/// The answer of the types of Grafana to a dashboard. `None`: they are not here.
fn loaded_by_grafana(dashboard: &Value) -> Option<String> {
    let schemathesis = PathBuf::from(std::env::var_os("LAMP_TEST_SCHEMATHESIS")?);
    let python = schemathesis.parent()?.join("python");
    let has = Command::new(&python).args(["-c", "import grafana_foundation_sdk"]).output();
    if !has.is_ok_and(|has| has.status.success()) {
        return None;
    }
    let mut loader = Command::new(python)
        .args(["-c", LOADER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it was asked before");
    let text = serde_json::to_vec(dashboard).expect("JSON");
    loader.stdin.take().expect("it is piped").write_all(&text).expect("it reads");
    let said = loader.wait_with_output().expect("it ends");
    Some(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

#[test]
fn dashboard_loads_into_the_types_of_grafana() {
    let file = crate::sandbox::repository().join("config/grafana/lamplighter.json");
    let text = std::fs::read_to_string(file).expect("it ships");
    let mut dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().map_or(0, Vec::len);
    let Some(said) = loaded_by_grafana(&dashboard) else {
        return skipped("schemathesis", "no Python here has grafana-foundation-sdk");
    };
    assert_eq!(said, format!("panels {panels}"), "fields that Grafana does not know");
    dashboard["panels"][0]["fieldConfgi"] = json!({});
    let wrong = loaded_by_grafana(&dashboard);
    assert_eq!(wrong, Some(format!("panels {panels} /panels/0/fieldConfgi")));
}
