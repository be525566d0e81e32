//! The schema is what the snapshot says: a change of it is seen in review. Migrations run
//! once, however many servers start.

use outlast_cluster::Database;
use outlast_store::Reply;
use outlast_store::command::ReportedOutcome;
use outlast_store_postgres::{OpenError, Options, PostgresStore, SCHEMA_VERSION};
use outlast_store_rules::migration::Mismatch;
use tokio_postgres::Client;

use crate::hand::{Server, check_places, finish, number, run, sql};

const LAX: Options = Options { unsafe_no_fsync: true, clock: None };

/// Everything that migrations make, a line each. Of views only the columns: how a server
/// prints their text changes from version to version. Partitions come and go.
const DESCRIBE: &str = "
with things as (
    select c.oid, format('%I.%I', n.nspname, c.relname) as name, c.relkind, c.reloptions
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname in ('public', 'outlast') and c.relkind in ('r', 'p', 'v', 'S')
        and not c.relispartition),
lines (name, part, place, line) as (
    select name, 0, '',
        case relkind when 'v' then 'view ' when 'S' then 'sequence ' else 'table ' end || name
        || coalesce(' partition by ' || pg_get_partkeydef(oid), '')
        || coalesce(' with (' || array_to_string(reloptions, ', ') || ')', '')
    from things
    union all
    select t.name, 1, lpad(a.attnum::text, 4),
        format('    %I %s', a.attname, format_type(a.atttypid, a.atttypmod))
        || case when a.attnotnull then ' not null' else '' end
        || case when a.attgenerated = 's' then ' generated as ' else '' end
        || case when d.adbin is not null and a.attgenerated = '' then ' default ' else '' end
        || coalesce(pg_get_expr(d.adbin, d.adrelid), '')
    from things t
    join pg_attribute a on a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped
    left join pg_attrdef d on d.adrelid = t.oid and d.adnum = a.attnum
    where t.relkind <> 'S'
    union all
    select t.name, 2, o.conname, format('    %I %s', o.conname, pg_get_constraintdef(o.oid))
    from things t join pg_constraint o on o.conrelid = t.oid and o.contype <> 'n'
    union all
    select t.name, 3, i.indexrelid::regclass::text, '    ' || pg_get_indexdef(i.indexrelid)
    from things t join pg_index i on i.indrelid = t.oid
    where not exists (select 1 from pg_constraint o where o.conindid = i.indexrelid)
    union all
    select t.name, 4, g.tgname, '    ' || pg_get_triggerdef(g.oid)
    from things t join pg_trigger g on g.tgrelid = t.oid and not g.tgisinternal
    union all
    select 'function ' || p.oid::regprocedure::text, 5, '', pg_get_functiondef(p.oid)
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where n.nspname in ('public', 'outlast'))
select line from lines order by part > 4, name collate \"C\", part, place collate \"C\"";

async fn schema(client: &Client) -> String {
    let rows = client.query(DESCRIBE, &[]).await.unwrap();
    let mut text = String::new();
    for row in rows {
        let line: String = row.get(0);
        if !line.starts_with(' ') && !text.is_empty() {
            text.push('\n');
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[test]
fn migrations_from_empty_make_the_schema_of_the_snapshot() {
    let database = Database::new().unwrap();
    let found = run(async {
        PostgresStore::open(&database.url, &LAX).await.unwrap();
        schema(&sql(&database.url).await).await
    });
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.sql");
    let snapshot = std::fs::read_to_string(path).unwrap_or_default();
    if found != snapshot {
        let fresh = std::env::temp_dir().join("outlast-postgres-schema.sql");
        std::fs::write(&fresh, found).unwrap();
        panic!("schema.sql is out of date: review and copy {}", fresh.display());
    }
}

#[test]
fn servers_that_start_together_migrate_once() {
    let database = Database::new().unwrap();
    run(async {
        let opening: Vec<_> = (0..8)
            .map(|_| {
                let url = database.url.clone();
                tokio::spawn(async move { PostgresStore::open(&url, &LAX).await.map(|_| ()) })
            })
            .collect();
        for opened in opening {
            opened.await.unwrap().unwrap();
        }
        let client = sql(&database.url).await;
        let ran = number(&client, "select count(*) from outlast.migration").await;
        assert_eq!(ran, i64::try_from(SCHEMA_VERSION).unwrap());
    });
}

#[test]
fn schema_of_a_newer_outlast_is_refused_and_left_alone() {
    let database = Database::new().unwrap();
    run(async {
        PostgresStore::open(&database.url, &LAX).await.unwrap();
        let client = sql(&database.url).await;
        let newer = SCHEMA_VERSION + 1;
        let insert =
            format!("insert into outlast.migration (version, digest) values ({newer}, '')");
        client.batch_execute(&insert).await.unwrap();
        let error = PostgresStore::open(&database.url, &LAX).await.unwrap_err();
        let words = error.to_string();
        assert!(matches!(error, OpenError::Schema(Mismatch::Newer { .. })), "{words}");
        assert!(words.contains(&format!("version {newer}")), "{words}");
        let count = number(&client, "select count(*) from outlast.migration").await;
        assert_eq!(count, i64::try_from(newer).unwrap());
    });
}

#[test]
fn looking_at_a_database_changes_nothing_and_takes_no_lock_that_anybody_waits_for() {
    let database = Database::new().unwrap();
    run(async {
        let pending =
            async || PostgresStore::schema_status(&database.url).await.unwrap().pending.len();
        assert_eq!(pending().await, SCHEMA_VERSION);
        let client = sql(&database.url).await;
        let made = "select count(*) from pg_namespace where nspname = 'outlast'";
        assert_eq!(number(&client, made).await, 0);
        let ran = PostgresStore::migrate(&database.url).await.unwrap();
        assert_eq!(ran.len(), SCHEMA_VERSION);
        // A migration would have to wait for this one.
        let mut other = sql(&database.url).await;
        let held = other.transaction().await.unwrap();
        held.batch_execute(
            "lock table job_row, active, worker in access exclusive mode;
             select pg_advisory_xact_lock(8031453519325393920)",
        )
        .await
        .unwrap();
        assert_eq!(pending().await, 0);
        assert!(PostgresStore::migrate(&database.url).await.unwrap().is_empty());
    });
}

#[test]
fn database_of_an_older_build_is_refused_with_the_way_out_and_left_alone() {
    let database = Database::new().unwrap();
    run(async {
        PostgresStore::migrate(&database.url).await.unwrap();
        let client = sql(&database.url).await;
        for older in [
            "update outlast.migration set digest = 'another'",
            "alter table outlast.migration drop column digest",
        ] {
            client.batch_execute(older).await.unwrap();
            let opened = PostgresStore::open(&database.url, &LAX).await.map(|_| ());
            for refused in [PostgresStore::schema_status(&database.url).await.map(|_| ()), opened] {
                let error = refused.unwrap_err();
                let words = error.to_string();
                assert!(matches!(error, OpenError::Schema(Mismatch::Older)), "{words}");
                assert!(words.contains("outlast export"), "{words}");
            }
        }
        let count = number(&client, "select count(*) from outlast.migration").await;
        assert_eq!(count, i64::try_from(SCHEMA_VERSION).unwrap());
    });
}

/// A store that this build made when its schema was first written must open forever.
#[test]
fn database_of_the_first_schema_opens_and_its_jobs_are_there() {
    let database = Database::new().unwrap();
    run(async {
        let client = sql(&database.url).await;
        client.batch_execute(include_str!("../fixtures/first.sql")).await.unwrap();
        let server = Server::open(&database.url).await;
        outlast_store_testkit::conformance::fixture::check(&server.store).await;
        check_places(&sql(&database.url).await).await;
    });
}

/// Names that an application may well have used.
const OF_AN_APPLICATION: &str = "
    create table public.queue (name text primary key, about text);
    insert into public.queue values ('of the application', '');
    create table public.log (line text);
    create table public.ready (x integer);
    create table public.class (x integer);
    create table public.transfer (x integer)";

#[test]
fn application_with_tables_of_the_same_names_shares_the_database() {
    let database = Database::new().unwrap();
    run(async {
        let client = sql(&database.url).await;
        client.batch_execute(OF_AN_APPLICATION).await.unwrap();
        let server = Server::open(&database.url).await;
        let worker = server.worker().await;
        let id = server.add(1).await.remove(0);
        let claimed = server.claim(worker, 1).await.remove(0);
        let ended = finish(worker, id, claimed.epoch, ReportedOutcome::Completed);
        assert!(matches!(server.one(ended).await, Reply::Moved(Ok(_))));
        assert_eq!(number(&client, "select count(*) from public.queue").await, 1);
        let ours = "select string_agg(relname, ' ' order by relname) from pg_class
            where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v', 'S')
                and relname not in ('queue', 'log', 'ready', 'class', 'transfer')";
        let ours: String = client.query_one(ours, &[]).await.unwrap().get(0);
        assert_eq!(ours, "attempt dead_letter event job worker");
        check_places(&client).await;
    });
}
