//! The flags that set fields of requests: a refusal names the flag, and not the field, which the
//! user has not seen.

use outlast_cli_core::exit::Failure;

/// What is the same in all commands.
const COMMON: &[(&str, &str)] = &[
    ("queue", "--queue"),
    ("worker", "--worker"),
    ("status", "--status"),
    ("action_ref", "--action"),
    ("created_after", "--since"),
    ("created_before", "--before"),
    ("error_contains", "--error-contains"),
    ("key", "--key"),
    ("cursor", "--cursor"),
    ("limit", "--limit"),
];

/// What sets the fields of a new job, in either of its formats.
pub(super) const NEW_JOB: &[(&str, &str)] = &[
    ("action_ref", "ACTION"),
    ("type", "ACTION"),
    ("parameters", "--parameter"),
    ("priority", "--priority"),
    ("timeout", "--time-limit"),
    ("timeout_ms", "--time-limit"),
    ("delay_ms", "--delay"),
    ("scheduled_at", "--at"),
    ("retry", "--retry"),
    ("labels", "--label"),
    ("keys", "--key"),
    ("requires", "--requires"),
    ("prefers", "--prefers"),
    ("unique", "--unique"),
    ("resources", "--memory, --cpu or --processes"),
    ("overlap", "--overlap"),
    ("packs", "--packs"),
    ("Idempotency-Key", "--idempotency-key"),
];

/// What filters events.
pub(super) const EVENTS: &[(&str, &str)] = &[
    ("type", "--type"),
    ("cursor", "--after"),
    ("before", "--before"),
    ("since", "--since"),
    ("until", "--until"),
];

/// Names flags in place of fields: those of the command, then those that all have.
pub(super) fn in_flags(failure: Failure, own: &[(&str, &str)]) -> Failure {
    failure.in_flags(own).in_flags(COMMON)
}
