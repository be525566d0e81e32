//! What is wrong with a workflow is said before anything of it is stored: where, and what helps.

use outlast_e2e::process::run_against;
use serde_json::{Value, json};

use super::{Site, WORKFLOWS};

fn plain(name: &str, keys: &Value) -> Value {
    let mut step = json!({"name": name, "type": "plain"});
    let all = step.as_object_mut().expect("an object");
    all.extend(keys.as_object().cloned().unwrap_or_default());
    step
}

/// Workflows that are refused, and what the answer names: the place, and the remedy.
fn faulty() -> Vec<(Value, &'static [&'static str])> {
    let steps = |steps: Value| json!({"workflow": {"steps": steps}});
    let one = |keys: Value| json!({"workflow": {"steps": [plain("a", &keys)]}});
    vec![
        (json!({}), &["workflow"]),
        (json!({"workflow": []}), &["workflow"]),
        (json!({"workflow": {}}), &["steps"]),
        (json!({"workflow": {"stepps": {}}}), &["stepps", "steps"]),
        (steps(json!([])), &["steps"]),
        (steps(json!([{"name": "a"}])), &["steps[0]", "`action`, `type` or `workflow`"]),
        (steps(json!([{"name": "a b", "type": "plain"}])), &["steps[0]", "name"]),
        (steps(json!([plain("a", &json!({})), plain("a", &json!({}))])), &["steps[1]", "a"]),
        (one(json!({"after": "b"})), &["steps[0].after", "b"]),
        (one(json!({"after": "a"})), &["steps", "a"]),
        (
            steps(json!([plain("a", &json!({"after": "b"})), plain("b", &json!({"after": "a"}))])),
            &["steps", "a", "b"],
        ),
        (one(json!({"when": "failure"})), &["steps[0].when", "add `after`"]),
        (one(json!({"concurrency": 2})), &["steps[0].concurrency", "for_each"]),
        (one(json!({"with": {}})), &["steps[0].with", "args: [value]"]),
        (one(json!({"args": ["${{ steps.b.result }}"]})), &["steps[0].args", "b"]),
        (one(json!({"args": ["${{ parameters. }}"]})), &["steps[0].args"]),
        (one(json!({"args": ["${{ 1 + }}"]})), &["steps[0].args"]),
        (one(json!({"args": ["${{ item }}"]})), &["steps[0].args", "item"]),
        (one(json!({"for_each": "${{ nothing }}"})), &["steps[0].for_each", "nothing"]),
        (one(json!({"for_each": "list"})), &["steps[0].for_each"]),
        (one(json!({"retry": {"max_attempts": "many"}})), &["max_attempts"]),
        (one(json!({"timeout": "soon"})), &["steps[0].timeout", "30s"]),
        (one(json!({"options": {"queue": "a queue"}})), &["queue"]),
        (one(json!({"requires": "="})), &["requires"]),
        (steps(json!([{"name": "a", "action": "flow.stepp"}])), &["step `a`", "flow.step?"]),
        (
            steps(json!([{"name": "a", "action": "flow.step", "with": {"item": "x"}}])),
            &["step `a`", "item"],
        ),
        (steps(json!([{"name": "a", "workflow": "flow.some"}])), &["flow.some", "not known"]),
        (json!({"workflow_ref": "flow.nothing"}), &["flow.nothing"]),
        (json!({"workflow_ref": "flow.greet"}), &["name"]),
        (json!({"workflow_ref": "flow.greet", "parameters": {"nam": "x"}}), &["nam", "name"]),
        (json!({"workflow_ref": "flow.greet", "parameters": {"name": 7}}), &["name", "string"]),
        (
            json!({"workflow_ref": "flow.greet", "workflow": {"steps": []}}),
            &["workflow_ref", "workflow"],
        ),
        (json!({"workflow_ref": "flow.greet", "paramters": {}}), &["paramters", "parameters"]),
    ]
}

#[test]
fn faulty_workflows_are_refused_with_the_place_and_nothing_is_stored() {
    let site = Site::start();
    let greet = json!({
        "parameters": {"name": {"type": "string", "required": true}},
        "steps": {"it": {"type": "plain", "args": ["${{ parameters.name }}"]}},
    });
    site.workflow("greet", &greet);
    site.read_packs();
    let mut wrong = Vec::new();
    for (request, words) in faulty() {
        let reply = site.scene.api().post(WORKFLOWS, &request);
        let message = reply.body["error"]["message"].as_str().unwrap_or_default();
        let is_refused = [400, 404, 422].contains(&reply.status);
        if !is_refused || !words.iter().all(|word| message.contains(word)) {
            wrong.push(format!("{request}\n  {}: {message}", reply.status));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let tables = ["workflow", "workflow_step", "workflow_item", "workflow_end", "job_row"];
    let rows = site.rows(&tables);
    assert!(rows.values().all(Vec::is_empty), "{rows:#?}");
    // The same without faults is stored.
    let parameters = json!({"name": "x"});
    let _id = site.begin_with(&json!({"workflow_ref": "flow.greet", "parameters": parameters}));
    assert_eq!([site.count("workflow"), site.count("job_row")], [1, 1]);
}

#[test]
fn command_line_says_where_a_file_is_wrong() {
    let site = Site::start();
    let url = site.scene.server().url();
    let file = site.path("wrong.yaml");
    let text =
        "name: wrong\nsteps:\n  first: {type: plain}\n  second: {type: plain, after: frist}\n";
    std::fs::write(&file, text).expect("writing a file");
    let said = run_against(&url, &["workflows", "run", &file.display().to_string()]);
    assert_eq!(said.code, Some(2), "{said:?}");
    for word in ["second", "after", "frist", "`first`"] {
        assert!(said.stderr.contains(word), "{word}: {}", said.stderr);
    }
    let unknown = run_against(&url, &["workflows", "show", "nothing"]);
    assert_ne!(unknown.code, Some(0), "{unknown:?}");
    assert_eq!(site.count("workflow"), 0);
}

/// `name=value` is text. What the workflow refuses as text is read as JSON, for a schedule as for a run.
#[test]
fn schedule_takes_a_number_that_was_typed() {
    let site = Site::start();
    let parameters =
        json!({"n": {"type": "integer", "required": true}, "word": {"type": "string"}});
    let steps = [site.step("it", &json!({}), &json!({}))];
    site.workflow("count", &json!({"parameters": parameters, "steps": steps}));
    site.read_packs();
    let add = |n: &str| {
        let words = ["cron", "add", "counts", "@daily", "flow.count", "--workflow", "-p", n];
        run_against(&site.scene.server().url(), &[&words[..], &["-p", "word=7"]].concat())
    };
    let refused = add("n=five");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("must be integer"), "{refused:?}");
    let added = add("n=5");
    assert_eq!(added.code, Some(0), "{added:?}");
    let stored = site.scene.api().get("/api/v1/schedules/counts").expect(200);
    assert_eq!(stored["data"]["job"]["parameters"], json!({"n": 5, "word": "7"}), "{stored:#}");
}
