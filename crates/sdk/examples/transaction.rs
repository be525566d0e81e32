//! Takes an order and asks for its confirmation in one transaction of its own database, which
//! is the servers' PostgreSQL too; a second order is thought better of, and asks for nothing.

use outlast_sdk::{BoxError, JobId, NewJob, postgres};
use serde::Serialize;
use tokio_postgres::{NoTls, Transaction};

#[derive(Serialize)]
struct Confirmation {
    order: i64,
}

async fn place(transaction: &Transaction<'_>, order: i64) -> Result<JobId, BoxError> {
    transaction.execute("insert into orders (id) values ($1)", &[&order]).await?;
    let job = NewJob::new("order.confirm", Confirmation { order }).queue("orders");
    Ok(postgres::enqueue(transaction, job).await?)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_ansi(false).init();
    let database = std::env::args().nth(1).ok_or("usage: transaction postgres://USER@HOST/NAME")?;
    let (mut client, connection) = tokio_postgres::connect(&database, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("create table if not exists orders (id bigint primary key)").await?;

    let transaction = client.transaction().await?;
    let job = place(&transaction, 1).await?;
    transaction.commit().await?;
    tracing::info!(%job, "placed");

    let transaction = client.transaction().await?;
    let job = place(&transaction, 2).await?;
    transaction.rollback().await?;
    tracing::info!(%job, "dropped");
    Ok(())
}
