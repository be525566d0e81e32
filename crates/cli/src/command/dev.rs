//! `outlast dev`: a server and one worker, both as children, on a store in a folder.
//!
//! ```text
//! start: server ──announces its address──▶ worker
//! a child ends ──▶ it is restarted, after a pause that grows
//! Ctrl-C: worker drains ──ended──▶ server stops ──ended──▶ exit; again: the worker is forced
//! SIGHUP: server and worker read their packs again; if the terminal was closed: as Ctrl-C
//! ```
//!
//! The store is in `.outlast` in the current folder unless `--data` says otherwise: jobs belong
//! to the project, and removing the folder removes them.

mod supervise;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args as ClapArgs;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::say;
use outlast_cli_core::process::{Child, Echo};
use outlast_server::access::{Access, Credentials, Scope};
use rustix::process::Signal;

use self::supervise::Supervised;
use crate::config::server::{ServerConfig, Switches};
use crate::config::worker::WorkerConfig;
use crate::config::{ConfigError, Environment, Flag, Settings, client};
use crate::log::LogFormat;
use crate::signals::{Hangups, Interrupts};

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Folder of the store
    #[arg(long, value_name = "DIR", default_value = ".outlast")]
    data: PathBuf,
    /// Folder with packs; may be given several times
    #[arg(long, value_name = "DIR")]
    packs: Vec<PathBuf>,
    /// Jobs to run at the same time [default: 10]
    #[arg(long, value_name = "N")]
    concurrency: Option<String>,
    /// YAML file with settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Args {
    /// The file with settings that was named.
    pub(crate) fn config_file(&self) -> Option<&Path> {
        self.config.as_deref()
    }
}

pub(crate) async fn run(
    args: Args,
    log_format: LogFormat,
    environment: &Environment,
) -> Result<Exit, Failure> {
    check(&args, environment)?;
    let url_of_clients = client::load(Vec::new(), environment).map(|client| client.server);
    make_folder(&args.data)?;
    let mut interrupts = Interrupts::new()?;
    let hangups = Hangups::new()?;
    outlast_worker::signals::deliver_stops();
    // If OUTLAST_LOG is set, all log lines are shown.
    let echo = if environment.log_filter().is_some() { Echo::Stderr } else { Echo::Warnings };
    let started = server_args(&args, args.listen.as_deref(), log_format);
    let mut server = Supervised::start("server", started, echo.clone())?;
    let url = tokio::select! {
        url = server.child().address() => url,
        () = interrupts.next() => return Ok(Exit::Ok),
    };
    let Some(url) = url else { return Err(not_started(&server).await) };
    // Keep the port that the system chose: the worker and its user know it.
    server.start_later_with(server_args(&args, url.split("://").nth(1), log_format));
    let worker = Supervised::start("worker", worker_args(&args, &url, log_format), echo)?;
    say(&format!("\n  Outlast is at {url}, its store in {}\n", args.data.display()));
    say(&format!(
        "  try: outlast run core.echo -p message=hi --wait{}\n",
        target(&url, url_of_clients)
    ));
    say("  Ctrl-C stops the worker, then the server; OUTLAST_LOG=info shows what they do\n\n");
    watch(server, worker, &mut interrupts, hangups).await
}

/// The flag that a command needs to ask this server, if it would ask another one without.
fn target(url: &str, asked: Result<String, ConfigError>) -> String {
    match asked {
        Ok(asked) if asked == url => String::new(),
        Ok(_) | Err(_) => format!(" --server {url}"),
    }
}

/// Refuses an address that something else listens on.
fn refuse_taken(address: SocketAddr) -> Result<(), Failure> {
    match TcpListener::bind(address) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let message = format!("cannot listen on {address}: something else does");
            let hint = "another `outlast dev`? `outlast jobs list` asks the server there; \
                        `outlast dev --listen 127.0.0.1:0` takes a free port";
            Err(Failure::failed(message).with_hint(hint))
        }
        // What else may be wrong, the server says.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Refuses what the children would refuse, before they are started.
fn check(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let flags = vec![
        Flag::new("server.listen", "--listen", args.listen.clone()),
        Flag::new("worker.concurrency", "--concurrency", args.concurrency.clone()),
    ];
    let settings = Settings::load(args.config.as_deref(), environment, flags)?;
    let server = ServerConfig::new(&settings, Switches::default())?;
    refuse_taken(server.listen)?;
    let worker = WorkerConfig::new(&settings)?;
    let shown = worker.token.map(|token| format!("Bearer {token}"));
    let access = Access::new(server.tokens, server.certificate_roles);
    if shown.is_none() && server.tls.is_some() {
        // A client certificate may replace the token: the server decides.
        return Ok(());
    }
    let shown = Credentials { authorization: shown.as_deref(), ..Credentials::default() };
    let allowed = access.check(shown, Scope::Work, format_args!("a worker's session"));
    match allowed {
        Ok(_) => Ok(()),
        Err(denied) => Err(Failure::usage(format!("the server would refuse the worker: {denied}"))
            .with_hint(
                "with `server.tokens`, set OUTLAST_TOKEN or `worker.token` to one for workers",
            )),
    }
}

fn make_folder(folder: &Path) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| {
        let folder = folder.display();
        Failure::failed(format!("data folder {folder} cannot be created: {error}"))
            .with_hint("name a writable folder with --data")
    };
    let is_new = !folder.exists();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(cannot)?;
    if is_new {
        // The store does not belong in a repository.
        std::fs::write(folder.join(".gitignore"), "*\n").map_err(cannot)?;
    }
    Ok(())
}

fn server_args(args: &Args, listen: Option<&str>, log_format: LogFormat) -> Vec<OsString> {
    let mut database = OsString::from("sqlite:");
    database.push(args.data.join("outlast.db"));
    let mut list = vec!["server".into(), "--database".into(), database];
    if let Some(listen) = listen {
        list.extend(["--listen".into(), listen.into()]);
    }
    list.extend(shared_args(args, log_format));
    list
}

fn worker_args(args: &Args, url: &str, log_format: LogFormat) -> Vec<OsString> {
    let mut list: Vec<OsString> = vec!["worker".into(), "--server".into(), url.into()];
    if let Some(concurrency) = &args.concurrency {
        list.extend(["--concurrency".into(), concurrency.into()]);
    }
    list.extend(shared_args(args, log_format));
    list
}

fn shared_args(args: &Args, log_format: LogFormat) -> Vec<OsString> {
    let format = ["--log-format".into(), log_format.name().into()];
    let packs = args.packs.iter().flat_map(|folder| ["--packs".into(), folder.into()]);
    let config = args.config.iter().flat_map(|file| ["--config".into(), file.into()]);
    format.into_iter().chain(packs).chain(config).collect()
}

/// The server has printed the reason; only its exit code is passed on. Its output ends a moment
/// before the process does.
async fn not_started(server: &Supervised) -> Failure {
    let ended = server.child().ended_within(Duration::from_secs(1)).await;
    match ended.and_then(|status| status.code()) {
        Some(2) => Failure::usage("the server did not start"),
        Some(_) => Failure::failed("the server did not start"),
        None => Failure::failed("the server did not announce its address in time"),
    }
}

async fn watch(
    mut server: Supervised,
    mut worker: Supervised,
    interrupts: &mut Interrupts,
    mut hangups: Hangups,
) -> Result<Exit, Failure> {
    loop {
        tokio::select! {
            () = interrupts.next() => break,
            () = hangups.next() => {
                if hangups.is_terminal_closed() {
                    break;
                }
                server.child().signal(Signal::HUP);
                worker.child().signal(Signal::HUP);
            }
            () = server.due() => server.start_again()?,
            () = worker.due() => worker.start_again()?,
        }
    }
    stop(worker.child(), interrupts).await;
    stop(server.child(), interrupts).await;
    Ok(Exit::Ok)
}

/// Asks a child to stop and waits. A second Ctrl-C asks again, which forces it; a third one kills
/// it.
async fn stop(child: &Child, interrupts: &mut Interrupts) {
    tracing::info!("stopping {}", child.name());
    child.signal(Signal::TERM);
    let mut asked = 1;
    loop {
        tokio::select! {
            _ = child.ended() => return,
            () = interrupts.next() => {
                asked += 1;
                if asked > 2 { child.kill_with_children() } else { child.signal(Signal::TERM) }
            }
        }
    }
}
