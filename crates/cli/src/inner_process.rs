//! The inner processes of a worker, which are this same program: engine, spawner, shim, keeper, and
//! the reporter of an engine's death.

use std::process::ExitCode;
use std::time::Duration;

use outlast_cli_core::exit::{Exit, Failure};
use outlast_worker::daemon::{self, DaemonConfig, StageHooks};
use outlast_worker::guardian::{self, GuardianLink};
use outlast_worker::{handover, keeper, shim, signals, spawner};
use tokio::runtime::Runtime;

use crate::cli;
use crate::command::worker;
use crate::config::Environment;
use crate::log::{self, Verbosity};
use crate::service_manager;

/// Runs this process as a shim, a spawner, a keeper, an engine or a reporter if it was started as one.
pub(crate) fn run() -> Option<ExitCode> {
    let name = std::env::args_os().nth(1)?;
    if name == shim::SUBCOMMAND {
        return Some(ExitCode::from(u8::try_from(shim::main()).unwrap_or(1)));
    }
    if name == spawner::SUBCOMMAND {
        return Some(ExitCode::from(u8::try_from(spawner::main()).unwrap_or(1)));
    }
    if name == keeper::SUBCOMMAND {
        return Some(ExitCode::from(u8::try_from(keeper::main()).unwrap_or(1)));
    }
    // From here on no other process of this user can read the memory of this one.
    handover::close_to_others();
    if name == worker::REPORTER {
        return Some(with_settings(report_death));
    }
    (name == worker::ENGINE).then(|| with_settings(run_engine))
}

/// Does `work` with the settings that the guardian was started with.
fn with_settings(work: fn(DaemonConfig, &Environment) -> Result<Exit, Failure>) -> ExitCode {
    // The guardian holds them back; what reaches this process itself takes effect as ever.
    signals::deliver_stops();
    let environment = Environment::of_process();
    // What it starts are jobs, and programs that it asks for their version.
    handover::keep_from_children();
    let (format, args, parent) = match cli::engine_args(std::env::args_os().skip(2), &environment) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    log::never_wait();
    // The guardian has started with the same filter.
    if let Err(failure) = log::start(format, Verbosity::Info, parent.is_some(), &environment) {
        return failure.exit.into();
    }
    let follows = args.follows();
    let daemon =
        args.config(&environment).and_then(|config| worker::daemon_config(config, &environment));
    // A parent of this same program waits as long as the shutdown takes.
    let daemon = daemon.map(|daemon| DaemonConfig {
        has_patient_parent: parent.is_some(),
        follows,
        ..daemon
    });
    match daemon.and_then(|daemon| work(daemon, &environment)) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.message.is_empty() {
                tracing::error!("{}", failure.message);
            }
            failure.exit.into()
        }
    }
}

fn runtime() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::failed(format!("cannot start: {error}")))
}

fn report_death(config: DaemonConfig, _environment: &Environment) -> Result<Exit, Failure> {
    let DaemonConfig { server, token, tls, .. } = config;
    runtime()?.block_on(guardian::report_to(&server, token, &tls)).map_err(Failure::failed)?;
    Ok(Exit::Ok)
}

/// How long threads have to end once the worker has drained.
const THREADS_MAX: Duration = Duration::from_secs(1);

fn run_engine(config: DaemonConfig, environment: &Environment) -> Result<Exit, Failure> {
    let runtime = runtime()?;
    let hooks = StageHooks {
        ready: service_manager::ready,
        stopping: service_manager::stopping,
        alive: service_manager::alive,
        alive_every: service_manager::watchdog_interval(environment).map(|interval| interval / 2),
    };
    let code = runtime.block_on(async {
        let (link, announcer) = GuardianLink::from_stdin()
            .map_err(|error| Failure::failed(format!("no guardian: {error}")))?;
        Ok::<i32, Failure>(Box::pin(daemon::run(config, link, announcer, hooks)).await)
    });
    // A look-up of a name or a file that hangs on its thread must not hold the worker up.
    runtime.shutdown_timeout(THREADS_MAX);
    match code? {
        0 => Ok(Exit::Ok),
        // The daemon has logged the reason.
        2 => Err(Failure::usage("")),
        5 => Err(Failure::new(Exit::NotAllowed, "")),
        _ => Err(Failure::failed("")),
    }
}
