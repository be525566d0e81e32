//! `docs/reference/configuration.md`: every key, and who reads it.

use super::{check, head, row};
use crate::cli;
use crate::config::environment::ALIASES;
use crate::config::keys::{self, Key};
use crate::config::server::{ServerConfig, Switches};
use crate::config::worker::WorkerConfig;
use crate::config::{Environment, Settings};

const HEAD: &str = "# Configuration

Generated from the program's table of keys with `UPDATE_DOCS=1 cargo test -p outlast-cli`; a difference fails the test.

A flag wins over the environment, the environment over the YAML file that `--config` names, and the file over the
default. No file is read unless one is named. An unknown key or variable, or an invalid value, ends the command with
code 2 and a message that says what would be valid. `outlast config show` prints every key with its value, `--origin`
also where it came from; `outlast doctor` checks that the settings fit together.

- *seconds*: a number, fractions allowed, or `200ms`, `30s`, `5m`, `2h`, `7d`
- *bytes*: a number, or `512 KiB`, `1 MiB`, `2 GiB`
- *list*: `[a, b]` in YAML, `a,b` in the environment and in flags; `--packs` may be given several times
- *mapping*: `{zone: a}` in YAML, `zone=a` elsewhere

The tables say which keys `outlast server` and `outlast worker` read. `outlast dev` passes all of them on, but listens
on `--listen` and stores below `--data`. `outlast migrate` reads `server.database`; `outlast doctor` and
`outlast config show` read all keys. Other commands take `--server` and `--token`, or the short variables of
`worker.server` and `worker.token`, or [`client.yaml`](../use/guide.md#which-server-is-asked). `outlast health
worker` checks the worker that `worker.name` in the environment names.

";

const OTHER: &str = "## Other variables

| Variable | Meaning |
|---|---|
| `OUTLAST_LOG` | log filter, such as `debug` or `outlast_server=debug,info` |
| `NO_COLOR` | if set, output has no colours |
| `NOTIFY_SOCKET`, `WATCHDOG_USEC` | set by systemd: server and worker report that they are ready, stopping and alive |

## A file with every default

";

const SHOWN: &str = "
```console
$ outlast config show --origin --config outlast.yaml
KEY … VALUE … ORIGIN
…
server.max_body … 1 MiB … outlast.yaml:14
…

$ OUTLAST_SERVER__MAX_BODY=2097152 outlast config show --origin --config outlast.yaml
server.max_body … 2097152 … environment OUTLAST_SERVER__MAX_BODY
```
";

const SECTIONS: &[(&str, &str)] = &[
    ("server", "Servers: addresses, storage, TLS, tokens, limits"),
    ("ui", "Pages of the dashboard"),
    ("executor", "When jobs are taken back, and their budgets"),
    ("ojs", "Plain Open Job Spec clients"),
    ("webhooks", "Webhooks"),
    ("retention", "How long data is kept"),
    ("worker", "Workers. A worker proposes intervals; its server decides"),
    ("log", "Log lines. Other commands read its variables, but no file"),
];

fn section(key: &Key) -> &'static str {
    key.name.split_once('.').map_or("", |(section, _)| section)
}

fn page() -> String {
    let settings = Settings::load(None, &Environment::of(&[]), Vec::new()).unwrap();
    ServerConfig::new(&settings, Switches::default()).unwrap();
    let mut server = settings.read.take();
    WorkerConfig::new(&settings).unwrap();
    let mut worker = settings.read.take();
    crate::log::format_of(&settings).unwrap();
    let both = settings.read.take();
    server.extend(&both);
    worker.extend(&both);
    let mut page = HEAD.to_owned();
    for (name, about) in SECTIONS {
        page.extend([format!("## `{name}`\n\n{about}.\n\n")]);
        page.push_str(&head(&["Key", "Default", "Unit", "Meaning", "Variable", "Flag", "Read by"]));
        for key in keys::ALL.iter().filter(|key| section(key) == *name) {
            let readers = [("server", &server), ("worker", &worker)];
            let readers: Vec<&str> = readers
                .into_iter()
                .filter(|(_, read)| read.contains(&key.name))
                .map(|(reader, _)| reader)
                .collect();
            assert!(!readers.is_empty(), "{} has no effect", key.name);
            page.push_str(&describe(key, &readers.join(", ")));
        }
        page.push('\n');
    }
    format!("{page}{OTHER}```yaml file=outlast.yaml\n{}```\n{SHOWN}", file())
}

fn describe(key: &Key, readers: &str) -> String {
    let default = match key.default {
        "" => "–".to_owned(),
        default => format!("`{default}`"),
    };
    let mut variables = vec![keys::variable(key.name)];
    variables.extend(
        ALIASES.iter().rev().filter(|(_, of)| *of == key.name).map(|(name, _)| (*name).to_owned()),
    );
    let flags = cli::flags();
    let flag = flags.iter().find(|flag| flag.key == key.name);
    let flag = flag.map_or_else(|| "–".to_owned(), |flag| format!("`{}`", flag.flag));
    let variables = format!("`{}`", variables.join("`, `"));
    row(&[
        &format!("`{}`", key.name),
        &default,
        key.kind.unit,
        key.about,
        &variables,
        &flag,
        readers,
    ])
}

/// A file that says what is so without it.
fn file() -> String {
    let mut text = String::new();
    for (name, _) in SECTIONS {
        text.extend([format!("{name}:\n")]);
        for key in keys::ALL.iter().filter(|key| section(key) == *name) {
            let short = key.name.trim_start_matches(name).trim_start_matches('.');
            let value = match (key.default, key.kind.unit) {
                // An empty list of limits or schedules removes those of before.
                ("", "list") if !["server.limits", "server.schedules"].contains(&key.name) => "[]",
                ("", "mapping") => "{}",
                ("", _) => "\"\"",
                (default, _) => default,
            };
            text.extend([format!("  {short}: {value}\n")]);
        }
    }
    text
}

#[test]
fn page_of_the_configuration_says_what_the_program_reads() {
    check("configuration.md", &page());
}

#[test]
fn every_key_is_in_a_section_of_the_page() {
    let known = |key: &&Key| !SECTIONS.iter().any(|(name, _)| *name == section(key));
    assert_eq!(keys::ALL.iter().find(known).map(|key| key.name), None);
}

#[test]
fn file_with_every_default_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.yaml");
    std::fs::write(&path, file()).unwrap();
    let none = Environment::of(&[]);
    let read = |file| {
        let settings = Settings::load(file, &none, Vec::new()).unwrap();
        let server = ServerConfig::new(&settings, Switches::default()).unwrap();
        (format!("{server:?}"), format!("{:?}", WorkerConfig::new(&settings).unwrap()))
    };
    assert_eq!(read(Some(path.as_path())), read(None));
}
