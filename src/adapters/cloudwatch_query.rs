//! CloudWatch by its query protocol: a form in, XML out.
//!
//! The SDK speaks CloudWatch's newest protocol alone (CBOR), which emulators do not: an alarm that is armed only on AWS itself
//! would be tested by nobody. Credentials, region and endpoint are the session's. What must never live here: what is asked.

use std::time::Duration;

use aws_credential_types::provider::ProvideCredentials;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpRequest, HttpRequestBody};
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Method};

use super::aws_session::AwsSession;
use super::ec2_errors::Trouble;
use super::objects::install_crypto;
use crate::market::Region;
use crate::ports::CloudError;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// An answer of a few alarms takes a tenth of a second; the loops try again.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Asks, and gives the XML of the answer. `act` is for people: "arm an alarm".
///
/// # Errors
/// As `ec2_errors` reads them.
pub async fn ask(session: &AwsSession, region: &Region, act: &str, action: &str, params: &[(String, String)]) -> Result<String, CloudError> {
    let unknown = |cause: Cause| CloudError::Ambiguous { act: act.to_owned(), cause };
    let credential = credential(session).await.map_err(|cause| CloudError::Denied { act: act.to_owned(), cause })?;
    let (status, date, text) = send(session, region, action, params, &credential).await.map_err(unknown)?;
    if (200..300).contains(&status) {
        return Ok(text);
    }
    let first = |tag: &str| texts(&text, tag).into_iter().next().unwrap_or_default();
    Err(Trouble::of_code(act, &first("Code"), &first("Message"), status, date.as_deref()).into())
}

async fn credential(session: &AwsSession) -> Result<AwsCredential, Cause> {
    let provider = session.base().await.credentials_provider().ok_or("no credentials are configured")?;
    let key = provider.provide_credentials().await?;
    let text = str::to_owned;
    Ok(AwsCredential { key_id: text(key.access_key_id()), secret_key: text(key.secret_access_key()), token: key.session_token().map(text) })
}

async fn send(
    session: &AwsSession,
    region: &Region,
    action: &str,
    params: &[(String, String)],
    credential: &AwsCredential,
) -> Result<(u16, Option<String>, String), Cause> {
    let suffix = if region.as_str().starts_with("cn-") { ".cn" } else { "" };
    let endpoint = session.endpoint().await.unwrap_or_else(|| format!("https://monitoring.{region}.amazonaws.com{suffix}"));
    let url = format!("{}/", endpoint.trim_end_matches('/'));
    let head = [("Action".to_owned(), action.to_owned()), ("Version".to_owned(), "2010-08-01".to_owned())];
    let body =
        head.iter().chain(params).map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect::<Vec<_>>().join("&").into_bytes();
    let mut request = HttpRequest::new(HttpRequestBody::from(body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.parse()?;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded; charset=utf-8"));
    AwsAuthorizer::new(credential, "monitoring", region.as_str()).try_authorize(&mut request, None)?;
    install_crypto();
    let client = Client::builder().timeout(ANSWER_WITHIN).build()?;
    let response = client.post(url).headers(request.headers().clone()).body(body).send().await?;
    let date = response.headers().get("date").and_then(|date| date.to_str().ok()).map(str::to_owned);
    Ok((response.status().as_u16(), date, response.text().await?))
}

fn encoded(text: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes().map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// The texts of all elements of a name that hold nothing but text, in their order.
pub fn texts(xml: &str, name: &str) -> Vec<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let inner = xml.split(&open).skip(1).filter_map(|rest| rest.split_once(&close)).map(|(inner, _)| inner);
    inner.filter(|inner| !inner.contains('<')).map(plain).collect()
}

/// The insides of all elements of a name that are in no other of that name, in their order.
pub fn elements<'a>(xml: &'a str, name: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let (mut found, mut depth, mut begin, mut at) = (Vec::new(), 0_usize, 0, 0);
    while let Some(next) = xml[at..].find('<').map(|next| at + next) {
        let rest = &xml[next..];
        at = next + 1;
        if rest.starts_with(&open) {
            depth += 1;
            if depth == 1 {
                begin = next + open.len();
            }
        } else if rest.starts_with(&close) && depth > 0 {
            depth -= 1;
            if depth == 0 {
                found.push(&xml[begin..next]);
            }
        }
    }
    found
}

fn plain(text: &str) -> String {
    let named = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#39;", "'"), ("&amp;", "&")];
    named.iter().fold(text.trim().to_owned(), |text, (entity, letter)| text.replace(entity, letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_in_their_order() {
        let xml = "<A><member><Name>a&lt;b</Name><N>1</N></member><member>\n<Name> c &amp;amp; </Name></member><Name><x/></Name></A>";
        assert_eq!(texts(xml, "Name"), ["a<b", "c &amp;"]);
        assert_eq!(texts(xml, "None"), [""; 0]);
        let nested = "<R><member><Id>a</Id><V><member>1</member><member>2</member></V></member><member><Id>b</Id><V/></member></R>";
        let results = elements(nested, "member");
        assert_eq!(results.len(), 2);
        assert_eq!((texts(results[0], "Id"), texts(results[0], "member")), (vec!["a".to_owned()], vec!["1".to_owned(), "2".to_owned()]));
        assert_eq!(texts(results[1], "member"), [""; 0]);
    }
}
