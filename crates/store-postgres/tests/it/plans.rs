//! With a million jobs stored, every statement of the writer and of the readers finds its rows
//! by an index: as its session is set up, and also when PostgreSQL is free to read whole tables.
//! Those of the writer do so, too, if PostgreSQL takes any table for empty.

use std::sync::Arc;

use outlast_cluster::Cluster;
use outlast_store_testkit::conformance::large::reads;
use tokio_postgres::Client;

use crate::arrivals;
use crate::hand::{Server, run, sql};
use crate::load::Player;

/// Tables that grow with the number of jobs.
const BIG: [&str; 16] = [
    "job_row",
    "ready",
    "waiting",
    "active",
    "finished",
    "attempt_row",
    "expiry",
    "dead_letter_row",
    "checkpoint",
    "log",
    "log_size",
    "event_batch",
    "idempotency_job",
    "class_block",
    "arrival",
    "unique_key",
];

/// Tables of which the writer changes many rows, and that readers may read as a whole.
const LARGE: [&str; 2] = ["gate", "worker"];

/// A million jobs: most are claimable, the others are in every other place.
const MILLION: &str = "
alter table job_row set unlogged;
alter table ready set unlogged;
alter table finished set unlogged;
alter table attempt_row_default set unlogged;
insert into class (id, queue, job_type, route, tenant, isolated, plain)
    select g, 'default', 'million-' || g, '', '', false, true from generate_series(100, 119) g;
insert into job_row (seq, id, class, priority, origin, created, args, meta, extra)
    select g, ('0190' || lpad(to_hex(g), 28, '0'))::uuid, 100 + g % 20, 0, 1, 1, '[]', '', ''
    from generate_series(10000001, 11000000) g;
insert into ready (class, rank, seq, epoch, life, failures, losses, interruptions, since,
                   strand_ms)
    select 100 + g % 20, 0, g, 0, 1, 0, 0, 0, 1, case when g % 10 = 0 then 60000 end
    from generate_series(10000001, 10700000) g;
insert into waiting (seq, state, due, epoch, life, failures, losses, interruptions, isolated,
                     since)
    select g, 'scheduled', 9000000000000 + g, 0, 1, 0, 0, 0, false, 1
    from generate_series(10700001, 10780000) g;
insert into active (seq, epoch, life, failures, losses, interruptions, isolated, worker, plain,
                    claimed, visible_until, visibility_ms, deadline, cancelled)
    select g, 1, 1, 0, 0, 0, false,
        case when g % 2 = 0 then ('0190' || lpad(to_hex(g % 1000), 28, '0'))::uuid end,
        case when g % 2 = 1 then 'plain-' || g % 1000 end, 1,
        case when g % 2 = 1 then 9000000000000 + g end, 30000,
        case when g % 2 = 1 then 9000000000000 + g end, false
    from generate_series(10780001, 10820000) g;
insert into finished (seq, state, at, epoch, life, failures, losses, interruptions, isolated,
                      attempt, shown, ended_by)
    select g, 'completed', g, 1, 1, 0, 0, 0, false, 1, true, ''
    from generate_series(10820001, 11000000) g;
insert into attempt_row (seq, epoch, life, number, claimed, finished, outcome, next_state, by,
                         evidence)
    select g, 1, 1, 1, 1, 1, 'completed', 'completed', '', ''
    from generate_series(10820001, 11000000) g;
insert into attempt_row (seq, epoch, life, number, claimed, finished, outcome, next_state, by,
                         evidence)
    select g, 2, 1, 2, 1, extract(epoch from now()) * 1000, 'completed', 'completed', '', ''
    from generate_series(10820001, 10860000) g;
insert into expiry select 9000000000000 + g, g from generate_series(10000001, 10050000) g;
insert into dead_letter_row (seq, reason, at) select g, 'exhausted', g from generate_series(10820001, 10840000) g;
insert into checkpoint select g, 'x' from generate_series(10700001, 10720000) g;
insert into log select g, 1, 1, 0, 0, 1, 'x' from generate_series(10820001, 10840000) g;
insert into log_size select g, 1, 1, 1, '{[0,1)}' from generate_series(10820001, 10840000) g;
insert into event_batch (server, lane, n, at, body, rare)
    select '01900000-0000-7000-8000-000000000000', 1, g, g, '[]',
        case when g % 1000 = 0 then 2 else 0 end from generate_series(1, 50000) g;
insert into idempotency select decode(lpad(to_hex(g), 64, '0'), 'hex'), 'x', 9000000000000 + g
    from generate_series(10000001, 10030000) g;
insert into arrival (id, envelope, wake)
    select ('0190' || lpad(to_hex(g), 28, '0'))::uuid, '{}', false
    from generate_series(20000001, 20050000) g;
insert into unique_key select decode(lpad(to_hex(g), 64, '0'), 'hex'), g
    from generate_series(10000001, 10030000) g;
insert into class_block select distinct class, seq >> 10, 0 from job_row;
select outlast.count_tally();
insert into idempotency_job select g, decode(lpad(to_hex(g), 64, '0'), 'hex')
    from generate_series(10000001, 10030000) g;
analyze";

/// Jobs that have just come, and of which PostgreSQL knows nothing yet.
const UNKNOWN: &str = "
begin;
insert into class (id, queue, job_type, route, tenant, isolated, plain)
    values (100, 'default', 'unknown', '', '', false, true);
insert into ready (class, rank, seq, epoch, life, failures, losses, interruptions, since)
    select 100, 0, g, 0, 1, 0, 0, 0, 1 from generate_series(1, 3000) g";

/// Returns the plan of a statement whose values are not known, as the writer's session asks
/// for it.
async fn plan(client: &Client, sql: &str) -> String {
    let values = (1..99).take_while(|n| sql.contains(&format!("${n}"))).count();
    let nothing = vec!["null"; values].join(", ");
    let call = if values == 0 { String::new() } else { format!("({nothing})") };
    client.batch_execute(&format!("deallocate all; prepare asked as {sql}")).await.unwrap();
    let rows = client.query(&format!("explain execute asked{call}"), &[]).await.unwrap();
    rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n")
}

/// Returns what is wrong with a plan: a big table that is read as a whole, or an index of one
/// that is.
fn fault(plan: &str, tables: &[&str]) -> Option<String> {
    let lines: Vec<&str> = plan.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let Some((how, rest)) = line.split_once(" on ") else { continue };
        let table = rest.split([' ', '_']).next().unwrap_or_default();
        let name = whole(rest.split(' ').next().unwrap_or_default());
        let big = tables.contains(&name)
            || how.contains("Bitmap Index") && tables.iter().any(|big| big.starts_with(table));
        // A day that is empty yet is read as a whole.
        let empty = rest.contains("(cost=0.00..0.00 ");
        if !big || !how.contains("Scan") || how.contains("Bitmap Heap") || empty {
            continue;
        }
        let more = lines.iter().skip(at + 1).take_while(|line| !line.contains("->"));
        let found = more.into_iter().any(|it| it.contains("Index Cond") || it.contains("TID Cond"));
        if !found && !is_cut_off(&lines, at) {
            return Some(line.trim().to_owned());
        }
    }
    None
}

/// Whether a scan without a condition is one in the order of an index, of which only the first
/// rows are read: a limit is right above it.
fn is_cut_off(lines: &[&str], at: usize) -> bool {
    let depth = |line: &str| line.chars().take_while(|letter| *letter == ' ').count();
    let Some(line) = lines.get(at).filter(|line| line.contains("Index")) else { return false };
    let mut within = depth(line);
    for above in lines.iter().take(at).rev() {
        if depth(above) < within && above.contains("  (cost") {
            if above.contains("Limit") {
                return true;
            }
            let passes = ["Append", "Nested Loop Anti Join", "LockRows"];
            if !passes.iter().any(|node| above.contains(node)) {
                return false;
            }
            within = depth(above);
        }
    }
    false
}

/// Returns the scan of a range of claimable jobs that a plan reads to its end before it sorts them.
/// The index has them in order, so that a limit ends the scan.
fn sorted_range(plan: &str) -> Option<String> {
    let depth = |line: &str| line.chars().take_while(|letter| *letter == ' ').count();
    let lines: Vec<&str> = plan.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        if !line.contains("Sort  (cost") {
            continue;
        }
        let within = depth(line);
        let mut below = lines.iter().skip(at + 1).take_while(|line| depth(line) > within);
        let mut limited = usize::MAX;
        let mut scan = None;
        for line in below.by_ref() {
            if depth(line) <= limited {
                limited = usize::MAX;
            }
            if line.contains("Limit  (cost") {
                limited = limited.min(depth(line));
            }
            if limited == usize::MAX && line.contains("Scan") && line.contains(" on ready") {
                scan = Some(*line);
            }
            let is_range = line.contains("Cond: ") && line.contains("ROW(") && !is_one_row(line);
            if let (Some(scan), true) = (scan, is_range) {
                return Some(scan.trim().to_owned());
            }
        }
    }
    None
}

/// Whether a range begins and ends with the same row.
fn is_one_row(condition: &str) -> bool {
    let bound = |comparison: &str| {
        let (_, after) = condition.split_once(&format!(" {comparison} ROW("))?;
        after.split(") AND (").next().map(|row| row.trim_end_matches(')'))
    };
    bound(">=").is_some_and(|from| bound("<=") == Some(from))
}

/// The table that a partition is one of.
fn whole(name: &str) -> &str {
    let dated = |(_, day): &(&str, &str)| {
        *day == "default" || day.len() == 8 && day.bytes().all(|digit| digit.is_ascii_digit())
    };
    name.rsplit_once('_').filter(dated).map_or(name, |(table, _)| table)
}

/// What is known of a table, or of all others, after it was analyzed without a row.
fn emptied(which: &str, table: &str) -> String {
    format!(
        "with emptied as (
             select oid from pg_class
             where relnamespace in ('outlast'::regnamespace, 'public'::regnamespace)
                 and relkind = 'r'
                 and regexp_replace(relname, '_(default|[0-9]{{8}})$', '') {which} '{table}')
         update pg_class set reltuples = 0
         where oid in (select oid from emptied
             union all select indexrelid from pg_index where indrelid in (select oid from emptied))"
    )
}

/// Returns what is wrong with the plans of statements.
async fn faults_of(when: &str, client: &Client, asked: &[&str], tables: &[&str]) -> Vec<String> {
    let mut faults = Vec::new();
    for sql in asked {
        let plan = plan(client, sql).await;
        if let Some(fault) = fault(&plan, tables).or_else(|| sorted_range(&plan)) {
            faults.push(format!("{when}: {fault}\n{sql}\n{plan}"));
        }
    }
    faults
}

fn is_planned(sql: &str) -> bool {
    let first = sql.split_whitespace().next().unwrap_or_default();
    ["select", "with", "insert", "update", "delete"].contains(&first)
}

#[test]
fn every_statement_of_a_store_finds_its_rows_by_an_index_among_a_million_jobs() {
    let cluster =
        Cluster::start(&["fsync=off", "full_page_writes=off", "max_wal_size=4GB"]).unwrap();
    let url = cluster.create_database().unwrap();
    let new = cluster.create_database().unwrap();
    run(async {
        let server = Server::open(&url).await;
        let store = server.store.clone();
        let mut player = Player::new(server, 7, &Arc::default());
        // Work of every sort, so that the writer has asked all that it ever asks.
        for _ in 0..400 {
            player.play().await;
        }
        let (writes, reads_of_arrivals) = arrivals::enqueue_both_ways(&url).await;
        for read in reads() {
            read.run(&store).await.unwrap();
        }
        let statements = [store.writer_statements().await, writes].concat();
        let asked: Vec<&str> = statements.into_iter().filter(|sql| is_planned(sql)).collect();
        assert!(asked.len() >= 50, "only {} statements were asked", asked.len());
        let client = sql(&url).await;
        let (mut faults, tables) = (Vec::new(), [&BIG[..], &LARGE[..]].concat());
        let readers = [store.reader_statements(), reads_of_arrivals].concat();
        assert!(readers.len() >= 25, "only {} statements of readers", readers.len());
        // A plan is made when a statement is first asked: in a new store of empty tables.
        let settings = Server::open(&new).await.store.writer_settings();
        let small = sql(&new).await;
        small.batch_execute(&settings).await.unwrap();
        faults.extend(faults_of("new", &small, &asked, &tables).await);
        // Or while it is filled, before the first analyze.
        small.batch_execute(UNKNOWN).await.unwrap();
        faults.extend(faults_of("filled", &small, &asked, &tables).await);
        small.batch_execute("rollback").await.unwrap();
        // An analyze replaces it, and the new one stays while the table grows.
        small.batch_execute("analyze").await.unwrap();
        faults.extend(faults_of("empty", &small, &asked, &tables).await);
        small.batch_execute(&MILLION.replace("000) g", "000, 50000) g")).await.unwrap();
        faults.extend(faults_of("few", &small, &asked, &tables).await);
        client.batch_execute(MILLION).await.unwrap();
        client.batch_execute(&store.writer_settings()).await.unwrap();
        faults.extend(faults_of("many", &client, &asked, &tables).await);
        // Tables that jobs pass through are analyzed while they hold nothing, and keep their
        // pages.
        for table in &tables {
            for (when, which) in [("no", "="), ("only", "<>")] {
                client.batch_execute(&format!("begin; {}", emptied(which, table))).await.unwrap();
                faults
                    .extend(faults_of(&format!("{when} {table}"), &client, &asked, &tables).await);
                client.batch_execute("rollback").await.unwrap();
            }
        }
        client.batch_execute("set enable_seqscan = on; set enable_bitmapscan = on").await.unwrap();
        faults.extend(faults_of("many, with seqscan", &client, &asked, &BIG).await);
        // Their plans are made for the values they are asked with: the worst is one for any.
        client.batch_execute("reset all").await.unwrap();
        client.batch_execute(&store.reader_settings()).await.unwrap();
        client.batch_execute("set plan_cache_mode = force_generic_plan").await.unwrap();
        let readers: Vec<&str> = readers.iter().map(String::as_str).collect();
        faults.extend(faults_of("reader", &client, &readers, &BIG).await);
        assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n\n"));
    });
}
