mod against_cel;

use serde_json::json;

use super::*;

fn evaluate(source: &str) -> Result<Value, String> {
    let parameters = json!({
        "n": 3, "big": u64::MAX, "x": 1.5, "name": "Ada", "none": null,
        "files": [{"path": "a.csv", "size": 10}, {"path": "b.txt", "size": 0}],
    });
    let item = json!("it");
    let scope = Scope {
        parameters: &parameters,
        steps: &json!({"load": {"status": "completed", "result": {"rows": 5}}, "step-0": {"status": "failed"}}),
        item: Some(ItemScope { value: &item, index: 2 }),
        workflow: &json!({"id": "w-1", "name": "nightly"}),
    };
    let expression = Expression::new(source).map_err(|error| error.to_string())?;
    expression.evaluate(&scope, &mut Work::of_expression()).map_err(|error| error.to_string())
}

fn value(source: &str) -> Value {
    evaluate(source).unwrap_or_else(|error| panic!("{source}: {error}"))
}

fn problem(source: &str) -> String {
    evaluate(source).expect_err(source)
}

#[test]
fn expressions_read_what_is_there() {
    assert_eq!(value("parameters.n + 1"), json!(4));
    assert_eq!(
        value("steps.load.result.rows > 4 && steps[\"step-0\"].status == 'failed'"),
        json!(true)
    );
    assert_eq!(value("item + '-' + string(index)"), json!("it-2"));
    assert_eq!(value("workflow.id"), json!("w-1"));
    assert_eq!(value("parameters.files.filter(f, f.size > 0).map(f, f.path)"), json!(["a.csv"]));
    assert_eq!(value("has(parameters.files) && !has(parameters.nothing)"), json!(true));
    assert_eq!(value("parameters.name.lowerAscii() in ['ada', 'eve']"), json!(true));
    assert_eq!(value("{'a': [1, 2u, 1.5, null]}"), json!({"a": [1, 2, 1.5, null]}));
    assert_eq!(value("'a,b'.split(',').join('-').upperAscii()"), json!("A-B"));
    assert_eq!(value("['x', 'y'].join()"), json!("xy"));
}

#[test]
fn either_side_of_a_disjunction_may_decide() {
    assert_eq!(value("parameters.nope == 1 || true"), json!(true));
    assert_eq!(value("parameters.nope == 1 && false"), json!(false));
    assert_eq!(value("[0, 1].exists(n, 1 / n == 1)"), json!(true));
    assert!(problem("parameters.nope == 1 || false").contains("no key `nope`"));
}

#[test]
fn numbers_do_not_change_silently() {
    assert_eq!(value("parameters.big"), json!(u64::MAX));
    assert_eq!(value("18446744073709551615u == parameters.big"), json!(true));
    assert_eq!(value("9007199254740993 > 9007199254740992.0"), json!(true));
    assert_eq!(value("parameters.big > -1"), json!(true));
    assert!(problem("9223372036854775807 + 1").contains("64 bits"));
    assert!(problem("-(-9223372036854775807 - 1)").contains("64 bits"));
    assert!(problem("int(parameters.big)").contains("64 bits"));
    assert!(problem("int(1e30)").contains("64 bits"));
    assert!(problem("12345678901234567890123").contains("invalid int literal"));
    assert!(problem("1.0 / 0.0").contains("no finite number"));
    assert!(problem("1 / 0").contains("divides by zero"));
    assert!(problem("parameters.n + parameters.x").contains("double(…)"));
}

#[test]
fn what_is_wrong_is_said_with_what_would_be_right() {
    for (source, expected) in [
        ("", "is empty"),
        ("a b", "is no CEL at character 3"),
        ("param.x", "there is no `param`; did you mean `parameters`?"),
        ("hello", "text is written in quotes"),
        ("steps", "name one: steps.NAME"),
        ("steps[parameters.name].result", "chooses a step while it runs"),
        ("steps.load.results", "a step has no `results`; did you mean `result`?"),
        ("steps[\"load\"][\"stats\"]", "did you mean `status`?"),
        ("parameters.name.startWith('a')", "did you mean `startsWith`?"),
        ("parameters.name.matches('a+')", "whose time has no bound"),
        ("size()", "another way than"),
        ("b'abc'", "has bytes"),
        ("[1].map(item, item)", "`item` is taken"),
        ("Thing{a: 1}", "has a message"),
        ("{1: 2}", "a key of a map is text, not int"),
        ("{'a': 1, 'a': 2}", "the key `a` is there twice"),
        ("[1, 2][5]", "a list of 2 has no item 5"),
        ("parameters.name + 1", "`+` does not take string and int"),
        ("parameters.name < 1", "have no order"),
        ("parameters.files.path", "list has no keys"),
        ("!parameters.n", "`!` does not take int"),
        ("[1, 2].exists(x, x)", "neither true nor false"),
    ] {
        let said = problem(source);
        assert!(said.contains(expected), "{source}: {said}");
    }
}

#[test]
fn what_is_read_is_known_before() {
    let references = |source| Expression::new(source).unwrap().references().clone();
    let of = |steps: &[(&str, bool)], item| References {
        steps: steps.iter().map(|(name, result)| ((*name).to_owned(), *result)).collect(),
        item,
    };
    assert_eq!(references("steps.a.status"), of(&[("a", false)], false));
    assert_eq!(references("steps.a.result.x + steps.a.status"), of(&[("a", true)], false));
    assert_eq!(references("steps['b-1']"), of(&[("b-1", true)], false));
    assert_eq!(
        references("has(steps.a.error) || steps['b']['result'] == item"),
        of(&[("a", false), ("b", true)], true)
    );
    assert_eq!(references("parameters.l.map(x, steps.a.result[x])"), of(&[("a", true)], false));
}

#[test]
fn text_from_outside_does_not_take_the_stack() {
    for source in [
        "(".repeat(4000),
        "[".repeat(4000),
        "!".repeat(4000),
        "-".repeat(4000) + "1",
        "1+".repeat(1900) + "1",
        "f(".repeat(1300),
        "true?1:".repeat(500) + "1",
        format!("parameters{}", ".a".repeat(2000)),
        format!("parameters{}", "[0]".repeat(1300)),
        "true&&".repeat(600) + "true",
        "{'a':".repeat(600),
        "x.map(x,".repeat(500),
        "'".repeat(4000),
        "x".repeat(5000),
    ] {
        assert!(Expression::new(&source).is_err(), "{}", &source[..20]);
    }
    let sum = "1+".repeat(90) + "1";
    assert_eq!(value(&sum), json!(91));
    assert_eq!(value(&("true&&".repeat(200) + "true")), json!(true));
}

#[test]
fn work_and_size_are_bounded() {
    let list = format!("[{}]", ["0"; 100].join(","));
    let nested = format!("{list}.all(a, {list}.all(b, {list}.all(c, a == b)))");
    assert!(problem(&nested).contains("steps of work"), "{}", problem(&nested));
    // An error of too much work is not absorbed.
    assert!(problem(&format!("{nested} || true")).contains("steps of work"));
    let double = "['xxxxxxxxxxxxxxxx']".to_owned() + &".map(s, s + s + s + s)".repeat(10);
    assert!(problem(&double).contains("more than 1048576 bytes"));
    let lists = "[[1]]".to_owned() + &".map(l, l + l + l + l)".repeat(12);
    assert!(problem(&lists).contains("steps of work"));
    let shared = "[[1]]".to_owned() + &".map(l, [l, l, l, l, l, l, l, l])".repeat(12);
    assert!(
        problem(&shared).contains("more than 1048576 bytes") || problem(&shared).contains("work")
    );
}

#[test]
fn a_filter_over_many_items_is_within_bounds() {
    let files: Vec<_> =
        (0..10_000).map(|n| json!({"path": format!("{n}.csv"), "size": n})).collect();
    let parameters = json!({"files": files});
    let source =
        "parameters.files.filter(f, f.size % 2 == 0 && f.path.endsWith('.csv')).map(f, f.path)";
    let scope =
        Scope { parameters: &parameters, steps: &json!({}), item: None, workflow: &json!({}) };
    let found = Expression::new(source).unwrap().evaluate(&scope, &mut Work::of_expression());
    assert_eq!(found.unwrap().as_array().unwrap().len(), 5_000);
}

#[test]
fn expressions_may_be_shared_by_threads() {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Expression>();
}
