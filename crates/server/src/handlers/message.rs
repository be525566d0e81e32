//! What a handler gets about a dead letter.

use outlast_store::StoreError;
use outlast_store::query::UnhandledLetter;
use outlast_store::record::JobRecord;
use outlast_wire::json::Object;

use crate::engine::Engine;
use crate::http::job_view::JobDetails;

/// Most bytes of arguments and result that a message holds; longer ones are left out.
const TEXT_MAX: usize = 64 * 1024;
/// Most attempts that are listed: the latest.
const ATTEMPTS_MAX: usize = 20;

/// Writes the message about a dead letter, of this job; `None` if it is gone.
pub(crate) async fn write(
    engine: &Engine,
    letter: &UnhandledLetter,
    mut record: JobRecord,
) -> Result<Option<String>, StoreError> {
    if record.dead_letter.is_none() || record.life != letter.key.life {
        return Ok(None);
    }
    let attempts = engine.store().attempts(letter.key.job).await?;
    let error = record.error.clone();
    record.result = record.result.filter(|result| result.len() <= TEXT_MAX);
    let details = JobDetails::with(engine, record, attempts.clone());
    let mut out = Vec::new();
    let mut message = Object::begin(&mut out);
    message.text("type", "dead_letter");
    message.time("timestamp", letter.at);
    message.object("data", |data| {
        data.object("job", |job| details.view_within(TEXT_MAX).fields(job));
        data.text("reason", letter.reason.as_str());
        data.raw_or_null("error", error.as_deref());
        let first = attempts.len().saturating_sub(ATTEMPTS_MAX);
        data.array("attempts", attempts.get(first..).unwrap_or_default(), |out, attempt| {
            let mut object = Object::begin(out);
            object.number("attempt", attempt.attempt);
            object.number("epoch", attempt.epoch);
            object.text_or_null("outcome", attempt.outcome.map(|outcome| outcome.as_str()));
            object.time("claimed_at", attempt.claimed);
            object.time_or_null("finished_at", attempt.finished);
            object.raw_or_null("error", attempt.error.as_deref());
            object.text("evidence", &attempt.evidence.text);
            object.text_or_null("evidence_code", attempt.evidence.word());
            object.end();
        });
    });
    message.end();
    Ok(String::from_utf8(out).ok())
}
