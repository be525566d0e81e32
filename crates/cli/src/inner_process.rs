//! The inner processes of a worker, which are this same program: engine, keeper and shim.

use std::process::ExitCode;

use outlast_cli_core::exit::{Exit, Failure};
use outlast_worker::daemon::{self, DaemonConfig, Tell};
use outlast_worker::guardian::GuardianLink;
use outlast_worker::{handover, keeper, shim};

use crate::cli;
use crate::command::worker;
use crate::config::Environment;
use crate::log::{self, Verbosity};
use crate::service_manager;

/// Runs this process as a shim, a keeper or an engine if it was started as one.
pub(crate) fn run() -> Option<ExitCode> {
    let name = std::env::args_os().nth(1)?;
    if name == shim::SUBCOMMAND {
        return Some(ExitCode::from(u8::try_from(shim::main()).unwrap_or(1)));
    }
    if name == keeper::SUBCOMMAND {
        return Some(ExitCode::from(u8::try_from(keeper::main()).unwrap_or(1)));
    }
    // From here on no other process of this user can read the memory of this one.
    handover::close_to_others();
    (name == worker::ENGINE).then(engine)
}

fn engine() -> ExitCode {
    let environment = Environment::of_process();
    // What it starts are jobs, and programs that it asks for their version.
    handover::keep_from_children();
    let (format, args, parent) = match cli::engine_args(std::env::args_os().skip(2)) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    log::start(format, Verbosity::Info, &environment);
    let daemon =
        args.config(&environment).and_then(|config| worker::daemon_config(config, &environment));
    // A parent of this same program waits as long as the shutdown takes.
    let daemon =
        daemon.map(|daemon| DaemonConfig { has_patient_parent: parent.is_some(), ..daemon });
    match daemon.and_then(|daemon| run_engine(daemon, &environment)) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.message.is_empty() {
                tracing::error!("{}", failure.message);
            }
            failure.exit.into()
        }
    }
}

fn run_engine(config: DaemonConfig, environment: &Environment) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    let tell = Tell { ready: service_manager::ready, stopping: service_manager::stopping };
    let code = runtime.block_on(async {
        service_manager::keep_watchdog(environment);
        let link = GuardianLink::from_stdin()
            .map_err(|error| Failure::failed(format!("no guardian: {error}")))?;
        Ok::<i32, Failure>(daemon::run(config, link, tell).await)
    })?;
    match code {
        0 => Ok(Exit::Ok),
        // The daemon has logged the reason.
        2 => Err(Failure::usage("")),
        5 => Err(Failure::new(Exit::NotAllowed, "")),
        _ => Err(Failure::failed("")),
    }
}
