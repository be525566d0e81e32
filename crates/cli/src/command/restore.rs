//! `outlast restore`: a backup into the place of a store, or the word that a store was restored.
//!
//! Time goes back for the jobs. What workers hold was given to them by a store that is no more:
//! all that the restored store knows are given up, which frees what they held then, and the
//! raised generation turns away those that it does not know.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args as ClapArgs;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::say;
use outlast_core::budget::Budgets;
use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::worker::liveness::WorkerEvent;
use outlast_store::command::WorkerMove;
use outlast_store::{Batch, BatchId, Command, Store};
use outlast_store_sqlite::Restoring;
use uuid::Uuid;

use super::server::budgets;
use super::store;
use crate::config::server::{ServerConfig, Switches};
use crate::config::value::Database;
use crate::config::{Environment, Flag, Settings};

/// Workers that one batch declares dead.
const WORKERS_A_BATCH: usize = 100;

const AFTER_HELP: &str = "\
Stop the servers first. What was in the store's place is kept beside it, under another name.
With --mark-only nothing is copied: the store is accepted as it is. Use it after PostgreSQL was
restored by its own tools, before a server starts, or to continue with what is left of a damaged
SQLite store.
Exit codes: 0 the store is restored, 3 there is no such backup, 4 the store is in use, 2 wrong usage,
1 the backup cannot be used.";

#[derive(Debug, ClapArgs)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// File written by `outlast backup` or by SQLite's .backup
    #[arg(value_name = "FILE", required_unless_present = "mark_only")]
    file: Option<PathBuf>,
    /// Store to replace, as sqlite:PATH; with --mark-only also postgres://USER@HOST/NAME
    /// [default: sqlite:outlast.db]
    #[arg(long, value_name = "DATABASE")]
    database: Option<String>,
    /// YAML file with settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Copy nothing: record that the store was restored, or accept it as it is
    #[arg(long, conflicts_with = "file")]
    mark_only: bool,
}

pub(crate) async fn run(args: Args, environment: &Environment) -> Result<Exit, Failure> {
    let flags = vec![Flag::new("server.database", "--database", args.database)];
    let settings = Settings::load(args.config.as_deref(), environment, flags)?;
    let switches = Switches { insecure: true, ..Switches::default() };
    let config = ServerConfig::new(&settings, switches)?;
    let shown = settings.setting("server.database")?.shown();
    let budgets = budgets(&config);
    let said = match (args.file, &config.database) {
        (None, database) => {
            let generation = store::accept(database).await?;
            let given_up = give_up_all(store::open(database, false).await?, budgets).await?;
            format!("{shown} is taken as it is, generation {generation}; {given_up}")
        }
        (Some(file), Database::Sqlite(path)) => {
            let restoring = store::begin_restore(&file, path)?;
            let copy = Database::Sqlite(restoring.partial().to_owned());
            let given_up = give_up_all(store::open(&copy, false).await?, budgets).await?;
            let generation = restoring.generation();
            let kept = Restoring::finish(restoring).map_err(|error| store::unopened(&error))?;
            let kept = kept.map_or_else(String::new, |kept| {
                format!("; what was there is now {}", kept.display())
            });
            let file = file.display();
            format!("{shown} is restored from {file}, generation {generation}; {given_up}{kept}")
        }
        (Some(_), Database::Postgres(_)) => {
            return Err(Failure::usage("a PostgreSQL database is restored by its own tools")
                .with_hint("then run `outlast restore --mark-only` with the same --database"));
        }
    };
    say(&format!("{said}\n"));
    Ok(Exit::Ok)
}

/// Declares every live worker in the store dead, which ends their attempts.
async fn give_up_all(store: Arc<dyn Store>, budgets: Budgets) -> Result<String, Failure> {
    let failed = |error: outlast_store::StoreError| Failure::failed(error.to_string());
    let workers = store.workers().await.map_err(failed)?;
    let alive: Vec<_> = workers
        .iter()
        .filter(|worker| worker.standing.holds_lease() && worker.plain_id.is_none())
        .map(|worker| worker.id)
        .collect();
    let server = Uuid::now_v7();
    for (n, workers) in (1_u64..).zip(alive.chunks(WORKERS_A_BATCH)) {
        let died = |worker: &outlast_core::id::WorkerId| {
            Command::Worker(WorkerMove {
                worker: *worker,
                event: WorkerEvent::Died,
                ordered: None,
                session: None,
                by: "outlast restore".into(),
                evidence: Evidence::of(
                    EvidenceCode::Restored,
                    "the store was restored: what it holds was given to it by another",
                ),
            })
        };
        let commands = workers.iter().map(died).collect();
        let batch = Batch { id: BatchId { server, n }, jitter_seed: n, budgets, commands };
        store.apply(batch.into()).await.map_err(failed)?;
    }
    store.close().await.map_err(failed)?;
    Ok(format!("workers given up: {}", alive.len()))
}
