//! Secrets of a job as a machine reads them: moto keeps some, and a server refuses.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use lamplighter::adapters::aws::secrets::{AwsSecrets, SecretError};
use lamplighter::job::SecretSource;
use object_store::StaticCredentialProvider;
use object_store::aws::AwsCredential;
use serde_json::{Value, json};

use lamp_test_support::moto::moto;

fn secrets(endpoint: &str) -> AwsSecrets {
    let credential =
        AwsCredential { key_id: "test".into(), secret_key: "test".into(), token: None };
    AwsSecrets::new(
        Arc::new(StaticCredentialProvider::new(credential)),
        "us-east-1",
        Some(endpoint.to_owned()),
    )
    .unwrap()
}

fn source(text: &str) -> SecretSource {
    text.parse().unwrap()
}

async fn call(endpoint: &str, service: &str, target: &str, body: Value) {
    let request = reqwest::Client::new()
        .post(endpoint)
        .header("Content-Type", "application/x-amz-json-1.1")
        .header("X-Amz-Target", target);
    let by = format!("AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/{service}/aws4_request");
    let answer = request.header("Authorization", by).body(body.to_string()).send().await.unwrap();
    assert!(answer.status().is_success(), "{target}: {}", answer.status());
}

#[tokio::test]
async fn machine_reads_a_parameter_a_secret_and_a_field_of_one() {
    let Some(moto) = moto() else { return };
    let at = &moto.endpoint;
    let parameter =
        json!({ "Name": "/secrets/HF_TOKEN", "Type": "SecureString", "Value": "hf_one" });
    call(at, "ssm", "AmazonSSM.PutParameter", parameter).await;
    call(
        at,
        "secretsmanager",
        "secretsmanager.CreateSecret",
        json!({ "Name": "plain", "SecretString": "two" }),
    )
    .await;
    call(
        at,
        "secretsmanager",
        "secretsmanager.CreateSecret",
        json!({ "Name": "wandb", "SecretString": "{\"key\": \"three\"}" }),
    )
    .await;
    let secrets = secrets(at);
    for (from, value) in [
        ("ssm:/secrets/HF_TOKEN", "hf_one"),
        ("secretsmanager:plain", "two"),
        ("secretsmanager:wandb#key", "three"),
    ] {
        assert_eq!(secrets.value(&source(from)).await.unwrap(), value, "{from}");
    }
    for missing in ["ssm:/secrets/NONE", "secretsmanager:none", "secretsmanager:wandb#other"] {
        let error = secrets.value(&source(missing)).await.unwrap_err();
        assert!(matches!(error, SecretError::Refused { .. }), "{missing}: {error}");
    }
}

#[tokio::test]
async fn secret_refusal_names_its_reason_and_silence_is_no_refusal() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        for (status, code) in [
            (400, "AccessDeniedException"),
            (400, "ThrottlingException"),
            (500, "InternalServerError"),
        ] {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
            while !String::from_utf8_lossy(&head).contains("WithDecryption") {
                let read = stream.read(&mut buffer).unwrap();
                assert!(read > 0, "the whole request comes");
                head.extend_from_slice(&buffer[..read]);
            }
            let body =
                json!({ "__type": format!("com.amazon#{code}"), "message": "not authorized" })
                    .to_string();
            write!(
                stream,
                "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
        }
    });
    let (secrets, from) = (secrets(&endpoint), source("ssm:/a"));
    let denied = secrets.value(&from).await.unwrap_err();
    assert_eq!(denied.to_string(), "AWS says AccessDeniedException: not authorized");
    for _ in 0..2 {
        assert!(matches!(secrets.value(&from).await, Err(SecretError::Unanswered(_))));
    }
    server.join().unwrap();
}
