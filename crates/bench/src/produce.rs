//! Producers: each has a connection of its own and waits for its answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outlast_cli_core::clock::{self, Moment};
use outlast_cli_core::exit::Failure;
use tokio::task::JoinSet;

use crate::connection::{Address, Connection};

/// When a round is over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extent {
    /// After this many requests.
    Requests(usize),
    /// After this time.
    Time(Duration),
}

/// What producers did in one round.
#[derive(Debug, Default)]
pub(crate) struct Produced {
    /// How long each request took.
    pub(crate) lengths: Vec<Duration>,
    /// How long the round took.
    pub(crate) took: Duration,
}

/// Producers with their connections open.
#[derive(Debug)]
pub(crate) struct Producers {
    connections: Vec<Connection>,
}

impl Producers {
    pub(crate) async fn connect(address: &Address, count: usize) -> Result<Self, Failure> {
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            connections.push(address.connect().await?);
        }
        Ok(Self { connections })
    }

    /// Sends the same request again and again from all connections.
    pub(crate) async fn send(
        &mut self,
        request: &Arc<[u8]>,
        extent: Extent,
    ) -> Result<Produced, Failure> {
        self.send_each(std::slice::from_ref(request), extent).await
    }

    /// Sends the requests in turn from all connections, which begin at different places, as far
    /// from each other as possible.
    pub(crate) async fn send_each(
        &mut self,
        requests: &[Arc<[u8]>],
        extent: Extent,
    ) -> Result<Produced, Failure> {
        let begun = clock::moment();
        let stop = Stop::of(extent, begun);
        let mut running = JoinSet::new();
        let connections = self.connections.len();
        for (nth, connection) in self.connections.drain(..).enumerate() {
            let mut own = requests.to_vec();
            own.rotate_left(nth * requests.len() / connections.max(1));
            running.spawn(one(connection, own, stop.clone()));
        }
        let mut produced = Produced::default();
        while let Some(ended) = running.join_next().await {
            let ended = ended.map_err(|error| Failure::failed(format!("producer: {error}")))?;
            let (connection, lengths) = ended?;
            self.connections.push(connection);
            produced.lengths.extend(lengths);
        }
        produced.took = clock::moment().since(begun);
        Ok(produced)
    }
}

/// What ends a round, shared by its producers.
#[derive(Clone, Debug)]
enum Stop {
    Requests(Arc<AtomicUsize>),
    Time(Moment, Duration),
}

impl Stop {
    fn of(extent: Extent, begun: Moment) -> Self {
        match extent {
            Extent::Requests(count) => Self::Requests(Arc::new(AtomicUsize::new(count))),
            Extent::Time(length) => Self::Time(begun, length),
        }
    }

    /// Takes one request, if there is one left. A time, however short, is good for one request.
    fn take(&self, now: Moment, taken: usize) -> bool {
        match self {
            Self::Requests(left) => left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok(),
            Self::Time(begun, length) => taken == 0 || now.since(*begun) < *length,
        }
    }
}

async fn one(
    mut connection: Connection,
    requests: Vec<Arc<[u8]>>,
    stop: Stop,
) -> Result<(Connection, Vec<Duration>), Failure> {
    let mut lengths = Vec::new();
    let mut sent = clock::moment();
    let mut requests = requests.iter().cycle();
    while stop.take(sent, lengths.len()) {
        let Some(request) = requests.next() else { break };
        connection.create(request).await?;
        let answered = clock::moment();
        lengths.push(answered.since(sent));
        sent = answered;
    }
    Ok((connection, lengths))
}
