//! `outlast bench`: the command line of the benchmarks in `outlast_bench`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use outlast_bench::{Fill, Measurement, Plan, Suite, table};
use outlast_cli_core::client::ClientConfig;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::without_passwords;

use super::{TrustArgs, server_flags};
use crate::config::token::TokenFlags;
use crate::config::{Environment, client};
use crate::output::{Format, print_one};
use crate::signals::Interrupts;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum What {
    /// Everything
    All,
    /// Resident memory of an idle server and an idle worker
    Memory,
    /// Jobs per second over HTTP, one per request
    Enqueue,
    /// Jobs per second over HTTP, many per request
    Bulk,
    /// No-op jobs per second through a worker of the SDK with default settings
    Drain,
    /// Drain after a kill -9 and a restart of the server; not part of all
    DrainRestarted,
    /// Drain of jobs that were enqueued at another server on the same database; not part of all
    DrainAcross,
    /// From an enqueue to the start of its handler, on an idle system
    Latency,
    /// Enqueue and drain of jobs with keys, limits, shares and unique keys, compared with others
    Limits,
    /// No-op jobs per second as steps of chains and items of groups, compared with jobs of no
    /// workflow
    Workflows,
    /// From a kill -9 of an engine, a worker or a server until work continues
    Restart,
}

impl What {
    const fn measurement(self) -> Option<Measurement> {
        match self {
            Self::All => None,
            Self::Memory => Some(Measurement::Memory),
            Self::Enqueue => Some(Measurement::Enqueue),
            Self::Bulk => Some(Measurement::Bulk),
            Self::Drain => Some(Measurement::Drain),
            Self::DrainRestarted => Some(Measurement::DrainRestarted),
            Self::DrainAcross => Some(Measurement::DrainAcross),
            Self::Latency => Some(Measurement::Latency),
            Self::Limits => Some(Measurement::Limits),
            Self::Workflows => Some(Measurement::Workflows),
            Self::Restart => Some(Measurement::Restart),
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// What to measure [default: all]
    #[arg(value_enum, value_name = "WHAT")]
    what: Vec<What>,
    /// Server to measure [default: OUTLAST_SERVER or OJS_URL, else a temporary one]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    #[command(flatten)]
    token: TokenFlags,
    #[command(flatten)]
    trust: TrustArgs,
    /// Measure a temporary server, even if the environment names one
    #[arg(long, conflicts_with = "server")]
    embedded: bool,
    /// PostgreSQL for the stores of temporary servers: for each a database is created next to the
    /// one named here, and dropped afterwards
    #[arg(long, value_name = "URL", conflicts_with = "server")]
    database: Option<String>,
    /// Folder for the temporary store [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Rounds of each measurement
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Jobs per round [default: enqueue 50000, bulk 100000, drain 100000, drain-restarted and
    /// drain-across 200000, latency 1000, limits and workflows 20000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    jobs: Option<u32>,
    /// Seconds per round of enqueue and bulk, instead of a number of jobs
    #[arg(long, value_name = "N", conflicts_with = "jobs", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Concurrent producers, a connection each [default: enqueue 16, bulk 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    producers: Option<u16>,
    /// Jobs per request of bulk
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    batch: u16,
    /// Measure again with this many jobs waiting in the same queue
    #[arg(long, value_name = "N", default_value_t = 0)]
    waiting: u32,
    /// Measure again with this many jobs in the same queue that no connected worker can run
    #[arg(long, value_name = "N", default_value_t = 0)]
    unserved: u32,
    /// Measure again with this many finished jobs
    #[arg(long, value_name = "N", default_value_t = 0)]
    finished: u32,
    /// Seconds for which each baseline of the machine is measured
    #[arg(long, value_name = "N", default_value = "1", value_parser = seconds)]
    ceiling_seconds: Duration,
    /// Output format: table, json or jsonl
    #[arg(short, long, value_enum, default_value_t = Format::Table, hide_possible_values = true,
          value_name = "FORMAT")]
    output: Format,
}

fn is_postgres(database: &str) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| database.starts_with(scheme))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "not a number of seconds above 0, such as 5 or 0.5".to_owned();
    let number: f64 = text.parse().map_err(|_parse| wrong())?;
    let length = Duration::try_from_secs_f64(number).map_err(|_range| wrong())?;
    if length.is_zero() { Err(wrong()) } else { Ok(length) }
}

impl Args {
    fn plan(&self) -> Plan {
        // What is more than fits here was refused above.
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Plan {
            rounds: usize::from(self.rounds),
            jobs: self.jobs.map(count),
            time: self.seconds,
            producers: self.producers.map(usize::from),
            batch: usize::from(self.batch),
            baseline_time: self.ceiling_seconds,
        }
    }

    fn fill(&self) -> Fill {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Fill {
            waiting: count(self.waiting),
            unserved: count(self.unserved),
            finished: count(self.finished),
        }
    }

    /// What to measure. A server that was named is neither started nor killed.
    fn wanted(&self, is_named: bool) -> Result<BTreeSet<Measurement>, Failure> {
        let mut wanted: BTreeSet<_> = self.what.iter().filter_map(|it| it.measurement()).collect();
        if self.what.is_empty() || self.what.contains(&What::All) {
            let all = Measurement::DEFAULT.into_iter();
            wanted.extend(all.filter(|what| !is_named || what.runs_on_any_server()));
        }
        if wanted.contains(&Measurement::DrainAcross) && self.database.is_none() {
            return Err(Failure::usage("drain-across is measured on two servers of one database")
                .with_hint("name it with --database postgres://…"));
        }
        let of_named = |what: &Measurement| {
            what.runs_on_any_server() || (what.needs_own_server() && self.database.is_some())
        };
        if is_named && !wanted.iter().all(of_named) {
            let what = "memory, restart, limits, workflows and drain-restarted start servers of their \
                        own, the first two with the embedded store";
            return Err(Failure::usage(what)
                .with_hint("add --embedded, or leave --server and --database out"));
        }
        Ok(wanted)
    }

    /// The server that was named, if any.
    fn named(&self, environment: &Environment) -> Result<Option<ClientConfig>, Failure> {
        let around =
            ["OUTLAST_SERVER", "OJS_URL"].iter().any(|name| environment.get(name).is_some());
        if self.embedded || self.database.is_some() || (self.server.is_none() && !around) {
            return Ok(None);
        }
        Ok(Some(client::load(
            server_flags(self.server.clone(), self.token.clone(), &self.trust),
            environment,
        )?))
    }
}

pub(crate) async fn run(args: Args, environment: &Environment) -> Result<Exit, Failure> {
    let named = args.named(environment)?;
    if let Some(database) = args.database.as_deref().filter(|it| !is_postgres(it)) {
        let shown = without_passwords(database);
        let what = format!("--database {shown} is not a postgres:// address");
        return Err(Failure::usage(what).with_hint("leave it out to use the embedded store"));
    }
    let wanted = args.wanted(named.is_some() || args.database.is_some())?;
    let (plan, fill) = (args.plan(), args.fill());
    let suite = Suite { wanted, plan, fill, named, database: args.database, data: args.data };
    let mut interrupts = Interrupts::new()?;
    let report = tokio::select! {
        measured = Box::pin(suite.run()) => measured?,
        // Dropping the measurement kills its processes and removes its folder.
        () = interrupts.next() => return Err(Failure::failed("interrupted")),
    };
    print_one(args.output, &report.to_json(), table)?;
    Ok(Exit::Ok)
}
