//! Finding packs in folders and reading what they say.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use outlast_packs::{
    Delivery, EntryPoint, Format, OnDrain, OnExhaustion, Origin, OutputFormat, Overlap,
    OwnInterpreter, PackSet, Runner, SecretAs,
};
use serde_json::json;

use crate::fixture::{Demo, with_action};

#[test]
fn a_folder_of_packs_and_a_pack_folder_load_the_same() {
    let demo = Demo::new().action("", "").file("not-a-pack/readme.md", "x");
    for folder in [demo.path().to_owned(), demo.path().join("demo")] {
        let set = PackSet::load(&[folder]).unwrap();
        assert!(set.get("demo.it").is_some());
        assert!(set.get("core.echo").is_some());
        assert!(set.get("demo.other").is_none());
    }
}

#[test]
fn the_same_folder_twice_is_read_once() {
    let demo = Demo::new().action("", "");
    let twice = [demo.path().to_owned(), demo.path().join("demo/../demo")];
    assert_eq!(PackSet::load(&twice).unwrap().packs().count(), 2);
}

#[test]
fn a_pack_named_as_the_built_in_one_replaces_it_as_a_whole() {
    let demo = Demo::new()
        .file("demo/pack.yaml", "ref: core\nlabel: Mine\n")
        .file("demo/actions/echo.yaml", "runner_type: shell\nentry_point: echo.sh\n")
        .file("demo/actions/echo.sh", "#!/bin/sh\n");
    let set = demo.load().unwrap();
    let [pack] = set.packs().collect::<Vec<_>>()[..] else { panic!("one pack, not {set:?}") };
    assert_eq!((pack.label.as_str(), pack.origin), ("Mine", Origin::Replacement));
    let names: Vec<&str> = set.actions().map(|action| action.reference.as_str()).collect();
    assert_eq!(names, ["core.echo"], "nothing of the built-in pack is left");
    let note = pack.notes().first().unwrap().to_string();
    assert!(
        note.ends_with(
            "demo/pack.yaml: replaces the built-in pack core as a whole, without core.echo_node, \
         core.echo_python, core.fail, core.http_request, core.noop, core.sleep"
        ),
        "{note}"
    );
    // Nothing is left to write to disk either.
    let folder = tempfile::tempdir().unwrap();
    set.materialise(folder.path()).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn unsaid_things_have_their_defaults() {
    with_action("", |action| {
        assert_eq!(action.runner, Runner::Shell);
        assert_eq!(action.delivery, Delivery::Stdin);
        assert_eq!(action.format, Format::Json);
        assert_eq!(action.output_format, OutputFormat::Text);
        assert_eq!((action.timeout, action.retry.clone()), (None, None));
        assert!(action.enabled && action.interruptible);
        assert_eq!(action.on_drain, OnDrain::Finish);
        assert_eq!(action.overlap, Overlap::Allowed);
        assert!(action.required_labels.is_empty() && action.tags.is_empty());
        assert_eq!((action.pack.as_str(), action.label.as_str()), ("demo", "it"));
    });
}

#[test]
fn everything_an_action_can_say_is_read() {
    let definition = r"
label: It
description: Does it
runner_type: nodejs
parameter_delivery: file
parameter_format: yaml
output_format: jsonl
timeout: 90
enabled: false
tags: [a, b]
interruptible: false
overlap: forbidden
required_labels: {zone: east, gpu: 1}
retry: {max_attempts: 5, initial_interval: 500ms, max_interval: 2m, backoff_coefficient: 1.5,
  jitter: false, on_exhaustion: dead_letter, non_retryable_errors: [exit_code], backoff_strategy: linear}
env: {LOG_LEVEL: debug, RETRIES: 3}
secrets: {API_KEY: , CERT: {as: file, from: tls.crt}}
x-owner: me
";
    with_action(definition, |action| {
        assert_eq!((action.label.as_str(), action.description.as_str()), ("It", "Does it"));
        assert_eq!((action.runner, action.interpreter()), (Runner::Node, "node"));
        assert_eq!((action.delivery, action.format), (Delivery::File, Format::Yaml));
        assert_eq!(action.output_format, OutputFormat::Jsonl);
        assert_eq!(action.timeout, Some(Duration::from_secs(90)));
        assert!(!action.enabled && !action.interruptible);
        assert_eq!((action.tags.join(","), action.overlap), ("a,b".into(), Overlap::Forbidden));
        assert_eq!(json!(action.required_labels), json!({"gpu": "1", "zone": "east"}));
        let retry = action.retry.clone().unwrap();
        assert_eq!((retry.max_attempts, retry.jitter), (Some(5), Some(false)));
        assert_eq!(retry.on_exhaustion, Some(OnExhaustion::DeadLetter));
        assert_eq!(retry.non_retryable_errors, Some(vec!["exit_code".to_owned()]));
        assert_eq!(retry.backoff_strategy.as_deref(), Some("linear"));
        assert_eq!(json!(action.environment), json!({"LOG_LEVEL": "debug", "RETRIES": "3"}));
        let wishes = action.secrets.iter();
        let wishes: Vec<_> = wishes.map(|(n, wish)| (n.as_str(), wish.way, &*wish.from)).collect();
        let file = ("CERT", SecretAs::File, "tls.crt");
        assert_eq!(wishes, [("API_KEY", SecretAs::Env, "API_KEY"), file]);
        assert_eq!(retry.initial_interval, Some(Duration::from_millis(500)));
        assert_eq!(retry.max_interval, Some(Duration::from_mins(2)));
        assert_eq!(retry.backoff_coefficient, Some(1.5));
    });
}

#[test]
fn short_forms_are_understood() {
    let definition = "timeout_seconds: 0.25\nretry: 4\nrequired_labels: [zone=east]\n";
    with_action(definition, |action| {
        assert_eq!(action.timeout, Some(Duration::from_millis(250)));
        assert_eq!(action.retry.clone().unwrap().max_attempts, Some(4));
        assert_eq!(action.required_labels["zone"], "east");
    });
    with_action("timeout: 5m\n", |action| {
        assert_eq!(action.timeout, Some(Duration::from_mins(5)));
    });
}

#[test]
fn what_is_kept_warm_is_said_by_the_action_or_else_by_its_pack() {
    let warm = |pack: &str, action: &str| {
        let demo = Demo::new()
            .file("demo/pack.yaml", &format!("ref: demo\n{pack}"))
            .action(&format!("runner_type: python\n{action}"), "");
        let warm = demo.load().unwrap().get("demo.it").unwrap().warm.clone();
        warm.map(|warm| (warm.preload.join(","), warm.idle.as_secs()))
    };
    let of = |modules: &str, seconds| Some((modules.to_owned(), seconds));
    assert_eq!(warm("", ""), None, "off unless it is asked for");
    assert_eq!(warm("", "warm: {}\n"), of("", 300));
    let own = "warm: {preload: [json, google.cloud, größe], idle: 30s}\n";
    assert_eq!(warm("", own), of("json,google.cloud,größe", 30));
    assert_eq!(warm("warm: {preload: [ssl]}\n", ""), of("ssl", 300));
    assert_eq!(warm("warm: {preload: [ssl]}\n", own), of("json,google.cloud,größe", 30));
    assert_eq!(warm("warm: {preload: [ssl]}\n", "warm: false\n"), None);
}

#[test]
fn modules_of_node_are_named_as_scripts_import_them() {
    let demo = |runner: &str, name: &str| {
        let action = format!("runner_type: {runner}\nwarm: {{preload: ['{name}']}}\n");
        Demo::new().file("demo/pack.yaml", "ref: demo\n").action(&action, "")
    };
    for name in ["lodash/fp", "@acme/mail", "node:fs", "./prices.js", "../lib/it.mjs", "left-pad"] {
        let warm = demo("node", name).load().unwrap().get("demo.it").unwrap().warm.clone();
        assert_eq!(warm.unwrap().preload, [name]);
        let fault = demo("python", name).fault();
        assert!(fault.contains("is not a module's name, such as `json` or"), "{fault}");
    }
    for name in ["/etc/passwd", "a//b", "rm -rf", "", "x;y", "node:"] {
        let fault = demo("node", name).fault();
        assert!(fault.contains("is not a module's name, such as `lodash/fp` or"), "{fault}");
    }
}

#[test]
fn one_list_of_modules_for_two_languages_is_noted() {
    let notes = |preload: &str, python: &str| {
        let demo = Demo::new()
            .file("demo/pack.yaml", &format!("ref: demo\nwarm: {preload}\n"))
            .file("demo/actions/a.py", "")
            .file(
                "demo/actions/a.yaml",
                &format!("runner_type: python\nentry_point: a.py\n{python}"),
            )
            .action("runner_type: node\n", "");
        assert!(demo.load().unwrap().get("demo.it").unwrap().warm.is_some());
        demo.notes().join("\n")
    };
    let noted = notes("{preload: [util]}", "");
    assert!(noted.contains("its `preload` is for Python and Node.js actions alike"), "{noted}");
    assert_eq!(notes("{preload: [util]}", "warm: {preload: [json]}\n"), "");
    assert_eq!(notes("{}", ""), "");
}

#[test]
fn what_is_kept_warm_for_no_action_is_noted() {
    let shell = Demo::new().file("demo/pack.yaml", "ref: demo\nwarm: {preload: [json]}\n");
    let shell = shell.action("warm: {preload: [json]}\n", "");
    assert!(shell.load().unwrap().get("demo.it").unwrap().warm.is_none());
    let notes = shell.notes().join("\n");
    assert!(notes.contains("key `warm` has no effect: this is a shell action"), "{notes}");
    assert!(
        notes.contains("pack.yaml: key `warm` has no effect: no Python or Node.js action"),
        "{notes}"
    );
}

#[test]
fn a_pack_that_is_switched_off_switches_its_actions_off() {
    let demo = Demo::new().file("demo/pack.yaml", "ref: demo\nenabled: false\n").action("", "");
    assert!(!demo.load().unwrap().get("demo.it").unwrap().enabled);
}

#[test]
fn an_action_without_ref_is_called_by_its_name_or_its_file() {
    let demo = Demo::new()
        .file("demo/actions/a.yaml", "name: alpha\nrunner_type: python\nentry_point: a.py\n")
        .file("demo/actions/b.yml", "runner_type: python3\nentry_point: actions/a.py\n")
        .file("demo/actions/a.py", "");
    let set = demo.load().unwrap();
    assert_eq!(set.get("demo.alpha").unwrap().runner, Runner::Python);
    assert_eq!(
        set.get("demo.b").unwrap().entry_point(),
        EntryPoint::Path(demo.path().canonicalize().unwrap().join("demo/actions/a.py"))
    );
}

#[test]
fn shell_is_the_one_that_the_script_asks_for() {
    for (first, shell) in [
        ("#!/bin/sh\n", "sh"),
        ("#!/usr/bin/env dash\n", "sh"),
        ("#! /bin/sh -e\n", "sh"),
        ("#!/bin/bash\n", "bash"),
        ("#!/usr/bin/env -S bash\n", "bash"),
        ("echo hi\n", "bash"),
    ] {
        let demo = Demo::new().action("", first);
        assert_eq!(demo.load().unwrap().get("demo.it").unwrap().interpreter(), shell, "{first}");
    }
}

#[test]
fn interpreter_is_the_actions_or_else_the_packs_seen_from_its_folder() {
    let demo = Demo::new()
        .file("demo/pack.yaml", "ref: demo\npython: .venv/bin/python\nnode: /opt/node/bin/node\n")
        .file("demo/actions/s.py", "")
        .file("demo/actions/a.yaml", "runner_type: python\nentry_point: s.py\n")
        .file("demo/actions/b.yaml", "runner_type: python\nentry_point: s.py\npython: /py/3\n")
        .file("demo/actions/c.yaml", "runner_type: node\nentry_point: s.py\n")
        .file("demo/actions/d.yaml", "runner_type: shell\nentry_point: s.py\n")
        .file("demo/actions/e.yaml", "runner_type: python\nentry_point: s.py\npython: python3.9\n");
    let (set, folder) = (demo.load().unwrap(), demo.path().canonicalize().unwrap());
    let own = |name: &str| set.get(name).unwrap().own_interpreter(Path::new("/built-in"));
    let at = |path: &str| Some(OwnInterpreter::At(folder.join(path)));
    assert_eq!(own("demo.a"), at("demo/.venv/bin/python"));
    assert_eq!(own("demo.b"), at("/py/3"));
    assert_eq!(own("demo.c"), at("/opt/node/bin/node"));
    assert_eq!(own("demo.d"), None);
    assert_eq!(own("demo.e"), Some(OwnInterpreter::InPath("python3.9".to_owned())));
    assert_eq!(demo.notes(), Vec::<String>::new());
}

/// Such a script once ran with another Python than its author meant, without a word.
#[test]
fn what_does_not_choose_the_interpreter_is_noted() {
    let noted = |first: &str, more: &str| {
        let definition = format!("runner_type: python\nentry_point: s.py\n{more}");
        let demo =
            Demo::new().file("demo/actions/s.py", first).file("demo/actions/a.yaml", &definition);
        demo.notes()
    };
    for usual in ["#!/usr/bin/env python3\n", "#!/usr/bin/python3 -u\n", "import sys\n"] {
        assert_eq!(noted(usual, ""), Vec::<String>::new(), "{usual}");
    }
    for (first, more, named) in [
        ("#!/opt/py/bin/python3\n", "", "#!/opt/py/bin/python3"),
        ("#!.venv/bin/python\n", "", "#!.venv/bin/python"),
        ("#!/usr/bin/env -S uv run\n", "", "uv run"),
        ("", "env: {PATH: /opt/py/bin}\n", "PATH in `env`"),
        ("", "node: /opt/node\n", "key `node` has no effect"),
    ] {
        let notes = noted(first, more);
        assert!(notes.len() == 1 && notes[0].contains(named), "{first}{more}: {notes:?}");
        let own = format!("{more}python: .venv/bin/python\n");
        assert_eq!(noted(first, &own).len(), usize::from(named.contains("key")), "{first}");
    }
}

#[test]
fn what_has_no_effect_is_noted_and_not_refused() {
    let demo = Demo::new()
        .file("demo/pack.yaml", "ref: demo\nversion: 1.0.0\nconf_schema: {}\nauthor: A\n")
        .file("demo/sensors/s.yaml", "ref: demo.s\n")
        .file("demo/actions/ask.yaml", "ref: demo.ask\nrunner_type: native\nentry_point: ask\n")
        .file("demo/actions/flow.yaml", "ref: demo.flow\nworkflow_file: flow.yaml\n")
        .action(
            "worker_selector: {zone: a}\noutput_schema: {}\ntimeout: 1\ntimeout_seconds: 2\n\
             parameters: {n: {type: integer, default: many}}\n",
            "",
        );
    insta::assert_snapshot!(demo.notes().join("\n"));
    assert!(demo.load().unwrap().get("demo.ask").is_none());
}

#[test]
fn a_script_may_be_a_link_inside_its_pack() {
    let demo = Demo::new().action("", "").file("demo/lib/real.sh", "#!/bin/sh\n");
    std::fs::remove_file(demo.path().join("demo/actions/it.sh")).unwrap();
    symlink("../lib/real.sh", demo.path().join("demo/actions/it.sh")).unwrap();
    assert!(demo.load().unwrap().get("demo.it").is_some());
}
