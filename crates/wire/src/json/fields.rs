//! Reads the fields of an object. One that is null counts as not there.

use serde_json::{Map, Value};

use crate::fault::Fault;

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
