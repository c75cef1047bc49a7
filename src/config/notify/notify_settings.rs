//! From `[notify]` as written to the channels, and findings about values that make no sense.

use super::notify_file::{EmailFile, NotifyFile, Recipients};
use crate::config::Environment;
use crate::job::{ChannelSecret, ChannelSpec, EmailSpec, Finding, NotifySpec};

/// The placeholders of a template.
const PLACEHOLDERS: [&str; 6] = ["{job}", "{event}", "{text}", "{cost}", "{command}", "{link}"];

/// The ways to name one secret: in the file itself, in another file, in a variable.
struct SecretWays<'a> {
    written: Option<&'a String>,
    file: Option<&'a String>,
    variable: Option<&'a String>,
}

impl SecretWays<'_> {
    fn number(&self) -> usize {
        [self.written, self.file, self.variable].into_iter().flatten().count()
    }

    fn secret(&self, environment: &Environment) -> Option<ChannelSecret> {
        let file = |path: &String| ChannelSecret::File(environment.at_home(path));
        let variable = |name: &String| ChannelSecret::Variable(name.clone());
        let written = |text: &String| ChannelSecret::Written(text.clone());
        (self.file.map(file))
            .or_else(|| self.variable.map(variable))
            .or_else(|| self.written.map(written))
    }
}

/// The addresses of the channels that have one, with their tables.
fn addresses(file: &NotifyFile) -> Vec<(&'static str, SecretWays<'_>)> {
    let webhook = file.webhook.as_ref().map(|webhook| SecretWays {
        written: webhook.url.as_ref(),
        file: webhook.url_file.as_ref(),
        variable: webhook.url_env.as_ref(),
    });
    let slack = file.slack.as_ref().map(|slack| SecretWays {
        written: slack.url.as_ref(),
        file: slack.url_file.as_ref(),
        variable: slack.url_env.as_ref(),
    });
    let ntfy = file.ntfy.as_ref().map(|ntfy| SecretWays {
        written: ntfy.url.as_ref(),
        file: ntfy.url_file.as_ref(),
        variable: ntfy.url_env.as_ref(),
    });
    [("webhook", webhook), ("slack", slack), ("ntfy", ntfy)]
        .into_iter()
        .filter_map(|(table, ways)| ways.map(|ways| (table, ways)))
        .collect()
}

/// The channels. A channel with an error is left out.
pub fn settings(file: &NotifyFile, environment: &Environment) -> NotifySpec {
    let mut spec = NotifySpec {
        template: file.template.clone(),
        page: file.page.as_ref().map(|page| page.trim_end_matches('/').to_owned()),
        ..NotifySpec::default()
    };
    if let Some(on) = &file.on {
        spec.on = on.iter().copied().collect();
    }
    let command = file.command.clone().filter(|argv| !argv.is_empty());
    spec.channels.extend(command.map(ChannelSpec::Command));
    for (table, ways) in addresses(file) {
        let Some(url) = ways.secret(environment) else { continue };
        spec.channels.push(match table {
            "webhook" => ChannelSpec::Webhook { url },
            "slack" => ChannelSpec::Slack { url },
            _ => ChannelSpec::Ntfy { url, token: token(file, environment) },
        });
    }
    spec.channels.extend(
        file.email
            .as_ref()
            .and_then(|email| email_settings(email, environment))
            .map(ChannelSpec::Email),
    );
    spec.channels.extend(file.desktop.as_ref().map(|_| ChannelSpec::Desktop));
    spec
}

fn token(file: &NotifyFile, environment: &Environment) -> Option<ChannelSecret> {
    let ntfy = file.ntfy.as_ref()?;
    let (file, variable) = (ntfy.token_file.as_ref(), ntfy.token_env.as_ref());
    SecretWays { written: None, file, variable }.secret(environment)
}

fn email_settings(email: &EmailFile, environment: &Environment) -> Option<EmailSpec> {
    let (file, variable) = (email.password_file.as_ref(), email.password_env.as_ref());
    Some(EmailSpec {
        to: match email.to.clone()? {
            Recipients::One(address) => vec![address],
            Recipients::Many(addresses) => addresses,
        },
        from: email.from.clone()?,
        server: email.server.clone()?,
        user: email.user.clone(),
        password: SecretWays { written: None, file, variable }.secret(environment),
    })
}

/// Findings about values that can be read but make no sense.
pub fn judge(file: &NotifyFile) -> Vec<Finding> {
    let mut found = Vec::new();
    if file.command.as_ref().is_some_and(Vec::is_empty) {
        found.push(Finding::error("notify.command", "is empty, and names no program"));
    }
    for (table, ways) in addresses(file) {
        let path = format!("notify.{table}");
        match ways.number() {
            1 => found.extend(ways.written.and_then(|url| judge_url(&path, url))),
            0 => found.push(
                Finding::error(&path, "needs an address before it can send")
                    .hint("write one of `url`, `url_file` and `url_env`"),
            ),
            _ => found.push(
                Finding::error(&path, "names its address more than once")
                    .hint("keep one of `url`, `url_file` and `url_env`"),
            ),
        }
    }
    let ntfy = file.ntfy.as_ref();
    if ntfy.is_some_and(|ntfy| ntfy.token_file.is_some() && ntfy.token_env.is_some()) {
        found.push(Finding::error("notify.ntfy", "names its token more than once"));
    }
    found.extend(file.email.as_ref().map(judge_email).unwrap_or_default());
    found.extend(file.template.as_deref().and_then(judge_template));
    found.extend(file.page.as_ref().filter(|page| !is_http(page)).map(|_| {
        Finding::error("notify.page", "is no address of a page")
            .hint("write what `lamp web` listens on, like http://127.0.0.1:7878")
    }));
    found
}

fn is_http(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

/// The address is a secret, so the finding does not repeat it.
fn judge_url(path: &str, url: &str) -> Option<Finding> {
    let finding =
        Finding::error(&format!("{path}.url"), "begins with neither https:// nor http://");
    (!is_http(url)).then_some(finding)
}

fn judge_email(email: &EmailFile) -> Vec<Finding> {
    let mut found = Vec::new();
    let nobody = match &email.to {
        None => true,
        Some(Recipients::One(address)) => address.trim().is_empty(),
        Some(Recipients::Many(addresses)) => addresses.is_empty(),
    };
    let missing =
        [("to", nobody), ("from", email.from.is_none()), ("server", email.server.is_none())];
    for (key, _) in missing.into_iter().filter(|(_, is_missing)| *is_missing) {
        let path = format!("notify.email.{key}");
        found.push(Finding::error(&path, "is missing, so no mail can be sent"));
    }
    if let Some(server) = &email.server {
        if !server.starts_with("smtp://") && !server.starts_with("smtps://") {
            found.push(
                Finding::error("notify.email.server", "begins with neither smtps:// nor smtp://")
                    .hint("write smtps://HOST, or smtp://HOST:587?tls=required"),
            );
        }
        if server.contains('@') {
            found.push(
                Finding::error("notify.email.server", "has a login in it")
                    .hint("write `user`, and `password_file` or `password_env`"),
            );
        }
    }
    found.extend(sends_password_openly(email).then(|| {
        Finding::error("notify.email.server", "gets the password without encryption")
            .hint("write smtps://HOST, or smtp://HOST:587?tls=required")
    }));
    let passwords = [&email.password_file, &email.password_env].into_iter().flatten().count();
    if passwords > 1 {
        found.push(Finding::error("notify.email", "names its password more than once"));
    }
    if (passwords > 0) != email.user.is_some() {
        found.push(
            Finding::error("notify.email", "has only one of user and password")
                .hint("write `user` with `password_file` or `password_env`, or leave both out"),
        );
    }
    found
}

/// A server on this workstation may be reached without TLS.
fn sends_password_openly(email: &EmailFile) -> bool {
    let Some(rest) = email.server.as_deref().and_then(|url| url.strip_prefix("smtp://")) else {
        return false;
    };
    let host = rest.split([':', '/', '?']).next().unwrap_or_default();
    let is_here = ["localhost", "127.0.0.1"].contains(&host);
    email.user.is_some() && !rest.contains("tls=required") && !is_here
}

fn judge_template(template: &str) -> Option<Finding> {
    let rest = PLACEHOLDERS.iter().fold(template.to_owned(), |rest, known| rest.replace(known, ""));
    let (from, to) = rest
        .find('{')
        .and_then(|from| rest[from..].find('}').map(|length| (from, from + length)))?;
    let unknown = &rest[from..=to];
    let finding = Finding::error("notify.template", format!("has the unknown `{unknown}`"));
    Some(finding.hint(format!("it may have {}", PLACEHOLDERS.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::notify::notify_file::{NtfyFile, SlackFile, WebhookFile};
    use crate::job::EventKind;

    fn read(text: &str) -> NotifyFile {
        toml_edit::de::from_str(text).expect("it can be read")
    }

    #[test]
    fn channels_are_read_and_secrets_named_by_file_or_variable() {
        let file = read(
            "on = ['ended', 'cap']\ncommand = ['mail', 'me']\npage = 'http://127.0.0.1:7878/'\n\
             [webhook]\nurl = 'https://example.org/hook'\n[slack]\nurl_file = '~/slack'\n\
             [ntfy]\nurl_env = 'TOPIC'\ntoken_file = '/t'\n\
             [email]\nto = 'me@example.org'\nfrom = 'lamp@example.org'\nserver = 'smtps://m'\n\
             [desktop]\n",
        );
        assert_eq!(judge(&file), []);
        let environment = Environment { home: Some("/home/me".into()), ..Environment::default() };
        let spec = settings(&file, &environment);
        assert_eq!(spec.on, [EventKind::Ended, EventKind::Cap].into());
        assert_eq!(spec.page.as_deref(), Some("http://127.0.0.1:7878"));
        assert_eq!(spec.channels.len(), 6, "{spec:?}");
        assert!(
            spec.channels.contains(&ChannelSpec::Slack {
                url: ChannelSecret::File("/home/me/slack".into())
            })
        );
        assert!(spec.channels.contains(&ChannelSpec::Ntfy {
            url: ChannelSecret::Variable("TOPIC".into()),
            token: Some(ChannelSecret::File("/t".into())),
        }));
        assert!(!format!("{spec:?}").contains("example.org/hook"), "{spec:?}");
    }

    #[test]
    fn what_cannot_send_is_a_finding_that_repeats_no_address() {
        let paths = |file: NotifyFile| {
            let found = judge(&file);
            assert!(!format!("{found:?}").contains("hidden"), "{found:?}");
            found.into_iter().map(|finding| finding.path).collect::<Vec<_>>()
        };
        let file = || Some("f".to_owned());
        let twice = WebhookFile { url: file(), url_file: file(), ..WebhookFile::default() };
        assert_eq!(
            paths(NotifyFile { webhook: Some(twice), ..NotifyFile::default() }),
            ["notify.webhook"]
        );
        let slack = Some(SlackFile { url: Some("ftp://hidden".into()), ..SlackFile::default() });
        assert_eq!(paths(NotifyFile { slack, ..NotifyFile::default() }), ["notify.slack.url"]);
        let ntfy = Some(NtfyFile::default());
        assert_eq!(paths(NotifyFile { ntfy, ..NotifyFile::default() }), ["notify.ntfy"]);
        let email = read("[email]\nto = []\nserver = 'smtp://me:hidden@m'\nuser = 'me'");
        assert_eq!(
            paths(email),
            [
                "notify.email.to",
                "notify.email.from",
                "notify.email.server",
                "notify.email.server",
                "notify.email"
            ]
        );
        let template =
            NotifyFile { template: Some("{job} {cots}".into()), ..NotifyFile::default() };
        assert!(judge(&template)[0].message.contains("{cots}"));
    }
}
