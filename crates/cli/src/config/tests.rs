//! Layers, origins, unknown keys, values.

use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast_cli_core::exit::{Exit, Failure};
use outlast_server::access::TokenHash;
use serde_json::{Value, json};

use super::client;
use super::server::{ServerConfig, Switches};
use super::token::TokenFlags;
use super::value::{self, Database};
use super::worker::WorkerConfig;
use super::{ConfigError, Environment, Flag, Origin, Settings, keys};

struct Given {
    folder: tempfile::TempDir,
}

impl Given {
    fn file(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("o.yaml"), text).unwrap();
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("o.yaml")
    }

    fn load(
        &self,
        environment: &[(&str, &str)],
        flags: Vec<Flag>,
    ) -> Result<Settings, ConfigError> {
        Settings::load(Some(&self.path()), &Environment::of(environment), flags)
    }

    /// The whole failure, with the folder's name left out.
    fn refusal(&self, environment: &[(&str, &str)]) -> String {
        let failure = Failure::from(self.load(environment, Vec::new()).unwrap_err());
        assert_eq!(failure.exit, Exit::Usage);
        failure.to_string().replace(&format!("{}/", self.folder.path().display()), "")
    }
}

fn listen_flag(value: &str) -> Vec<Flag> {
    vec![Flag::new("server.listen", "--listen", Some(value.to_owned()))]
}

#[test]
fn flag_beats_environment_beats_file_beats_default() {
    let given = Given::file("server:\n  listen: 127.0.0.1:2\n");
    let variable = ("OUTLAST_SERVER__LISTEN", "127.0.0.1:3");
    let check = |settings: Settings, port: u16, origin: Origin| {
        assert_eq!(settings.get("server.listen", value::listen).unwrap().port(), port);
        assert_eq!(settings.setting("server.listen").unwrap().origin, origin);
    };
    let none = Settings::load(None, &Environment::of(&[]), Vec::new()).unwrap();
    check(none, 8080, Origin::Default);
    let file = Origin::File { path: given.path(), line: 2 };
    check(given.load(&[], Vec::new()).unwrap(), 2, file);
    let environment = Origin::Environment(variable.0.to_owned());
    check(given.load(&[variable], Vec::new()).unwrap(), 3, environment);
    let flags = listen_flag("127.0.0.1:4");
    check(given.load(&[variable], flags).unwrap(), 4, Origin::Flag("--listen"));
}

#[test]
fn a_flag_that_is_not_given_changes_nothing() {
    let given = Given::file("server:\n  packs: [a, b]\n");
    let flags = vec![
        Flag::new("server.listen", "--listen", None),
        Flag::many("server.packs", "--packs", Vec::new()),
    ];
    let settings = given.load(&[], flags).unwrap();
    let packs = settings.get("server.packs", value::paths).unwrap();
    assert_eq!(packs, [PathBuf::from("a"), PathBuf::from("b")]);
    assert_eq!(settings.setting("server.listen").unwrap().origin, Origin::Default);
}

#[test]
fn unknown_key_in_a_file_names_line_and_nearest_key() {
    let given = Given::file("worker:\n  name: w\n  heartbeat_intervall: 5\n");
    insta::assert_snapshot!(given.refusal(&[]), @r"
    error: unknown setting `worker.heartbeat_intervall` (o.yaml:3)
      3 |   heartbeat_intervall: 5
        |   ^^^^^^^^^^^^^^^^^^^
    hint: did you mean `worker.heartbeat_interval`?
    ");
}

#[test]
fn unknown_section_names_the_nearest_one() {
    for (given, meant) in [
        ("executer:\n  scheduled_timeout: 5\n", "did you mean the section `executor`?"),
        ("servr:\n  listen: 127.0.0.1:1\n", "did you mean the section `server`?"),
        ("Worker: {}\n", "did you mean the section `worker`?"),
        // A key without its section.
        ("concurrency: 5\n", "did you mean `worker.concurrency`?"),
    ] {
        let refusal = Given::file(given).refusal(&[]);
        assert!(refusal.contains("unknown setting `") && refusal.contains("(o.yaml:1)"));
        assert!(refusal.contains(meant), "{refusal}");
    }
}

#[test]
fn key_in_the_wrong_section_is_led_to_the_right_one() {
    assert_eq!(keys::nearest("server.concurrency"), "worker.concurrency");
    assert_eq!(keys::nearest("worker.scheduled_timeout"), "executor.scheduled_timeout");
}

#[test]
fn unknown_variable_names_the_nearest_one() {
    let given = Given::file("");
    insta::assert_snapshot!(given.refusal(&[("OUTLAST_WORKER__CONCURENCY", "5")]), @r"
    error: unknown setting `worker.concurency` (environment OUTLAST_WORKER__CONCURENCY)
    hint: did you mean OUTLAST_WORKER__CONCURRENCY (`worker.concurrency`)?
    ");
}

#[test]
fn wrong_value_names_key_value_origin_and_what_would_be_right() {
    let given = Given::file("worker:\n  shutdown_timeout: soon\n");
    insta::assert_snapshot!(given.refusal(&[]), @r"
    error: `worker.shutdown_timeout` is `soon` (o.yaml:2), which is not a duration: seconds such as 30 or 0.5, or 200ms, 30s, 5m, 2h, 7d
      2 |   shutdown_timeout: soon
        |                     ^^^^
    hint: worker.shutdown_timeout: time that running jobs have to finish at shutdown; default 30
    ");
}

#[test]
fn token_that_was_said_closest_at_hand_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "from-the-file\n").unwrap();
    let file = path.to_str().unwrap();
    let shown = |flags: TokenFlags, environment: &[(&str, &str)]| {
        let flags = flags.flags().to_vec();
        let config = client::load(flags, &Environment::of(environment));
        config.map(|config| config.token.unwrap_or_default()).map_err(|error| error.to_string())
    };
    let none = TokenFlags::default;
    assert_eq!(shown(none(), &[("OUTLAST_TOKEN_FILE", file)]).unwrap(), "from-the-file");
    let flag = TokenFlags { token: Some("flag".to_owned()), token_file: None };
    assert_eq!(shown(flag, &[("OUTLAST_TOKEN_FILE", file)]).unwrap(), "flag");
    let flag = TokenFlags { token: None, token_file: Some(file.to_owned()) };
    assert_eq!(shown(flag, &[("OUTLAST_TOKEN", "variable")]).unwrap(), "from-the-file");
    let twice = shown(none(), &[("OUTLAST_TOKEN_FILE", file), ("OUTLAST_TOKEN", "x")]);
    assert!(twice.unwrap_err().contains("the token is given twice"));
    std::fs::write(&path, "two words").unwrap();
    let wrong = shown(none(), &[("OUTLAST_TOKEN_FILE", file)]).unwrap_err();
    assert!(wrong.contains("holds no token"), "{wrong}");
    let gone = shown(none(), &[("OUTLAST_TOKEN_FILE", "/nonexistent")]).unwrap_err();
    assert!(gone.contains("/nonexistent cannot be read"), "{gone}");
}

/// What a server says at its start stands in the journal.
#[test]
fn tokens_in_a_file_that_is_wrong_are_not_repeated() {
    for (text, named) in [
        ("worker:\n  tokken: hush-hush-hush-hush\n", "worker.tokken"),
        ("token: hush-hush-hush-hush\n", "unknown setting `token`"),
        ("server:\n  tokns:\n    - {role: admin, token: hush-hush}\n", "server.tokns"),
        ("worker:\n  token: hush-hush-hush\n name: x\n", "line 3"),
        ("server:\n  tokens:\n    - {name: a role: b, Token: hush-hush\n", "malformed"),
    ] {
        let refusal = Given::file(text).refusal(&[]);
        assert!(refusal.contains(named) && !refusal.contains("hush"), "{refusal}");
    }
}

// Only the line with the name was cut, and the value was on the next one.
#[test]
fn no_line_of_a_malformed_file_is_shown_that_names_a_secret_anywhere() {
    for text in [
        "worker:\n  token:\n    outlast_SECRET\n   x: 1\n",
        "worker:\n  token: >-\n    outlast_SECRET\n  name: [\n",
        "worker: {token:\n outlast_SECRET, name: a b: c}\n",
        "server: {tokens: [{token:\n outlast_SECRET}], lisetn: a}\n",
        "server:\n  database: host=db password = outlast_SECRET\n x\n",
    ] {
        let refusal = Given::file(text).refusal(&[]);
        assert!(!refusal.contains("SECRET"), "{refusal}");
    }
    let place = Given::file("worker:\n  token: a-token-for-tests\n name: x\n").refusal(&[]);
    assert!(place.contains("line 3") && place.contains("no line is shown"), "{place}");
}

#[test]
fn malformed_file_is_refused_with_the_line() {
    for text in
        ["server: [1, 2", "- a\n- b\n", "server: 5\n", "server:\n  listen: a\n  listen: b\n"]
    {
        let refusal = Given::file(text).refusal(&[]);
        assert!(refusal.contains("configuration file o.yaml is malformed"), "{refusal}");
        assert!(refusal.contains("line "), "{refusal}");
    }
}

#[test]
fn limits_may_stand_at_the_top_of_the_file() {
    let limits = "limits:\n  - {name: tenant, key: tenant, concurrency: 5}\n";
    let given = Given::file(&format!("server:\n  listen: 127.0.0.1:1\n{limits}"));
    let settings = given.load(&[], Vec::new()).unwrap();
    let read = settings.get("server.limits", value::limits).unwrap().unwrap();
    assert_eq!(read[0].name.as_str(), "tenant");
    let origin = &settings.setting("server.limits").unwrap().origin;
    assert_eq!(*origin, Origin::File { path: given.path(), line: 3 });
    let none = Given::file("limits:\n").load(&[], Vec::new()).unwrap();
    assert_eq!(none.get("server.limits", value::limits), Ok(None));
    let twice = Given::file(&format!("server:\n  limits: []\n{limits}")).refusal(&[]);
    assert!(twice.contains("`limits` and `server.limits`"), "{twice}");
    let wrong = Given::file("limits:\n  - {name: tenant, concurrency: 5}\n").refusal(&[]);
    let said = "(o.yaml:1), which is not right: limit `tenant`: field `key` is missing";
    assert!(wrong.contains(said), "{wrong}");
    let mapping = Given::file("limits:\n  tenant: {key: tenant, concurrency: 5}\n").refusal(&[]);
    assert!(
        mapping.contains("line 1: `limits` is a mapping, and not a list of limits such as"),
        "{mapping}"
    );
    let decides = |text: &str| {
        let settings = Given::file(text).load(&[], Vec::new()).unwrap();
        ServerConfig::new(&settings, Switches::default()).unwrap().limits
    };
    assert_eq!(decides("server:\n  listen: 127.0.0.1:1\n"), None, "a file without the key");
    assert_eq!(decides("limits: []\n"), Some(Vec::new()));
    let section = Given::file("worker: [a, b]\n").refusal(&[]);
    assert!(section.contains("line 1: `worker` holds keys, no list"), "{section}");
}

#[test]
fn missing_file_is_named() {
    let path = Path::new("/nowhere/o.yaml");
    let error = Settings::load(Some(path), &Environment::of(&[]), Vec::new()).unwrap_err();
    assert!(error.to_string().contains("/nowhere/o.yaml cannot be read"), "{error}");
}

#[test]
fn empty_file_and_empty_section_are_fine() {
    for text in ["", "# nothing\n", "server:\nworker:\n"] {
        Given::file(text).load(&[], Vec::new()).unwrap();
    }
}

#[test]
fn every_default_makes_a_configuration() {
    let settings = Settings::load(None, &Environment::of(&[]), Vec::new()).unwrap();
    let server = ServerConfig::new(&settings, Switches::default()).unwrap();
    let worker = WorkerConfig::new(&settings).unwrap();
    assert_eq!(server.max_body, 1024 * 1024);
    assert_eq!(server.retention_finished, Duration::from_secs(7 * 24 * 3600));
    assert_eq!(server.database, Database::Sqlite(PathBuf::from("outlast.db")));
    assert_eq!((worker.concurrency, worker.queues.as_slice()), (10, &["default".to_owned()][..]));
    assert!(!worker.name.is_empty());
}

#[test]
fn every_key_can_be_set_in_the_environment() {
    for key in keys::ALL {
        let variable = keys::variable(key.name);
        let environment = Environment::of(&[(variable.as_str(), key.default)]);
        let settings = Settings::load(None, &environment, Vec::new()).unwrap();
        let origin = &settings.setting(key.name).unwrap().origin;
        assert_eq!(*origin, Origin::Environment(variable));
    }
}

#[test]
fn older_names_are_honoured_and_the_long_name_wins() {
    let grace = |environment: &[(&str, &str)]| {
        let settings = Settings::load(None, &Environment::of(environment), Vec::new()).unwrap();
        WorkerConfig::new(&settings).unwrap().shutdown_timeout.as_secs()
    };
    assert_eq!(grace(&[("OJS_SHUTDOWN_GRACE_PERIOD", "20")]), 20);
    assert_eq!(grace(&[("OJS_GRACE_PERIOD", "25s"), ("OJS_SHUTDOWN_GRACE_PERIOD", "20")]), 25);
    assert_eq!(grace(&[("OUTLAST_WORKER__SHUTDOWN_TIMEOUT", "9"), ("OJS_GRACE_PERIOD", "25s")]), 9);
    assert_eq!(grace(&[("OJS_GRACE_PERIOD", "")]), 30);
}

#[test]
fn client_asks_the_server_that_was_named_last() {
    let server = |flag: Option<&str>, environment: &[(&str, &str)]| {
        let flag = flag.map(ToOwned::to_owned);
        let flags = vec![Flag::new("worker.server", "--server", flag)];
        client::load(flags, &Environment::of(environment)).unwrap().server
    };
    let both = [("OJS_URL", "http://ojs:1/ojs/v1/"), ("OUTLAST_SERVER", "http://o:2/")];
    assert_eq!(server(None, &[]), "http://127.0.0.1:8080");
    assert_eq!(server(None, both.get(..1).unwrap()), "http://ojs:1");
    assert_eq!(server(None, &both), "http://o:2");
    assert_eq!(server(Some("10.0.0.1:9"), &both), "http://10.0.0.1:9");
}

#[test]
fn client_does_not_mind_a_server_setting_that_is_wrong() {
    let environment = Environment::of(&[("OUTLAST_SERVER__LISTEN", "nonsense")]);
    client::load(Vec::new(), &environment).unwrap();
}

#[test]
fn durations_and_sizes_are_read_in_all_their_forms() {
    let durations = [
        (json!(30), 30_000),
        (json!(0.25), 250),
        (json!("30"), 30_000),
        (json!("200ms"), 200),
        (json!("1.5s"), 1_500),
        (json!("5m"), 300_000),
        (json!("2 h"), 7_200_000),
        (json!("7d"), 604_800_000),
    ];
    for (given, ms) in durations {
        assert_eq!(value::duration(&given), Ok(Duration::from_millis(ms)), "{given}");
    }
    let sizes =
        [(json!(5), 5), (json!("1 MiB"), 1 << 20), (json!("2kB"), 2000), (json!("1KiB"), 1024)];
    for (given, bytes) in sizes {
        assert_eq!(value::size(&given), Ok(bytes), "{given}");
    }
}

#[test]
fn wrong_durations_and_sizes_are_refused() {
    let long = "99999999999999999999d";
    for given in
        [json!(-1), json!("-1s"), json!("5x"), json!(""), json!("s"), json!([5]), json!(long)]
    {
        assert!(value::duration(&given).is_err(), "{given}");
    }
    for given in [json!(0), json!("0s"), json!("99ms"), json!("25h"), json!("soon")] {
        assert!(value::probe_duration(&given).is_err(), "{given}");
    }
    for given in [json!(-1), json!("0"), json!("1 XB"), json!(true), json!("1e99")] {
        assert!(value::size(&given).is_err(), "{given}");
    }
}

#[test]
fn a_store_in_memory_is_refused() {
    assert!(value::database(&json!("sqlite::memory:")).is_err());
    assert!(value::database(&json!("mysql://x")).is_err());
    let file = Database::Sqlite(PathBuf::from("/var/lib/o.db"));
    assert_eq!(value::database(&json!("sqlite:///var/lib/o.db")), Ok(file.clone()));
    assert_eq!(value::database(&json!("sqlite:/var/lib/o.db")), Ok(file));
}

#[test]
fn labels_are_a_mapping_or_text() {
    let expected = value::labels(&json!("zone=a, disk=ssd")).unwrap();
    assert_eq!(value::labels(&json!({"zone": "a", "disk": "ssd"})), Ok(expected));
    assert!(value::labels(&json!("zone")).is_err());
    assert_eq!(value::labels(&Value::Null).unwrap().len(), 0);
}

fn server(flags: Vec<Flag>, tokens: &str, switches: Switches) -> Result<ServerConfig, ConfigError> {
    let environment = Environment::of(&[("OUTLAST_SERVER__TOKENS", tokens)]);
    ServerConfig::new(&Settings::load(None, &environment, flags)?, switches)
}

#[test]
fn server_open_to_others_must_be_wanted() {
    let insecure = Switches { insecure: true, ..Switches::default() };
    for address in ["127.0.0.1:0", "[::1]:0", "localhost:0"] {
        server(listen_flag(address), "", Switches::default()).unwrap();
    }
    let refusal = server(listen_flag("0.0.0.0:80"), "", Switches::default()).unwrap_err();
    assert!(refusal.to_string().contains("0.0.0.0:80 (flag --listen)"), "{refusal}");
    server(listen_flag("0.0.0.0:80"), "", insecure).unwrap();
    let tokens = "[{token: abcdefghijklmnop, role: admin}]";
    server(listen_flag("0.0.0.0:80"), tokens, Switches::default()).unwrap();
}

/// Secrets that come from files often end with the end of a line.
#[test]
fn blanks_around_a_token_are_no_part_of_it() {
    let variable = |value| Environment::of(&[("OUTLAST_TOKEN", value)]);
    let shown = |value| client::load(Vec::new(), &variable(value));
    let token = "abcdefghijklmnop";
    assert_eq!(shown("abcdefghijklmnop\n").unwrap().token.as_deref(), Some(token));
    assert_eq!(shown(" \n").unwrap().token, None);
    let refusal = shown("abcdefgh ijklmnop").unwrap_err().to_string();
    assert!(refusal.contains("`hidden` (environment OUTLAST_TOKEN)"), "{refusal}");
    let known =
        server(Vec::new(), "[{token: ' abcdefghijklmnop ', role: admin}]", Switches::default());
    assert_eq!(known.unwrap().tokens[0].hash, TokenHash::of(token));
}

#[test]
fn tokens_are_read_and_never_shown() {
    let tokens = "[{token: abcdefghijklmnop, role: admin, name: ci}]";
    let config = server(Vec::new(), tokens, Switches::default()).unwrap();
    assert_eq!(config.tokens.len(), 1);
    let hash = TokenHash::of("abcdefghijklmnop");
    for same in ["sha256", "token_sha256"] {
        let hashed = format!("[{{{same}: {hash}, role: admin, name: ci}}]");
        let again = server(Vec::new(), &hashed, Switches::default()).unwrap();
        assert_eq!(again.tokens, config.tokens);
    }
    assert!(!format!("{config:?}").contains("abcdefghijklmnop"));
    let environment = Environment::of(&[("OUTLAST_SERVER__TOKENS", tokens)]);
    let settings = Settings::load(None, &environment, Vec::new()).unwrap();
    assert_eq!(settings.setting("server.tokens").unwrap().shown(), "hidden");
    for wrong in [
        "[{token: short, role: admin}]",
        "[{role: admin}]",
        "[{sha256: x, role: viewer}]",
        "[{token: abcdefghijklmnop, role: chief}]",
        "[{token: abcdefghijklmnop, role: viewer}, {token: abcdefghijklmnop, role: admin}]",
    ] {
        let error = server(Vec::new(), wrong, Switches::default()).unwrap_err();
        assert!(error.to_string().starts_with("`server.tokens` is `hidden`"), "{error}");
    }
}

/// Keys that mean something together only.
const TOGETHER: &[(&str, &str)] = &[
    ("OUTLAST_WORKER__PROBE__COMMAND", "true"),
    ("OUTLAST_SERVER__TLS__CERT", "/server.crt"),
    ("OUTLAST_SERVER__TLS__KEY", "/server.key"),
    ("OUTLAST_SERVER__TLS__CLIENT_CA", "/ca.crt"),
    ("OUTLAST_SERVER__TLS__ROLES", "a=viewer"),
    ("OUTLAST_WORKER__CLIENT_CERT", "/client.crt"),
    ("OUTLAST_WORKER__CLIENT_KEY", "/client.key"),
];

/// A value for every key that is not its default.
const OTHERS: &[(&str, &str)] = &[
    ("server.listen", "127.0.0.1:9"),
    ("server.database", "sqlite:other.db"),
    ("server.shutdown_timeout", "31"),
    ("server.packs", "/p"),
    ("server.tokens", "[{token: abcdefghijklmnop, role: admin, name: ci}]"),
    ("server.tls.cert", "/c"),
    ("server.tls.key", "/k"),
    ("server.tls.client_ca", "/a"),
    ("server.tls.roles", "ci.example=producer"),
    ("server.hosts", "jobs.example"),
    ("server.base_path", "/outlast"),
    ("server.ui", "read_only"),
    ("ui.hide", "pin"),
    ("server.connections", "7"),
    ("server.connections_per_address", "8"),
    ("server.limits", "[{name: tenant, key: tenant, concurrency: 5}]"),
    ("server.schedules", "[{name: night, cron: \"@daily\", type: t}]"),
    ("server.dead_letters", "[{webhook: 'https://example.com/hook'}]"),
    ("server.max_body", "2 MiB"),
    ("executor.scheduled_timeout", "301"),
    ("executor.start_timeout", "31"),
    ("executor.timeout_check_interval", "2"),
    ("executor.enable_timeout_monitor", "false"),
    ("executor.interruptions", "charge"),
    ("executor.loss_budget", "4"),
    ("executor.interruption_budget", "11"),
    ("ojs.lease", "31"),
    ("ojs.visibility", "1801"),
    ("webhooks.allow_networks", "10.0.0.0/8"),
    ("webhooks.secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("webhooks.timeout", "9"),
    ("webhooks.give_up_after", "3600"),
    ("retention.finished", "8d"),
    ("retention.workers", "9d"),
    ("worker.server", "http://127.0.0.1:9"),
    ("worker.token", "sesame"),
    // A file with one word that every machine has.
    ("worker.token_file", "/proc/sys/kernel/ostype"),
    ("worker.ca_file", "/a"),
    ("worker.client_cert", "/c"),
    ("worker.client_key", "/k"),
    ("worker.name", "w9"),
    ("worker.heartbeat_interval", "6"),
    ("worker.heartbeat_staleness_multiplier", "4"),
    ("worker.reconnect_window", "6"),
    ("worker.closed_window", "2"),
    ("worker.shutdown_timeout", "32"),
    ("worker.concurrency", "11"),
    ("worker.probe.command", "[/bin/false]"),
    ("worker.probe.interval", "31"),
    ("worker.probe.timeout", "11"),
    ("worker.probe.failures", "4"),
    ("worker.probe.recoveries", "2"),
    ("worker.checks.disk_free", "0"),
    ("worker.checks.memory_pressure", "0"),
    ("worker.queues", "mail"),
    ("worker.labels", "zone=a"),
    ("worker.pool", "gpu"),
    ("worker.runtimes", "shell"),
    ("worker.packs", "/p"),
    ("worker.containment", "pidns"),
    ("worker.environment", "HTTP_PROXY,AWS_*"),
    ("worker.secrets", "/run/secrets"),
    ("worker.work_dir", "/w"),
    ("log.format", "json"),
];

#[test]
fn every_key_reaches_server_or_worker() {
    let made = |environment: &[(&str, &str)]| {
        let settings = Settings::load(None, &Environment::of(environment), Vec::new()).unwrap();
        let server = ServerConfig::new(&settings, Switches::default()).unwrap();
        let worker = WorkerConfig::new(&settings).unwrap();
        let started = crate::command::as_started(&server, worker.clone());
        let format = crate::log::format_of(&settings).unwrap();
        format!("{} {} {:?} {started} {format:?}", server.listen, worker.server, server.database)
    };
    let default = made(TOGETHER);
    for key in keys::ALL {
        let other = OTHERS.iter().find(|(name, _)| *name == key.name);
        let (_, other) = other.unwrap_or_else(|| panic!("give {} another value here", key.name));
        let variable = keys::variable(key.name);
        let others = TOGETHER.iter().copied().filter(|(name, _)| *name != variable);
        let set: Vec<_> = others.chain([(variable.as_str(), *other)]).collect();
        let changed = made(&set);
        assert_ne!(changed, default, "{} has no effect", key.name);
    }
}

#[test]
fn every_key_refuses_a_value_of_the_wrong_type_and_shows_the_line() {
    for key in keys::ALL {
        let (section, name) = key.name.split_once('.').unwrap();
        let refusal = Given::file(&format!("{section}:\n  {name}: [{{}}]\n")).refusal(&[]);
        let shown = if key.secret { "1 hidden" } else { "[{}]" };
        let expected = format!("error: `{}` is `{shown}` (o.yaml:2), which is not ", key.name);
        assert!(refusal.starts_with(&expected), "{refusal}");
        // A line with a secret is not repeated.
        assert_eq!(refusal.contains("2 |"), !key.secret, "{refusal}");
    }
}

#[test]
fn excerpt_marks_the_value_and_leaves_the_comment_out() {
    let given = Given::file("worker:\n  concurrency: many  # as many as fit\n");
    insta::assert_snapshot!(given.refusal(&[]), @r"
    error: `worker.concurrency` is `many` (o.yaml:2), which is not a whole number from 1 to 10000
      2 |   concurrency: many  # as many as fit
        |                ^^^^
    hint: worker.concurrency: jobs to run at the same time, 1 to 10000; default 10
    ");
}
