//! Memory: what an idle server and an idle worker hold resident, each started for it.

use std::path::Path;
use std::time::Duration;

use super::figures::{Figure, Unit};
use super::place;
use super::plan::Plan;
use super::stage::Stage;
use crate::exit::Failure;
use crate::output::say;

/// Time between a worker's registration and the look, for what starting up has left over.
const SETTLE: Duration = Duration::from_secs(1);

/// Figures of a server, and of the two processes that are a worker.
pub(super) async fn measure(data: Option<&Path>, plan: &Plan) -> Result<[Figure; 3], Failure> {
    let mut figures = ["memory.server", "memory.worker.engine", "memory.worker.guardian"]
        .map(|name| Figure::new(name, Unit::Mebibytes));
    for round in 1..=plan.rounds {
        let folder = place::folder(data)?;
        let stage = Stage::set(folder.path(), 1).await?;
        tokio::time::sleep(SETTLE).await;
        let found = [stage.server_kib(), stage.engine_kib(), stage.guardian_kib()];
        stage.clear().await?;
        let mib = found.map(|kib| kib as f64 / 1024.0);
        let [server, engine, guardian] = mib;
        say(&format!("memory {round}/{}: server {server:.1} MiB, ", plan.rounds));
        say(&format!("worker {engine:.1} + {guardian:.1} MiB\n"));
        for (figure, mib) in figures.iter_mut().zip(mib) {
            figure.rounds.push(mib);
        }
    }
    Ok(figures)
}
