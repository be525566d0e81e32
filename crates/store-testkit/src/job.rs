//! A job to begin with: tests change the fields that they are about.

use outlast_core::budget::ScheduledTimeout;
use outlast_core::id::JobId;
use outlast_core::job::Rules;
use outlast_core::keys::Keys;
use outlast_store::command::{ClassKey, First, NewJob, Origin, Payload, Route};

/// A job for plain workers that may start at once, by the standard rules and without limits.
#[must_use]
pub fn plain_job(id: JobId) -> NewJob {
    NewJob {
        id,
        class: ClassKey {
            queue: "default".into(),
            job_type: "work".into(),
            route: Route::Plain,
            tenant: None,
            isolated: false,
            keyed: false,
            placement: Default::default(),
        },
        keys: Keys::default(),
        priority: 0,
        payload: Payload { args: "[]".into(), ..Payload::default() },
        rules: Rules::standard(),
        first: First::Now,
        timeout: None,
        visibility: None,
        scheduled_timeout: ScheduledTimeout::Never,
        origin: Origin::Ojs,
        by: String::new(),
        unique: None,
    }
}
