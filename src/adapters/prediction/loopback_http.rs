//! HTTP to a server on loopback: whether it answers, and one POST.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use reqwest::Client;
use reqwest::redirect::Policy;
use serde_json::Value;

use crate::adapters::store::s3::install_crypto;
use crate::ports::causes;

/// A port that no program listens on now.
///
/// # Errors
/// When the operating system has none.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// A health check that takes longer counts as no answer, and is repeated.
const HEALTH_MAX: Duration = Duration::from_secs(5);

/// A larger answer would fill the memory.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoopbackError(String);

pub struct HttpAnswer {
    pub status: u16,
    pub body: Vec<u8>,
}

/// A server of this workstation.
pub struct LoopbackServer {
    client: Client,
    port: u16,
}

impl LoopbackServer {
    /// # Errors
    /// When the client cannot be made.
    pub fn new(port: u16) -> Result<Self, LoopbackError> {
        install_crypto();
        // A proxy of the environment does not reach this workstation's loopback.
        let client = Client::builder().no_proxy().redirect(Policy::none()).build();
        Ok(LoopbackServer { client: client.map_err(told)?, port })
    }

    fn url(&self, route: &str) -> String {
        format!("http://127.0.0.1:{}/{}", self.port, route.trim_start_matches('/'))
    }

    /// The status of a GET. `None`: no answer.
    pub async fn status(&self, route: &str) -> Option<u16> {
        let sent = self.client.get(self.url(route)).timeout(HEALTH_MAX).send().await;
        sent.ok().map(|answer| answer.status().as_u16())
    }

    /// # Errors
    /// When no whole answer comes in time.
    pub async fn post(
        &self,
        route: &str,
        body: &Value,
        patience: Duration,
    ) -> Result<HttpAnswer, LoopbackError> {
        let request = self.client.post(self.url(route)).timeout(patience).json(body);
        let mut answer = request.send().await.map_err(told)?;
        let status = answer.status().as_u16();
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(told)? {
            body.extend_from_slice(&chunk);
            if body.len() > ANSWER_BYTES_MAX {
                return Err(LoopbackError("the answer is larger than 256 MiB".to_owned()));
            }
        }
        Ok(HttpAnswer { status, body })
    }
}

fn told(error: reqwest::Error) -> LoopbackError {
    if error.is_timeout() {
        return LoopbackError("no answer in time".to_owned());
    }
    LoopbackError(causes(&error.without_url()).join(": "))
}
