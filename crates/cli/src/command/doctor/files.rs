//! What is on this host: the configuration, packs, the port, a store that was named.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast_cli_core::client::{Client, ClientConfig};
use outlast_cli_core::exit::Failure;
use outlast_packs::PackSet;
use outlast_server::probe;

use super::check::{Check, Level};
use super::tls::Shown;
use super::{Args, Subject, flags, tls};
use crate::command::packs::environments;
use crate::config::server::{ServerConfig, Switches, tls_files};
use crate::config::value::{self, Database};
use crate::config::worker::WorkerConfig;
use crate::config::{ConfigError, Environment, Origin, Settings};

/// A commit waits for one of these; slower than this and the disk is what limits everything.
const FSYNC_WARN_MS: f64 = 20.0;
/// Below this a store may be full before anybody looks.
const FREE_WARN: f64 = 1024.0 * 1024.0 * 1024.0;
/// Below this it will be.
const FREE_FAIL: f64 = 100.0 * 1024.0 * 1024.0;
/// Where SQLite keeps the versions of its file format: 2 in both means a write-ahead log.
const FORMAT_VERSIONS: std::ops::Range<usize> = 18..20;
/// Longest a neighbour on this host may take to say that it is an Outlast server.
const NEIGHBOUR_MAX: Duration = Duration::from_secs(2);

/// Loads and checks the settings. On a fault as many of them as can be read are kept, so that
/// the rest can be looked at. What is wrong even with flags and environment alone leaves no
/// server to ask.
pub(super) fn configuration(
    args: &Args,
    environment: &Environment,
    checks: &mut Vec<Check>,
) -> (Settings, Option<Failure>) {
    const NAME: &str = "configuration";
    let settings = match Settings::load(args.config.as_deref(), environment, flags(args)) {
        Ok(settings) => settings,
        Err(error) => {
            checks.push(misconfigured(NAME, error));
            return readable(args, environment);
        }
    };
    checks.push(match usable(&settings) {
        Ok(()) => {
            let set = settings.iter().filter(|setting| setting.origin != Origin::Default).count();
            let file = args
                .config
                .as_ref()
                .map_or_else(|| "no file".to_owned(), |path| format!("file {}", path.display()));
            Check::ok(NAME, format!("{file}, settings given: {set}"))
        }
        Err(error) => misconfigured(NAME, error),
    });
    (settings, None)
}

/// Whether a server and a worker can use the settings.
fn usable(settings: &Settings) -> Result<(), ConfigError> {
    // That a server off loopback wants tokens depends on a flag that is not known here.
    ServerConfig::new(settings, Switches { insecure: true, ..Switches::default() })?;
    WorkerConfig::new(settings)?;
    Ok(())
}

fn misconfigured(name: &'static str, error: ConfigError) -> Check {
    let failure = Failure::from(error);
    let fix = failure.hint.unwrap_or_else(|| "see `outlast config show`".to_owned());
    Check::fail(name, failure.message.lines().next().unwrap_or_default(), fix)
}

/// The settings without the file, and without what else cannot be read.
fn readable(args: &Args, environment: &Environment) -> (Settings, Option<Failure>) {
    // What was said on the command line still says which server to ask, unless that is what is
    // wrong.
    let clients = environment.for_clients();
    let loaded = Settings::load(None, environment, flags(args))
        .or_else(|_| Settings::load(None, &clients, flags(args)));
    match loaded {
        Ok(settings) => (settings, None),
        Err(error) => {
            let without_flags = Settings::load(None, environment, Vec::new());
            (without_flags.unwrap_or_else(|_| Settings::defaults()), Some(error.into()))
        }
    }
}

/// Reads every pack; says which keys in them have no effect.
pub(super) fn packs(settings: &Settings, checks: &mut Vec<Check>) -> PackSet {
    const NAME: &str = "packs";
    let folders = |key| settings.get(key, value::paths).unwrap_or_default();
    let folders = [folders("server.packs"), folders("worker.packs")].concat();
    let packs = match PackSet::load(&folders) {
        Ok(packs) => packs,
        Err(error) => {
            let fix = "name the right folder; server and worker refuse to start with this one";
            checks.push(Check::fail(NAME, error.to_string(), fix));
            return PackSet::embedded_core().unwrap_or_default();
        }
    };
    let fact = format!("packs: {}, actions: {}", packs.packs().count(), packs.actions().count());
    checks.push(Check::ok(NAME, fact));
    for fault in packs.faults() {
        let fix = "correct the file, then send SIGHUP to server and worker";
        checks.push(Check::fail("pack files", fault.to_string(), fix));
    }
    // Keys in the built-in pack that are meant for other systems are not the operator's mistake.
    let notes: Vec<String> = packs
        .packs()
        .filter(|pack| pack.origin != outlast_packs::Origin::BuiltIn)
        .flat_map(|pack| pack.notes().iter().map(ToString::to_string))
        .collect();
    checks.extend(notes.into_iter().map(|note| {
        Check::warn("pack keys", note, "nothing to do if it is meant for another system")
    }));
    packs
}

/// Says which environments of packs are missing or stale. Only hosts with workers need them.
pub(super) async fn environments(subject: &Subject<'_>, checks: &mut Vec<Check>) {
    const NAME: &str = "environments";
    let (findings, count) = environments::find(&subject.packs, subject.environment).await;
    if findings.is_empty() && count > 0 {
        checks.push(Check::ok(NAME, format!("{count} as their packs ask for")));
    }
    for finding in findings {
        let fix = format!("{} where workers are to run its actions", finding.fix);
        checks.push(Check::warn(NAME, finding.what, fix));
    }
}

/// Looks at the store's file and its disk if a store on this host was named; returns the
/// address of a database that was named instead.
pub(super) fn store(subject: &Subject<'_>, checks: &mut Vec<Check>) -> Option<String> {
    const NAME: &str = "local store";
    let named = subject
        .settings
        .setting("server.database")
        .is_ok_and(|setting| setting.origin != Origin::Default);
    if !named {
        let fact = "no --database on this host was named; the server reports on its own";
        checks.push(Check::skipped(NAME, fact));
        return None;
    }
    match subject.settings.get("server.database", value::database) {
        Ok(Database::Sqlite(path)) => embedded(&path, checks),
        Ok(Database::Postgres(url)) => return Some(url),
        Err(error) => checks.push(Check::skipped(NAME, error.to_string())),
    }
    None
}

fn embedded(path: &Path, checks: &mut Vec<Check>) {
    const NAME: &str = "local store";
    let parent = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = parent.unwrap_or_else(|| Path::new("."));
    if !folder.is_dir() {
        let fact = format!("folder {} does not exist", folder.display());
        return checks.push(Check::fail(NAME, fact, "make the folder, or name another store"));
    }
    checks.push(file_check(NAME, path));
    checks.extend(modes(path));
    checks.extend(whole(path));
    let shown = folder.display().to_string();
    checks.push(match probe::fsync(folder) {
        Ok(found) => Check {
            name: "local fsync",
            ..fsync_check(&shown, millis(found.median), millis(found.slowest))
        },
        Err(error) => Check::fail(
            "local fsync",
            format!("{shown} cannot be written to: {error}"),
            "run as the user that the server runs as, or make the folder writable for it",
        ),
    });
    checks.push(match probe::disk(folder) {
        Ok(disk) => {
            Check { name: "local disk", ..disk_check(&shown, bytes(disk.free), bytes(disk.total)) }
        }
        Err(error) => Check::fail("local disk", error.to_string(), "name a store on a local disk"),
    });
}

/// Whether others may read the store's files: those of an older build were made for everybody.
/// A store that is opened makes new ones for its user alone, and leaves those that are there.
fn modes(path: &Path) -> Option<Check> {
    use std::os::unix::fs::PermissionsExt as _;
    const NAME: &str = "local files";
    let file = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let mode = |path: &PathBuf| Some(std::fs::metadata(path).ok()?.permissions().mode() & 0o777);
    let files: Vec<(PathBuf, u32)> = ["", "-wal", "-shm", "-journal", ".mark", ".lock"]
        .into_iter()
        .map(file)
        .filter_map(|path| mode(&path).map(|mode| (path, mode)))
        .collect();
    let open: Vec<&(PathBuf, u32)> = files.iter().filter(|(_, mode)| mode & 0o077 != 0).collect();
    let Some((_, widest)) = open.iter().max_by_key(|(_, mode)| mode & 0o077) else {
        let sound = || Check::ok(NAME, "no other user may read the store's files");
        return (!files.is_empty()).then(sound);
    };
    let names: Vec<String> = open.iter().map(|(path, _)| path.display().to_string()).collect();
    let fact = format!("other users can read or write the parameters of jobs (mode {widest:04o})");
    Some(Check::warn(NAME, fact, format!("chmod 600 {}", names.join(" "))))
}

/// Whether the store holds what it should.
fn whole(path: &Path) -> Vec<Check> {
    const NAME: &str = "local integrity";
    let found = match outlast_store_sqlite::diagnose(path) {
        Ok(None) => return Vec::new(),
        Ok(Some(found)) => found,
        Err(error) => {
            let failure = super::super::store::unopened(&error);
            let fix = failure.hint.unwrap_or_else(|| "restore a backup".to_owned());
            return vec![Check::fail(NAME, failure.message, fix)];
        }
    };
    let restore = "stop the server and restore a backup: `outlast restore FILE`";
    let integrity = match &found.faults {
        None => Check::skipped(NAME, "the store is too large to be read in a minute"),
        Some(faults) if faults.is_empty() => {
            Check::ok(NAME, format!("the file is sound, generation {}", found.generation))
        }
        Some(faults) => Check::fail(NAME, faults.join("; "), restore),
    };
    vec![integrity, laws_check("local jobs", found.broken)]
}

/// The verdict on invariants that jobs break; `None` when they could not be counted. Also for PostgreSQL.
pub(super) fn laws_check(name: &'static str, broken: Option<Vec<(&'static str, u64)>>) -> Check {
    let Some(broken) = broken else {
        return Check::skipped(name, "there are too many to be counted in time");
    };
    if broken.is_empty() {
        return Check::ok(name, "each is in one place");
    }
    let fact: Vec<String> = broken.iter().map(|(law, count)| format!("{law}: {count}")).collect();
    let fix = "keep a copy of the store and report a bug with the server's log";
    Check::fail(name, fact.join(", "), fix)
}

/// Reads the head of the file; opening it as a store would change it.
fn file_check(name: &'static str, path: &Path) -> Check {
    use std::io::Read as _;
    let shown = path.display();
    let mut head = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(100).read_to_end(&mut head));
    match read {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Check::ok(name, format!("{shown} does not exist yet; the server makes it"))
        }
        Err(error) => {
            let fix = "run as the user that the server runs as";
            Check::fail(name, format!("{shown} cannot be read: {error}"), fix)
        }
        Ok(0) => Check::ok(name, format!("{shown} is empty; the server fills it")),
        Ok(_) if !head.starts_with(b"SQLite format 3\0") => {
            let fix = "name the store's own file with --database sqlite:PATH";
            Check::fail(name, format!("{shown} is not a SQLite database"), fix)
        }
        Ok(_) if head.get(FORMAT_VERSIONS) != Some(&[2, 2]) => {
            let fix = "the server migrates it at its start; do not open the file with other tools";
            Check::warn(name, format!("{shown} has no write-ahead log"), fix)
        }
        Ok(_) => Check::ok(name, format!("{shown} is a store with a write-ahead log")),
    }
}

/// Whether a server could listen where the settings say, or does so already.
pub(super) async fn port(subject: &Subject<'_>, checks: &mut Vec<Check>) {
    const NAME: &str = "port";
    let Ok(address) = subject.settings.get("server.listen", value::listen) else { return };
    let Ok(setting) = subject.settings.setting("server.listen") else { return };
    match TcpListener::bind(address) {
        Ok(_) => checks.push(Check::ok(NAME, format!("{address} is free for a server"))),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            // The default port may be in use: that is no fault unless it was chosen.
            let chosen = setting.origin != Origin::Default;
            let level = if chosen { Level::Fail } else { Level::Warn };
            checks.push(neighbour(NAME, address, level, &subject.settings).await);
        }
        Err(error) => {
            let fact = format!("{address} cannot be listened on: {error}");
            checks.push(Check::fail(
                NAME,
                fact,
                "choose an address of this host, a port over 1023",
            ));
        }
    }
}

/// What listens where a server here would.
async fn neighbour(
    name: &'static str,
    address: SocketAddr,
    level: Level,
    settings: &Settings,
) -> Check {
    let ours = || Check::ok(name, format!("an Outlast server listens on {address}"));
    let fix = "stop what listens there, or choose another server.listen";
    let fact = match tls_files(settings) {
        Ok(Some(files)) => match tls::shown(address, &files.cert).await {
            Shown::Configured => return ours(),
            Shown::Another { same_names, validity } => {
                let until = validity
                    .map_or_else(String::new, |it| format!(", valid until {}", it.last_day()));
                let file = files.cert.display();
                let names = if same_names { "" } else { "for other names " };
                let fact = format!(
                    "the server on {address} still uses another certificate {names}than that in \
                     {file}{until}"
                );
                let fix = "send SIGHUP to the server: it reads its certificate again";
                return Check::warn(name, fact, fix);
            }
            Shown::Foreign => format!(
                "{address} is in use by something that is not an Outlast server, with a \
                 certificate for other names than that in {}",
                files.cert.display()
            ),
            Shown::Silent => format!(
                "{address} is in use by something that did not complete a TLS handshake in 5 s"
            ),
            Shown::Nothing => {
                format!(
                    "{address} is in use by something that does not speak TLS, as our server does"
                )
            }
        },
        Ok(None) | Err(_) => {
            let client = Client::new(ClientConfig::plain(format!("http://{address}")));
            match client {
                Ok(client) if is_outlast(&client).await => return ours(),
                Ok(_) | Err(_) => {
                    format!("{address} is in use by something that is not an Outlast server")
                }
            }
        }
    };
    Check::wrong(name, level, fact, fix)
}

async fn is_outlast(neighbour: &Client) -> bool {
    let asked = tokio::time::timeout(NEIGHBOUR_MAX, neighbour.get(&["health", "live"], &[])).await;
    asked.is_ok_and(|answer| answer.is_ok_and(|answer| answer.get("uptime_seconds").is_some()))
}

/// The verdict on a disk's speed; also for the server's.
pub(super) fn fsync_check(folder: &str, median_ms: f64, slowest_ms: f64) -> Check {
    const NAME: &str = "store fsync";
    let fact = format!("{median_ms:.2} ms in {folder}, slowest {slowest_ms:.2} ms");
    let check = if median_ms > FSYNC_WARN_MS {
        let fix = "put the store on a faster local disk: every commit waits this long";
        Check::warn(NAME, fact, fix)
    } else {
        Check::ok(NAME, fact)
    };
    check.with_number(median_ms, "ms")
}

/// The verdict on a disk's room; also for the server's.
pub(super) fn disk_check(folder: &str, free: f64, total: f64) -> Check {
    const NAME: &str = "store disk";
    const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
    let percent = if total > 0.0 { free / total * 100.0 } else { 0.0 };
    let fact = format!("{:.1} GiB ({percent:.0} %) free in {folder}", free / GIB);
    let fix = "free some space, or lower retention.finished: a full store accepts no jobs";
    let check = if free < FREE_FAIL {
        Check::fail(NAME, fact, fix)
    } else if free < FREE_WARN {
        Check::warn(NAME, fact, fix)
    } else {
        Check::ok(NAME, fact)
    };
    check.with_number(free, "bytes")
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "a number for people")]
fn bytes(count: u64) -> f64 {
    count as f64
}
