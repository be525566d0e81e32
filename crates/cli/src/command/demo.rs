//! `outlast demo`: proof on this machine, with real processes and real kills.
//!
//! ```text
//! server + 3 workers ─▶ 300 jobs accepted ─▶ half are done ─▶ SIGTERM to one worker,
//! SIGKILL to another, a replacement ─▶ all are done ─▶ ledger against API ─▶ table
//! ```
//!
//! The jobs write down themselves when they start and end, each line flushed to the disk, in a
//! file that no part of Outlast reads or writes: the ledger. Progress and verdict come from
//! there and are compared with what the API says. Leases and windows are the defaults, so the
//! time from the kill to the new start is the one that users get.

mod judge;
mod ledger;
mod load;
mod pack;
mod progress;
mod stage;

use std::time::Duration;

use clap::Args as ClapArgs;

use crate::clock;
use crate::config::Environment;
use crate::exit::{Exit, Failure};
use crate::output::{print, say, span};
use crate::signals::Interrupts;

use self::judge::Verdict;
use self::ledger::Ledger;
use self::load::Load;
use self::progress::Progress;
use self::stage::Stage;

/// How long the whole may take; it needs a quarter of that on two cores.
const DEMO_MAX: Duration = Duration::from_secs(120);
/// How often the ledger is looked at; new starts are timed to this precision.
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
    let verdict = tokio::select! {
        played = play(&args) => played?,
        // Dropping the play kills its processes and removes its folder.
        () = interrupts.next() => return Err(Failure::failed("stopped before the end")),
    };
    print(&verdict.table())?;
    if verdict.faults.is_empty() {
        return Ok(Exit::Ok);
    }
    Err(Failure::failed(format!("the promise was broken\n{}", verdict.faults.join("\n"))))
}

async fn play(args: &Args) -> Result<Verdict, Failure> {
    let begun = clock::moment();
    let mut stage = Stage::set().await?;
    let performed = tokio::time::timeout(DEMO_MAX, perform(args, &mut stage)).await;
    let late = || Failure::failed(format!("not done after {}", span(DEMO_MAX)));
    let performed = performed.unwrap_or_else(|_elapsed| Err(late()));
    let mut verdict = stage.explain(performed)?;
    stage.clear(&mut verdict).await;
    verdict.took = clock::moment().since(begun);
    Ok(verdict)
}

async fn perform(args: &Args, stage: &mut Stage) -> Result<Verdict, Failure> {
    let runtimes = stage.runtimes().await?;
    say(&format!("server at {}, 3 workers, runtimes {}\n", stage.url(), runtimes.join(", ")));
    let load = Load::submit(stage.client(), &stage.ledger_path(), &runtimes, args.jobs).await?;
    say(&format!("{} jobs accepted\n", load.accepted().len()));
    let mut ledger = Ledger::open(&stage.ledger_path())?;
    let mut progress = Progress::new(load.accepted().len());
    let half = load.accepted().len() / 2;
    run_until(&mut ledger, &mut progress, half).await?;
    stage.await_busy_victims().await?;
    ledger.read()?;
    progress.note("SIGTERM to demo-1, SIGKILL to demo-2, demo-4 starts");
    let killed_at = stage.strike()?;
    run_until(&mut ledger, &mut progress, load.accepted().len()).await?;
    progress.finish();
    judge::judge(stage.client(), &load, &mut ledger, killed_at).await
}

/// Follows the ledger until so many different jobs have come to their end.
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
