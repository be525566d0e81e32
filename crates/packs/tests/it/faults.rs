//! Packs with something wrong in them: each fault names its file, its line where that is
//! known, and what would be right.

use std::os::unix::fs::symlink;

use outlast_packs::PackSet;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::fixture::Demo;

/// One line for each fault, in the order of the table.
fn table(rows: &[(&str, &str)]) -> String {
    let lines = rows.iter().map(|(what, definition)| {
        let demo = Demo::new().file("demo/actions/it.yaml", definition);
        let demo = demo.file("demo/actions/it.sh", "#!/bin/sh\n");
        format!("{what}\n    {}", demo.fault())
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn faulty_actions_are_reported_with_file_line_and_remedy() {
    let rows = [
        ("not YAML", "ref: demo.it\nlabel: [a\nrunner_type: shell\n"),
        ("empty", ""),
        ("a list", "- ref: demo.it\n"),
        ("key twice", "ref: demo.it\nrunner_type: shell\nrunner_type: python\n"),
        ("no runner", "ref: demo.it\nentry_point: it.sh\n"),
        ("unknown runner", "ref: demo.it\nrunner_type: pyton\nentry_point: it.sh\n"),
        ("no entry point", "ref: demo.it\nrunner_type: shell\n"),
        ("missing script", "ref: demo.it\nrunner_type: shell\nentry_point: gone.sh\n"),
        ("folder as script", "ref: demo.it\nrunner_type: shell\nentry_point: .\n"),
        ("climbing out", "ref: demo.it\nrunner_type: shell\nentry_point: ../../etc/x.sh\n"),
        ("absolute", "ref: demo.it\nrunner_type: shell\nentry_point: /bin/true\n"),
        ("foreign ref", "runner_type: shell\nentry_point: it.sh\nref: other.it\n"),
        ("odd ref", "ref: demo.It Is\nrunner_type: shell\nentry_point: it.sh\n"),
        ("delivery", "runner_type: shell\nentry_point: it.sh\n\nparameter_delivery: args\n"),
        ("format", "runner_type: shell\nentry_point: it.sh\nparameter_format: xml\n"),
        ("output", "runner_type: shell\nentry_point: it.sh\noutput_format: csv\n"),
        ("overlap", "runner_type: shell\nentry_point: it.sh\noverlap: maybe\n"),
        ("timeout", "runner_type: shell\nentry_point: it.sh\ntimeout: soon\n"),
        ("no time", "runner_type: shell\nentry_point: it.sh\ntimeout: 0\n"),
        ("negative time", "runner_type: shell\nentry_point: it.sh\ntimeout_seconds: -1\n"),
        ("a slip", "runner_type: shell\nentry_point: it.sh\ntimout: 5\n"),
        ("a stranger", "runner_type: shell\nentry_point: it.sh\nqqq: 5\n"),
        ("env", "runner_type: shell\nentry_point: it.sh\nenv: {OUTLAST_X: 1}\n"),
        ("secret", "runner_type: shell\nentry_point: it.sh\nsecrets: {KEY: {as: arg}}\n"),
        ("secret key", "runner_type: shell\nentry_point: it.sh\nsecrets: {KEY: {form: x}}\n"),
        ("secret place", "runner_type: shell\nentry_point: it.sh\nsecrets: {KEY: {from: ../x}}\n"),
        ("exhaustion", "runner_type: shell\nentry_point: it.sh\nretry: {on_exhaustion: keep}\n"),
        ("retry", "runner_type: shell\nentry_point: it.sh\nretry: {attempts: 3}\n"),
        ("no attempts", "runner_type: shell\nentry_point: it.sh\nretry: 0\n"),
        ("labels", "runner_type: shell\nentry_point: it.sh\nrequired_labels: gpu\n"),
        ("label", "runner_type: shell\nentry_point: it.sh\nrequired_labels: {gpu type: a}\n"),
        ("keys", "runner_type: shell\nentry_point: it.sh\nkeys: [tenant]\n"),
        ("key's name", "runner_type: shell\nentry_point: it.sh\nkeys: {Tenant: x}\n"),
        ("key without quotes", "runner_type: shell\nentry_point: it.sh\nkeys: {a: {{tenant}}}\n"),
        ("two lines", "runner_type: shell\nentry_point: it.sh\nkeys:\n  a: {{tenant}}\n"),
        ("key of a list", "runner_type: shell\nentry_point: it.sh\nkeys: {a: [b]}\n"),
        ("open braces", "runner_type: shell\nentry_point: it.sh\nkeys: {a: '{{b'}\n"),
        ("an expression", "runner_type: shell\nentry_point: it.sh\nkeys: {a: '{{b | lower}}'}\n"),
        (
            "five keys",
            "runner_type: shell\nentry_point: it.sh\nkeys: {a: 1, b: 1, c: 1, d: 1, e: 1}\n",
        ),
        (
            "key of a stranger",
            "runner_type: shell\nentry_point: it.sh\nparameters:\n  tenant: {}\nkeys: {a: '{{tenat}}'}\n",
        ),
        (
            "key of a secret",
            "runner_type: shell\nentry_point: it.sh\nparameters:\n  pin: {secret: true}\nkeys: {a: '{{pin}}'}\n",
        ),
        ("enabled", "runner_type: shell\nentry_point: it.sh\nenabled: [x]\n"),
        ("queue", "runner_type: shell\nentry_point: it.sh\nqueue: My Queue\n"),
        ("priority", "runner_type: shell\nentry_point: it.sh\npriority: 101\n"),
        ("priority word", "runner_type: shell\nentry_point: it.sh\npriority: high\n"),
        ("no python", "runner_type: python\nentry_point: it.sh\npython: ''\n"),
        ("parameters", "runner_type: shell\nentry_point: it.sh\nparameters: [message]\n"),
        ("a parameter", "runner_type: shell\nentry_point: it.sh\nparameters:\n  a: string\n"),
        ("secrt", "runner_type: shell\nentry_point: it.sh\nparameters:\n  a: {secrt: true}\n"),
        (
            "requird",
            "runner_type: shell\nentry_point: it.sh\nparameters:\n  type: object\n  requird: [a]\n  properties: {a: {}}\n",
        ),
        (
            "deeper",
            "runner_type: shell\nentry_point: it.sh\nparameters:\n  a: {type: array, items: {secrt: true}}\n",
        ),
        ("a type", "runner_type: shell\nentry_point: it.sh\nparameters:\n  a: {type: text}\n"),
    ];
    insta::assert_snapshot!(table(&rows));
}

#[test]
fn what_a_drain_does_is_known_and_does_not_contradict_itself() {
    let action = |more: &str| format!("runner_type: shell\nentry_point: it.sh\n{more}\n");
    let (unknown, both) =
        (action("on_drain: maybe"), action("interruptible: false\non_drain: stop"));
    insta::assert_snapshot!(table(&[("unknown", &unknown), ("both", &both)]));
}

#[test]
fn what_is_kept_warm_is_named_by_modules_and_a_time() {
    let action = |warm: &str| format!("runner_type: python\nentry_point: it.sh\nwarm: {warm}\n");
    let texts = [
        ("true", action("true")),
        ("a slip", action("{prelaod: [json]}")),
        ("one name", action("{preload: json}")),
        ("a number", action("{preload: [1]}")),
        ("a program", action("{preload: ['os; os.abort()']}")),
        ("a dot too many", action("{preload: [google..cloud]}")),
        ("no time", action("{idle: 0}")),
        ("a word", action("{idle: soon}")),
    ];
    let rows: Vec<(&str, &str)> = texts.iter().map(|(what, text)| (*what, text.as_str())).collect();
    let of_pack = Demo::new().file("demo/pack.yaml", "ref: demo\nwarm:\n  preload: json\n").fault();
    insta::assert_snapshot!(format!("{}\npack\n    {of_pack}", table(&rows)));
}

#[test]
fn limits_that_no_attempt_can_have_are_reported() {
    let action =
        |limits: &str| format!("runner_type: shell\nentry_point: it.sh\nresources: {limits}\n");
    let (ram, memory, cpu) =
        (action("{ram: 1}"), action("{memory: 64 apples}"), action("{cpu: 0}"));
    let rows = [("ram", ram.as_str()), ("memory", &memory), ("cpu", &cpu)];
    insta::assert_snapshot!(table(&rows));
}

#[test]
fn faulty_manifests_are_reported() {
    let rows =
        ["ref: demo\nlable: x\n", "label: Demo\n", "ref: My Pack\n", "ref: [\n", "just text\n"];
    let faults = rows.map(|manifest| Demo::new().file("demo/pack.yaml", manifest).fault());
    insta::assert_snapshot!(faults.join("\n"));
}

#[test]
fn a_pack_or_an_action_defined_twice_is_refused() {
    let twice = Demo::new()
        .action("", "")
        .file("demo/actions/two.yaml", "ref: demo.it\nrunner_type: shell\nentry_point: it.sh\n");
    let packs = Demo::new().action("", "").file("other/pack.yaml", "ref: demo\n");
    insta::assert_snapshot!(format!("{}\n{}", twice.fault(), packs.fault()));
}

#[test]
fn one_faulty_file_is_told_and_does_not_stop_the_others() {
    let demo = Demo::new()
        .action("", "#!/bin/sh\n")
        .file("demo/actions/bad.yaml", "runner_type: shell\nentry_point: it.sh\ntimout: 5\n")
        .file("worse/pack.yaml", "ref: [\n");
    let set = demo.load().unwrap();
    assert!(set.get("demo.it").is_some() && set.get("core.echo").is_some());
    assert!(set.get("demo.bad").is_none());
    assert_eq!(set.faults().count(), 2);
    let message = set.fault_of("demo.bad").unwrap().to_string();
    assert!(message.ends_with("bad.yaml:3: key `timout` is not known; did you mean `timeout`?"));
    assert_eq!(set.nearest("core.ecko"), Some("core.echo"));
}

#[test]
fn the_digest_of_a_pack_follows_what_its_files_say_and_nothing_else() {
    let digest = |demo: &Demo| {
        let set = demo.load().unwrap();
        set.packs().find(|pack| pack.reference == "demo").unwrap().digest.clone()
    };
    let one = Demo::new().action("", "#!/bin/sh\n");
    let same = Demo::new().action("", "#!/bin/sh\n").file("demo/__pycache__/x.pyc", "1");
    let other = Demo::new().action("", "#!/bin/sh\n").file("demo/lib/a.sh", "1");
    assert_eq!(digest(&one), digest(&same));
    assert_ne!(digest(&one), digest(&other));
    assert_eq!(digest(&one).len(), 64);
}

#[test]
fn folders_that_hold_no_pack_are_reported() {
    let demo = Demo::new().file("demo/pack.yml", "").file("file", "");
    let empty = tempfile::tempdir().unwrap();
    let fault = |path: &std::path::Path| {
        let message = PackSet::load(&[path.to_owned()]).unwrap_err().to_string();
        let message = message.replace(&empty.path().display().to_string(), "EMPTY");
        message.replace(&demo.path().display().to_string(), "DIR")
    };
    let message = [demo.path().join("gone"), demo.path().join("file"), empty.path().to_owned()];
    insta::assert_snapshot!(message.map(|path| fault(&path)).join("\n"));
}

#[test]
fn a_link_that_leads_out_of_the_pack_is_refused() {
    let demo = Demo::new().action("", "").file("outside.sh", "#!/bin/sh\n");
    std::fs::remove_file(demo.path().join("demo/actions/it.sh")).unwrap();
    symlink("../../outside.sh", demo.path().join("demo/actions/it.sh")).unwrap();
    assert!(demo.fault().contains("leads out of its pack"), "{}", demo.fault());
}

#[test]
fn a_definition_that_is_no_text_or_far_too_long_is_refused() {
    let long = Demo::new().file("demo/actions/it.yaml", &"#".repeat(2_000_000));
    assert!(long.fault().contains("longer than 1048576 bytes"), "{}", long.fault());
    let binary = Demo::new();
    std::fs::create_dir_all(binary.path().join("demo/actions")).unwrap();
    std::fs::write(binary.path().join("demo/actions/it.yaml"), [0xff, 0xfe, 0x00]).unwrap();
    assert!(binary.fault().contains("UTF-8"), "{}", binary.fault());
}

/// Opening one would wait for a writer.
#[test]
fn pipes_in_a_pack_are_not_waited_for() {
    let demo = Demo::new().action("", "#!/bin/sh\n");
    let pipe = |path: &str| {
        let path = demo.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    };
    pipe("demo/actions/other.yaml");
    pipe("demo/notes.txt");
    pipe("second/pack.yaml");
    let set = demo.load().unwrap();
    assert!(set.get("demo.it").is_some());
    let faults: Vec<String> = set.faults().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(faults.iter().all(|fault| fault.contains("it is no plain file")), "{faults:?}");
}

#[test]
fn a_script_that_begins_with_a_byte_order_mark_is_refused() {
    let demo = Demo::new().action("", "\u{feff}#!/bin/sh\n");
    assert!(demo.fault().contains("`it.sh` begins with a byte order mark"), "{}", demo.fault());
}

// One entry that could not be read made the whole pack vanish.
#[test]
fn an_unreadable_entry_costs_no_more_than_itself() {
    let demo = Demo::new().action("", "#!/bin/sh\n");
    let whole =
        demo.load().unwrap().packs().find(|pack| pack.reference == "demo").unwrap().digest.clone();
    for name in ["notes.txt", "actions/other.yaml"] {
        let link = demo.path().join("demo").join(name);
        symlink(&link, &link).unwrap();
    }

    let set = demo.load().unwrap();

    assert!(set.get("demo.it").is_some(), "{:?}", set.faults().collect::<Vec<_>>());
    let digest = &set.packs().find(|pack| pack.reference == "demo").unwrap().digest;
    assert_ne!((digest.len(), digest), (64, &whole));
    assert!(
        demo.fault().starts_with("DIR/demo/actions/other.yaml: cannot read"),
        "{}",
        demo.fault()
    );
    let notes = demo.notes().join("\n");
    for name in ["notes.txt", "actions/other.yaml"] {
        assert!(notes.contains(&format!("DIR/demo/{name}: cannot read file: ")), "{notes}");
    }
}

#[test]
fn a_reference_that_two_files_have_is_that_of_the_first() {
    let demo = Demo::new()
        .action("", "#!/bin/sh\n")
        .file("demo/actions/other.yaml", "ref: demo.it\nrunner_type: shell\nentry_point: it.sh\n");
    let set = demo.load().unwrap();
    let fault = set.fault_of("demo.other").unwrap().to_string();
    assert!(fault.contains("other.yaml: action `demo.it` is already defined by "), "{fault}");
    assert!(fault.contains("actions/it.yaml"), "{fault}");
    assert_eq!(set.actions().filter(|action| action.reference == "demo.it").count(), 1);
}

#[test]
fn actions_of_a_pack_that_was_left_out_have_its_fault() {
    for manifest in ["ref: demo\nlabl: x\n", "ref: [\n"] {
        let demo = Demo::new().action("", "#!/bin/sh\n").file("demo/pack.yaml", manifest);
        let set = demo.load().unwrap();
        let fault = set.fault_of("demo.it").unwrap_or_else(|| panic!("{manifest}")).to_string();
        assert!(fault.contains("demo/pack.yaml"), "{fault}");
    }
}
