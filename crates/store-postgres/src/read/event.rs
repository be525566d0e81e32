//! The event log, in the order of writing: each lane by itself, merged by time. The lanes of
//! several writers become visible in any order; what a reader has not seen of a lane is after
//! its place, however late it was committed.

use std::collections::HashMap;

use outlast_core::limits::EVENTS_BYTES_MAX;
use outlast_store::StoreError;
use outlast_store::event::{EventPage, EventQuery, NewestPage, NewestQuery};
use outlast_store_rules::cursor::{
    Cursor, EVER, Logged, Newest, Reading, TimePosition, Times, Window, life_of, rare_wanted,
    window,
};
use tokio_postgres::types::ToSql;

use crate::read::Reader;
use crate::row::get;

/// The lanes that are entered (`$2`) or later than `$1`, each with whether it may be written
/// again: one step in the index for each. It is one statement, so that a reader that sees a lane
/// sees all that began before it.
const LANES: &str = "with recursive s(lane) as (
         (select lane from event_batch where lane > $1 order by lane limit 1)
         union all
         select (select b.lane from event_batch b where b.lane > s.lane
                 order by b.lane limit 1)
         from s where s.lane is not null),
     open as materialized (select lane from server_batch where lane is not null),
     l as (
         select lane from s where lane is not null
         union select unnest($2::bigint[])
         union select lane from open where lane > $1)
     select l.lane, o.lane is not null from l left join open o on o.lane = l.lane
     order by l.lane";

/// The next batches of each lane. Those that there is no room for have no events: in the order in
/// which they are merged, the first one and those after it come to `$6` bytes. The length of a text
/// is known without reading it.
const BATCHES: &str = "select x.lane, x.n, x.at,
         case when x.upto <= $6::bigint or x.upto = x.bytes then x.body end
     from (
         select s.lane, b.n, b.at, b.body, b.bytes,
             sum(b.bytes) over (order by b.time, s.lane, b.n rows unbounded preceding) as upto
         from unnest($1::bigint[], $2::bigint[]) s(lane, n)
         cross join lateral (
             select b.n, b.at, b.body, octet_length(b.body)::bigint as bytes,
                 max(b.at) over (order by b.n rows unbounded preceding) as time
             from (
                 select b.n, b.at, b.body from event_batch b
                 where b.lane = s.lane and b.n >= s.n and b.at >= $3 and b.at <= $5
                 order by b.n limit $4) b) b) x
     order by x.lane, x.n";

/// The last batches before one, in the order of time. Their index is by time; only those of one
/// millisecond are sorted. Those that there is no room for have no events: the first one and those
/// before it come to `$6` bytes.
macro_rules! newest {
    ($which:literal) => {
        concat!(
            "select x.lane, x.n, x.at,
                 case when x.upto <= $6::bigint or x.upto = octet_length(x.body) then x.body end
             from (
                 select b.lane, b.n, b.at, b.body, sum(octet_length(b.body)) over (
                     order by b.at desc, b.lane desc, b.n desc rows unbounded preceding) as upto
                 from (
                     select b.lane, b.n, b.at, b.body from event_batch b
                     where b.at <= $1 and b.at >= $4 and (b.at, b.lane, b.n) < ($1, $2, $3)",
            $which,
            "        order by b.at desc, b.lane desc, b.n desc limit $5) b) x
             order by x.at desc, x.lane desc, x.n desc"
        )
    };
}

const NEWEST: &str = newest!("");

/// The same of those that may hold a rare event of those wanted, which are in an index of their own.
const NEWEST_RARE: &str = newest!(
    " and b.rare is distinct from 0 and (b.rare is null or b.rare & $7::bigint <> 0)
"
);

/// The number of the first batch of each lane that has a time or a later one. Time never falls
/// within a lane, so what is left is halved until one is.
const FIRST_AT: &str = "select l.lane, s.n
     from unnest($1::bigint[], $2::bigint[]) l(lane, at)
     cross join lateral (
         with recursive b(low, high) as (
             select coalesce((select e.n from event_batch e where e.lane = l.lane
                         order by e.n limit 1), 0),
                    coalesce((select e.n from event_batch e where e.lane = l.lane
                         order by e.n desc limit 1) + 1, 0)
             union all
             select case when p.is_before then p.mid + 1 else b.low end,
                    case when p.is_before then b.high else p.mid end
             from b
             cross join lateral (select (b.low + b.high) / 2 as mid) m
             cross join lateral (select m.mid,
                 (select e.at from event_batch e where e.lane = l.lane and e.n >= m.mid
                  order by e.n limit 1) < l.at as is_before) p
             where b.low < b.high)
         select b.low as n from b where b.low >= b.high) s";

pub(crate) async fn page(reader: &Reader, query: &EventQuery) -> Result<EventPage, StoreError> {
    let query = &in_lanes(reader, query).await?;
    let mut reading = Reading::of(query)?;
    // Before the job is loaded: what happens to it later is logged after this.
    let end = match query.job {
        Some(_) => Some(end(reader).await?),
        None => None,
    };
    let life = life(reader, query).await?;
    loop {
        let windows = windows(reader, reading.cursor(), life).await?;
        if reading.read(windows)? {
            let is_bounded = life.to < i64::MAX;
            return Ok(reading.page_until(end.filter(|_| is_bounded)));
        }
    }
}

/// The newest events.
pub(crate) async fn newest(reader: &Reader, query: &NewestQuery) -> Result<NewestPage, StoreError> {
    let mut newest = Newest::of(query, life(reader, &query.of).await?)?;
    let rare = rare_wanted(&query.of);
    let room = i64::try_from(EVENTS_BYTES_MAX).unwrap_or(i64::MAX);
    loop {
        let ((at, lane, n), window) = (newest.end(), newest.window());
        let most = i64::try_from(window).unwrap_or(i64::MAX);
        let since = newest.since();
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![&at, &lane, &n, &since, &most, &room];
        let sql = if let Some(bits) = &rare {
            values.push(bits);
            NEWEST_RARE
        } else {
            NEWEST
        };
        let rows = reader.all(sql, &values).await?;
        let mut is_last = rows.len() < window;
        for row in &rows {
            let batch = Logged { n: get(row, 1)?, at: get(row, 2)?, body: get(row, 3)? };
            if batch.body.is_none() {
                is_last = false;
                break;
            }
            if newest.take(get(row, 0)?, &batch)? {
                return Ok(newest.page(true));
            }
        }
        if is_last {
            return Ok(newest.page(false));
        }
    }
}

/// The query with a cursor that reads lane by lane, if it has one of time.
async fn in_lanes(reader: &Reader, query: &EventQuery) -> Result<EventQuery, StoreError> {
    let place = query.after.as_deref().and_then(TimePosition::parse);
    let Some(place) = place else { return Ok(query.clone()) };
    let rows = reader.all(LANES, &[&0_i64, &Vec::<i64>::new()]).await?;
    let lanes: Vec<i64> = rows.iter().map(|row| get(row, 0)).collect::<Result<_, _>>()?;
    let times: Vec<i64> = lanes.iter().map(|lane| place.first_time(*lane)).collect();
    let mut firsts: Vec<(i64, i64)> = Vec::with_capacity(lanes.len());
    for row in &reader.all(FIRST_AT, &[&lanes, &times]).await? {
        firsts.push((get(row, 0)?, get(row, 1)?));
    }
    Ok(EventQuery { after: Some(Cursor::after(place, &firsts).text()), ..query.clone() })
}

async fn windows(reader: &Reader, cursor: &Cursor, life: Times) -> Result<Vec<Window>, StoreError> {
    let entered: Vec<i64> = cursor.entered().collect();
    let rows = reader.all(LANES, &[&cursor.upto(), &entered]).await?;
    let mut lanes: Vec<(i64, bool)> = Vec::with_capacity(rows.len());
    for row in &rows {
        lanes.push((get(row, 0)?, get(row, 1)?));
    }
    let ids: Vec<i64> = lanes.iter().map(|(lane, _)| *lane).collect();
    let from: Vec<i64> = ids.iter().map(|lane| cursor.from(*lane)).collect();
    let limit = window(lanes.len());
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let room = i64::try_from(EVENTS_BYTES_MAX).unwrap_or(i64::MAX);
    let rows = reader.all(BATCHES, &[&ids, &from, &life.from, &most, &life.to, &room]).await?;
    let mut batches: HashMap<i64, Vec<Logged>> = HashMap::with_capacity(lanes.len());
    for row in &rows {
        let batch = Logged { n: get(row, 1)?, at: get(row, 2)?, body: get(row, 3)? };
        batches.entry(get(row, 0)?).or_default().push(batch);
    }
    let window = |(lane, open): (i64, bool)| {
        Window::new(lane, open, batches.remove(&lane).unwrap_or_default(), limit)
    };
    Ok(lanes.into_iter().map(window).collect())
}

/// Within which time a job has events: from when it was stored until it came to where it is, and
/// its latest attempt ended. Clocks of one PostgreSQL differ little. One that was discarded may
/// have been purged since.
async fn life(reader: &Reader, query: &EventQuery) -> Result<Times, StoreError> {
    let Some(job) = query.job else { return Ok(EVER) };
    let row = reader
        .one(
            "select j.created, case when p.since is not null and f.state is distinct from 'discarded'
                 then greatest(p.since,
                     (select max(t.finished) from attempt_row t where t.seq = j.seq)) end
             from job_row j
             left join finished f on f.seq = j.seq
             cross join lateral (select greatest(f.at,
                 (select greatest(a.claimed, a.started) from active a where a.seq = j.seq),
                 (select w.since from waiting w where w.seq = j.seq),
                 (select max(r.since)
                  from class b
                  join class c on c.queue = b.queue and c.job_type = b.job_type
                      and c.route = b.route and c.tenant = b.tenant
                  join ready r on r.class = c.id and r.seq = j.seq and r.rank
                      = any(array[-2 * j.priority::bigint, -2 * j.priority::bigint - 1])
                  where b.id = j.class)) as since) p
             where j.id = $1",
            &[&job.0],
        )
        .await?;
    let Some(row) = row else { return Ok(EVER) };
    Ok(life_of(query, get(&row, 0)?, get(&row, 1)?))
}

/// The cursor after everything there is.
pub(crate) async fn end(reader: &Reader) -> Result<String, StoreError> {
    let rows = reader
        .all(
            "select (select lane from event_batch order by lane desc limit 1), s.lane,
                 (select b.n from event_batch b where b.lane = s.lane order by b.n desc limit 1)
             from (select 1) one left join server_batch s on s.lane is not null",
            &[],
        )
        .await?;
    let mut upto = 0;
    let mut open: Vec<(i64, Option<i64>)> = Vec::with_capacity(rows.len());
    for row in &rows {
        upto = get::<Option<i64>>(row, 0)?.unwrap_or_default();
        if let Some(lane) = get::<Option<i64>>(row, 1)? {
            open.push((lane, get(row, 2)?));
        }
    }
    Ok(Cursor::end(upto, open).text())
}
