//! Producer, worker and operator, each with a token of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outlast_e2e::{Authority, Scene, ServerOptions, Validity};
use outlast_sdk::{
    BoxError, Client, HandlerError, JobContext, JobState, NewJob, RunError, Tls, Worker,
    WorkerBuilder,
};
use serde_json::json;
use tokio::sync::oneshot;

use super::{beside, with_options};
use crate::support::within;

const PRODUCER: &str = "a-producer-token-for-tests";
const OPERATOR: &str = "an-operator-token-for-tests";
const WORKER: &str = "a-worker-token-for-tests";
const PATIENCE: Duration = Duration::from_secs(30);

fn options() -> ServerOptions {
    let tokens = json!([
        {"name": "shop", "role": "producer", "token": PRODUCER},
        {"name": "night", "role": "operator", "token": OPERATOR},
        {"name": "fleet", "role": "worker", "token": WORKER},
    ]);
    ServerOptions::default().set("server.tokens", tokens)
}

/// Refuses everything until it is open.
fn gate(url: &str, token: &str, open: &Arc<AtomicBool>) -> WorkerBuilder {
    let open = Arc::clone(open);
    Worker::builder(url).token(Some(token.to_owned())).handle(
        "gate",
        move |n: u32, job: JobContext| {
            let is_open = open.load(Ordering::SeqCst);
            async move {
                job.progress(1.0, "looked");
                if is_open {
                    Ok::<_, BoxError>(n + 1)
                } else {
                    Err(HandlerError::permanent("closed", "the gate is closed").into())
                }
            }
        },
    )
}

#[test]
fn each_role_may_do_its_part_and_no_other() {
    with_options(options(), async |scene| {
        let url = scene.server().url();
        let client = |token: &str| Client::builder(url.as_str()).token(token).build().unwrap();
        let (producer, operator) = (client(PRODUCER), client(OPERATOR));
        let open = Arc::new(AtomicBool::new(false));

        let stranger = gate(&url, PRODUCER, &open).build().unwrap();
        let refused = within(stranger.run_until(std::future::pending())).await.unwrap_err();
        assert!(matches!(refused, RunError::NotAllowed(_)), "{refused}");
        let anonymous = Client::new(url.as_str()).unwrap();
        let refused = within(anonymous.enqueue(NewJob::new("gate", 1))).await.unwrap_err();
        assert!(refused.is_not_allowed() && refused.hint().is_some(), "{refused}");

        let (stop, stopped) = oneshot::channel::<()>();
        let worker = gate(&url, WORKER, &open).build().unwrap();
        let serving = tokio::spawn(worker.run_until(async {
            let _ = stopped.await;
        }));
        let job = within(producer.enqueue(NewJob::new("gate", 1))).await.unwrap();
        let ended = producer.wait(job.id, PATIENCE).await.unwrap();
        let unsuccessful = ended.completed().unwrap_err();
        let expected = format!("job {} is discarded: the gate is closed (closed)", job.id);
        assert_eq!((unsuccessful.to_string(), unsuccessful.state), (expected, JobState::Discarded));

        open.store(true, Ordering::SeqCst);
        let refused = within(producer.retry(job.id)).await.unwrap_err();
        assert_eq!(refused.code(), Some("permission_denied"), "{refused}");
        within(operator.retry(job.id)).await.unwrap();
        let ended = producer.wait(job.id, PATIENCE).await.unwrap().completed().unwrap();
        assert_eq!(ended.result_as::<u32>().unwrap(), 2, "in its second life");
        let refused = within(operator.retry(job.id)).await.unwrap_err();
        assert!(refused.is_conflict(), "it has completed: {refused}");

        drop(stop);
        let summary = within(serving).await.unwrap().unwrap();
        assert_eq!((summary.failed, summary.completed), (1, 1));
    });
}

#[test]
fn a_client_certificate_that_is_refused_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Authority::new(folder.path(), "authority");
    let own = ca.sign("server", &["localhost", "127.0.0.1"], Validity::Now);
    let foreign = Authority::new(folder.path(), "stranger").sign("foreign", &[], Validity::Now);
    let tls = json!({"cert": own.cert, "key": own.key, "client_ca": ca.file(),
        "roles": {"root": "admin"}});
    let options = ServerOptions::default().set("server.tls", tls);
    let mut scene = Scene::with(options).trusting(ca.client(None));
    beside(&mut scene, async |scene| {
        let tls = Tls::new().ca_file(ca.file()).client_certificate(&foreign.cert, &foreign.key);
        let client = Client::builder(scene.server().url()).tls(tls).retry_for(Duration::ZERO);
        let refused = within(client.build().unwrap().enqueue(NewJob::new("gate", 1))).await;
        let refused = refused.unwrap_err().to_string();
        let expected = format!(
            "the server refused the client certificate {}: it does not trust the authority",
            foreign.cert.display()
        );
        assert!(refused.contains(&expected), "{refused}");
    });
}
