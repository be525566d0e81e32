//! Restart: how long after a `kill -9` work continues, with default settings and real
//! processes.
//!
//! ```text
//! engine of a worker, whole worker: kill ──▶ the same job runs again (second line in its ledger)
//! server: kill, started again at once ──▶ a job enqueued as soon as possible runs;
//!         the job that was running continues and does not run twice
//! ```
//!
//! Starts of jobs are read from a file outside Outlast that the jobs append to.

use std::path::Path;
use std::time::Duration;

use outlast_cli_core::exit::Failure;
use outlast_cli_core::output::say;

use crate::figures::{Figure, Unit, ms};
use crate::fixture::{self, Fixture};
use crate::plan::Plan;

/// What is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Engine,
    Worker,
    Server,
}

impl Victim {
    const fn name(self) -> &'static str {
        match self {
            Self::Engine => "restart.engine",
            Self::Worker => "restart.worker",
            Self::Server => "restart.server",
        }
    }
}

/// Workers: one is killed, another takes over.
const FLEET: usize = 2;

/// Figures of all three.
pub(crate) async fn measure(folder: &Path, plan: &Plan) -> Result<Vec<Figure>, Failure> {
    let mut fixture = Fixture::start(folder, FLEET).await?;
    let mut figures = Vec::new();
    for victim in [Victim::Engine, Victim::Worker, Victim::Server] {
        let measured = rounds(&mut fixture, victim, plan.rounds).await;
        figures.push(fixture.explain(measured)?);
    }
    fixture.stop().await?;
    Ok(figures)
}

async fn rounds(fixture: &mut Fixture, victim: Victim, count: usize) -> Result<Figure, Failure> {
    let mut figure = Figure::new(victim.name(), Unit::Milliseconds);
    for round in 1..=count {
        fixture.await_workers().await?;
        let took = match victim {
            Victim::Engine | Victim::Worker => rerun(fixture, victim).await?,
            Victim::Server => resume(fixture).await?,
        };
        say(&format!("{} {round}/{count}: {:.0} ms\n", victim.name(), ms(took)));
        figure.rounds.push(ms(took));
        figure.lengths.push(took);
    }
    figure.note("kills", count);
    Ok(figure)
}

/// From the kill to the second start of the job that ran there.
async fn rerun(fixture: &mut Fixture, victim: Victim) -> Result<Duration, Failure> {
    let job = fixture.submit(fixture::LONG).await?;
    fixture.await_start(&job, 1).await?;
    let worker = fixture.worker_of(&job).await?;
    let killed = fixture.kill(&worker, matches!(victim, Victim::Worker))?;
    let again = fixture.await_start(&job, 2).await?;
    fixture.await_completed(&job).await?;
    Ok(again.since(killed))
}

/// From the kill of the server to the start of a job that was enqueued as soon as it was back.
async fn resume(fixture: &mut Fixture) -> Result<Duration, Failure> {
    let running = fixture.submit(fixture::SHORT).await?;
    fixture.await_start(&running, 1).await?;
    let killed = fixture.restart_server().await?;
    let next = fixture.submit_when_back().await?;
    let started = fixture.await_start(&next, 1).await?;
    fixture.await_completed(&running).await?;
    if fixture.starts(&running)? != 1 {
        return Err(Failure::failed("a job was run twice though only the server was killed"));
    }
    Ok(started.since(killed))
}
