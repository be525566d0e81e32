//! Restart: how long after a `kill -9` the work goes on, with default settings and real
//! processes.
//!
//! ```text
//! engine of a worker, whole worker: kill ──▶ the same job runs again (second line in its ledger)
//! server: kill, started again at once ──▶ a job enqueued as soon as possible runs;
//!         the job that was running goes on and is not run twice
//! ```
//!
//! When a job runs is read from a file that the jobs write and no part of Outlast knows.

use std::path::Path;
use std::time::Duration;

use super::figures::{Figure, Unit, ms};
use super::plan::Plan;
use super::stage::{self, Stage};
use crate::exit::Failure;
use crate::output::say;

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
pub(super) async fn measure(folder: &Path, plan: &Plan) -> Result<Vec<Figure>, Failure> {
    let mut stage = Stage::set(folder, FLEET).await?;
    let mut figures = Vec::new();
    for victim in [Victim::Engine, Victim::Worker, Victim::Server] {
        let measured = rounds(&mut stage, victim, plan.rounds).await;
        figures.push(stage.explain(measured)?);
    }
    stage.clear().await?;
    Ok(figures)
}

async fn rounds(stage: &mut Stage, victim: Victim, count: usize) -> Result<Figure, Failure> {
    let mut figure = Figure::new(victim.name(), Unit::Milliseconds);
    for round in 1..=count {
        stage.await_workers().await?;
        let took = match victim {
            Victim::Engine | Victim::Worker => rerun(stage, victim).await?,
            Victim::Server => resume(stage).await?,
        };
        say(&format!("{} {round}/{count}: {:.0} ms\n", victim.name(), ms(took)));
        figure.rounds.push(ms(took));
        figure.lengths.push(took);
    }
    figure.note("kills", count);
    Ok(figure)
}

/// From the kill to the second start of the job that ran there.
async fn rerun(stage: &mut Stage, victim: Victim) -> Result<Duration, Failure> {
    let job = stage.submit(stage::LONG).await?;
    stage.await_start(&job, 1).await?;
    let holder = stage.holder(&job).await?;
    let killed = stage.kill(&holder, matches!(victim, Victim::Worker))?;
    let again = stage.await_start(&job, 2).await?;
    stage.await_completed(&job).await?;
    Ok(again.since(killed))
}

/// From the kill of the server to the start of a job that was enqueued as soon as it was back.
async fn resume(stage: &mut Stage) -> Result<Duration, Failure> {
    let running = stage.submit(stage::SHORT).await?;
    stage.await_start(&running, 1).await?;
    let killed = stage.restart_server().await?;
    let next = stage.submit_when_back().await?;
    let started = stage.await_start(&next, 1).await?;
    stage.await_completed(&running).await?;
    if stage.starts(&running)? != 1 {
        return Err(Failure::failed("a job was run twice though only the server was killed"));
    }
    Ok(started.since(killed))
}
