//! What the server says about itself, judged from here.

mod evaluate;

use outlast_cli_core::client::{Client, ClientConfig};
use outlast_cli_core::clock;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::without_passwords;
use serde_json::Value;

use self::evaluate::{clocks, found, packs, queues, servers, store, versions, workers};
use super::check::Check;

/// How often the server is asked before its latency is believed.
const ASKED: usize = 5;
/// A server in the same room answers within this.
const SLOW_MS: f64 = 250.0;
/// Checks that are skipped when the server does not answer.
const UNASKED: &[&str] = &[
    "version skew",
    "clock skew",
    "store clock",
    "store durability",
    "store fsync",
    "store disk",
    "queues",
    "oldest waiting",
    "isolated",
    "unstarted",
    "workers",
    "store",
    "losses",
    "failures",
    "schedules",
    "workflows",
    "limits",
    "heartbeats",
    "packs",
];

/// Asks the server and judges the answers.
pub(super) async fn check(client: &Client, checks: &mut Vec<Check>) {
    match reach(client).await {
        Ok(reached) => checks.push(reached),
        Err(failure) => return unreached(&failure, checks),
    }
    let before = clock::now();
    let answer = client.get(&["api", "v1", "doctor"], &[]).await;
    let after = clock::now();
    match answer {
        Ok(answer) => {
            let report = answer.get("data").unwrap_or(&Value::Null);
            checks.push(versions(report));
            checks.extend(clocks(report, before, after));
            checks.extend(store(report));
            checks.extend(queues(report));
            checks.push(workers(report));
            checks.extend(found(report));
            checks.push(packs(report));
        }
        Err(failure) if failure.exit == Exit::NotFound => {
            let fact = "the server has no /api/v1/doctor";
            checks.push(Check::fail("version skew", fact, "run server and client of one version"));
            skip(checks, "the server cannot tell");
        }
        Err(failure) => unreached(&failure, checks),
    }
}

/// Compares what each of several servers has of packs.
pub(super) async fn compare(target: &ClientConfig, checks: &mut Vec<Check>) {
    let addresses: Vec<&str> = target.server.split(',').collect();
    if addresses.len() < 2 {
        return;
    }
    let mut answers = Vec::new();
    for address in addresses {
        let config = ClientConfig { server: address.to_owned(), ..target.clone() };
        let asked = match Client::new(config) {
            Ok(client) => client.get(&["api", "v1", "packs"], &[]).await,
            Err(failure) => Err(failure),
        };
        let packs = asked.map(|answer| answer.get("data").cloned().unwrap_or_default());
        answers.push((without_passwords(address), packs.map_err(|failure| failure.message)));
    }
    checks.push(servers(&answers));
}

/// The server cannot even be asked: what the client needs for that is wrong.
pub(super) fn unasked(failure: Failure, checks: &mut Vec<Check>) {
    let fix = failure.hint.unwrap_or_else(|| "see `outlast config show`".to_owned());
    checks.push(Check::fail("reach", failure.message, fix));
    skip(checks, "the server was not asked");
}

/// Whether the server answers and is ready, and how soon.
async fn reach(client: &Client) -> Result<Check, Failure> {
    let mut taken = Vec::new();
    for _ in 0..ASKED {
        let before = clock::moment();
        client.get(&["health", "ready"], &[]).await?;
        taken.push(clock::moment().since(before).as_secs_f64() * 1000.0);
    }
    taken.sort_by(f64::total_cmp);
    let median = taken.get(ASKED / 2).copied().unwrap_or_default();
    let fact = format!("{} is ready and answers in {median:.1} ms", client.server());
    let check = if median > SLOW_MS {
        Check::warn("reach", fact, "look at the network between here and the server, and its load")
    } else {
        Check::ok("reach", fact)
    };
    Ok(check.with_number(median, "ms"))
}

fn unreached(failure: &Failure, checks: &mut Vec<Check>) {
    let fix = failure.hint.clone().unwrap_or_else(|| "look at the server's log".to_owned());
    checks.push(Check::fail("reach", failure.message.clone(), fix));
    skip(checks, "no answer from the server");
}

fn skip(checks: &mut Vec<Check>, why: &str) {
    let known: Vec<&str> = checks.iter().map(|check| check.name).collect();
    let missing = UNASKED.iter().filter(|name| !known.contains(name));
    let skipped: Vec<Check> = missing.map(|name| Check::skipped(name, why)).collect();
    checks.extend(skipped);
}
