//! Rows that PostgreSQL inserts and claims.
//!
//! A table of two columns stands in for the schema, so nothing that the store does on top of
//! PostgreSQL is in the figures.

use std::time::Duration;

use futures_util::future::try_join_all;
use outlast_cli_core::clock::{self, Moment};
use outlast_cli_core::exit::Failure;
use outlast_store_postgres::{OpenError, connect};
use tokio_postgres::Client;

use crate::figures::rate;
use crate::scratch::{Scratch, unusable};

/// As long as a small job's row.
const BODY: [u8; 120] = [b'x'; 120];
/// Rows of one statement that inserts many.
const MANY: i32 = 1_000;
/// Clients that insert many at a time.
const BULK_CLIENTS: usize = 4;
/// Rows that one claim takes.
const CLAIM: i64 = 100;
/// Rows that there are to be claimed.
const CLAIMABLE: i32 = 300_000;

const CLAIMING: &str = "with taken as (
         select b.ctid as place from baseline b order by b.seq limit $1 for update skip locked)
     delete from baseline where ctid = any(array(select place from taken)) returning seq, body";

/// Rows per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rows {
    /// Inserted, a statement and a commit for each row, by several clients.
    pub(super) single: f64,
    /// Inserted, a statement and a commit per thousand, by four clients.
    pub(super) many: f64,
    /// Claimed and deleted, a statement and a commit per hundred, by one client.
    pub(super) claimed: f64,
}

/// Measures each of them for `length`, in a temporary database.
pub(super) async fn measure(url: &str, clients: usize, length: Duration) -> Result<Rows, Failure> {
    let scratch = Scratch::create(url).await?;
    let measured = measure_in(scratch.url(), clients, length).await;
    scratch.remove().await?;
    measured.map_err(|error| unusable(&error))
}

async fn measure_in(url: &str, clients: usize, length: Duration) -> Result<Rows, OpenError> {
    let (client, _reader) = connect(url).await?;
    let table = "create table baseline (
                     seq bigint generated always as identity primary key, body bytea not null)";
    client.batch_execute(table).await?;
    let single = "insert into baseline (body) values ($1)";
    let single_rows = insert(url, clients, length, single, None).await?;
    let many = "insert into baseline (body) select $1::bytea from generate_series(1, $2::int)";
    let many_rows = insert(url, BULK_CLIENTS, length, many, Some(MANY)).await?;
    client.batch_execute("truncate baseline").await?;
    client.execute(many, &[&BODY.as_slice(), &CLAIMABLE]).await?;
    client.batch_execute("vacuum analyze baseline").await?;
    let claimed = claim(&client, length).await?;
    Ok(Rows { single: single_rows, many: many_rows, claimed })
}

async fn insert(
    url: &str,
    clients: usize,
    length: Duration,
    sql: &str,
    many: Option<i32>,
) -> Result<f64, OpenError> {
    let mut connections = Vec::with_capacity(clients);
    for _ in 0..clients {
        connections.push(connect(url).await?);
    }
    let begun = clock::moment();
    let inserting = connections.iter().map(|(client, _)| async move {
        let statement = client.prepare(sql).await?;
        let mut rows = 0_u64;
        while rows == 0 || since(begun) < length {
            rows += match &many {
                Some(count) => client.execute(&statement, &[&BODY.as_slice(), count]).await?,
                None => client.execute(&statement, &[&BODY.as_slice()]).await?,
            };
        }
        Ok::<u64, tokio_postgres::Error>(rows)
    });
    let rows: u64 = try_join_all(inserting).await?.into_iter().sum();
    Ok(rate(usize::try_from(rows).unwrap_or(usize::MAX), since(begun)))
}

async fn claim(client: &Client, length: Duration) -> Result<f64, OpenError> {
    let statement = client.prepare(CLAIMING).await?;
    let begun = clock::moment();
    let mut rows = 0;
    loop {
        let taken = client.query(&statement, &[&CLAIM]).await?.len();
        rows += taken;
        if taken == 0 || since(begun) >= length {
            return Ok(rate(rows, since(begun)));
        }
    }
}

fn since(begun: Moment) -> Duration {
    clock::moment().since(begun)
}
