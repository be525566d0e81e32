use serde_json::{Value, json};

use super::check;

fn accepts(matcher: &Value, values: &[Value]) {
    for value in values {
        assert_eq!(check(matcher, Some(value)), Ok(()), "{matcher} should accept {value}");
    }
}

fn refuses(matcher: &Value, values: &[Value]) {
    for value in values {
        assert!(check(matcher, Some(value)).is_err(), "{matcher} should refuse {value}");
    }
}

fn judges(matcher: &Value, accepted: &[Value], refused: &[Value]) {
    accepts(matcher, accepted);
    refuses(matcher, refused);
}

#[test]
fn words_about_strings_hold_for_nothing_else() {
    judges(&json!("string:nonempty"), &[json!("a")], &[json!(""), json!(1), json!(null)]);
    judges(&json!("string:contains:b"), &[json!("abc")], &[json!("ac"), json!(["b"])]);
    judges(&json!("string:pattern(^a.c$)"), &[json!("abc")], &[json!("abcd")]);
    let v7 = json!("01890a5d-ac96-774b-bcce-b302099a8057");
    let v4 = json!("936da01f-9abd-4d9d-80c7-02af85c822a8");
    refuses(&json!("string:uuidv7"), &[v4.clone(), json!("x")]);
    accepts(&json!("string:uuidv7"), std::slice::from_ref(&v7));
    judges(&json!("string:uuid"), &[v7, v4], &[json!("01890a5dac96774bbcceb302099a8057")]);
    judges(
        &json!("string:datetime"),
        &[json!("2026-01-02T03:04:05Z"), json!("2026-01-02T03:04:05.123+02:00")],
        &[json!("2026-01-02 03:04:05Z"), json!("2026-01-02T03:04:05")],
    );
}

#[test]
fn words_about_numbers_hold_for_nothing_else() {
    judges(&json!("number:positive"), &[json!(1), json!(0.5)], &[json!(0), json!("1")]);
    judges(&json!("number:non_negative"), &[json!(0)], &[json!(-1)]);
    judges(&json!("number:range(400,422)"), &[json!(400), json!(422)], &[json!(399), json!(423)]);
    judges(&json!("~1000"), &[json!(500), json!(1500)], &[json!(499), json!(1501), json!("1000")]);
    judges(&json!("~50"), &[json!(0), json!(150)], &[json!(151)]);
    judges(&json!("one_of:400,422"), &[json!(400), json!(422)], &[json!(404)]);
}

#[test]
fn words_about_arrays_hold_for_nothing_else() {
    judges(&json!("array:nonempty"), &[json!([1])], &[json!([]), json!("a")]);
    judges(&json!("array:empty"), &[json!([])], &[json!([1]), json!(null)]);
    judges(&json!("array:length:2"), &[json!([1, 2])], &[json!([1])]);
    judges(&json!("array:length(0)"), &[json!([])], &[json!([1])]);
    judges(&json!("array:min:1"), &[json!([1, 2])], &[json!([])]);
    judges(&json!("array:min_length:2"), &[json!([1, 2])], &[json!([1])]);
    judges(&json!("contains:a"), &[json!(["b", "a"])], &[json!(["b"]), json!("a")]);
    judges(&json!("contains:42"), &[json!([42])], &[json!([4])]);
    judges(&json!("not_contains:a"), &[json!(["b"]), json!([])], &[json!(["a"]), json!("b")]);
}

#[test]
fn presence_is_told_from_value() {
    assert!(check(&json!("any"), None).is_err());
    assert!(check(&json!("exists"), None).is_err());
    assert_eq!(check(&json!("exists"), Some(&json!(null))), Ok(()));
    assert_eq!(check(&json!("absent"), None), Ok(()));
    assert_eq!(check(&json!({"$exists": false}), None), Ok(()));
    assert!(check(&json!({"$exists": true}), None).is_err());
    assert!(check(&json!({"$type": "number"}), None).is_err());
    judges(&json!("absent"), &[json!(null)], &[json!(0), json!("")]);
    judges(&json!("any"), &[json!(false)], &[json!(null)]);
}

#[test]
fn operators_must_all_hold() {
    judges(&json!({"$exists": true, "$type": "string"}), &[json!("")], &[json!(1), json!(null)]);
    judges(&json!({"$match": "^a"}), &[json!("ab")], &[json!("ba"), json!(1)]);
    judges(&json!({"$in": [200, "string:nonempty"]}), &[json!(200), json!("x")], &[json!(201)]);
    judges(&json!({"$or": ["a", {"$gte": 3}]}), &[json!("a"), json!(3)], &[json!("b"), json!(2)]);
    judges(&json!({"$size": 2}), &[json!([1, 2])], &[json!([1]), json!(2)]);
    judges(&json!({"$size": {"$gte": 1}}), &[json!([1])], &[json!([])]);
    judges(&json!({"$empty": true}), &[json!({}), json!(null)], &[json!([1])]);
    judges(&json!({"range": {"min": 1, "max": 3}}), &[json!(1), json!(3)], &[json!(0), json!(4)]);
    judges(&json!({"$eq": "a"}), &[json!("a")], &[json!("b")]);
}

#[test]
fn plain_values_are_compared_as_json() {
    judges(&json!(1), &[json!(1), json!(1.0)], &[json!(2), json!("1"), json!(true)]);
    judges(&json!(true), &[json!(true)], &[json!(1), json!("true")]);
    judges(&json!("active"), &[json!("active")], &[json!("Active"), json!(null)]);
    judges(&json!(null), &[json!(null)], &[json!(0)]);
    judges(&json!([1, "any"]), &[json!([1, 2])], &[json!([1]), json!([1, 2, 3])]);
    judges(&json!({"a": 1, "b": 2}), &[json!({"b": 2, "a": 1})], &[json!({"a": 1})]);
}

#[test]
fn what_the_runner_does_not_know_never_matches() {
    refuses(&json!("string:shouting"), &[json!("A")]);
    refuses(&json!("number:prime"), &[json!(7)]);
    refuses(&json!("array:sorted"), &[json!([1])]);
    refuses(&json!({"$near": 1}), &[json!(1)]);
    refuses(&json!({"$exists": "yes"}), &[json!(1)]);
}
