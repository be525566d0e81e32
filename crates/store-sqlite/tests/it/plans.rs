//! Hot statements use the index they were written for, whatever the tables hold.

use rusqlite::Connection;

fn plan(sql: &str) -> String {
    let mut db = Connection::open_in_memory().unwrap();
    outlast_store_sqlite::migrate(&mut db).unwrap();
    let mut explain = db.prepare(&format!("explain query plan {sql}")).unwrap();
    let count = explain.parameter_count();
    let nothing = vec![rusqlite::types::Value::Null; count];
    let rows = explain
        .query_map(rusqlite::params_from_iter(nothing), |row| row.get::<_, String>(3))
        .unwrap();
    rows.map(Result::unwrap).collect::<Vec<_>>().join("\n")
}

fn check(sql: &str, expected: &str) {
    let plan = plan(sql);
    assert!(plan.contains(expected), "{sql}\nshould use `{expected}`:\n{plan}");
    assert!(!plan.contains("SCAN ready") && !plan.contains("SCAN job_row"), "{plan}");
    assert!(!plan.contains("TEMP B-TREE"), "{sql} sorts:\n{plan}");
}

#[test]
fn claim_reads_the_claimable_jobs_in_order() {
    check(
        "select rank, seq, epoch, life, failures, losses, interruptions
         from ready where class = ?1 and (rank, seq) > (?2, ?3) order by rank, seq limit ?4",
        "SEARCH ready USING PRIMARY KEY",
    );
}

#[test]
fn sweeps_read_what_is_due_first() {
    check(
        "select seq from waiting where due <= ?1 order by due, seq limit ?2",
        "SEARCH waiting USING COVERING INDEX waiting_due",
    );
    check(
        "select seq from active where visible_until <= ?1 and visibility_ms <= ?3
         order by visible_until, seq limit ?2",
        "USING INDEX active_visible",
    );
    check(
        "select seq from active where deadline <= ?1 and not cancelled
         order by deadline, seq limit ?2",
        "USING INDEX active_deadline",
    );
}

#[test]
fn strand_steps_over_a_million_waiting_jobs() {
    check(
        "select strand_ms, since from ready where class = ?1 and strand_ms > ?2
         order by strand_ms, since limit 1",
        "SEARCH ready USING COVERING INDEX ready_strand",
    );
    check(
        "select since, seq from ready where class = ?1 and strand_ms = ?2 and since <= ?3
         order by since, seq limit ?4",
        "SEARCH ready USING COVERING INDEX ready_strand",
    );
}

#[test]
fn lapse_finds_what_a_worker_holds() {
    check(
        "select seq from active where worker = ? order by seq",
        "SEARCH active USING COVERING INDEX active_worker",
    );
}

#[test]
fn cancelled_attempts_of_many_workers_are_one_step_in_the_index_each() {
    check(
        "select a.worker, j.id, a.epoch
         from json_each(?) w cross join active a on a.worker = unhex(w.value)
         join job_row j on j.seq = a.seq where a.cancelled",
        "SEARCH a USING INDEX active_worker (worker=?)",
    );
}

#[test]
fn report_finds_its_job_by_id() {
    check("select seq from job_row where id = ?", "USING COVERING INDEX sqlite_autoindex_job_row");
    check(
        "select j.seq, j.rules, a.epoch from job_row j left join active a on a.seq = j.seq
         where j.id = ?",
        "SEARCH a USING INTEGER PRIMARY KEY",
    );
}

#[test]
fn events_are_read_in_the_order_of_writing() {
    check(
        "select n, at, body from event_batch
         where lane = ?1 and n >= ?2 and n < ?3 order by n limit ?4",
        "SEARCH event_batch USING PRIMARY KEY (lane=? AND n>? AND n<?)",
    );
    check(
        "select lane, at from event_batch where lane >= ? order by lane, n limit 1",
        "SEARCH event_batch USING PRIMARY KEY (lane>?)",
    );
    check(
        "select b.n + 1 from event_batch b where b.lane = ?1
         order by b.lane desc, b.n desc limit 1",
        "SEARCH b USING PRIMARY KEY (lane=?)",
    );
}

#[test]
fn rare_events_are_read_without_the_others() {
    check(
        "select n, at from event_batch indexed by event_batch_rare
         where lane = ?1 and n < ?2 and rare is not 0 and (rare is null or rare & ?3 <> 0)
         order by n desc limit 1",
        "SEARCH event_batch USING INDEX event_batch_rare (lane=? AND n<?)",
    );
}

/// A heartbeat that names no jobs once read the attempts of all plain clients.
#[test]
fn a_plain_client_without_a_list_is_prolonged_by_its_name() {
    check(
        "select a.seq, j.id from active a join job_row j on j.seq = a.seq
         where a.visible_until is not null and a.plain = ? and not a.cancelled
         order by a.seq",
        "SEARCH a USING INDEX active_plain (plain=?)",
    );
}
