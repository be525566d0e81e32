//! A server that says what the test tells it to, and shows what the worker said.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outlast_core::limits::SESSION_MESSAGE_BYTES_MAX;
use outlast_proto::v1::server_message::Body;
use outlast_proto::v1::session_server::{Session, SessionServer};
use outlast_proto::v1::worker_message::Body as Said;
use outlast_proto::v1::{
    AttemptKey, BeatReply, BeatRequest, DeathReply, DeathReport, Deliveries, Delivery, Ending,
    Finished, Hello, Order, Orders, RefusalCode, Refused, ReportAnswer, ReportAnswers,
    ServerMessage, Verdict, Welcome, WorkerMessage, order, report,
};
use outlast_sdk::{Control, Handler, RunError, Summary, Worker, WorkerBuilder, control};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::{Request, Response, Status, Streaming};

/// Heartbeat interval and lease of every test.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);
pub(crate) const LEASE: Duration = Duration::from_millis(600);

/// How long anything is waited for.
const BOUND: Duration = Duration::from_secs(10);

type Answer = Arc<Mutex<Box<dyn FnMut(&BeatRequest) -> Result<BeatReply, Status> + Send>>>;

/// How reports of deaths are answered, in order; and the reports.
#[derive(Default)]
pub(crate) struct Deaths {
    pub(crate) answers: VecDeque<Result<DeathReply, Status>>,
    pub(crate) reports: Vec<DeathReport>,
}

struct Script {
    streams: mpsc::UnboundedSender<Stream>,
    beats: Arc<Mutex<Vec<BeatRequest>>>,
    answer: Answer,
    deaths: Arc<Mutex<Deaths>>,
}

#[tonic::async_trait]
impl Session for Script {
    type AttachStream = UnboundedReceiverStream<Result<ServerMessage, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<WorkerMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let (push, messages) = mpsc::unbounded_channel();
        let stream = Stream { push, said: request.into_inner(), session: 0, ready: Vec::new() };
        self.streams.send(stream).unwrap();
        Ok(Response::new(UnboundedReceiverStream::new(messages)))
    }

    async fn beat(&self, request: Request<BeatRequest>) -> Result<Response<BeatReply>, Status> {
        let request = request.into_inner();
        let reply = (self.answer.lock().unwrap())(&request);
        self.beats.lock().unwrap().push(request);
        reply.map(Response::new)
    }

    async fn report_death(
        &self,
        request: Request<DeathReport>,
    ) -> Result<Response<DeathReply>, Status> {
        let mut deaths = self.deaths.lock().unwrap();
        deaths.reports.push(request.into_inner());
        let answer = deaths.answers.pop_front();
        answer.unwrap_or_else(|| Err(Status::unavailable("no answer"))).map(Response::new)
    }
}

/// The scripted server. Its thread and runtime are its own, so a test may block the worker's.
pub(crate) struct Server {
    pub(crate) url: String,
    streams: mpsc::UnboundedReceiver<Stream>,
    beats: Arc<Mutex<Vec<BeatRequest>>>,
    answer: Answer,
    pub(crate) deaths: Arc<Mutex<Deaths>>,
    _runtime: Option<tokio::runtime::Runtime>,
}

/// One attached stream.
pub(crate) struct Stream {
    push: mpsc::UnboundedSender<Result<ServerMessage, Status>>,
    said: Streaming<WorkerMessage>,
    session: u64,
    ready: Vec<Said>,
}

pub(crate) fn renewed() -> BeatReply {
    BeatReply {
        renewed: true,
        heartbeat_interval_ms: u64::try_from(INTERVAL.as_millis()).unwrap(),
        lease_ms: u64::try_from(LEASE.as_millis()).unwrap(),
        ..BeatReply::default()
    }
}

pub(crate) fn lapsed() -> BeatReply {
    BeatReply {
        renewed: false,
        refusal: RefusalCode::Lapsed.into(),
        reason: "lapsed".into(),
        ..BeatReply::default()
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (opened, streams) = mpsc::unbounded_channel();
        let beats = Arc::new(Mutex::new(Vec::new()));
        let answer: Answer = Arc::new(Mutex::new(Box::new(|_| Ok(renewed()))));
        let deaths: Arc<Mutex<Deaths>> = Arc::default();
        let script = Script {
            streams: opened,
            beats: Arc::clone(&beats),
            answer: Arc::clone(&answer),
            deaths: Arc::clone(&deaths),
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            tonic::transport::Server::builder()
                .add_service(
                    SessionServer::new(script).max_decoding_message_size(SESSION_MESSAGE_BYTES_MAX),
                )
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
        });
        Self { url, streams, beats, answer, deaths, _runtime: Some(runtime) }
    }

    /// Waits for the next stream and its hello.
    pub(crate) async fn hello(&mut self) -> (Stream, Hello) {
        let mut stream = within(self.streams.recv()).await.expect("a server that runs");
        match stream.next().await {
            Some(Said::Hello(hello)) => (stream, hello),
            other => panic!("expected hello, got {other:?}"),
        }
    }

    /// Waits for the next stream and welcomes it.
    pub(crate) async fn attach(&mut self, session: u64) -> (Stream, Hello) {
        let (mut stream, hello) = self.hello().await;
        stream.welcome(session, Vec::new());
        (stream, hello)
    }

    pub(crate) fn answer_beats(
        &self,
        answer: impl FnMut(&BeatRequest) -> Result<BeatReply, Status> + Send + 'static,
    ) {
        *self.answer.lock().unwrap() = Box::new(answer);
    }

    pub(crate) fn beats(&self) -> Vec<BeatRequest> {
        self.beats.lock().unwrap().clone()
    }

    /// Waits until so many beats have come, in all.
    pub(crate) async fn beats_reach(&self, count: usize) {
        eventually("beats", || self.beats.lock().unwrap().len() >= count).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self._runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Stream {
    pub(crate) fn welcome(&mut self, session: u64, stop: Vec<AttemptKey>) {
        self.session = session;
        let beat = renewed();
        self.send(Body::Welcome(Welcome {
            heartbeat_interval_ms: beat.heartbeat_interval_ms,
            lease_ms: beat.lease_ms,
            stop,
            ..Welcome::default()
        }));
    }

    pub(crate) fn refuse(&self, code: RefusalCode) {
        self.send(Body::Refused(Refused { code: code.into(), reason: "as scripted".into() }));
    }

    /// Ends the stream as a server does that does not know the token.
    pub(crate) fn deny(&self) {
        // A worker that has left hears nothing.
        let _ = self.push.send(Err(Status::unauthenticated("this token is not known")));
    }

    pub(crate) fn send(&self, body: Body) {
        self.send_as(self.session, body);
    }

    pub(crate) fn send_as(&self, session: u64, body: Body) {
        // A worker that has left hears nothing.
        let _ = self.push.send(Ok(ServerMessage { session, body: Some(body) }));
    }

    pub(crate) fn deliver(&self, deliveries: impl IntoIterator<Item = Delivery>) {
        self.send(Body::Deliveries(Deliveries { deliveries: deliveries.into_iter().collect() }));
    }

    pub(crate) fn order(&self, what: order::What) {
        self.send(Body::Orders(Orders { orders: vec![Order { what: Some(what) }] }));
    }

    /// The next thing said; `None` once the worker has closed the stream.
    pub(crate) async fn next(&mut self) -> Option<Said> {
        if !self.ready.is_empty() {
            return Some(self.ready.remove(0));
        }
        within(self.said.message()).await.ok().flatten().and_then(|message| message.body)
    }

    /// Waits for the first thing said that `pick` takes, passing over the rest.
    pub(crate) async fn until<T>(&mut self, mut pick: impl FnMut(Said) -> Option<T>) -> T {
        loop {
            let said = self.next().await.expect("the stream goes on");
            if let Some(found) = pick(said) {
                return found;
            }
        }
    }

    /// Waits for the report of the next attempt that ended.
    pub(crate) async fn finished(&mut self) -> (AttemptKey, Finished) {
        loop {
            let mut reports = self
                .until(|said| match said {
                    Said::Reports(reports) => Some(reports.reports),
                    _ => None,
                })
                .await
                .into_iter();
            while let Some(report) = reports.next() {
                if let Some(report::What::Finished(end)) = report.what {
                    let rest: Vec<_> = reports.collect();
                    if !rest.is_empty() {
                        let rest = outlast_proto::v1::Reports { reports: rest };
                        self.ready.insert(0, Said::Reports(rest));
                    }
                    return (report.attempt.unwrap(), end);
                }
            }
        }
    }

    /// Waits for the next report of an end and accepts it.
    pub(crate) async fn accept(&mut self) -> (AttemptKey, Finished) {
        let (key, end) = self.finished().await;
        self.answer(&key, Verdict::Accepted);
        (key, end)
    }

    pub(crate) fn answer(&self, key: &AttemptKey, verdict: Verdict) {
        let answer = ReportAnswer {
            attempt: Some(key.clone()),
            finished: true,
            verdict: verdict.into(),
            reason: "as scripted".into(),
        };
        self.send(Body::Answers(ReportAnswers { answers: vec![answer] }));
    }

    /// Says nothing more and closes: the connection is lost, as far as the worker can see.
    pub(crate) fn drop_connection(self) {
        let _ = self.push.send(Err(Status::unavailable("gone")));
    }
}

/// A worker under test.
pub(crate) struct Running {
    pub(crate) control: Control,
    pub(crate) task: JoinHandle<Result<Summary, RunError>>,
}

pub(crate) fn builder(server: &Server) -> WorkerBuilder {
    Worker::builder(&server.url)
        .name("tested")
        .types(["t"])
        .concurrency(2)
        .heartbeat_interval(INTERVAL)
        .shutdown_timeout(Duration::from_secs(5))
}

pub(crate) fn run(builder: WorkerBuilder, handler: impl Handler) -> Running {
    let (control, queue) = control();
    let worker = builder.build().unwrap();
    let task = tokio::spawn(async move { worker.run(handler, queue).await });
    Running { control, task }
}

impl Running {
    pub(crate) async fn result(self) -> Result<Summary, RunError> {
        within(self.task).await.unwrap()
    }
}

/// A delivery of job `n`.
pub(crate) fn job(n: u8) -> Delivery {
    Delivery {
        attempt: Some(key(n, 1)),
        job_type: "t".into(),
        queue: "default".into(),
        attempt_number: 1,
        args_json: format!("[{n}]").into_bytes().into(),
        max_attempts: 3,
        ..Delivery::default()
    }
}

pub(crate) fn key(n: u8, epoch: u64) -> AttemptKey {
    AttemptKey { job_id: vec![n; 16].into(), epoch }
}

/// Which job a key names, as `job` made it.
pub(crate) fn number(key: &AttemptKey) -> u8 {
    key.job_id[0]
}

pub(crate) fn ending(end: &Finished) -> Ending {
    end.ending()
}

pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, work).await.expect("in time")
}

/// Waits until something is so.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let mut looks = 0;
    while !holds() {
        looks += 1;
        assert!(looks < 2000, "never so: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
