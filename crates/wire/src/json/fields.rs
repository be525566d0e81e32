//! Reads the fields of an object. One that is null counts as not there.

use serde_json::{Map, Value};

use crate::fault::Fault;
use crate::json;
use crate::nearest::nearest;

/// Reads a body that is an object, all fields of which are `known`. Another one is refused with the
/// one that may be meant.
pub(crate) fn known(known: &[&str], body: &[u8]) -> Result<Map<String, Value>, Fault> {
    let Value::Object(fields) = json::read(body)? else {
        return Err(Fault::payload("request body must be a JSON object"));
    };
    no_others(known, &fields)?;
    Ok(fields)
}

/// Refuses fields that are not `known`.
pub(crate) fn no_others(known: &[&str], fields: &Map<String, Value>) -> Result<(), Fault> {
    let Some(field) = fields.keys().find(|field| !known.contains(&field.as_str())) else {
        return Ok(());
    };
    let near = nearest(field, known, 0.7);
    let meant = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    let all = known.join(", ");
    Err(Fault::field(field, format!("is not known{meant}; known fields are {all}")))
}

pub(crate) fn given<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

pub(crate) fn text<'a>(
    fields: &'a Map<String, Value>,
    name: &str,
) -> Result<Option<&'a str>, Fault> {
    let value = given(fields, name);
    value
        .map(|value| value.as_str().ok_or_else(|| Fault::field(name, "must be a string")))
        .transpose()
}

pub(crate) fn flag(fields: &Map<String, Value>, name: &str) -> Result<Option<bool>, Fault> {
    let value = given(fields, name);
    value
        .map(|value| value.as_bool().ok_or_else(|| Fault::field(name, "must be true or false")))
        .transpose()
}
