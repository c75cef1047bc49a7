//! `lamp web`: the real binary, asked by a real HTTP client.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use reqwest::header::{
    AUTHORIZATION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, LOCATION, ORIGIN,
    SET_COOKIE,
};
use reqwest::{Client, Method, RequestBuilder, StatusCode, redirect};

use crate::place::{Place, Words, end, wait_until};

/// A page that is served. It ends with the test.
pub(crate) struct Served<'a> {
    place: &'a Place,
    /// `None`: another process serves it.
    child: Option<Child>,
    client: Client,
    /// `http://127.0.0.1:PORT`
    pub(crate) root: String,
    pub(crate) link: String,
}

impl<'a> Served<'a> {
    pub(crate) fn of(place: &'a Place) -> Self {
        Served::with(place, &[])
    }

    pub(crate) fn with(place: &'a Place, more: &[&str]) -> Self {
        Served::by(place, place.0.command(&[&["web", "--port", "0"], more].concat()))
    }

    /// By a command of the test.
    pub(crate) fn by(place: &'a Place, mut command: Command) -> Self {
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("lamp was built for this test");
        let link = Words::of(child.stdout.take()).until("/enter?code=").trim().to_owned();
        let (root, _) = link.split_once("/enter").expect("a link to the way in");
        let mut page = Served::at(place, root.trim_start_matches("http://"));
        (page.child, page.link) = (Some(child), link.clone());
        page
    }

    /// A page that another process serves at `HOST:PORT`.
    pub(crate) fn at(place: &'a Place, address: &str) -> Self {
        // The crate's own TLS has no default; a page on loopback needs none.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().redirect(redirect::Policy::none()).build();
        Served {
            place,
            child: None,
            client: client.expect("a client"),
            root: format!("http://{address}"),
            link: String::new(),
        }
    }

    /// A request that the test makes up.
    pub(crate) fn ask(&self, request: impl FnOnce(&Client) -> RequestBuilder) -> Answer {
        self.send(request(&self.client))
    }

    pub(crate) fn token(&self) -> String {
        self.place.0.read("home/.local/state/lamplighter/web-token")
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.root))
    }

    fn send(&self, request: RequestBuilder) -> Answer {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let answer = request.send().await.expect("the page answers");
            let headers = answer.headers().clone();
            Answer { status: answer.status(), headers, text: answer.text().await.expect("a text") }
        })
    }

    /// With the token.
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(
            self.request(Method::GET, path)
                .header(AUTHORIZATION, format!("Bearer {}", self.token())),
        )
    }

    /// A form of this page, with the token.
    pub(crate) fn post(&self, path: &str, form: &[(String, String)]) -> Answer {
        let body: Vec<String> =
            form.iter().map(|(name, value)| format!("{name}={value}")).collect();
        self.send(
            self.request(Method::POST, path)
                .header(AUTHORIZATION, format!("Bearer {}", self.token()))
                .header(ORIGIN, &self.root)
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(body.join("&")),
        )
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn header(&self, name: reqwest::header::HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

#[test]
fn link_works_once_and_becomes_a_cookie() {
    let place = Place::new("true");
    let page = Served::of(&place);
    let ask = |request: RequestBuilder| page.send(request);
    // Without a token there is nothing to see.
    for path in ["/", "/live", "/job/x"] {
        let answer = ask(page.request(Method::GET, path));
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
        assert!(answer.text.contains("lamp web"), "{}", answer.text);
    }
    let file = place.0.path().join("home/.local/state/lamplighter/web-token");
    let mode = std::fs::metadata(&file).expect("the token is kept").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A GET of the link changes nothing, however often.
    let path = page.link.strip_prefix(&page.root).expect("a path");
    for _ in 0..2 {
        let form = ask(page.request(Method::GET, path));
        assert_eq!(form.status, StatusCode::OK);
        assert!(form.headers.get(SET_COOKIE).is_none() && form.text.contains("<form"));
    }
    let (_, code) = path.split_once("code=").expect("a code");
    let enter = |code: &str| {
        let form = [("code", code), ("to", "//evil.example/")];
        let body = form.map(|(name, value)| format!("{name}={value}")).join("&");
        ask(page
            .request(Method::POST, "/enter")
            .header(ORIGIN, &page.root)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(body))
    };
    assert_eq!(enter("wrong").status, StatusCode::FORBIDDEN);
    let entered = enter(code);
    assert_eq!(entered.status, StatusCode::SEE_OTHER);
    assert_eq!(entered.header(LOCATION), "/", "not to another site");
    let cookie = entered.header(SET_COOKIE);
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    assert_eq!(enter(code).status, StatusCode::FORBIDDEN, "it works once");
    let pair = cookie.split(';').next().expect("a pair");
    let answer = ask(page.request(Method::GET, "/").header(COOKIE, pair));
    assert_eq!(answer.status, StatusCode::OK);
    let policy = answer.header(CONTENT_SECURITY_POLICY);
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
}

/// A name of another site that means 127.0.0.1 (DNS rebinding), and a form of another site.
#[test]
fn other_hosts_and_origins_get_no_answer() {
    let place = Place::new("true");
    let page = Served::with(&place, &["--host", "gpu.example.org"]);
    let bearer = format!("Bearer {}", page.token());
    let asked = |host: &str| {
        let request = page.request(Method::GET, "/").header(AUTHORIZATION, &bearer);
        page.send(request.header(HOST, host)).status
    };
    let port = page.root.rsplit(':').next().expect("a port");
    for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "127.0.0.1:1"] {
        assert_eq!(asked(host), StatusCode::FORBIDDEN, "{host}");
    }
    for host in [&format!("localhost:{port}"), &format!("127.0.0.1:{port}"), "gpu.example.org"] {
        assert_eq!(asked(host), StatusCode::OK, "{host}");
    }
    for origin in ["https://evil.example", "null", "http://127.0.0.1:1"] {
        let request = page.request(Method::POST, "/enter").header(ORIGIN, origin);
        assert_eq!(page.send(request).status, StatusCode::FORBIDDEN, "{origin}");
    }
    let request = page.request(Method::POST, "/enter");
    assert_eq!(page.send(request).status, StatusCode::FORBIDDEN, "no origin, no token");
}

#[test]
fn beyond_this_machine_it_is_said_what_that_means() {
    let place = Place::new("true");
    let refused = place.0.lamp(&["web", "--port", "0", "--listen", "0.0.0.0"]);
    assert_eq!(refused.code, 102, "{}", refused.err);
    for word in ["token", "without encryption", "nothing listens", "--yes"] {
        assert!(refused.err.contains(word), "{word}: {}", refused.err);
    }
    let page = Served::with(&place, &["--listen", "0.0.0.0", "--yes"]);
    assert!(page.root.starts_with("http://127.0.0.1:"), "a link that works: {}", page.root);
    assert_eq!(page.send(page.request(Method::GET, "/")).status, StatusCode::UNAUTHORIZED);
    let port = page.root.rsplit(':').next().expect("a port");
    let taken = place.0.lamp(&["web", "--port", port]);
    assert_eq!(taken.code, 103, "{}", taken.err);
    assert!(taken.err.contains("cannot listen on 127.0.0.1:"), "{}", taken.err);
}

#[test]
fn overview_tells_money_needs_and_each_job_without_a_script() {
    let place = Place::new("echo hello; while [ ! -e GO ]; do sleep 0.1; done");
    let name = "<script>alert(1)</script>";
    let run = |name: &str, price: &str, script: &str| {
        let words = ["run", "-d", "-q", "--usd-per-hour", price, "--name", name];
        place.0.lamp(&[&words[..], &["--max-runtime", "1h", "--", "sh", script]].concat())
    };
    place.0.write("fail.sh", "exit 3");
    let failed = run(name, "1.0", "fail.sh").out.trim().to_owned();
    let running = run("trains", "2.0", "job.sh").out.trim().to_owned();
    place.until(&failed, "failed");
    place.until(&running, "running");
    let page = Served::of(&place);
    let text = page.get("/").text;
    for word in ["Spent", "Most it can cost", "Rate now", "$2.00/h", "Today", "This month"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert!(text.contains(&format!("lamp logs {failed}")), "a failure is news: {text}");
    let most = format!("{running} can cost $");
    assert!(text.contains(&most), "what makes the most: {text}");
    assert!(text.contains(&running) && text.contains("its run time ends at"), "{text}");
    assert!(!text.contains(name), "a name is text, and no element");
    assert!(text.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{text}");
    // The filter is in the address.
    let filtered = page.get("/?q=state:failed").text;
    let row = |job: &str| format!("data-job=\"{job}\"");
    let is_chosen = filtered.contains(&row(&failed)) && !filtered.contains(&row(&running));
    assert!(is_chosen, "{filtered}");
    let unknown = page.get("/?q=%3Cb%3E:1").text;
    assert!(unknown.contains("&lt;b&gt;:1") && !unknown.contains("<b>:1"), "{unknown}");
    // No GET changes a record.
    let records = || {
        let listed = place.0.lamp(&["status", "-a", "-o", "json"]);
        serde_json::from_str::<serde_json::Value>(&listed.out).expect("a list")["jobs"]
            .as_array()
            .map(Vec::len)
    };
    let before = records();
    for path in ["/", "/?q=x", "/enter?code=x", "/assets/style.css", "/nothing"] {
        page.get(path);
    }
    assert_eq!(records(), before);
    assert_eq!(page.get("/nothing").status, StatusCode::NOT_FOUND);
    place.0.write("go", "");
    place.until(&running, "succeeded");
    wait_until("the page has seen its end", || {
        page.get("/?q=state:succeeded").text.contains(&running).then_some(())
    });
}

#[test]
fn signal_ends_the_page() {
    let place = Place::new("true");
    let mut child = place.start(&["web", "--port", "0"]);
    Words::of(child.stdout.take()).until("/enter?code=");
    crate::place::signal(child.id(), "TERM");
    assert_eq!(end(child).0, 0);
}
