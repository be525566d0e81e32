use serde_json::json;

use super::*;
use crate::expression::ItemScope;

fn render(template: &Value) -> Result<Value, String> {
    let template = Template::read(template, &Place::Root).map_err(|fault| fault.to_string())?;
    assert_eq!(Template::read(&template.to_json(), &Place::Root), Ok(template.clone()));
    let parameters = json!({"n": 3, "name": "a b", "big": u64::MAX, "x": 1e30, "list": [1, null]});
    let item = json!({"path": "/tmp/x"});
    let scope = Scope {
        parameters: &parameters,
        steps: &json!({"load": {"status": "completed", "result": {"files": ["x", "y"]}}}),
        item: Some(ItemScope { value: &item, index: 7 }),
        workflow: &json!({"id": "w-1"}),
    };
    template.render(&scope, &mut Work::of_expression()).map_err(|error| error.to_string())
}

#[test]
fn alone_in_a_text_an_expression_keeps_its_type() {
    assert_eq!(render(&json!("${{ parameters.n }}")), Ok(json!(3)));
    assert_eq!(render(&json!(" ${{ parameters.n }}")), Ok(json!(" 3")));
    assert_eq!(
        render(&json!({"a": ["${{ steps.load.result.files }}"]})),
        Ok(json!({"a": [["x", "y"]]}))
    );
    assert_eq!(render(&json!("${{parameters.list}}${{index}}")), Ok(json!("[1,null]7")));
}

#[test]
fn numbers_that_are_only_passed_on_do_not_change() {
    assert_eq!(render(&json!("${{ parameters.big }}")), Ok(json!(u64::MAX)));
    assert_eq!(render(&json!("${{ parameters.x }}")), Ok(json!(1e30)));
}

#[test]
fn text_with_braces_and_quotes_ends_where_the_expression_ends() {
    assert_eq!(render(&json!("${{ {'a': {'b': 1}} }}")), Ok(json!({"a": {"b": 1}})));
    assert_eq!(render(&json!("${{ '}}' + \"${{\" }}!")), Ok(json!("}}${{!")));
    assert_eq!(render(&json!("costs $5 {{ x }}")), Ok(json!("costs $5 {{ x }}")));
}

#[test]
fn a_value_that_looks_like_an_expression_stays_data() {
    let rendered = render(&json!("${{ '${' + '{ parameters.n }' + '}' }}"));
    assert_eq!(rendered, Ok(json!("${{ parameters.n }}")));
}

#[test]
fn faults_name_the_place() {
    let fault = |value: Value| render(&value).unwrap_err();
    let open = fault(json!({"a": [1, "${{ x"]}));
    assert_eq!(open, "a[1]: `${{` is not closed; end the expression with `}}`");
    let unknown = fault(json!({"a": "${{ param.n }}"}));
    assert_eq!(unknown, "a: `param.n`: there is no `param`; did you mean `parameters`?");
    assert!(fault(json!({"${{ a }}": 1})).contains("a key cannot be an expression"));
    assert_eq!(
        fault(json!("${{ parameters.nn }}")),
        "${{ parameters.nn }}: there is no key `nn`; did you mean `n`?"
    );
}

#[test]
fn what_is_rendered_is_bounded() {
    let long = format!("${{{{ '{}' }}}}", "x".repeat(4000));
    let many: Vec<_> = (0..300).map(|_| long.clone()).collect();
    assert!(render(&json!(many)).unwrap_err().contains("more than 1048576 bytes"));
}
