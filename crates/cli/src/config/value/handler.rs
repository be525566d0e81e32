//! Rules for dead letters in the configuration.

use std::borrow::Cow;
use std::time::Duration;

use ipnet::IpNet;
use outlast_core::job::DeadLetterReason;
use outlast_server::handlers::{Networks, Rule, Secret, Webhook};
use serde_json::{Map, Value};

use super::address;

pub(crate) const EXPECTED: &str = "a list such as {queues: [mail], webhook: {url: https://example.com/hook, \
    secret: whsec_…}}: each with webhook or action or both, and optionally queues, types and reasons";

/// Most rules.
const RULES_MAX: usize = 100;

const KEYS: [&str; 5] = ["queues", "types", "reasons", "webhook", "action"];

/// A YAML list; in the environment the same as YAML text.
pub(crate) fn dead_letters(value: &Value) -> Result<Vec<Rule>, Cow<'static, str>> {
    let items = super::items(value, EXPECTED)?.unwrap_or_default();
    if items.len() > RULES_MAX {
        return Err(format!("right: there are at most {RULES_MAX} rules").into());
    }
    let rules = items.iter().zip(1..).map(|(item, place)| rule(place, item));
    let rules: Vec<Rule> = rules.collect::<Result<_, _>>()?;
    let webhooks: Vec<&Webhook> = rules.iter().filter_map(|rule| rule.webhook.as_ref()).collect();
    let differ = |one: &&&Webhook| {
        webhooks.iter().any(|other| other.url == one.url && other.secret != one.secret)
    };
    match webhooks.iter().find(differ) {
        Some(_) => Err("right: two rules have the same webhook, and different secrets".into()),
        None => Ok(rules),
    }
}

fn rule(place: usize, item: &Value) -> Result<Rule, Cow<'static, str>> {
    let wrong = |problem: &str| Cow::from(format!("right: rule {place} of the list: {problem}"));
    let Value::Object(fields) = item else { return Err(EXPECTED.into()) };
    if let Some(unknown) = fields.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(wrong(&format!("`{unknown}` is unknown; known are {}", KEYS.join(", "))));
    }
    let reason = |word: String| DeadLetterReason::parse(&word).ok_or(word);
    let reasons = words(fields, "reasons").map_err(|problem| wrong(&problem))?;
    let reasons: Result<Vec<_>, String> = reasons.into_iter().map(reason).collect();
    let rule = Rule {
        queues: words(fields, "queues").map_err(|problem| wrong(&problem))?,
        types: words(fields, "types").map_err(|problem| wrong(&problem))?,
        reasons: reasons.map_err(|word| {
            let known = DeadLetterReason::ALL.map(DeadLetterReason::as_str).join(", ");
            wrong(&format!("`{word}` is no reason; reasons are {known}"))
        })?,
        webhook: fields.get("webhook").map(webhook).transpose().map_err(|it| wrong(&it))?,
        action: match fields.get("action") {
            None => None,
            Some(Value::String(action)) if action.contains('.') => Some(action.clone()),
            Some(_) => return Err(wrong("`action` names an action, such as ops.report")),
        },
    };
    if rule.webhook.is_none() && rule.action.is_none() {
        return Err(wrong("it has neither `webhook` nor `action`"));
    }
    Ok(rule)
}

/// A list of words, or one.
fn words(fields: &Map<String, Value>, name: &str) -> Result<Vec<String>, String> {
    let word = |value: &Value| value.as_str().map(str::to_owned);
    let words = match fields.get(name) {
        None => Some(Vec::new()),
        Some(Value::Array(items)) => items.iter().map(word).collect(),
        Some(value) => word(value).map(|word| vec![word]),
    };
    words.ok_or_else(|| format!("`{name}` is a list of words"))
}

fn webhook(value: &Value) -> Result<Webhook, String> {
    let (url, secret) = match value {
        Value::Object(fields) => {
            if let Some(unknown) =
                fields.keys().find(|key| !["url", "secret"].contains(&key.as_str()))
            {
                return Err(format!("webhook: `{unknown}` is unknown; known are url and secret"));
            }
            (fields.get("url"), fields.get("secret"))
        }
        value => (Some(value), None),
    };
    let url = url.and_then(Value::as_str).unwrap_or_default();
    if !url.contains("://") || address::url(&Value::String(url.to_owned())).is_err() {
        return Err("webhook: `url` is an http:// or https:// address".to_owned());
    }
    if url
        .split_once("://")
        .is_some_and(|(_, rest)| rest.split('/').next().unwrap_or("").contains('@'))
    {
        return Err(
            "webhook: `url` holds a password: let the receiver check the signature".to_owned()
        );
    }
    let secret = match secret {
        None => None,
        Some(Value::String(text)) => {
            Some(Secret::parse(text).map_err(|error| format!("webhook: {error}"))?)
        }
        Some(_) => return Err("webhook: `secret` is text".to_owned()),
    };
    Ok(Webhook { url: url.to_owned(), secret })
}

const SECRET: &str =
    "whsec_ and 24 to 64 random bytes in base64, such as `openssl rand -base64 32` prints";

/// What webhooks are signed with that queues ask for; none if it is empty.
pub(crate) fn webhook_secret(value: &Value) -> Result<Option<Secret>, &'static str> {
    let text = value.as_str().ok_or(SECRET)?;
    if text.is_empty() {
        return Ok(None);
    }
    Secret::parse(text).map(Some).map_err(|_bad| SECRET)
}

const TIMEOUT: &str = "a duration from 0.1s to 60s";

/// How long a receiver has for its answer.
pub(crate) fn webhook_timeout(value: &Value) -> Result<Duration, &'static str> {
    let fits = |it: &Duration| (Duration::from_millis(100)..=Duration::from_secs(60)).contains(it);
    super::duration(value).ok().filter(fits).ok_or(TIMEOUT)
}

const NETWORKS: &str = "a list of networks such as 10.0.0.0/8";

/// Networks, as a list or with commas between them.
pub(crate) fn networks(value: &Value) -> Result<Networks, &'static str> {
    let words = super::list(value).map_err(|_list| NETWORKS)?;
    let network = |word: &String| word.parse::<IpNet>().map_err(|_network| NETWORKS);
    Ok(Networks::new(words.iter().map(network).collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_are_a_list_or_yaml_text() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let list = json!([{"queues": ["mail"], "reasons": "exhausted",
                "webhook": {"url": "https://example.com/hook", "secret": secret}},
            {"types": ["a.b"], "webhook": "http://10.0.0.1/x", "action": "ops.report"}]);
        let rules = dead_letters(&list).unwrap();
        assert_eq!(rules[0].queues, ["mail"]);
        assert_eq!(rules[0].reasons, [DeadLetterReason::Exhausted]);
        let webhook = rules[0].webhook.as_ref().unwrap();
        assert_eq!((&*webhook.url, webhook.secret.is_some()), ("https://example.com/hook", true));
        assert_eq!(rules[1].action.as_deref(), Some("ops.report"));
        assert_eq!(dead_letters(&json!(list.to_string())), Ok(rules));
        assert_eq!(dead_letters(&json!("")), Ok(Vec::new()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (rule, why) in [
            (json!({"queues": ["mail"]}), "neither `webhook` nor `action`"),
            (json!({"queue": "mail", "action": "a.b"}), "`queue` is unknown"),
            (
                json!({"reasons": ["tired"], "action": "a.b"}),
                "`tired` is no reason; reasons are exhausted",
            ),
            (json!({"webhook": "https://user:pw@example.com/hook"}), "`url` holds a password"),
            (json!({"webhook": "example.com"}), "`url` is an http:// or https:// address"),
            (json!({"webhook": {"url": "http://a", "secret": "short"}}), "`whsec_` and 24 to 64"),
            (json!({"action": "report"}), "names an action, such as ops.report"),
            (json!({"queues": [1], "action": "a.b"}), "`queues` is a list of words"),
        ] {
            let refused = dead_letters(&json!([rule])).unwrap_err();
            assert!(refused.contains("rule 1 of the list: ") && refused.contains(why), "{refused}");
        }
        assert!(dead_letters(&json!({"webhook": "http://a"})).is_err());
        let other = json!({"url": "http://a", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"});
        let twice = dead_letters(&json!([{"webhook": "http://a"}, {"webhook": other}]));
        assert!(twice.unwrap_err().contains("the same webhook, and different secrets"));
        assert!(webhook_secret(&json!("")).unwrap().is_none());
        assert!(webhook_secret(&json!("whsec_short")).is_err());
        assert!(webhook_timeout(&json!("0")).is_err() && webhook_timeout(&json!("10s")).is_ok());
        assert!(networks(&json!("10.0.0.0/8, fd00::/8")).is_ok());
        assert!(networks(&json!("ten")).is_err());
    }
}
