//! Schedules that a client sets.

use std::time::Duration;

use outlast_sdk::{Client, NewJob, NewSchedule};

use super::with_server;

#[test]
fn a_schedule_is_set_read_paused_triggered_and_removed() {
    with_server(async |scene| {
        let client = Client::new(scene.server().url()).unwrap();
        let job = NewJob::new("report.make", "sales").queue("reports");
        let nightly = NewSchedule::new("0 2 * * *", job)
            .time_zone("Europe/Vienna")
            .overlap("queue")
            .catch_up("none")
            .jitter(Duration::from_secs(30));
        let set = client.schedule("nightly", nightly.clone()).await.unwrap();
        assert_eq!((set.expression.as_str(), set.status.as_str()), ("0 2 * * *", "active"));
        assert!(set.next_fire.is_some());
        assert_eq!(client.schedule("nightly", nightly).await.unwrap(), set);
        let tick = NewSchedule::action(
            "@every 1h",
            "core.echo",
            [("message", "hi")].iter().copied().collect::<std::collections::BTreeMap<_, _>>(),
        );
        client.schedule("tick", tick).await.unwrap();
        let names: Vec<String> =
            client.schedules().await.unwrap().into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["nightly", "tick"]);
        let id = client.trigger_schedule("nightly").await.unwrap();
        let job = client.get(id).await.unwrap();
        assert_eq!((job.queue.as_str(), &job.meta["cron_name"]), ("reports", &"nightly".into()));
        let paused = client.pause_schedule("nightly", "audit").await.unwrap();
        assert_eq!((paused.status.as_str(), paused.next_fire), ("paused", None));
        assert_eq!(client.resume_schedule("nightly").await.unwrap().status, "active");
        client.remove_schedule("nightly").await.unwrap();
        assert!(client.get_schedule("nightly").await.unwrap_err().is_not_found());
        let wrong = NewSchedule::new("0 25 * * *", NewJob::new("t", 1));
        let refused = client.schedule("wrong", wrong).await.unwrap_err();
        assert!(refused.to_string().contains("hour `25`"), "{refused}");
    });
}
