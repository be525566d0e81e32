//! The client and a server that means it.

use std::time::{Duration, UNIX_EPOCH};

use outlast_sdk::{Client, ClientError, EventFilter, JobState, NewJob, Retry};
use serde_json::json;

use super::with_server;
use crate::support::within;

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_job_comes_back_with_everything_that_was_asked_for() {
    with_server(async |scene| {
        let client = Client::new(scene.server().url()).unwrap();
        let at = UNIX_EPOCH + Duration::from_millis(4_000_000_000_123);
        let wanted = NewJob::new("mail.send", json!({"to": "a@b.example"}))
            .queue("mail")
            .priority(7)
            .at(at)
            .expires(at + Duration::from_secs(60))
            .timeout(Duration::from_secs(5))
            .retry(Retry::attempts(9).initial_interval(Duration::from_millis(10)))
            .meta("trace", "t-1");
        let stored = within(client.enqueue(wanted)).await.unwrap();
        let job = within(client.get(stored.id)).await.unwrap();
        assert_eq!(job.id, stored.id);
        assert_eq!((job.state, job.job_type.as_str()), (JobState::Scheduled, "mail.send"));
        assert_eq!((job.queue.as_str(), job.priority, job.max_attempts), ("mail", 7, 9));
        assert_eq!(job.args, [json!({"to": "a@b.example"})]);
        assert_eq!(job.meta["trace"], "t-1");
        assert_eq!(job.scheduled_at, Some(at));
        assert_eq!(job.expires_at, Some(at + Duration::from_secs(60)));

        let cancelled = within(client.cancel(job.id)).await.unwrap();
        assert_eq!(cancelled.state, JobState::Cancelled);
        let again = within(client.cancel(job.id)).await.unwrap();
        assert_eq!(again.state, JobState::Cancelled, "once more is no error");
        let ended = within(client.wait(job.id, PATIENCE)).await.unwrap();
        let unsuccessful = ended.completed().unwrap_err();
        assert_eq!(unsuccessful.to_string(), format!("job {} is cancelled", job.id));
    });
}

#[test]
fn the_same_key_gives_the_same_job_and_another_job_under_it_is_refused() {
    with_server(async |scene| {
        let client = Client::new(scene.server().url()).unwrap();
        let job = || NewJob::new("t", 1).idempotency_key("order-17");
        let first = within(client.enqueue(job())).await.unwrap();
        let second = within(client.enqueue(job())).await.unwrap();
        assert_eq!(first.id, second.id);
        let other = NewJob::new("t", 2).idempotency_key("order-17");
        let refused = within(client.enqueue(other)).await.unwrap_err();
        assert!(refused.is_conflict() && refused.hint().is_some(), "{refused}");
    });
}

#[test]
fn many_jobs_are_stored_together_or_not_at_all() {
    with_server(async |scene| {
        let client = Client::new(scene.server().url()).unwrap();
        let good = (0..50).map(|n| NewJob::new("t", n).queue("bulk"));
        let stored = within(client.enqueue_all(good)).await.unwrap();
        assert_eq!(stored.len(), 50);
        assert_eq!(stored[49].args, [json!(49)]);
        let one_bad = [NewJob::new("t", 1), NewJob::new("no good", 2)];
        let refused = within(client.enqueue_all(one_bad)).await.unwrap_err();
        assert_eq!(refused.status(), Some(400), "{refused}");
        let refused = refused.to_string();
        assert!(refused.contains("jobs[1]"), "it names the one: {refused}");
        let keyed = [NewJob::new("t", 1).idempotency_key("k")];
        let refused = within(client.enqueue_all(keyed)).await.unwrap_err();
        assert!(matches!(refused, ClientError::Usage { .. }), "{refused}");
        let once = || [NewJob::new("t", 1), NewJob::new("t", 2)];
        let first = within(client.enqueue_all_once("k", once())).await.unwrap();
        let second = within(client.enqueue_all_once("k", once())).await.unwrap();
        assert_eq!(first[1].id, second[1].id);
        assert!(within(client.enqueue_all([])).await.unwrap().is_empty());
    });
}

#[test]
fn what_is_not_there_is_not_found() {
    with_server(async |scene| {
        let client = Client::new(scene.server().url()).unwrap();
        let absent = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        assert!(within(client.get(absent)).await.unwrap_err().is_not_found());
        assert!(within(client.cancel(absent)).await.unwrap_err().is_not_found());
        assert!(within(client.wait(absent, PATIENCE)).await.unwrap_err().is_not_found());
        let mut events = client.events(EventFilter::default().job(absent));
        assert!(within(events.next()).await.unwrap_err().is_not_found());
    });
}

#[test]
fn a_server_that_is_killed_and_comes_back_is_waited_for_and_no_event_is_missed() {
    with_server(async |scene| {
        let client = Client::new(scene.server().url()).unwrap();
        let mut events = client.events(EventFilter::default().types(["job.enqueued"]));
        // Connected, with nothing seen: the stream must begin here and not later.
        let mut looks = 0;
        while events.cursor().is_none() {
            looks += 1;
            assert!(looks < 200, "the stream never began");
            let next = tokio::time::timeout(Duration::from_millis(50), events.next()).await;
            assert!(next.is_err(), "{next:?}");
        }
        let job = within(client.enqueue(NewJob::new("t", 1))).await.unwrap();
        let waiting = tokio::spawn({
            let (client, id) = (client.clone(), job.id);
            async move { client.wait(id, PATIENCE).await }
        });
        scene.server_mut().kill();
        let while_away = tokio::spawn({
            let client = client.clone();
            async move { client.enqueue(NewJob::new("t", 2)).await }
        });
        scene.server_mut().start_again();
        let second = within(while_away).await.unwrap().unwrap();
        for id in [job.id, second.id] {
            assert_eq!(within(events.next()).await.unwrap().data.job, Some(id));
        }
        within(client.cancel(job.id)).await.unwrap();
        let ended = within(waiting).await.unwrap().unwrap();
        assert_eq!(ended.state, JobState::Cancelled);
    });
}
