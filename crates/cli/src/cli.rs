//! The command line: from arguments to a command to an exit code.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::builder::{NonEmptyStringValueParser, ValueParser};
use clap::{CommandFactory, FromArgMatches as _, Parser, Subcommand};
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::use_colour;
use outlast_cli_core::process;
use outlast_worker::{guardian, handover, signals};

use crate::command::{
    actions, backup, bench, completions, config as show_config, cron, dead_letters, demo, dev,
    doctor, events, export, health, import, jobs, limits, man, migrate, operations, packs, queues,
    restore, run, server, sessions, token, worker, workers, workflows,
};
use crate::config::Environment;
use crate::last_job;
use crate::log::{self, LogFormat, Verbosity};
use crate::secrecy;

/// A job platform whose work outlives its workers.
#[derive(Debug, Parser)]
#[command(name = "outlast", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    /// Format of log lines on stderr, text or json; OUTLAST_LOG filters them
    #[arg(long, global = true, value_enum, hide_possible_values = true, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// End when the process with this id ends
    #[arg(long, global = true, hide = true, value_name = "PID")]
    parent: Option<i32>,
    #[command(subcommand)]
    command: Command,
}

pub(crate) const AFTER_HELP: &str = "\
Exit codes: 0 ok, 1 the operation or job failed, 2 usage, 3 not found, 4 conflict, 5 not allowed,
6 server unreachable or unable to serve now, 124 wait timed out.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a server and one worker on an embedded store
    Dev(dev::Args),
    /// Show that no job is lost: a load, a drain and a kill -9, checked against an external ledger
    Demo(demo::Args),
    /// Measure a server, or a temporary one, next to the baselines of this machine
    Bench(bench::Args),
    /// Start a server
    Server(server::Args),
    /// Start a worker
    Worker(worker::Args),
    /// Enqueue a job; follow it with --wait
    Run(run::Args),
    /// List, show, cancel and retry jobs; read their output
    #[command(subcommand)]
    Jobs(jobs::Command),
    /// List, show and stop operations: changes of all jobs that match
    #[command(subcommand)]
    Operations(operations::Command),
    /// List, pause, resume and set queues
    #[command(subcommand)]
    Queues(queues::Command),
    /// Limit how many jobs run at a time or start in a period
    #[command(subcommand)]
    Limits(limits::Command),
    /// Run jobs by the clock: add, list, pause and trigger schedules
    #[command(subcommand)]
    Cron(cron::Command),
    /// Run jobs that follow jobs: start, list, show, cancel and retry workflows
    #[command(subcommand)]
    Workflows(workflows::Command),
    /// List, drain, quiet and resume workers
    #[command(subcommand)]
    Workers(workers::Command),
    /// List browsers that are signed in to the dashboard, and end their sessions
    #[command(subcommand)]
    Sessions(sessions::Command),
    /// List, retry and remove jobs that used up a budget
    #[command(subcommand, name = "dead-letters")]
    DeadLetters(dead_letters::Command),
    /// List and show the actions that a server can run
    #[command(subcommand)]
    Actions(actions::Command),
    /// Show and follow the history of jobs and workers
    Events(events::Args),
    /// List packs; check them before they are used; install what they import
    #[command(subcommand)]
    Packs(packs::Command),
    /// Check configuration, server, store, clocks, limits and packs
    Doctor(doctor::Args),
    /// Check by exit code whether a server is ready or a worker takes jobs
    Health(health::Args),
    /// Apply the store's migrations
    Migrate(migrate::Args),
    /// Back up a store to a file while servers use it
    Backup(backup::Args),
    /// Replace a store with a backup, or record that a store was restored
    Restore(restore::Args),
    /// Export a whole store to a folder
    Export(export::Args),
    /// Import an export into an empty store of either kind
    Import(import::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Print the manual page, or write one per command to a folder
    Man(man::Args),
    /// Show the configuration
    #[command(subcommand)]
    Config(show_config::Command),
    /// Create a bearer token, or the hash that a server is configured with
    #[command(subcommand)]
    Token(token::Command),
}

impl Command {
    /// Commands that serve log information; client commands log only warnings.
    fn verbosity(&self) -> Verbosity {
        match self {
            Self::Server(_) | Self::Worker(_) | Self::Migrate(_) => Verbosity::Info,
            Self::Dev(_)
            | Self::Demo(_)
            | Self::Bench(_)
            | Self::Run(_)
            | Self::Jobs(_)
            | Self::Operations(_)
            | Self::Queues(_)
            | Self::Limits(_)
            | Self::Sessions(_)
            | Self::Cron(_)
            | Self::Workflows(_)
            | Self::Workers(_)
            | Self::DeadLetters(_)
            | Self::Packs(_)
            | Self::Actions(_)
            | Self::Events(_)
            | Self::Doctor(_)
            | Self::Health(_)
            | Self::Backup(_)
            | Self::Restore(_)
            | Self::Export(_)
            | Self::Import(_)
            | Self::Completions(_)
            | Self::Man(_)
            | Self::Config(_)
            | Self::Token(_) => Verbosity::Warnings,
        }
    }

    /// Whether it runs next to jobs, which must not be able to read its arguments.
    const fn is_watched(&self) -> bool {
        matches!(self, Self::Dev(_) | Self::Server(_) | Self::Worker(_))
    }

    /// The file with its settings, if it reads one and was given it.
    fn config_file(&self) -> Option<&Path> {
        if let Self::Dev(args) = self {
            return args.config_file();
        }
        if let Self::Server(args) = self {
            return args.config_file();
        }
        let Self::Worker(args) = self else { return None };
        args.config_file()
    }

    fn run(self, environment: &Environment, log_format: LogFormat) -> Result<Exit, Failure> {
        match self {
            Self::Dev(args) => wait_for(dev::run(args, log_format, environment)),
            Self::Demo(args) => wait_for(demo::run(args, environment)),
            Self::Bench(args) => wait_for(bench::run(args, environment)),
            Self::Server(args) => server::run(args, environment),
            Self::Worker(args) => worker::run(args, environment),
            Self::Run(args) => wait_for(run::run(args, environment)),
            Self::Jobs(command) => wait_for(jobs::run(command, environment)),
            Self::Operations(command) => wait_for(operations::run(command, environment)),
            Self::Queues(command) => wait_for(queues::run(command, environment)),
            Self::Limits(command) => wait_for(limits::run(command, environment)),
            Self::Sessions(command) => wait_for(sessions::run(command, environment)),
            Self::Cron(command) => wait_for(cron::run(command, environment)),
            Self::Workflows(command) => wait_for(workflows::run(command, environment)),
            Self::Workers(command) => wait_for(workers::run(command, environment)),
            Self::DeadLetters(command) => wait_for(dead_letters::run(command, environment)),
            Self::Actions(command) => wait_for(actions::run(command, environment)),
            Self::Events(args) => wait_for(events::run(args, environment)),
            Self::Packs(command) => wait_for(packs::run(command, environment)),
            Self::Doctor(args) => wait_for(doctor::run(args, environment)),
            Self::Health(args) => wait_for(health::run(args, environment)),
            Self::Completions(args) => completions::run(&args),
            Self::Man(args) => man::run(&args, tree()),
            Self::Migrate(args) => wait_for(migrate::run(args, environment)),
            Self::Backup(args) => backup::run(&args, environment),
            Self::Restore(args) => wait_for(restore::run(args, environment)),
            Self::Export(args) => wait_for(export::run(args, environment)),
            Self::Import(args) => wait_for(import::run(args, environment)),
            Self::Config(command) => show_config::run(command, environment),
            Self::Token(command) => token::run(command),
        }
    }
}

/// The whole command line, for help, manual pages and completion scripts.
pub(crate) fn tree() -> clap::Command {
    with_plain_refusals(Cli::command())
}

/// A name that is empty is refused here, and not by a server that looks for it. A number that is
/// negative is refused for what it is, and not taken for a flag.
fn with_plain_refusals(command: clap::Command) -> clap::Command {
    let any_text = ValueParser::string().type_id();
    let adjusted = command.mut_args(|arg| {
        let is_text = arg.get_value_parser().type_id() == any_text;
        if !arg.is_positional() {
            let takes_values = arg.get_action().takes_values();
            return if takes_values { arg.allow_negative_numbers(true) } else { arg };
        }
        let is_free = is_text && arg.get_possible_values().is_empty();
        if is_free { arg.value_parser(NonEmptyStringValueParser::new()) } else { arg }
    });
    adjusted.mut_subcommands(with_plain_refusals)
}

/// Reads the arguments of this program.
fn parse(args: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut tree = tree();
    let matches = tree.try_get_matches_from_mut(args)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut tree))
}

/// The flags of server and worker that set a key.
#[cfg(test)]
pub(crate) fn flags() -> Vec<crate::config::Flag> {
    let parsed = |role| Cli::try_parse_from(["outlast", role]).map(|cli| cli.command);
    let (server, worker) = (parsed("server"), parsed("worker"));
    let (Ok(Command::Server(server)), Ok(Command::Worker(worker))) = (server, worker) else {
        return Vec::new();
    };
    [server.flags(), worker.flags()].concat()
}

/// Runs the program; returns its exit code.
pub(crate) fn run() -> ExitCode {
    let environment = Environment::of_process();
    let cli = match parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    if cli.command.is_watched() {
        secrecy::start_again_if_seen(&environment);
        if matches!(cli.command, Command::Worker(_)) {
            // Before any thread is started.
            match guardian::stay_in_front() {
                Ok(None) => {}
                Ok(Some(code)) => return ExitCode::from(u8::try_from(code).unwrap_or(1)),
                Err(error) => return cannot_start(&error),
            }
        }
        log::never_wait();
    } else {
        // Such a command may end at any point, as its user is used to.
        signals::deliver_stops();
    }
    if matches!(cli.command, Command::Server(_)) {
        handover::keep_from_children();
    }
    use_colour(!environment.no_color());
    last_job::keep_below(&environment);
    let verbosity = cli.command.verbosity();
    let outcome = log_format(&cli, &environment).and_then(|format| {
        log::start(format, verbosity, cli.parent.is_some(), &environment)?;
        cli.parent.map_or(Ok(()), process::end_with)?;
        cli.command.run(&environment, format)
    });
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.message.is_empty() {
                log::say(&failure);
            }
            failure.exit.into()
        }
    }
}

fn cannot_start(error: &std::io::Error) -> ExitCode {
    log::say(Failure::failed(format!("cannot start the worker: {error}")));
    Exit::Failed.into()
}

/// How log lines are written: as the flag says, or else the settings.
fn log_format(cli: &Cli, environment: &Environment) -> Result<LogFormat, Failure> {
    match cli.log_format {
        Some(format) => Ok(format),
        None if cli.command.is_watched() => {
            Ok(log::format_of_daemon(cli.command.config_file(), environment))
        }
        None => Ok(log::format_of_client(environment)?),
    }
}

/// The arguments of a worker's engine: those of its guardian, and the id of the parent process of
/// this program that waits for it, if there is one.
pub(crate) fn engine_args(
    args: impl Iterator<Item = OsString>,
    environment: &Environment,
) -> Result<(LogFormat, worker::Args, Option<i32>), ExitCode> {
    let args = std::iter::once(OsString::from("outlast")).chain(args);
    let cli = parse(args).map_err(|error| refused(&error))?;
    let format = log_format(&cli, environment).map_err(|failure| ExitCode::from(failure.exit))?;
    match cli.command {
        Command::Worker(args) => Ok((format, args, cli.parent)),
        Command::Dev(_)
        | Command::Demo(_)
        | Command::Bench(_)
        | Command::Server(_)
        | Command::Run(_)
        | Command::Jobs(_)
        | Command::Operations(_)
        | Command::Queues(_)
        | Command::Limits(_)
        | Command::Sessions(_)
        | Command::Cron(_)
        | Command::Workflows(_)
        | Command::Workers(_)
        | Command::DeadLetters(_)
        | Command::Packs(_)
        | Command::Actions(_)
        | Command::Events(_)
        | Command::Doctor(_)
        | Command::Health(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Migrate(_)
        | Command::Backup(_)
        | Command::Restore(_)
        | Command::Export(_)
        | Command::Import(_)
        | Command::Config(_)
        | Command::Token(_) => Err(Exit::Usage.into()),
    }
}

/// Help and version end with 0; everything else that clap refuses is wrong usage.
fn refused(error: &clap::Error) -> ExitCode {
    error.print().unwrap_or_default();
    if error.use_stderr() { Exit::Usage.into() } else { Exit::Ok.into() }
}

/// Runs an async command on this thread alone: client commands are short, and children must be
/// started by a thread that lives as long as the process.
fn wait_for<F>(command: F) -> Result<Exit, Failure>
where
    F: Future<Output = Result<Exit, Failure>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    let ended = runtime.block_on(command);
    // A look-up of a name that goes on is of no use any more.
    runtime.shutdown_background();
    ended
}
