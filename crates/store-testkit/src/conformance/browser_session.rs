//! Sessions of browsers: who is signed in, and until when.

use outlast_core::limits::{SESSION_IDLE_MAX, SESSION_LIFE_MAX, SESSIONS_OF_TOKEN_MAX};
use outlast_core::time::{Span, Timestamp};
use outlast_store::browser_session::{
    BeginSession, BrowserSession, EndSessions, RenewSession, SessionQuery, WhichSessions,
};
use outlast_store::command::Command;
use outlast_store::event::{EventName, EventQuery};
use outlast_store::reply::Reply;
use outlast_store::store::Store as _;
use uuid::Uuid;

use crate::conformance::Harness;
use crate::conformance::world::World;

cases![
    session_is_found_by_its_secret_only,
    session_that_is_used_lasts_longer_but_not_for_more_than_its_life,
    session_that_has_expired_is_not_renewed,
    batch_that_is_sent_twice_begins_one_session,
    ended_session_is_gone_and_its_end_is_logged,
    session_of_another_token_is_not_ended,
    sessions_of_removed_tokens_end_together,
    token_with_very_many_sessions_gives_up_the_one_unused_for_longest,
    sessions_are_listed_the_latest_first_page_by_page,
    expired_sessions_are_deleted_in_steps,
    sessions_survive_a_crash_and_not_a_reset,
];

pub(crate) fn session_id(n: u16) -> Uuid {
    Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_00a0_0000 + u128::from(n))
}

/// A hash of its own for each kind and number.
pub(crate) fn hash(kind: u8, n: u16) -> [u8; 32] {
    let mut hash = [kind; 32];
    hash[..2].copy_from_slice(&n.to_be_bytes());
    hash
}

pub(crate) fn begin(n: u16, token: u8) -> BeginSession {
    BeginSession {
        id: session_id(n),
        secret: hash(0xff, n),
        token: hash(token, 0),
        name: format!("token-{token}"),
        address: "192.0.2.7".into(),
        agent: "browser/1".into(),
        by: "dashboard: someone".into(),
    }
}

impl<H: Harness> World<'_, H> {
    fn begin_session(&mut self, n: u16, token: u8) -> BrowserSession {
        match self.one(Command::BeginSession(Box::new(begin(n, token)))) {
            Reply::SessionBegun(session) => session,
            other => panic!("not a reply about sessions: {other:?}"),
        }
    }

    fn renew_session(&mut self, n: u16) {
        let renew = RenewSession { id: session_id(n) };
        assert_eq!(self.one(Command::RenewSession(renew)), Reply::Done);
    }

    fn end_sessions(&mut self, which: WhichSessions) -> Vec<Uuid> {
        let by = "operator".to_owned();
        match self.one(Command::EndSessions(EndSessions { which, by })) {
            Reply::SessionsEnded(ended) => ended.into_iter().map(|it| it.id).collect(),
            other => panic!("not a reply about sessions: {other:?}"),
        }
    }

    fn session(&self, n: u16) -> Option<BrowserSession> {
        self.ask(self.store().browser_session(hash(0xff, n)))
    }

    fn session_ids(&self, token: Option<u8>, before: Option<u16>, limit: u32) -> Vec<Uuid> {
        let query = SessionQuery {
            token: token.map(|token| hash(token, 0)),
            now: self.now(),
            before: before.map(session_id),
            limit,
        };
        let found = self.ask(self.store().browser_sessions(query));
        found.into_iter().map(|it| it.id).collect()
    }

    fn session_events(&self) -> Vec<(EventName, String, String)> {
        let query = EventQuery { names: vec!["session.*".into()], ..EventQuery::all(1_000) };
        let page = self.ask(self.store().events(query));
        let events = page.events.into_iter().map(|(_, event)| event);
        events.map(|event| (event.kind, event.by, event.evidence.to_string())).collect()
    }
}

fn session_is_found_by_its_secret_only<H: Harness>(world: &mut World<'_, H>) {
    let began = world.now();
    let session = world.begin_session(1, 1);
    let BeginSession { id, secret, token, name, address, agent, by } = begin(1, 1);
    let (created, used) = (began, began);
    let expires = began.after(SESSION_IDLE_MAX);
    let wanted = BrowserSession { id, secret, token, name, address, agent, created, used, expires };
    assert_eq!(session, wanted);
    assert_eq!(world.session(1), Some(wanted));
    assert_eq!(world.session(2), None);
    let words = format!("{id} of token-1 from 192.0.2.7");
    assert_eq!(world.session_events(), [(EventName::SessionBegan, by, words)]);
}

fn session_that_is_used_lasts_longer_but_not_for_more_than_its_life<H: Harness>(
    world: &mut World<'_, H>,
) {
    let first = world.begin_session(1, 1);
    world.wait(Span::from_secs(3600));
    world.renew_session(1);
    let renewed = world.session(1).expect("it is there");
    assert_eq!((renewed.created, renewed.used), (first.created, world.now()));
    assert_eq!(renewed.expires, world.now().after(SESSION_IDLE_MAX));
    let half = Span(SESSION_IDLE_MAX.0 / 2);
    while world.now().after(half) < first.created.after(SESSION_LIFE_MAX) {
        world.wait(half);
        world.renew_session(1);
    }
    let last = world.session(1).expect("it is there");
    assert_eq!(last.expires, first.created.after(SESSION_LIFE_MAX));
}

fn session_that_has_expired_is_not_renewed<H: Harness>(world: &mut World<'_, H>) {
    let first = world.begin_session(1, 1);
    world.wait(SESSION_IDLE_MAX);
    world.renew_session(1);
    world.renew_session(2);
    assert_eq!(world.session(1).as_ref().map(|it| it.used), Some(first.used));
    assert_eq!((world.session(2), world.session_ids(None, None, 9)), (None, vec![]));
}

fn batch_that_is_sent_twice_begins_one_session<H: Harness>(world: &mut World<'_, H>) {
    let first = world.begin_session(1, 1);
    world.wait(Span::from_secs(5));
    let _ = world.begin_session(1, 1);
    assert_eq!(world.session(1), Some(first));
    assert_eq!(world.session_ids(None, None, 9), [session_id(1)]);
}

fn ended_session_is_gone_and_its_end_is_logged<H: Harness>(world: &mut World<'_, H>) {
    world.begin_session(1, 1);
    world.begin_session(2, 1);
    let one = || WhichSessions::One(session_id(1), None);
    assert_eq!(world.end_sessions(one()), [session_id(1)]);
    assert_eq!(world.session(1), None);
    assert!(world.session(2).is_some());
    assert_eq!(world.end_sessions(one()), [] as [Uuid; 0], "it has ended already");
    let words = format!("{} of token-1 from 192.0.2.7", session_id(1));
    let ended = (EventName::SessionEnded, "operator".to_owned(), words);
    assert_eq!(world.session_events()[2..], [ended]);
}

fn session_of_another_token_is_not_ended<H: Harness>(world: &mut World<'_, H>) {
    world.begin_session(1, 1);
    let of = |token| WhichSessions::One(session_id(1), Some(hash(token, 0)));
    assert_eq!(world.end_sessions(of(2)), [] as [Uuid; 0]);
    assert!(world.session(1).is_some());
    assert_eq!(world.end_sessions(of(1)), [session_id(1)]);
}

fn sessions_of_removed_tokens_end_together<H: Harness>(world: &mut World<'_, H>) {
    for (n, token) in [(4, 1), (3, 2), (2, 1), (1, 3)] {
        world.begin_session(n, token);
    }
    let which = WhichSessions::OfTokens(vec![hash(1, 0), hash(3, 0), hash(9, 0)]);
    assert_eq!(world.end_sessions(which), [1, 2, 4].map(session_id));
    assert_eq!(world.session_ids(None, None, 9), [session_id(3)]);
    assert_eq!(world.end_sessions(WhichSessions::OfTokens(vec![])), [] as [Uuid; 0]);
}

fn token_with_very_many_sessions_gives_up_the_one_unused_for_longest<H: Harness>(
    world: &mut World<'_, H>,
) {
    let most = u16::try_from(SESSIONS_OF_TOKEN_MAX).expect("few");
    world.begin_session(9_000, 2);
    for n in 0..most {
        world.begin_session(n, 1);
        world.wait(Span(1));
    }
    world.renew_session(0);
    world.begin_session(most, 1);
    let has = |n| world.session(n).is_some();
    assert_eq!([0, 1, 2, most, 9_000].map(has), [true, false, true, true, true]);
    let last = world.session_events().into_iter().rev().take(2).map(|it| it.0);
    assert_eq!(last.collect::<Vec<_>>(), [EventName::SessionBegan, EventName::SessionEnded]);
}

fn sessions_are_listed_the_latest_first_page_by_page<H: Harness>(world: &mut World<'_, H>) {
    for (n, token) in [(1, 1), (2, 2), (3, 1), (4, 1)] {
        world.begin_session(n, token);
    }
    assert_eq!(world.session_ids(None, None, 9), [4, 3, 2, 1].map(session_id));
    assert_eq!(world.session_ids(Some(1), None, 2), [4, 3].map(session_id));
    assert_eq!(world.session_ids(Some(1), Some(3), 2), [session_id(1)]);
    assert_eq!(world.session_ids(Some(9), None, 9), [] as [Uuid; 0]);
}

fn expired_sessions_are_deleted_in_steps<H: Harness>(world: &mut World<'_, H>) {
    for n in 1..=3 {
        world.begin_session(n, 1);
    }
    world.wait(Span(1));
    world.begin_session(4, 1);
    world.wait(Span(SESSION_IDLE_MAX.0 - 1));
    let prune = |world: &mut World<'_, H>| world.prune_up_to(Timestamp(0), 2).more;
    assert!(prune(world), "it came to its limit");
    let left = |world: &World<'_, H>| (1..=4).filter(|n| world.session(*n).is_some()).count();
    assert_eq!(left(world), 2);
    assert!(!prune(world));
    assert_eq!(left(world), 1);
    assert!(world.session(4).is_some(), "it has not expired");
}

fn sessions_survive_a_crash_and_not_a_reset<H: Harness>(world: &mut World<'_, H>) {
    let session = world.begin_session(1, 1);
    world.crash();
    assert_eq!(world.session(1), Some(session));
    assert_eq!(world.one(Command::Reset), Reply::Done);
    assert_eq!(world.session(1), None);
}
