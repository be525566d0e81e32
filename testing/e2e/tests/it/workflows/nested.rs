//! Workflows of a pack that start each other, three deep.

use outlast_e2e::wait::{eventually, poll, within};
use serde_json::{Value, json};

use super::{SOON, Site, ids, step_of};

/// A site whose pack has workflows: `top` starts `middle`, which starts `bottom` for two items.
fn site() -> Site {
    let site = Site::start();
    let passed = json!({"parameters": {
        "file": {"type": "string", "required": true},
        "hold": {"type": "boolean", "default": false},
    }});
    let hold = json!("${{ parameters.hold }}");
    let with_file = |steps: Value| {
        let mut workflow = passed.clone();
        workflow["steps"] = steps;
        workflow
    };
    let file = json!("${{ parameters.file }}");
    let top = with_file(json!([
        site.step("first", &json!({}), &json!({})),
        {"name": "down", "workflow": "flow.middle", "after": "first", "with": {"file": file, "hold": hold}},
        site.step("last", &json!({}), &json!({"after": "down"})),
    ]));
    let middle = with_file(json!([
        {"name": "each", "workflow": "flow.bottom", "for_each": ["a", "b"],
         "with": {"file": file, "hold": hold, "word": "${{ item }}"}},
        site.step(
            "join",
            &json!({"value": "${{ steps.each.result.map(it, it.value).join('+') }}"}),
            &json!({"after": "each"}),
        ),
    ]));
    let until = "${{ parameters.hold ? parameters.file : '' }}";
    let needs = "${{ parameters.hold ? '' : parameters.file }}";
    let leaf = json!({"needs": needs, "until": until, "value": "${{ parameters.word }}"});
    let mut bottom =
        with_file(json!([site.step("leaf", &leaf, &json!({"retry": {"max_attempts": 1}})),]));
    bottom["parameters"]["word"] = json!({"type": "string", "required": true});
    for (name, workflow) in [("top", top), ("middle", middle), ("bottom", bottom)] {
        site.workflow(name, &workflow);
    }
    site.read_packs();
    site
}

/// Begins a workflow of which the last jobs need a file, or wait for it.
fn begin(site: &Site, file: &str, hold: bool) -> String {
    let parameters = json!({"file": site.path(file), "hold": hold});
    site.begin_with(&json!({"workflow_ref": "flow.top", "parameters": parameters}))
}

/// Returns all workflows below one, itself first.
fn tree(site: &Site, id: &str) -> Vec<Value> {
    let shown = site.show(id);
    let steps = shown["steps"].as_array().cloned().unwrap_or_default();
    let below = steps.iter().flat_map(|step| ids(step, "workflow_ids"));
    let below: Vec<Value> = below.flat_map(|child| tree(site, &child)).collect();
    std::iter::once(shown).chain(below).collect()
}

fn statuses(tree: &[Value]) -> Vec<&str> {
    tree.iter().map(|shown| shown["status"].as_str().unwrap_or_default()).collect()
}

/// Nothing is left of any of them: no end that was not taken, no job that has not ended.
fn judge(site: &Site) {
    let rows = site.rows(&["workflow", "workflow_end", "workflow_item"]);
    assert!(rows["workflow_end"].is_empty(), "{rows:#?}");
    let open = |row: &&Value| row["status"] == "running";
    assert!(!rows["workflow"].iter().any(|row| open(&row)), "{rows:#?}");
    let open = |row: &&Value| row["state"] == "held" || row["state"] == "running";
    assert!(!rows["workflow_item"].iter().any(|row| open(&row)), "{rows:#?}");
}

#[test]
fn results_come_up_from_three_deep() {
    let site = site();
    let _worker = site.worker("one");
    let id = begin(&site, "ledger", false);
    let ended = site.ended(&id);
    assert_eq!(ended["status"], "completed", "{ended:#}");
    let tree = tree(&site, &id);
    assert_eq!(statuses(&tree), ["completed"; 4]);
    let middle = &tree[1];
    assert_eq!(middle["parent"], json!({"workflow": id, "step": "down", "item": 0}));
    assert_eq!(step_of(middle, "join")["result"]["value"], "a+b", "{middle:#}");
    assert_eq!(step_of(&ended, "down")["result"]["value"], "a+b", "{ended:#}");
    judge(&site);
}

#[test]
fn failure_comes_up_and_a_retry_goes_down_to_what_failed() {
    let site = site();
    let _worker = site.worker("one");
    let id = begin(&site, "missing", false);
    let failed = site.ended(&id);
    assert_eq!(failed["status"], "failed", "{failed:#}");
    let error = failed["error"].as_str().expect("a reason");
    assert!(error.starts_with("step `down`: step `each`: step `leaf`: "), "{error}");
    assert_eq!(statuses(&tree(&site, &id)), ["failed"; 4]);
    site.make("missing");
    site.order(&id, "retry");
    let ended = site.ended(&id);
    assert_eq!(ended["status"], "completed", "{ended:#}");
    assert_eq!(step_of(&ended, "down")["result"]["value"], "a+b", "{ended:#}");
    assert_eq!(site.begun(&id, "first"), 1);
    assert_eq!(site.begun(&id, "last"), 1);
    judge(&site);
}

/// One at the bottom goes on, and those above it with it.
#[test]
fn retry_of_the_one_that_failed_moves_those_above_on() {
    let site = site();
    let _worker = site.worker("one");
    let id = begin(&site, "missing", false);
    assert_eq!(site.ended(&id)["status"], "failed");
    site.make("missing");
    let leaves = tree(&site, &id).split_off(2);
    for leaf in leaves {
        site.order(&word(&leaf["id"]), "retry");
    }
    let is_done = || (site.show(&id)["status"] == "completed").then_some(());
    assert!(poll(within(SOON), is_done).is_some(), "{:#?}", tree(&site, &id));
    assert_eq!(statuses(&tree(&site, &id)), ["completed"; 4]);
    assert_eq!(site.begun(&id, "first"), 1);
    assert_eq!(site.begun(&id, "last"), 1);
    judge(&site);
}

#[test]
fn cancel_goes_down_to_the_last_and_so_does_a_retry() {
    let site = site();
    let _worker = site.worker("one");
    let id = begin(&site, "go", true);
    let leaves = eventually("both run", within(SOON), || {
        let leaves = tree(&site, &id).into_iter().skip(2);
        let leaves: Vec<String> = leaves.map(|leaf| word(&leaf["id"])).collect();
        let run = leaves.iter().all(|leaf| site.begun(leaf, "leaf") == 1);
        (leaves.len() == 2 && run).then_some(leaves)
    });
    site.order(&id, "cancel");
    let cancelled = site.ended(&id);
    assert_eq!(cancelled["status"], "cancelled", "{cancelled:#}");
    assert_eq!(statuses(&tree(&site, &id)), ["cancelled"; 4]);
    assert_eq!(site.begun(&id, "last"), 0);
    judge(&site);
    site.make("go");
    site.order(&id, "retry");
    let ended = site.ended(&id);
    assert_eq!(ended["status"], "completed", "{ended:#}");
    assert_eq!(step_of(&ended, "down")["result"]["value"], "a+b", "{ended:#}");
    assert_eq!(["first", "last"].map(|step| site.begun(&id, step)), [1, 1]);
    // Those that were cancelled stay so: the retry started others.
    for leaf in leaves {
        assert_eq!(site.show(&leaf)["status"], "cancelled");
    }
    judge(&site);
}

fn word(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
