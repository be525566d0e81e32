//! What `--help` says, as a whole: a change of the outside contract shows here.

use crate::outlast;

const COMMANDS: &[&[&str]] = &[
    &[],
    &["dev"],
    &["demo"],
    &["server"],
    &["worker"],
    &["run"],
    &["jobs"],
    &["jobs", "list"],
    &["jobs", "logs"],
    &["jobs", "cancel"],
    &["queues"],
    &["workers"],
    &["dead-letters"],
    &["actions"],
    &["events"],
    &["packs"],
    &["doctor"],
    &["migrate"],
    &["export"],
    &["import"],
    &["config", "show"],
];

#[test]
fn help_says_what_is_documented() {
    let mut text = String::new();
    for command in COMMANDS {
        let args = [command, &["--help"][..]].concat();
        let said = outlast(&args);
        assert_eq!((said.code, said.err.as_str()), (0, ""));
        text.extend(["$ outlast ", &args.join(" "), "\n", &said.out, "\n"]);
    }
    insta::assert_snapshot!(text);
}

#[test]
fn version_is_on_stdout() {
    let said = outlast(&["--version"]);
    assert_eq!((said.code, said.out), (0, format!("outlast {}\n", env!("CARGO_PKG_VERSION"))));
}
