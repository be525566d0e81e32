//! `outlast demo`: shows on this machine, with real processes and kills, that no job is lost.
//!
//! ```text
//! server + 3 workers ─▶ 300 jobs accepted ─▶ half are done ─▶ SIGTERM to one worker,
//! SIGKILL to another, a replacement ─▶ all are done ─▶ ledger against API ─▶ table
//! ```
//!
//! Each job appends its start and end to a file outside Outlast, the ledger, and flushes every line
//! to disk. Progress is read from the ledger, and the demo checks it against the API. Leases and
//! windows are the defaults, so users see the same time from the kill to the restart.

mod fixture;
mod ledger;
mod load;
mod pack;
mod progress;
mod verify;

use std::time::Duration;

use clap::Args as ClapArgs;
use outlast_cli_core::clock;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{say, span};

use crate::config::Environment;
use crate::output::print;
use crate::signals::Interrupts;

use self::fixture::Fixture;
use self::ledger::Ledger;
use self::load::Load;
use self::progress::Progress;
use self::verify::Summary;

/// Time limit of the whole demo; on two cores it needs a quarter of that.
const DEMO_MAX: Duration = Duration::from_secs(120);
/// How often the ledger is read; restarts are timed with this precision.
const LOOK_EVERY: Duration = Duration::from_millis(10);

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// How many jobs to run
    #[arg(long, value_name = "N", default_value_t = 300,
          value_parser = clap::value_parser!(u32).range(60..=5000))]
    jobs: u32,
}

pub(crate) async fn run(args: Args, _environment: &Environment) -> Result<Exit, Failure> {
    let mut interrupts = Interrupts::new()?;
    let summary = tokio::select! {
        played = play(&args) => played?,
        // Dropping the future kills the processes and removes the folder.
        () = interrupts.next() => return Err(Failure::failed("interrupted")),
    };
    print(&summary.table())?;
    if summary.faults.is_empty() {
        return Ok(Exit::Ok);
    }
    Err(Failure::failed(format!("a guarantee was broken\n{}", summary.faults.join("\n"))))
}

async fn play(args: &Args) -> Result<Summary, Failure> {
    let begun = clock::moment();
    let mut fixture = Fixture::start().await?;
    let performed = tokio::time::timeout(DEMO_MAX, perform(args, &mut fixture)).await;
    let late = || Failure::failed(format!("not done after {}", span(DEMO_MAX)));
    let performed = performed.unwrap_or_else(|_elapsed| Err(late()));
    let mut summary = fixture.explain(performed)?;
    summary.faults.extend(fixture.stop().await);
    summary.took = clock::moment().since(begun);
    Ok(summary)
}

async fn perform(args: &Args, fixture: &mut Fixture) -> Result<Summary, Failure> {
    let runtimes = fixture.runtimes().await?;
    say(&format!("server at {}, 3 workers, runtimes {}\n", fixture.url(), runtimes.join(", ")));
    let load = Load::submit(fixture.client(), &fixture.ledger_path(), &runtimes, args.jobs).await?;
    say(&format!("{} jobs accepted\n", load.accepted().len()));
    let mut ledger = Ledger::open(&fixture.ledger_path())?;
    let mut progress = Progress::new(load.accepted().len());
    let half = load.accepted().len() / 2;
    run_until(&mut ledger, &mut progress, half).await?;
    fixture.await_busy_workers().await?;
    ledger.read()?;
    progress.note("SIGTERM to demo-1, SIGKILL to demo-2, demo-4 starts");
    let killed_at = fixture.disrupt()?;
    run_until(&mut ledger, &mut progress, load.accepted().len()).await?;
    progress.finish();
    verify::verify(fixture.client(), &load, &mut ledger, killed_at).await
}

/// Follows the ledger until `wanted` jobs have ended.
async fn run_until(
    ledger: &mut Ledger,
    progress: &mut Progress,
    wanted: usize,
) -> Result<(), Failure> {
    loop {
        ledger.read()?;
        progress.set(ledger.ended());
        if ledger.ended() >= wanted {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
