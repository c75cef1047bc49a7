//! `aws sso login` was typed: the token that it left holds, and the portal makes a session of the
//! role of it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use crate::account::setup::User;

/// The portal of AWS's single sign-on: each question, and the token that it was asked with.
fn portal() -> (String, Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("it listens"));
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().expect("a handle"))
                .lines()
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty());
            let asked = lines.next().unwrap_or_default();
            let token = lines
                .find_map(|line| line.strip_prefix("x-amz-sso_bearer_token: ").map(str::to_owned))
                .unwrap_or_default();
            let ends =
                (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1)).as_millisecond();
            let session = serde_json::json!({ "accessKeyId": "ASIAONE", "secretAccessKey": "s", "sessionToken": "t", "expiration": ends });
            let body = serde_json::json!({ "roleCredentials": session }).to_string();
            // Before the answer: whoever has that may ask what was heard.
            let _gone = tell.send((asked, token));
            let _gone = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    (url, told)
}

#[test]
fn sign_on_that_holds_is_all_that_a_command_needs() {
    let Some(user) = User::new() else { return };
    let (portal, told) = portal();
    user.sandbox.write(
        "home/.aws/config",
        "[default]\nregion = us-east-1\nsso_session = work\nsso_account_id = 123456789012\nsso_role_name = train\n\
         [sso-session work]\nsso_region = us-east-1\nsso_start_url = https://example.awsapps.com/start\n",
    );
    // The file's name is the SHA-1 of the session's.
    user.sandbox.write(
        "home/.aws/sso/cache/e274eeff768c6396088ec6eb091f4bf4d47ab1e0.json",
        r#"{"startUrl": "https://example.awsapps.com/start", "region": "us-east-1", "accessToken": "a-token", "expiresAt": "2099-01-01T00:00:00Z"}"#,
    );
    user.ec2.take_calls();
    let mut doctor = user.sandbox.command(&["doctor"]);
    doctor
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_ENDPOINT_URL", user.ec2.url())
        .env("AWS_ENDPOINT_URL_SSO", portal);
    let ended = user.sandbox.end(&mut doctor);
    let line = ended
        .out
        .lines()
        .find(|line| line.contains(" credentials "))
        .unwrap_or_else(|| panic!("{ended:?}"));
    assert!(line.starts_with("ok "), "{ended:?}");
    assert_eq!(
        told.try_recv().expect("it was asked"),
        (
            "GET /federation/credentials?role_name=train&account_id=123456789012 HTTP/1.1".into(),
            "a-token".into()
        )
    );
    assert!(told.try_recv().is_err(), "once for a command");
    let calls = user.ec2.take_calls();
    assert!(
        !calls.is_empty() && calls.iter().all(|call| call.key == "ASIAONE"),
        "all is signed with the session: {calls:?}"
    );
}
