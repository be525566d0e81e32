//! What this server can do, for clients that ask first.

use crate::json::Object;

/// What it offers of the standard's optional parts. Only what is served is claimed.
const CAPABILITIES: &[(&str, bool)] = &[
    ("batch_enqueue", true),
    ("dead_letter", true),
    ("delayed_jobs", true),
    ("job_ttl", true),
    ("pause_resume", true),
    ("priority_queues", true),
    ("long_poll", true),
    ("cron_jobs", true),
    ("rate_limiting", false),
    ("schema_validation", false),
    ("unique_jobs", true),
    ("workflows", true),
];

/// Writes the manifest.
#[must_use]
pub fn document(version: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    let mut object = Object::begin(&mut out);
    object.text("specversion", "1.0");
    object.text("ojs_version", "1.0");
    object.object("implementation", |object| {
        object.text("name", "outlast");
        object.text("version", version);
        object.text("language", "rust");
    });
    object.number("conformance_level", 3);
    object.text("conformance_tier", "workflows");
    object.texts("protocols", ["http"]);
    object.text("backend", "durable");
    object.object("capabilities", |object| {
        for (name, offered) in CAPABILITIES {
            object.flag(name, *offered);
        }
        // The standard has an object under `unique_jobs`; clients read a flag there, as in all of these.
        object.text("unique_jobs_strength", "strong");
        object.text("unique_jobs_mechanism", "transaction");
    });
    object.texts("extensions", ["graceful-shutdown"]);
    object.object("endpoints", |object| {
        object.text("base_url", "/ojs/v1");
        object.text("manifest", "/ojs/manifest");
        object.text("health", "/ojs/v1/health");
    });
    object.end();
    out
}
