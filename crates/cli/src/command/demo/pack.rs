//! The demo's pack: one action for each runtime, all doing the same.
//!
//! Each writes a line to the ledger, sleeps, and writes another. A line is one append and is on
//! the disk before the job continues.

use std::io;
use std::path::Path;

const PACK: &str = "ref: demo\nlabel: Demo\nversion: 1.0.0\n";

const SHELL: &str = r#"#!/bin/sh
set -eu
note() {
    echo "$OUTLAST_JOB_ID $OUTLAST_EPOCH $1" >> "$ATTUNE_ACTION_LEDGER"
    sync -d "$ATTUNE_ACTION_LEDGER" 2>/dev/null || sync
}
note start
sleep "$ATTUNE_ACTION_SECONDS"
note end
"#;

const PYTHON: &str = r#"import json, os, sys, time

given = json.load(sys.stdin)

def note(what):
    ledger = os.open(given["ledger"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    line = f"{os.environ['OUTLAST_JOB_ID']} {os.environ['OUTLAST_EPOCH']} {what}\n"
    os.write(ledger, line.encode())
    os.fsync(ledger)
    os.close(ledger)

note("start")
time.sleep(given["seconds"])
note("end")
"#;

const NODE: &str = r#"const fs = require("fs");

const given = JSON.parse(fs.readFileSync(0, "utf8"));

function note(what) {
  const ledger = fs.openSync(given.ledger, "a", 0o600);
  fs.writeSync(ledger, `${process.env.OUTLAST_JOB_ID} ${process.env.OUTLAST_EPOCH} ${what}\n`);
  fs.fsyncSync(ledger);
  fs.closeSync(ledger);
}

note("start");
setTimeout(() => note("end"), given.seconds * 1000);
"#;

/// The action of a runtime.
pub(super) fn action(runtime: &str) -> String {
    format!("demo.{runtime}")
}

/// Writes the pack into a folder of packs.
pub(super) fn write(packs: &Path) -> io::Result<()> {
    let actions = packs.join("demo").join("actions");
    std::fs::create_dir_all(&actions)?;
    std::fs::write(packs.join("demo").join("pack.yaml"), PACK)?;
    for (runtime, script, body, delivery) in [
        ("shell", "shell.sh", SHELL, "env"),
        ("python", "python.py", PYTHON, "stdin"),
        ("node", "node.js", NODE, "stdin"),
    ] {
        std::fs::write(actions.join(script), body)?;
        let about = format!(
            "ref: {}\nlabel: Note, sleep, note\nrunner_type: {runtime}\nentry_point: {script}\n\
             parameter_delivery: {delivery}\nparameter_format: json\nparameters:\n  \
             ledger: {{type: string, required: true}}\n  \
             seconds: {{type: number, required: true}}\n",
            action(runtime)
        );
        std::fs::write(actions.join(format!("{runtime}.yaml")), about)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{action, write};
    use outlast_packs::PackSet;
    use serde_json::json;

    #[test]
    fn the_pack_can_be_read_and_takes_the_parameters_of_the_load() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let packs = PackSet::load(&[folder.path().to_owned()]).unwrap();
        for runtime in ["shell", "python", "node"] {
            let found = packs.get(&action(runtime)).unwrap();
            found.check(&json!({"ledger": "/tmp/l", "seconds": 0.5})).unwrap();
            assert!(found.check(&json!({"seconds": 0.5})).is_err());
        }
    }
}
