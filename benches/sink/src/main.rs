//! An S3 over TLS that takes what it is sent and keeps nothing: no disk, no sums, no joining of
//! parts. What an upload takes here is what its client takes, and the kernel, and the cipher.
//!
//! `s3-sink PORT CERTIFICATE`: writes its own certificate there (for 127.0.0.1 and localhost) and
//! listens. Every bucket is there and is empty. `GET /-/taken` says how many bytes of bodies have
//! come since that was asked last.
//!
//! Not here: anything that one client gets and another does not.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// Bytes of bodies since somebody asked.
static TAKEN: AtomicU64 = AtomicU64::new(0);

#[tokio::main]
async fn main() {
    let mut words = std::env::args().skip(1);
    let (Some(port), Some(certificate)) = (words.next().and_then(|port| port.parse::<u16>().ok()), words.next()) else {
        panic!("s3-sink PORT CERTIFICATE")
    };
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()]).expect("a certificate");
    // Bound before the certificate is there: who finds the file can connect.
    let socket = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("a free port");
    std::fs::write(certificate, made.cert.pem()).expect("the certificate can be written");
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key);
    let acceptor = TlsAcceptor::from(Arc::new(config.expect("a certificate and its key")));
    loop {
        let Ok((stream, _)) = socket.accept().await else { continue };
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            stream.set_nodelay(true).expect("a socket of this machine can be told so");
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = hyper::service::service_fn(answer);
            // A client that closes in the middle counts as what came of it; whoever runs this by
            // hand sees why.
            if let Err(error) = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await {
                eprintln!("a connection has ended: {error}");
            }
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, mut body) = request.into_parts();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Ok(said(StatusCode::BAD_REQUEST, String::new())) };
        TAKEN.fetch_add(frame.data_ref().map_or(0, |data| data.len() as u64), Ordering::Relaxed);
    }
    let (path, query) = (head.uri.path().trim_start_matches('/'), head.uri.query().unwrap_or_default());
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    let asks = |name: &str| query.split('&').any(|pair| pair == name || pair.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')));
    Ok(match head.method {
        Method::GET if path == "-/taken" => said(StatusCode::OK, TAKEN.swap(0, Ordering::Relaxed).to_string()),
        Method::GET if key.is_empty() => said(
            StatusCode::OK,
            xml("ListBucketResult", &format!("<Name>{bucket}</Name><KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>")),
        ),
        Method::HEAD if key.is_empty() => said(StatusCode::OK, String::new()),
        Method::GET => said(StatusCode::NOT_FOUND, "<Error><Code>NoSuchKey</Code><Message>nothing is kept here</Message></Error>".to_owned()),
        Method::HEAD => said(StatusCode::NOT_FOUND, String::new()),
        Method::POST if asks("uploads") => {
            said(StatusCode::OK, xml("InitiateMultipartUploadResult", &names(bucket, key, "<UploadId>one</UploadId>")))
        }
        Method::POST if asks("uploadId") => said(StatusCode::OK, xml("CompleteMultipartUploadResult", &names(bucket, key, "<ETag>\"0\"</ETag>"))),
        Method::PUT => said(StatusCode::OK, String::new()),
        Method::DELETE => said(StatusCode::NO_CONTENT, String::new()),
        _ => said(StatusCode::NOT_IMPLEMENTED, "<Error><Code>NotImplemented</Code><Message>not played here</Message></Error>".to_owned()),
    })
}

fn names(bucket: &str, key: &str, more: &str) -> String {
    format!("<Bucket>{bucket}</Bucket><Key>{key}</Key>{more}")
}

fn xml(kind: &str, inner: &str) -> String {
    format!(r#"<?xml version="1.0" encoding="UTF-8"?><{kind} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{inner}</{kind}>"#)
}

fn said(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let answer = Response::builder().status(status).header(header::ETAG, "\"0\"").header(header::CONTENT_TYPE, "application/xml");
    answer.body(Full::from(body)).expect("a status and two headers")
}
