//! Limits on connections, in all and for each address, and connections reserved for workers.
//!
//! ```text
//! accept ─▶ room ─────────────────▶ Ordinary ─works─▶ Worker: closed by no limit
//!        ├▶ full, some are idle ──▶ the longest idle ones are closed, then Ordinary
//!        ├▶ full, all are busy ───▶ Reserved ─works─▶ Worker
//!        │                              └─ anything else: 503, closed
//!        └▶ nothing left ─────────▶ refused
//! ```
//!
//! A connection becomes a worker's with its first request that is authorised to do a worker's
//! work. It is idle while it has no request. One address gets only a part of the reserved places.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outlast_core::id::WorkerId;
use tokio::sync::Notify;
use tokio::time::Instant;

/// File descriptors for everything but connections: store, log, listener.
const FILES_OWN: u64 = 64;
/// More connections than this cost memory and do not help one server.
const TOTAL_MAX: u64 = 65_536;
/// The share of connections that is reserved for workers.
const RESERVED_PART: usize = 4;
/// The share of these that one address may use at a time, and the least it may use.
const RESERVED_PER_ADDRESS_PART: usize = 4;
const RESERVED_PER_ADDRESS_MIN: usize = 2;
/// At a limit this share of it is closed at once, so that a flood does not cause a search for
/// each connection.
const CLOSED_PART: usize = 32;

/// How many connections a server keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// In all.
    pub total: usize,
    /// From one address, or one /64 network of IPv6.
    pub per_address: usize,
}

impl ConnectionLimits {
    /// Returns the limits of a process that may open this many files.
    #[must_use]
    pub fn of_files(files: u64) -> Self {
        let own = FILES_OWN.min(files / 2);
        let total = usize::try_from((files - own).min(TOTAL_MAX)).unwrap_or(usize::MAX).max(4);
        Self { total, per_address: total / 2 }
    }

    /// Returns how many connections only workers get.
    #[must_use]
    pub const fn reserved(self) -> usize {
        self.total / RESERVED_PART
    }

    /// Returns how many of these one address gets at a time.
    const fn reserved_per_address(self) -> usize {
        let part = self.reserved() / RESERVED_PER_ADDRESS_PART;
        if part > RESERVED_PER_ADDRESS_MIN { part } else { RESERVED_PER_ADDRESS_MIN }
    }
}

/// The kind of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Ordinary,
    /// Accepted on a reserved place to find out whether it is a worker's.
    Reserved,
    Worker,
    /// No longer counted.
    Gone,
}

/// One open connection, shared by its task and the limits.
#[derive(Debug)]
pub(crate) struct Peer {
    gate: Arc<Gate>,
    number: u64,
    address: IpAddr,
    kind: AtomicU8,
    /// Current requests.
    busy: AtomicUsize,
    /// How many whole requests it ever sent.
    asked: AtomicU64,
    /// Responses of which the client has yet to take the next piece, and since when, in
    /// milliseconds since the gate was made.
    unread: Mutex<HashMap<u64, u64>>,
    /// When it became idle, in milliseconds since the gate was made.
    idle_since: AtomicU64,
    leave: Notify,
    /// Whether the other side has closed it.
    closed: AtomicBool,
    beats: Mutex<BeatsFor>,
}

/// Whose heartbeats come over a connection.
#[derive(Clone, Copy, Debug, Default)]
enum BeatsFor {
    #[default]
    None,
    One(WorkerId),
    /// It is a proxy's, and its end is no worker's.
    Several,
}

/// All open connections.
#[derive(Debug)]
pub(crate) struct Gate {
    limits: ConnectionLimits,
    began: Instant,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    peers: HashMap<u64, Arc<Peer>>,
    /// Those that are not workers'.
    ordinary: usize,
    by_address: HashMap<IpAddr, usize>,
    reserved_by_address: HashMap<IpAddr, usize>,
}

/// Counts a connection until it is dropped.
#[derive(Debug)]
pub(crate) struct Entered(Arc<Peer>);

/// Marks a connection as busy with a request until it is dropped.
#[derive(Debug)]
pub(crate) struct Busy {
    peer: Arc<Peer>,
    request: u64,
}

impl Gate {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, began: Instant::now(), open: Mutex::default() })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Admits a connection, closing idle ones if that makes room; `None` if all are busy.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Entered> {
        let address = network(address);
        let limits = self.limits;
        let mut open = self.open();
        let same = open.by_address.get(&address).copied().unwrap_or_default();
        let mut room = true;
        if same >= limits.per_address {
            room = open.close_idle(limits.per_address, |peer| peer.address == address);
        }
        let full = open.ordinary >= limits.total.saturating_sub(limits.reserved())
            || open.peers.len() >= limits.total;
        if full {
            room = open.close_idle(limits.total, |_| true) && room;
        }
        let kind = match (room, open.peers.len() < limits.total) {
            (_, false) => return None,
            (true, true) => Kind::Ordinary,
            (false, true) => Kind::Reserved,
        };
        let reserved = open.reserved_by_address.get(&address).copied().unwrap_or_default();
        if kind == Kind::Reserved && reserved >= limits.reserved_per_address() {
            let is_same = |peer: &Peer| peer.address == address && peer.is_reserved();
            if !open.close_idle(reserved, is_same) {
                return None;
            }
        }
        let number = open.next;
        open.next += 1;
        let peer = Arc::new(Peer {
            gate: Arc::clone(self),
            number,
            address,
            kind: AtomicU8::new(kind as u8),
            busy: AtomicUsize::new(0),
            asked: AtomicU64::new(0),
            unread: Mutex::default(),
            idle_since: AtomicU64::new(self.now()),
            leave: Notify::new(),
            closed: AtomicBool::new(false),
            beats: Mutex::default(),
        });
        open.peers.insert(number, Arc::clone(&peer));
        open.count(&peer, kind);
        Some(Entered(peer))
    }

    /// Closes some idle connections: no file is left for a new one.
    pub(crate) fn make_room(&self) {
        self.open().close_idle(self.limits.total, |_| true);
    }
}

impl Open {
    fn count(&mut self, peer: &Peer, kind: Kind) {
        self.ordinary += usize::from(kind == Kind::Ordinary);
        if let Some(counts) = self.counts(kind) {
            *counts.entry(peer.address).or_default() += 1;
        }
    }

    fn discount(&mut self, peer: &Peer, kind: Kind) {
        self.ordinary = self.ordinary.saturating_sub(usize::from(kind == Kind::Ordinary));
        let Some(counts) = self.counts(kind) else { return };
        if let Some(count) = counts.get_mut(&peer.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&peer.address);
            }
        }
    }

    /// Returns the counts by address of connections of this kind, if it is limited.
    const fn counts(&mut self, kind: Kind) -> Option<&mut HashMap<IpAddr, usize>> {
        match kind {
            Kind::Ordinary => Some(&mut self.by_address),
            Kind::Reserved => Some(&mut self.reserved_by_address),
            Kind::Worker | Kind::Gone => None,
        }
    }

    /// Closes the connections that have been idle longest, those without any request first;
    /// false if there is none. They are no longer counted.
    fn close_idle(&mut self, limit: usize, among: impl Fn(&Peer) -> bool) -> bool {
        let mut idle: Vec<_> = self
            .peers
            .values()
            .filter(|peer| peer.is_idle() && peer.kind() != Kind::Worker)
            .filter(|peer| among(peer))
            .map(|peer| {
                let since = peer.idle_since.load(Ordering::Relaxed);
                (peer.has_asked(), since, peer.number)
            })
            .collect();
        idle.sort_unstable();
        idle.truncate((limit / CLOSED_PART).max(1));
        for (_, _, number) in &idle {
            if let Some(peer) = self.peers.remove(number) {
                self.discount(&peer, peer.kind());
                peer.set(Kind::Gone);
                peer.leave.notify_one();
            }
        }
        !idle.is_empty()
    }
}

impl Peer {
    /// Returns where the connection comes from.
    pub(crate) const fn address(&self) -> IpAddr {
        self.address
    }

    fn kind(&self) -> Kind {
        let kind = self.kind.load(Ordering::Relaxed);
        let all = [Kind::Ordinary, Kind::Reserved, Kind::Worker];
        all.into_iter().find(|known| *known as u8 == kind).unwrap_or(Kind::Gone)
    }

    fn set(&self, kind: Kind) {
        self.kind.store(kind as u8, Ordering::Relaxed);
    }

    fn is_idle(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
    }

    fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) > 0
    }

    /// Marks it as a worker's.
    pub(crate) fn works(&self) {
        if matches!(self.kind(), Kind::Worker | Kind::Gone) {
            return;
        }
        let mut open = self.gate.open();
        let kind = self.kind();
        if kind != Kind::Gone {
            open.discount(self, kind);
            self.set(Kind::Worker);
        }
    }

    /// Returns whether it may only do a worker's work.
    pub(crate) fn is_reserved(&self) -> bool {
        self.kind() == Kind::Reserved
    }

    /// Notes that a request begins.
    pub(crate) fn ask(self: &Arc<Self>) -> Busy {
        let request = self.asked.fetch_add(1, Ordering::Relaxed);
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy { peer: Arc::clone(self), request }
    }

    fn unread(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns for how long the client has taken nothing of a response that it asked for. A
    /// worker's session may be behind for as long as it answers pings.
    pub(crate) fn unread_for(&self) -> Duration {
        if self.kind() == Kind::Worker {
            return Duration::ZERO;
        }
        let oldest = self.unread().values().min().copied();
        let waited = oldest.map_or(0, |since| self.gate.now().saturating_sub(since));
        Duration::from_millis(waited)
    }

    /// Returns how much longer it may stay idle.
    pub(crate) fn patience(&self, first: Duration, between: Duration) -> Duration {
        // A worker's session may be quiet for as long as it answers pings.
        if !self.is_idle() || self.kind() == Kind::Worker {
            return between;
        }
        let asked = self.has_asked();
        let idle = self.gate.now().saturating_sub(self.idle_since.load(Ordering::Relaxed));
        (if asked { between } else { first }).saturating_sub(Duration::from_millis(idle))
    }

    /// Returns its number, which no other connection of the server has had.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Notes that the other side has closed it.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Returns whether the other side has closed it.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn beats(&self) -> MutexGuard<'_, BeatsFor> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a worker's heartbeat came over it.
    pub(crate) fn beat(&self, worker: WorkerId) {
        let mut beats = self.beats();
        *beats = match *beats {
            BeatsFor::None => BeatsFor::One(worker),
            BeatsFor::One(before) if before == worker => return,
            BeatsFor::One(_) | BeatsFor::Several => BeatsFor::Several,
        };
    }

    /// Returns the only worker whose heartbeats came over it.
    pub(crate) fn beats_for(&self) -> Option<WorkerId> {
        match *self.beats() {
            BeatsFor::One(worker) => Some(worker),
            BeatsFor::None | BeatsFor::Several => None,
        }
    }

    pub(crate) fn has_no_request(&self) -> bool {
        self.is_idle()
    }

    /// Waits until it must make room for others.
    pub(crate) async fn to_leave(&self) {
        self.leave.notified().await;
    }
}

impl Entered {
    pub(crate) const fn peer(&self) -> &Arc<Peer> {
        &self.0
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let peer = &self.0;
        let mut open = peer.gate.open();
        if open.peers.remove(&peer.number).is_some() {
            open.discount(peer, peer.kind());
            peer.set(Kind::Gone);
        }
    }
}

impl Busy {
    /// Notes that a piece of the response is there for the client to take.
    pub(crate) fn offers_a_piece(&self) {
        self.peer.unread().insert(self.request, self.peer.gate.now());
    }

    /// Notes that the client waits for the next piece.
    pub(crate) fn has_no_piece(&self) {
        self.peer.unread().remove(&self.request);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.has_no_piece();
        self.peer.idle_since.store(self.peer.gate.now(), Ordering::Relaxed);
        self.peer.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns what counts as one address. A host with an IPv6 address has a /64 of them.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits { total: 8, per_address: 4 };

    fn host(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    fn left(entered: &Entered) -> bool {
        entered.0.kind() == Kind::Gone
    }

    #[test]
    fn an_address_at_its_limit_loses_its_oldest_idle_connection() {
        let gate = Gate::new(LIMITS);
        let other = gate.enter(host(2)).unwrap();
        let all: Vec<_> = (0..5).map(|_| gate.enter(host(1)).unwrap()).collect();
        assert_eq!(all.iter().map(left).collect::<Vec<_>>(), [true, false, false, false, false]);
        assert!(!left(&other));
    }

    #[test]
    fn connections_that_never_asked_go_before_those_between_requests() {
        let gate = Gate::new(LIMITS);
        let all: Vec<_> = (0..6).map(|last| gate.enter(host(last)).unwrap()).collect();
        for entered in &all[..5] {
            drop(entered.peer().ask());
        }
        let newest = gate.enter(host(9)).unwrap();
        assert!(left(&all[5]) && !left(&all[0]) && !left(&newest));
    }

    #[test]
    fn a_server_with_busy_connections_only_keeps_room_for_workers() {
        let gate = Gate::new(LIMITS);
        let held: Vec<_> = (0..6).map(|last| gate.enter(host(last)).unwrap()).collect();
        let busy: Vec<_> = held.iter().map(|entered| entered.peer().ask()).collect();
        let worker = gate.enter(host(7)).unwrap();
        assert!(worker.peer().is_reserved());
        worker.peer().works();
        assert!(!worker.peer().is_reserved());
        let second = gate.enter(host(8)).unwrap();
        let _busy_too = second.peer().ask();
        assert!(gate.enter(host(9)).is_none());
        drop((busy, held));
        assert!(!gate.enter(host(9)).unwrap().peer().is_reserved());
    }

    /// One client once could take all places that are kept for workers.
    #[test]
    fn one_address_gets_a_part_of_the_places_that_are_kept_for_workers() {
        let limits = ConnectionLimits::of_files(1024);
        let gate = Gate::new(limits);
        let enter_busy = |last| {
            let entered = gate.enter(host(last))?;
            let busy = entered.peer().ask();
            Some((entered, busy))
        };
        let ordinary = (2..=3).flat_map(|last| [last; 360]);
        let _full: Vec<_> = ordinary.map(|last| enter_busy(last).unwrap()).collect();
        let mut reserved: Vec<_> = std::iter::from_fn(|| enter_busy(1)).collect();
        assert_eq!(reserved.len(), 60);
        assert!(reserved.iter().all(|(entered, _)| entered.peer().is_reserved()));
        assert!(enter_busy(4).is_some());
        // A place is free again once it is a worker's, or idle.
        reserved[0].0.peer().works();
        assert!(enter_busy(1).is_some());
        reserved.truncate(30);
        assert!(enter_busy(1).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_no_piece_of_its_response_is_noticed_unless_it_is_a_worker() {
        let gate = Gate::new(LIMITS);
        let entered = gate.enter(host(1)).unwrap();
        let (first, second) = (entered.peer().ask(), entered.peer().ask());
        first.offers_a_piece();
        tokio::time::advance(Duration::from_secs(9)).await;
        second.offers_a_piece();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(entered.peer().unread_for(), Duration::from_secs(10));
        first.has_no_piece();
        assert_eq!(entered.peer().unread_for(), Duration::from_secs(1));
        entered.peer().works();
        assert_eq!(entered.peer().unread_for(), Duration::ZERO);
        drop((first, second));
        assert!(entered.peer().unread().is_empty());
    }

    #[test]
    fn a_worker_between_beats_makes_room_for_nobody() {
        let gate = Gate::new(LIMITS);
        let worker = gate.enter(host(1)).unwrap();
        drop(worker.peer().ask());
        worker.peer().works();
        let all: Vec<_> = (0..40).map(|n| gate.enter(host(n)).unwrap()).collect();
        assert!(!left(&worker));
        drop(all);
        drop(worker);
        let open = gate.open();
        assert!(open.peers.is_empty() && open.by_address.is_empty() && open.ordinary == 0);
    }

    #[test]
    fn limits_follow_from_the_files_that_may_be_open() {
        let limits = ConnectionLimits::of_files(1024);
        assert_eq!((limits.total, limits.per_address, limits.reserved()), (960, 480, 240));
        assert_eq!(ConnectionLimits::of_files(u64::MAX).total, 65_536);
        assert_eq!(ConnectionLimits::of_files(100).total, 50);
    }

    #[test]
    fn a_host_of_ipv6_counts_by_its_network() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
