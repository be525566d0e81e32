//! What PostgreSQL itself manages: the ceiling that the store's own figures are held against;
//! and databases that are made to be measured, and dropped.
//!
//! A table of two columns stands in for the schema, so nothing that this crate does on top of
//! PostgreSQL is in the figures.

use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::Instant;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::connect::{Address, OpenError};

/// As long as a small job's row.
const BODY: [u8; 120] = [b'x'; 120];
/// Rows of one statement that inserts many.
const MANY: i32 = 1_000;
/// Who insert many at a time.
const BULK_CLIENTS: usize = 4;
/// Rows that one claim takes.
const CLAIM: i64 = 100;
/// Rows that there are to be claimed.
const CLAIMABLE: i32 = 300_000;

const CLAIMING: &str = "with taken as (
         select c.ctid as place from ceiling c order by c.seq limit $1 for update skip locked)
     delete from ceiling where ctid = any(array(select place from taken)) returning seq, body";

/// What was measured, a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceilings {
    /// Rows, each inserted by a statement and a commit of its own, by several clients.
    pub single_rows: f64,
    /// Rows, a thousand by a statement and a commit, by four clients.
    pub many_rows: f64,
    /// Rows, a hundred claimed and deleted by a statement and a commit, by one client.
    pub claimed_rows: f64,
}

/// Measures each of them for `length`, in a database of their own.
///
/// # Errors
/// When the database cannot be made or used.
pub async fn measure(url: &str, clients: usize, length: Duration) -> Result<Ceilings, OpenError> {
    let scratch = Scratch::create(url).await?;
    let measured = measure_in(&scratch.url, clients, length).await;
    scratch.remove().await?;
    measured
}

async fn measure_in(url: &str, clients: usize, length: Duration) -> Result<Ceilings, OpenError> {
    let address = Address::parse(url, true)?;
    let (client, _reader) = address.connect().await?;
    let table = "create table ceiling (
                     seq bigint generated always as identity primary key, body bytea not null)";
    client.batch_execute(table).await?;
    let single = "insert into ceiling (body) values ($1)";
    let single_rows = insert(&address, clients, length, (single, None)).await?;
    let many = "insert into ceiling (body) select $1::bytea from generate_series(1, $2::int)";
    let many_rows = insert(&address, BULK_CLIENTS, length, (many, Some(MANY))).await?;
    client.batch_execute("truncate ceiling").await?;
    client.execute(many, &[&BODY.as_slice(), &CLAIMABLE]).await?;
    client.batch_execute("vacuum analyze ceiling").await?;
    let claimed_rows = claim(&client, length).await?;
    Ok(Ceilings { single_rows, many_rows, claimed_rows })
}

async fn insert(
    address: &Address,
    clients: usize,
    length: Duration,
    (sql, many): (&str, Option<i32>),
) -> Result<f64, OpenError> {
    let mut connections = Vec::with_capacity(clients);
    for _ in 0..clients {
        connections.push(address.connect().await?);
    }
    let begun = Instant::now();
    let inserting = connections.iter().map(|(client, _)| async move {
        let statement = client.prepare(sql).await?;
        let mut rows = 0_u64;
        while rows == 0 || begun.elapsed() < length {
            rows += match &many {
                Some(count) => client.execute(&statement, &[&BODY.as_slice(), count]).await?,
                None => client.execute(&statement, &[&BODY.as_slice()]).await?,
            };
        }
        Ok::<u64, tokio_postgres::Error>(rows)
    });
    let rows = try_join_all(inserting).await?.into_iter().sum();
    Ok(rate(rows, begun))
}

async fn claim(client: &Client, length: Duration) -> Result<f64, OpenError> {
    let statement = client.prepare(CLAIMING).await?;
    let begun = Instant::now();
    let mut rows = 0;
    loop {
        let taken = client.query(&statement, &[&CLAIM]).await?.len();
        rows += u64::try_from(taken).unwrap_or(0);
        if taken == 0 || begun.elapsed() >= length {
            return Ok(rate(rows, begun));
        }
    }
}

fn rate(rows: u64, begun: Instant) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count of a few seconds")]
    let rows = rows as f64;
    rows / begun.elapsed().as_secs_f64()
}

/// A database of our own on somebody's PostgreSQL.
#[derive(Debug)]
pub struct Scratch {
    url: String,
    name: String,
    around: Address,
}

impl Scratch {
    /// Makes a database beside the one that `url` names.
    ///
    /// # Errors
    /// When PostgreSQL cannot be reached, or the role may not make databases.
    pub async fn create(url: &str) -> Result<Self, OpenError> {
        let around = Address::parse(url, true)?;
        let name = format!("outlast_bench_{}", Uuid::now_v7().simple());
        let (client, _reader) = around.connect().await?;
        client.batch_execute(&format!("create database {name}")).await?;
        Ok(Self { url: renamed(url, &name), name, around })
    }

    /// Returns its address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Drops it, whoever is connected to it.
    ///
    /// # Errors
    /// When PostgreSQL cannot be reached.
    pub async fn remove(self) -> Result<(), OpenError> {
        let (client, _reader) = self.around.connect().await?;
        client.batch_execute(&format!("drop database {} with (force)", self.name)).await?;
        Ok(())
    }
}

/// Returns the address of another database of the same PostgreSQL.
fn renamed(url: &str, name: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // Words: the last of a sort counts.
        return format!("{url} dbname={name}");
    };
    let (place, parameters) =
        rest.split_once('?').map_or((rest, None), |(place, more)| (place, Some(more)));
    let host = place.split('/').next().unwrap_or_default();
    let parameters = parameters.map(|more| format!("?{more}")).unwrap_or_default();
    format!("{scheme}://{host}/{name}{parameters}")
}

#[cfg(test)]
mod tests {
    use super::renamed;

    #[test]
    fn only_the_name_of_the_database_changes() {
        for (url, expected) in [
            ("postgres://me:pw@db:5432/jobs", "postgres://me:pw@db:5432/new"),
            ("postgres://db/jobs?sslmode=require", "postgres://db/new?sslmode=require"),
            ("postgres://db", "postgres://db/new"),
            ("host=db dbname=jobs", "host=db dbname=jobs dbname=new"),
        ] {
            assert_eq!(renamed(url, "new"), expected);
        }
    }
}
