//! Rendered parameters, read back by the shells and interpreters they are written for.

use serde_json::{Value, json};

use crate::fixture::{Demo, run, with_action};

fn awkward() -> Value {
    json!({
        "text": "it's \"q\" \\ $HOME `id` $(id)\nsecond 'line'\n\n é ☃ 🦀 a='b'",
        "count": 3, "ratio": 0.5, "flag": true, "list": ["a b", "c", {"d": null}],
        "map": {"Content-Type": "x; y='z'", "deep": {"er": 1}}, "nothing": null, "blank": "",
    })
}

/// Runs a script on awkward parameters and returns the JSON that it printed.
fn read_back(definition: &str, script: &str) -> Value {
    let demo = Demo::new().action(definition, script);
    let set = demo.load().unwrap();
    let ran = run(set.get("demo.it").unwrap(), &awkward());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_slice(&ran.stdout).unwrap()
}

#[test]
fn json_on_stdin_is_one_line_that_python_and_node_read_back_unchanged() {
    let python = "import json,sys\nprint(json.dumps(json.loads(sys.stdin.readline())))\n";
    assert_eq!(read_back("runner_type: python\n", python), awkward());
    let node = "console.log(JSON.stringify(JSON.parse(require('fs').readFileSync(0))))\n";
    assert_eq!(read_back("runner_type: nodejs\n", node), awkward());
}

#[test]
fn json_in_a_file_is_read_back_unchanged() {
    let python = "import json,os,sys\nassert sys.stdin.read() == ''\n\
                  assert os.environ['ATTUNE_PARAMETER_DELIVERY'] == 'file'\n\
                  print(json.dumps(json.load(open(os.environ['ATTUNE_PARAMETER_FILE']))))\n";
    assert_eq!(read_back("runner_type: python\nparameter_delivery: file\n", python), awkward());
}

#[test]
fn yaml_is_read_back_unchanged_even_where_plain_text_would_mean_something_else() {
    let mut parameters = awkward();
    for (n, text) in [
        "yes",
        "no",
        "null",
        "~",
        "1e3",
        "0x10",
        "010",
        "12:30:00",
        "2001-01-01",
        "- a",
        "a: b",
        "# c",
        " lead",
        "trail ",
        "@at",
        "%pct",
        "!tag",
        "&anchor",
        "*alias",
        "|",
        "1_000",
        ".inf",
        "---",
        "multi\nline\n",
        "=",
        "<<",
    ]
    .into_iter()
    .enumerate()
    {
        parameters[format!("t{n}")] = json!(text);
    }
    with_action("parameter_format: yaml\n", |action| {
        let rendered = action.render(&parameters).stdin.unwrap();
        let text = String::from_utf8(rendered).unwrap();
        let back: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back, parameters, "{text}");
        assert!(text.contains("count: 3\n"), "{text}");
        assert!(text.contains("t0: \"yes\"\n"), "{text}");
    });
}

#[test]
fn dotenv_is_what_a_shell_calls_an_assignment() {
    let definition = "parameter_format: dotenv\n";
    let script = "#!/bin/sh\neval \"$(cat)\"\nprintf '%s|%s|%s|%s|%s' \"$text\" \"$count\" \
                  \"$flag\" \"$list\" \"$blank\"\n";
    for delivery in ["stdin", "file"] {
        let script = if delivery == "file" {
            script.replace("$(cat)", "$(cat \"$ATTUNE_PARAMETER_FILE\")")
        } else {
            script.to_owned()
        };
        let demo =
            Demo::new().action(&format!("{definition}parameter_delivery: {delivery}\n"), &script);
        let set = demo.load().unwrap();
        let mut parameters = awkward();
        // What is nested has a dot in its name, which no shell variable can have.
        parameters.as_object_mut().unwrap().shift_remove("map");
        let ran = run(set.get("demo.it").unwrap(), &parameters);
        let text = parameters["text"].as_str().unwrap();
        let expected = format!(r#"{text}|3|true|["a b","c",{{"d":null}}]|"#);
        assert_eq!(String::from_utf8(ran.stdout).unwrap(), expected, "{}", ran.stderr);
    }
}

#[test]
fn dotenv_writes_nested_objects_under_dotted_names() {
    with_action("parameter_format: dotenv\n", |action| {
        let parameters = json!({
            "url": "http://x/?a=b", "headers": {"Content-Type": "it's", "n": {"m": [1, "'"]}},
            "none": {}, "odd": {"a b; id": 1}, "gap": null,
        });
        let text = String::from_utf8(action.render(&parameters).stdin.unwrap()).unwrap();
        insta::assert_snapshot!(text, @r#"
        url='http://x/?a=b'
        headers.Content-Type='it'\''s'
        headers.n.m='[1,"'\''"]'
        odd='{"a b; id":1}'
        gap=''
        "#);
    });
}

#[test]
fn env_delivery_sets_one_prefixed_variable_for_each_parameter() {
    let definition = "runner_type: python\nparameter_delivery: env\n";
    let python = "import json,os\n\
                  print(json.dumps({k[14:]: v for k, v in os.environ.items() \
                  if k.startswith('ATTUNE_ACTION_')}))\n";
    let given = awkward();
    let expected = json!({
        "TEXT": given["text"], "COUNT": "3", "RATIO": "0.5", "FLAG": "true", "BLANK": "",
        "LIST": given["list"].to_string(), "MAP": given["map"].to_string(),
    });
    let got = read_back(definition, python);
    assert_eq!(sorted(&got), sorted(&expected));
}

fn sorted(value: &Value) -> Vec<(String, String)> {
    let pairs = value.as_object().unwrap().iter();
    let mut pairs: Vec<_> = pairs.map(|(k, v)| (k.clone(), v.to_string())).collect();
    pairs.sort();
    pairs
}

#[test]
fn script_learns_who_it_is_and_how_it_was_called() {
    let script = "printf '\"%s %s %s %s\"' \"$ATTUNE_ACTION\" \"$ATTUNE_PACK_REF\" \
                  \"$ATTUNE_PARAMETER_DELIVERY\" \"$ATTUNE_PARAMETER_FORMAT\"\n";
    assert_eq!(read_back("", script), "demo.it demo stdin json");
}

#[test]
fn what_the_environment_cannot_carry_is_refused_before_anything_starts() {
    with_action("parameter_delivery: env\n", |action| {
        let big = "x".repeat(140_000);
        let bad = json!({"big": big, "zero": "a\u{0}b", "a-b": 1, "a_b": 2});
        let messages: Vec<String> =
            action.check(&bad).unwrap_err().iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(messages.join("\n"));
        assert!(action.check(&json!({"big": &big[..130_000]})).is_ok());
    });
}

#[test]
fn a_name_or_character_that_dotenv_cannot_carry_is_refused() {
    with_action("parameter_format: dotenv\n", |action| {
        let bad = json!({"x; id": 1, "": 2, "ok": {"deep": "a\u{0}b"}, "new\nline='x'": 3});
        let messages: Vec<String> =
            action.check(&bad).unwrap_err().iter().map(|v| format!("{v:?}")).collect();
        insta::assert_snapshot!(messages.join("\n"));
        // Even unchecked parameters never become a line of their own.
        let rendered = action.render(&bad).stdin.unwrap();
        assert_eq!(String::from_utf8(rendered).unwrap(), "ok.deep='a\u{0}b'\n");
    });
}

#[test]
fn rendered_parameters_do_not_show_in_debug_output() {
    with_action("", |action| {
        let shown = format!("{:?}", action.render(&json!({"password": "hunter2"})));
        assert!(!shown.contains("hunter2"), "{shown}");
    });
}

#[test]
fn a_dotenv_line_that_steers_the_shell_is_refused_unless_the_action_declares_it() {
    for name in ["PATH", "LD_PRELOAD", "IFS", "BASH_ENV", "PYTHONPATH", "OUTLAST_EPOCH"] {
        with_action("parameter_format: dotenv\n", |action| {
            let refused = action.check(&json!({name: "x", "plain": 1})).unwrap_err();
            assert_eq!(refused.len(), 1, "{refused:?}");
            assert_eq!(refused[0].path, format!("/{name}"));
        });
        let declared =
            format!("parameter_format: dotenv\nparameters: {{{name}: {{type: string}}}}\n");
        with_action(&declared, |action| {
            assert!(action.check(&json!({name: "x"})).is_ok(), "{name}");
        });
        with_action("parameter_format: json\n", |action| {
            assert!(action.check(&json!({name: "x"})).is_ok(), "{name} is data in JSON");
        });
    }
}
