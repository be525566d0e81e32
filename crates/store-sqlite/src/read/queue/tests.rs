use rusqlite::StatementStatus;

use super::*;

const QUEUES: usize = 100;

/// A store of 100 queues, each with so many classes of one claimable job.
fn store(classes: usize) -> Connection {
    let mut db = Connection::open_in_memory().unwrap();
    crate::migrate(&mut db).unwrap();
    db.execute_batch(&format!(
        "with recursive n(n) as (select 0 union all select n + 1 from n where n + 1 < {QUEUES} * {classes})
         insert into class (queue, job_type, route, tenant, isolated, keyed)
         select 'q' || (n % {QUEUES}), 't' || n, '\"plain\"', '', 0, 0 from n;
         insert into ready (class, rank, seq, epoch, life, failures, losses, interruptions, since)
         select id, 0, id, 0, 1, 0, 0, 0, 1700000000000 + id from class;
         insert into tally
         select id, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0 from class;
         insert into queue_tally
         select queue, 0, count(*), 0, 0, 0, 0, 0, 0, 0, 0, 0 from class group by queue;
         insert into ready_second select * from ready_second_counted;
         analyze"
    ))
    .unwrap();
    db
}

/// Returns how many steps a statement takes, and how many rows it has.
fn steps(db: &Connection, sql: &str, values: &[&str]) -> (i32, usize) {
    let mut select = db.prepare(sql).unwrap();
    let rows = select.query(rusqlite::params_from_iter(values)).unwrap();
    let count = rows.mapped(|row| row.get::<_, String>(0)).count();
    (select.get_status(StatementStatus::VmStep), count)
}

#[test]
fn numbers_of_queues_take_the_same_steps_however_many_classes_they_have() {
    let (few, many) = (store(1), store(200));
    for (sql, values) in [(ALL, &[][..]), (ONE, &["q7"][..])] {
        let ((steps_of_few, rows), (steps_of_many, same)) =
            (steps(&few, sql, values), steps(&many, sql, values));
        assert_eq!((rows, same), if values.is_empty() { (QUEUES, QUEUES) } else { (1, 1) });
        assert!(
            steps_of_many <= steps_of_few + steps_of_few / 10,
            "{steps_of_many} steps with 200 classes a queue, {steps_of_few} with one: {sql}"
        );
    }
    let numbers = one(&many, "q7").unwrap().unwrap();
    assert_eq!(
        (numbers.available, numbers.oldest_available),
        (200, Some(Timestamp(1_700_000_000_000)))
    );
    assert_eq!(counts(&many, "q7", None).unwrap().state(outlast_core::job::State::Available), 200);
    assert_eq!(one(&many, "none").unwrap(), None);
}
