//! Workflows and operations: lists, the newest first, and one by a part of its id.

use outlast_cli_core::client::{Client, Query};
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{at, say, text_at};
use serde_json::Value;

use super::job_id::{DIGITS, digits, is_beginning};

/// Longest page to request, and how many are looked through for a part of an id.
const PAGE_MAX: u32 = 500;

/// Which items of a list are asked for.
pub(super) struct Wanted<'a> {
    pub(super) path: &'a [&'a str],
    pub(super) filters: &'a [Query<'a>],
    pub(super) limit: u32,
    /// Where an earlier list ended.
    pub(super) cursor: Option<String>,
}

/// Reads pages until there are as many items as are wanted, or no more; returns them with the cursor of
/// the next page.
pub(super) async fn list(
    client: &Client,
    Wanted { path, filters, limit, mut cursor }: Wanted<'_>,
) -> Result<(Vec<Value>, Option<String>), Failure> {
    let mut found = Vec::new();
    loop {
        let missing = limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
        let mut query = filters.to_vec();
        query.push(("limit", Some(missing.min(PAGE_MAX).to_string())));
        query.push(("cursor", cursor));
        let answer = client.get(path, &query).await?;
        found.extend(answer.get("data").and_then(Value::as_array).cloned().unwrap_or_default());
        cursor = at(&answer, "pagination.next_cursor").and_then(Value::as_str).map(Into::into);
        if cursor.is_none() || u32::try_from(found.len()).is_ok_and(|count| count >= limit) {
            return Ok((found, cursor));
        }
    }
}

/// Says how a list goes on, if it does.
pub(super) fn say_goes_on(shown: usize, cursor: Option<String>) {
    if let Some(cursor) = cursor {
        say(&format!("{shown} shown; --limit shows more, --cursor {cursor} the next\n"));
    }
}

/// The whole id of a `kind`, such as `workflow`, from its beginning or its end. What cannot be an id is
/// left to the server to refuse.
pub(super) async fn whole_id(
    client: &Client,
    path: &[&str],
    kind: &str,
    given: &str,
) -> Result<String, Failure> {
    if !is_beginning(given) || digits(given).len() == DIGITS {
        return Ok(given.to_owned());
    }
    let answer = client.get(path, &[("limit", Some(PAGE_MAX.to_string()))]).await?;
    let listed = answer.get("data").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    match with_part(listed, given).as_slice() {
        [one] => Ok(one.clone()),
        [] => {
            let message =
                format!("no {kind}'s id begins or ends with {given} among the newest {PAGE_MAX}");
            let hint = format!("`outlast {kind}s list` shows ids");
            Err(Failure::new(Exit::NotFound, message).with_hint(hint))
        }
        several => {
            let message = format!(
                "{given} is ambiguous: the ids of these {kind}s begin or end so\n{}",
                several.join("\n")
            );
            Err(Failure::new(Exit::Conflict, message)
                .with_hint("give more digits, of its end or its beginning"))
        }
    }
}

/// The ids of those that begin or end with these digits.
pub(super) fn with_part(listed: &[Value], given: &str) -> Vec<String> {
    let part = digits(given);
    let ids = listed.iter().map(|it| text_at(it, "id"));
    ids.filter(|id| digits(id).starts_with(&part) || digits(id).ends_with(&part)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::with_part;

    #[test]
    fn one_is_found_by_the_beginning_or_the_end_of_its_id() {
        let ids = ["01a1fcae-2d50-72c9-9c67-56e57a9c8e01", "01a1fcae-2d50-72c9-9c67-56e57a9c8e02"];
        let all = ids.map(|id| json!({ "id": id }));
        assert_eq!(with_part(&all, "7a9c-8e02"), [ids[1]]);
        assert_eq!(with_part(&all, "01A1FCAE"), ids);
        assert!(with_part(&all, "ffff").is_empty());
    }
}
