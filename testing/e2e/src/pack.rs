//! The pack of test actions that scenes run. Each writes the external ledger itself.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

const PACK: &str =
    "ref: ledger\nlabel: Ledger\ndescription: Jobs that leave a trace.\nversion: 1.0.0\n";

/// The actions: name, runner, what the file adds, the script.
const ACTIONS: &[(&str, &str, &str, &str)] = &[
    ("run", "shell", RUN_PARAMETERS, include_str!("pack/run.sh")),
    ("escape", "shell", RUN_PARAMETERS, include_str!("pack/escape.sh")),
    ("deaf", "shell", DEAF_PARAMETERS, include_str!("pack/deaf.sh")),
    ("deaf_long", "shell", DEAF_PARAMETERS, "#!/bin/sh\nexec sleep 600\n"),
    ("flood", "shell", FLOOD_PARAMETERS, include_str!("pack/flood.sh")),
    ("hog", "shell", HOG, include_str!("pack/hog.sh")),
    ("python", "python", PYTHON_PARAMETERS, include_str!("pack/ledger.py")),
    ("pry", "python", PRY_PARAMETERS, include_str!("pack/pry.py")),
    ("letter", "shell", LETTER_PARAMETERS, "#!/bin/sh\nexec cat\n"),
];

const RUN_PARAMETERS: &str = "parameter_format: dotenv
parameters:
  ledger: {type: string, required: true}
  ticks: {type: integer, default: 0}
  later_ticks: {type: integer, default: -1}
  on_term: {type: string, default: die}
  fail_before_epoch: {type: integer, default: 0}
  marker: {type: string, default: ''}
";

const DEAF_PARAMETERS: &str = "parameter_format: json
parameters:
  load: {type: string, required: true}
";

const FLOOD_PARAMETERS: &str = "parameter_format: dotenv
parameters:
  ledger: {type: string, required: true}
  bytes: {type: string, required: true}
  letter: {type: string, default: ''}
";

const HOG: &str = "parameter_format: dotenv
resources: {memory: 64MiB}
retry: 1
parameters:
  mib: {type: integer, required: true}
";

const PYTHON_PARAMETERS: &str = "parameter_format: json
parameters:
  ledger: {type: string, required: true}
";

const PRY_PARAMETERS: &str = "parameter_format: json
output_format: json
parameters:
  ledger: {type: string}
  backwards: {type: string, required: true}
  mark: {type: string, required: true}
  file: {type: string, default: /nonexistent}
";

const LETTER_PARAMETERS: &str = "parameter_format: json
output_format: json
parameters:
  dead_letter: {type: object, required: true}
";

/// Writes the pack below `folder` and returns the folder to give as `--packs`.
///
/// # Panics
///
/// When it cannot be written.
#[must_use]
pub fn write(folder: &Path) -> PathBuf {
    let packs = folder.join("packs");
    let actions = packs.join("ledger/actions");
    fs::create_dir_all(&actions).expect("a folder for the pack");
    fs::write(packs.join("ledger/pack.yaml"), PACK).expect("writing the pack");
    for (name, runner, more, script) in ACTIONS {
        let extension = if *runner == "python" { "py" } else { "sh" };
        let entry_point = format!("{name}.{extension}");
        let about = format!(
            "ref: ledger.{name}\nlabel: {name}\ndescription: Leaves a trace.\n\
             runner_type: {runner}\nentry_point: {entry_point}\n{more}"
        );
        fs::write(actions.join(format!("{name}.yaml")), about).expect("writing an action");
        let script_path = actions.join(entry_point);
        fs::write(&script_path, script).expect("writing a script");
        fs::set_permissions(&script_path, fs::Permissions::from_mode(0o755)).expect("its mode");
    }
    packs
}
