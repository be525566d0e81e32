//! Hiding passwords in addresses, wherever an address is shown. The one place that does.

const HIDDEN: &str = "***";

/// The text with every password in an address left out: `scheme://user:***@host`, and
/// `password=***` in a query or a connection string. When in doubt it hides more.
pub fn without_passwords(text: &str) -> String {
    text.split('\n').map(|line| in_words(&in_address(line))).collect::<Vec<_>>().join("\n")
}

/// A password may hold any character, unencoded ones as well, so the last `@` ends it.
fn in_address(line: &str) -> String {
    let Some((scheme, rest)) = line.split_once("://") else { return line.to_owned() };
    let Some((login, place)) = rest.rsplit_once('@') else { return line.to_owned() };
    match login.split_once(':') {
        Some((user, _)) => format!("{scheme}://{user}:{HIDDEN}@{place}"),
        None => line.to_owned(),
    }
}

fn in_words(line: &str) -> String {
    const WORD: &str = "password";
    const BLANKS: [char; 2] = [' ', '\t'];
    let (mut shown, mut rest) = (String::with_capacity(line.len()), line);
    while let Some(at) = rest.to_ascii_lowercase().find(WORD) {
        let (before, after) = rest.split_at(at + WORD.len());
        shown.push_str(before);
        rest = after;
        let Some(value) = after.trim_start_matches(BLANKS).strip_prefix('=') else { continue };
        let value = value.trim_start_matches(BLANKS);
        shown.push_str(after.strip_suffix(value).unwrap_or("="));
        shown.push_str(HIDDEN);
        let quoted = value.strip_prefix('\'').and_then(|inner| Some(inner.find('\'')? + 2));
        let end = quoted.or_else(|| value.find(['&', ' ', '"', '\'', '`']));
        rest = value.get(end.unwrap_or(value.len())..).unwrap_or_default();
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::without_passwords;

    #[test]
    fn a_password_is_hidden_wherever_an_address_can_carry_one() {
        let cases = [
            ("postgres://me:pw@db/jobs", "postgres://me:***@db/jobs"),
            ("postgres://me:p:w@x/y@db:5432/jobs", "postgres://me:***@db:5432/jobs"),
            ("  database: postgress://me:pw@db # a", "  database: postgress://me:***@db # a"),
            ("postgres://db/jobs?password=pw&a=b", "postgres://db/jobs?password=***&a=b"),
            ("host=db password='p w' user=me", "host=db password=*** user=me"),
            ("host=db password = 'p w' user=me", "host=db password = *** user=me"),
            ("password\t=pw user=me", "password\t=*** user=me"),
            ("postgres://db/j?sslpassword=pw", "postgres://db/j?sslpassword=***"),
            ("http://me:pw@host:8080", "http://me:***@host:8080"),
        ];
        for (text, shown) in cases {
            assert_eq!(without_passwords(text), shown);
        }
    }

    #[test]
    fn what_holds_no_password_stays() {
        for text in [
            "sqlite:a/b.db",
            "postgres://me@db/jobs",
            "http://127.0.0.1:8080",
            "a:b@c",
            "a password",
            "",
        ] {
            assert_eq!(without_passwords(text), text);
        }
    }
}
