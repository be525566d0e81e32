//! `outlast bench`: measures a server, and beside it what the machine itself manages.
//!
//! ```text
//! command line ─▶ course: ceilings, memory, enqueue, bulk, drain, latency, restart ─▶ report
//! ```
//!
//! Every measurement warms up, runs in rounds and leaves nothing behind. Absolute numbers say
//! more about the machine than about the program: read them against the ceilings.

mod ceilings;
mod connection;
mod course;
mod drain;
mod enqueue;
mod figures;
mod fill;
mod hands;
mod latency;
mod memory;
mod place;
mod plan;
mod produce;
mod report;
mod restart;
mod stage;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};

use self::course::Course;
use self::fill::Fill;
use self::plan::Plan;
use super::{TrustArgs, server_flags};
use crate::config::Environment;
use crate::config::client::ClientConfig;
use crate::config::token::TokenFlags;
use crate::config::value::without_passwords;
use crate::exit::{Exit, Failure};
use crate::output::{Format, print_one};
use crate::signals::Interrupts;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum What {
    /// Everything
    All,
    /// Resident memory of an idle server and an idle worker
    Memory,
    /// Jobs a second over HTTP, one a request
    Enqueue,
    /// Jobs a second over HTTP, many a request
    Bulk,
    /// No-op jobs a second through a worker of the SDK with default settings
    Drain,
    /// The same after a kill -9 and a restart of the server; not part of all
    DrainRestarted,
    /// The same of jobs that were enqueued at another server on the same database; not part of
    /// all
    DrainAcross,
    /// From an enqueue to the start of its handler, on an idle system
    Latency,
    /// From a kill -9 of an engine, a worker or a server until work goes on
    Restart,
}

impl What {
    /// Whether any server will do. The others start, and kill, processes of their own.
    const fn is_of_a_server(self) -> bool {
        match self {
            Self::Enqueue | Self::Bulk | Self::Drain | Self::Latency => true,
            Self::All | Self::Memory | Self::Restart | Self::DrainRestarted | Self::DrainAcross => {
                false
            }
        }
    }

    /// Whether it is measured on a server of our own, whatever its store.
    const fn is_of_an_own_server(self) -> bool {
        matches!(self, Self::DrainRestarted | Self::DrainAcross)
    }

    const fn is_part_of_all(self) -> bool {
        !matches!(self, Self::All | Self::DrainRestarted | Self::DrainAcross)
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// What to measure [default: all]
    #[arg(value_enum, value_name = "WHAT")]
    what: Vec<What>,
    /// Server to measure [default: OUTLAST_SERVER or OJS_URL; else one of its own]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    #[command(flatten)]
    token: TokenFlags,
    #[command(flatten)]
    trust: TrustArgs,
    /// Measure a server of its own on a temporary store, whatever the environment says
    #[arg(long, conflicts_with = "server")]
    embedded: bool,
    /// PostgreSQL on which a server of its own keeps its temporary stores: a database for each,
    /// made beside the one named here and dropped afterwards
    #[arg(long, value_name = "URL", conflicts_with = "server")]
    database: Option<String>,
    /// Folder in which the temporary store is made [default: where temporary files belong]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Rounds of each measurement
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Jobs a round [default: enqueue 50000, bulk 100000, drain 100000, drain-restarted and
    /// drain-across 200000, latency 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    jobs: Option<u32>,
    /// Seconds a round of enqueue and bulk, instead of a number of jobs
    #[arg(long, value_name = "N", conflicts_with = "jobs", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Producers at the same time, a connection each [default: enqueue 16, bulk 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    producers: Option<u16>,
    /// Jobs in a request of bulk
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    batch: u16,
    /// Measure again with so many jobs waiting in the same queue
    #[arg(long, value_name = "N", default_value_t = 0)]
    waiting: u32,
    /// Measure again with so many jobs in the same queue that no connected worker can take
    #[arg(long, value_name = "N", default_value_t = 0)]
    unserved: u32,
    /// Measure again with so many jobs finished
    #[arg(long, value_name = "N", default_value_t = 0)]
    finished: u32,
    /// Seconds for which each ceiling of the machine is measured
    #[arg(long, value_name = "N", default_value = "1", value_parser = seconds)]
    ceiling_seconds: Duration,
    /// How to print: table, json or jsonl
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
            ceiling_time: self.ceiling_seconds,
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

    /// What was asked for; a server that was named is not ours to start or kill.
    fn wanted(&self, is_named: bool) -> Result<BTreeSet<What>, Failure> {
        let mut wanted: BTreeSet<What> = self.what.iter().copied().collect();
        if wanted.is_empty() || wanted.remove(&What::All) {
            let all = What::value_variants().iter().copied().filter(|what| what.is_part_of_all());
            wanted.extend(all.filter(|what| !is_named || what.is_of_a_server()));
        }
        if wanted.contains(&What::DrainAcross) && self.database.is_none() {
            return Err(Failure::usage("drain-across is measured on two servers of one database")
                .with_hint("name it with --database postgres://…"));
        }
        let of_named = |what: &What| {
            what.is_of_a_server() || (what.is_of_an_own_server() && self.database.is_some())
        };
        if is_named && !wanted.iter().all(of_named) {
            let what = "memory, restart and drain-restarted are measured on servers \
                        that are started for it, the first two with the embedded store";
            return Err(Failure::usage(what)
                .with_hint("add --embedded, or leave --server and --database out"));
        }
        Ok(wanted)
    }

    /// The server that was named, if one was.
    fn named(&self, environment: &Environment) -> Result<Option<ClientConfig>, Failure> {
        let around =
            ["OUTLAST_SERVER", "OJS_URL"].iter().any(|name| environment.get(name).is_some());
        if self.embedded || self.database.is_some() || (self.server.is_none() && !around) {
            return Ok(None);
        }
        Ok(Some(ClientConfig::new(
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
        return Err(Failure::usage(what).with_hint("for the embedded store leave it out"));
    }
    let wanted = args.wanted(named.is_some() || args.database.is_some())?;
    let (plan, fill) = (args.plan(), args.fill());
    let course = Course { wanted, plan, fill, named, database: args.database, data: args.data };
    let mut interrupts = Interrupts::new()?;
    let report = tokio::select! {
        measured = Box::pin(course.run()) => measured?,
        // Dropping the measurement kills its processes and removes its folder.
        () = interrupts.next() => return Err(Failure::failed("stopped before the end")),
    };
    print_one(args.output, &report.to_json(), report::table)?;
    Ok(Exit::Ok)
}
