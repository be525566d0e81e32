//! Limits that several servers keep to.

use outlast_cluster::Database;
use outlast_core::keys::Keys;
use outlast_core::limit::{Limit, LimitName, Scope};
use outlast_store::command::{NewJob, SetLimit};
use outlast_store::reply::Claims;
use outlast_store::{Command, Reply};

use crate::hand::{Server, job, number, run, sql};

fn of_tenant(tenant: &str) -> NewJob {
    let keys = Keys::new([("tenant".into(), tenant.into())].into()).unwrap();
    NewJob { keys, ..job() }
}

fn per_tenant(concurrency: u32) -> Command {
    let name = LimitName::new("tenant").unwrap();
    let scope = Scope::Key("tenant".into());
    let limit = Limit { name, scope, concurrency: Some(concurrency), rate: None };
    Command::SetLimit(Box::new(SetLimit { limit, configured: false, by: "operator".into() }))
}

fn claims(reply: Reply) -> Claims {
    match reply {
        Reply::Claimed(Ok(claims)) => claims,
        other => panic!("nothing may be claimed: {other:?}"),
    }
}

/// The version of limits that were never committed is given out again.
#[test]
fn limits_of_a_batch_that_was_rolled_back_are_forgotten() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = (Server::open(&database.url).await, Server::open(&database.url).await);
        let (worker, client) = (a.worker().await, sql(&database.url).await);
        let jobs = (0..4).map(|_| of_tenant("a")).collect();
        a.one(Command::EnqueueAll(jobs)).await;
        let claim = a.claiming(worker, 4).await;
        // As if its last command had failed.
        let refuse = "
            create function public.refuse() returns trigger language plpgsql as
                $$ begin raise exception 'refused'; end $$;
            create constraint trigger refuse after insert on active deferrable initially deferred
                for each row execute function public.refuse()";
        client.batch_execute(refuse).await.unwrap();
        let tried = a.try_apply(vec![per_tenant(3), claim.clone()]).await;
        assert!(tried.is_err(), "{tried:?}");
        client.batch_execute("drop trigger refuse on active").await.unwrap();
        assert_eq!(number(&client, "select n from limit_version").await, 0);
        b.one(per_tenant(1)).await;
        assert_eq!(claims(a.one(claim).await).jobs.len(), 1);
    });
}
