//! Memory: what an idle server and an idle worker hold resident, each started for it.

use std::path::Path;
use std::time::Duration;

use outlast_cli_core::exit::Failure;
use outlast_cli_core::output::say;

use crate::figures::{Figure, Unit};
use crate::fixture::Fixture;
use crate::plan::Plan;
use crate::server;

/// Time between a worker's registration and the look, for what starting up has left over.
const SETTLE: Duration = Duration::from_secs(1);

/// Figures of a server, and of the two processes that are a worker.
pub(crate) async fn measure(data: Option<&Path>, plan: &Plan) -> Result<[Figure; 3], Failure> {
    let mut figures = ["memory.server", "memory.worker.engine", "memory.worker.guardian"]
        .map(|name| Figure::new(name, Unit::Mebibytes));
    for round in 1..=plan.rounds {
        let folder = server::temporary_folder(data)?;
        let fixture = Fixture::start(folder.path(), 1).await?;
        tokio::time::sleep(SETTLE).await;
        let found = [fixture.server_kib(), fixture.engine_kib(), fixture.guardian_kib()];
        fixture.stop().await?;
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
