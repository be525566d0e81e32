//! A worker with one handler: the program of docs/use/tutorial.md.

use outlast_sdk::{BoxError, HandlerError, JobContext, Worker};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Letter {
    to: String,
    text: String,
}

#[derive(Serialize)]
struct Sent {
    words: usize,
}

async fn send(letter: Letter, job: JobContext) -> Result<Sent, BoxError> {
    if !letter.to.contains('@') {
        // No other attempt could do better. Any other error is tried again.
        return Err(HandlerError::permanent("bad_address", "there is no @ in it").into());
    }
    job.log(format!("to {}, attempt {}", letter.to, job.attempt_number()));
    Ok(Sent { words: letter.text.split_whitespace().count() })
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().init();
    let server = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:8080".into());
    let worker = Worker::builder(server).name("letters").handle("letter.send", send).build()?;
    worker.run_with_signals().await?;
    Ok(())
}
