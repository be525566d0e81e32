//! Values that pages do not show, by the names of their keys: passwords, tokens and the like.
//!
//! A name is compared with the words of a key, whatever their case: `token` is found in `token`,
//! `API_TOKEN` and `accessToken`, and not in `max_tokens`; `api_key` in `apikey` and `X-Api-Key`.

use serde_json::Value;

/// What stands in place of a value.
const HIDDEN: &str = "(hidden)";

/// The names of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HiddenKeys {
    /// Each in lower case, its words together.
    names: Vec<String>,
    /// How long the longest is.
    longest: usize,
}

impl HiddenKeys {
    /// What is hidden unless the configuration says otherwise.
    pub const STANDARD: [&str; 11] = [
        "password",
        "passwd",
        "passphrase",
        "secret",
        "token",
        "api_key",
        "private_key",
        "access_key",
        "credentials",
        "authorization",
        "cookie",
    ];

    /// Returns what hides the values of these keys. A name without letters and digits hides nothing.
    #[must_use]
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names = names.into_iter().map(|name| words(name).concat());
        let names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
        let longest = names.iter().map(String::len).max().unwrap_or(0);
        Self { names, longest }
    }

    /// Returns whether the values of a key are hidden.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        if self.names.is_empty() {
            return false;
        }
        let words = words(key);
        // A name is some of the words, one after the other; no more than are as long as a name.
        (0..words.len()).any(|from| {
            let mut together = String::new();
            for word in &words[from..] {
                together.push_str(word);
                if self.names.contains(&together) {
                    return true;
                }
                if together.len() >= self.longest {
                    break;
                }
            }
            false
        })
    }

    /// Hides values at any depth; returns whether there were any.
    pub fn mask(&self, value: &mut Value) -> bool {
        match value {
            Value::Object(fields) => fields.iter_mut().fold(false, |found, (key, value)| {
                let hides = !value.is_null() && self.has(key);
                if hides {
                    *value = Value::from(HIDDEN);
                }
                hides || self.mask(value) || found
            }),
            Value::Array(items) => {
                let mut found = false;
                for item in items {
                    found |= self.mask(item);
                }
                found
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }

    /// Returns a document as it may be shown: as it is, unless it has values to hide.
    #[must_use]
    pub fn masked(&self, document: &str) -> String {
        if let Ok(mut value) = serde_json::from_str::<Value>(document)
            && self.mask(&mut value)
        {
            return serde_json::to_string_pretty(&value).unwrap_or_default();
        }
        document.to_owned()
    }

    /// Returns a value as it may be shown under a key.
    #[must_use]
    pub fn value<'a>(&self, key: &str, value: &'a str) -> &'a str {
        if self.has(key) { HIDDEN } else { value }
    }

    /// Hides what the schema of parameters says of hidden ones, at any depth: defaults and examples.
    pub fn mask_schema(&self, schema: &mut Value) {
        self.mask_schema_of(schema, false);
    }

    fn mask_schema_of(&self, schema: &mut Value, hides: bool) {
        for shown in ["default", "example", "examples", "enum", "const"] {
            match schema.get_mut(shown) {
                Some(value) if hides => *value = Value::from(HIDDEN),
                Some(value) => drop(self.mask(value)),
                None => {}
            }
        }
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            for (name, about) in properties {
                self.mask_schema_of(about, hides || self.has(name));
            }
        }
        if let Some(items) = schema.get_mut("items") {
            self.mask_schema_of(items, hides);
        }
    }
}

/// The words of a key in lower case: parts between other characters than letters and digits, and
/// `camelCase` apart.
fn words(key: &str) -> Vec<String> {
    let mut all: Vec<String> = vec![String::new()];
    let mut was_lower = false;
    for c in key.chars() {
        if !c.is_alphanumeric() || (was_lower && c.is_uppercase()) {
            all.push(String::new());
        }
        was_lower = c.is_lowercase() || c.is_numeric();
        if let Some(word) = all.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    all.retain(|word| !word.is_empty());
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn name_is_found_among_the_words_of_a_key() {
        let keys = HiddenKeys::new(["password", "Token", "api_key"]);
        for hidden in [
            "password",
            "PASSWORD",
            "db_password",
            "dbPassword",
            "token",
            "X-Auth-Token",
            "accessToken",
            "api_key",
            "apikey",
            "ApiKey",
            "API-KEY",
            "stripe.api.key.live",
        ] {
            assert!(keys.has(hidden), "{hidden}");
        }
        for shown in ["passwords", "max_tokens", "tokens", "key", "api", "keyapi", ""] {
            assert!(!keys.has(shown), "{shown}");
        }
        assert!(!HiddenKeys::new(["", "-"]).has("") && !HiddenKeys::default().has("password"));
    }

    #[test]
    fn values_are_hidden_at_any_depth_and_whatever_they_are() {
        let keys = HiddenKeys::new(HiddenKeys::STANDARD);
        let mut value = json!([{"user": "ann", "Password": "p1", "list": [{"deep": {"token": ["p2"]}}],
            "secret": {"a": "p3"}, "cookie": null, "authorization": 4, "count": 5}]);
        assert!(keys.mask(&mut value));
        let hidden = json!([{"user": "ann", "Password": HIDDEN, "list": [{"deep": {"token": HIDDEN}}],
            "secret": HIDDEN, "cookie": null, "authorization": HIDDEN, "count": 5}]);
        assert_eq!(value, hidden);
        let mut plain = json!({"user": "ann", "max_tokens": 5});
        assert!(!keys.mask(&mut plain));
    }

    #[test]
    fn document_stays_as_it_is_where_there_is_nothing_to_hide() {
        let keys = HiddenKeys::new(["password"]);
        for same in ["{\"n\":1.50,  \"a\":\"password\"}", "no JSON: password", ""] {
            assert_eq!(keys.masked(same), same);
        }
        assert_eq!(keys.masked("{\"password\":\"p\"}"), "{\n  \"password\": \"(hidden)\"\n}");
        assert_eq!([keys.value("password", "p"), keys.value("user", "u")], [HIDDEN, "u"]);
    }

    #[test]
    fn schema_keeps_what_parameters_are_and_hides_their_examples() {
        let keys = HiddenKeys::new(["password"]);
        let mut schema = json!({"properties": {
            "password": {"type": "string", "default": "p1", "examples": ["p2"]},
            "db": {"properties": {"password": {"const": "p3"}}, "default": {"password": "p4"}},
            "all": {"items": {"properties": {"password": {"enum": ["p5"]}}}},
            "user": {"type": "string", "default": "ann"},
            "list": {"examples": [{"password": "p6"}], "enum": [{"password": "p7"}]},
            "passwords": {"const": {"password": "p8"}},
            "Password": {"properties": {"a": {"default": "p9"}}},
        }});
        keys.mask_schema(&mut schema);
        let text = schema.to_string();
        assert!((1..=9).all(|n| !text.contains(&format!("p{n}"))), "{text}");
        assert_eq!(schema["properties"]["password"]["type"], "string");
        assert_eq!(schema["properties"]["user"]["default"], "ann");
    }
}
