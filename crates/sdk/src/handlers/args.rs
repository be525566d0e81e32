//! A job's arguments as the handler's type.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::JobContext;
use crate::outcome::Outcome;

/// Reads a job's arguments: the only one is an `A`; of several, all together are; and of none
/// null is. Those that do not fit fail the attempt, as they fit no later one either.
pub(super) fn read<A: DeserializeOwned>(
    args: &Bytes,
    context: &JobContext,
) -> Result<A, Box<Outcome>> {
    parse(args).map_err(|error| {
        let message =
            format!("arguments of {:?} do not fit its handler: {error}", context.job_type());
        Box::new(Outcome::failed("invalid_args", message).permanently().unrun())
    })
}

fn parse<A: DeserializeOwned>(args: &[u8]) -> serde_json::Result<A> {
    let several: Vec<&RawValue> = serde_json::from_slice(args)?;
    match several.as_slice() {
        [] => serde_json::from_str("null"),
        [one] => serde_json::from_str(one.get()),
        _ => serde_json::from_slice(args),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::parse;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Email {
        to: String,
    }

    #[test]
    fn one_argument_is_the_value_and_several_are_all_of_it() {
        assert_eq!(parse::<Email>(br#"[{"to":"a"}]"#).unwrap(), Email { to: "a".to_owned() });
        assert_eq!(parse::<Vec<u8>>(b"[[1,2]]").unwrap(), [1, 2]);
        assert_eq!(parse::<(String, u8)>(br#"["a",3]"#).unwrap(), ("a".to_owned(), 3));
        parse::<()>(b"[]").unwrap();
        assert_eq!(parse::<Option<Email>>(b"[]").unwrap(), None);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let error = parse::<Email>(br#"[{"from":"a"}]"#).unwrap_err();
        assert!(error.to_string().contains("missing field `to`"), "{error}");
    }
}
