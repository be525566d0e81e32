//! What a store holds: its tables and columns, named as every store names them.
//!
//! What a store derives from these (generated columns, copies that save a join, counters,
//! progress of imports) is not listed; each store's tests name it, with the reason.

/// A table, in the order in which its rows are moved.
#[derive(Debug, PartialEq, Eq)]
pub struct Section {
    /// Name of the table and, with `.jsonl`, of the file.
    pub name: &'static str,
    /// The columns; the key first.
    pub columns: &'static [Column],
    /// How many of the columns are the key, by which rows are ordered.
    pub key: usize,
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What is in it.
    pub sort: Sort,
    /// Whether it may be empty.
    pub nullable: bool,
    /// Whether exports of earlier builds lack it. The text of a row leaves it out where it says
    /// nothing, so that such an export and a store that imported it have the same sums.
    pub added: bool,
}

/// What is in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// A whole number.
    Int,
    /// Yes or no.
    Flag,
    /// Text without NUL, which not every store takes.
    Text,
    /// A UUID.
    Id,
    /// Bytes.
    Bytes,
}

const fn of(name: &'static str, sort: Sort) -> Column {
    Column { name, sort, nullable: false, added: false }
}

const fn int(name: &'static str) -> Column {
    of(name, Sort::Int)
}

const fn flag(name: &'static str) -> Column {
    of(name, Sort::Flag)
}

const fn text(name: &'static str) -> Column {
    of(name, Sort::Text)
}

const fn id(name: &'static str) -> Column {
    of(name, Sort::Id)
}

const fn bytes(name: &'static str) -> Column {
    of(name, Sort::Bytes)
}

/// A column that may be empty.
const fn maybe(column: Column) -> Column {
    Column { nullable: true, ..column }
}

/// A column that earlier builds did not have: of those that may be empty, or a flag.
const fn added(column: Column) -> Column {
    Column { added: true, ..column }
}

impl Section {
    /// Returns the section of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        SECTIONS.iter().find(|section| section.name == name)
    }

    /// Whether exports of earlier builds lack the whole section: they hold nothing of it.
    #[must_use]
    pub fn is_added(&self) -> bool {
        matches!(
            self.name,
            "limit_rule"
                | "schedule"
                | "unique_key"
                | "worker_order"
                | "workflow"
                | "workflow_step"
                | "workflow_item"
                | "workflow_end"
        )
    }

    /// Returns the columns of the key.
    #[must_use]
    pub fn key_columns(&self) -> &'static [Column] {
        self.columns.get(..self.key).unwrap_or(self.columns)
    }

    /// Returns the name of the section's file.
    #[must_use]
    pub fn file(&self) -> String {
        format!("{}.jsonl", self.name)
    }
}

/// Everything that is moved. A job's row goes before what is about the job.
///
/// Operations stay behind: one that runs goes by the numbers that jobs have in their store, and it was
/// begun for the jobs there. What it did by then is in the jobs and in the event log, which are moved.
pub static SECTIONS: &[Section] = &[
    Section {
        name: "class",
        key: 1,
        columns: &[
            int("id"),
            text("queue"),
            text("job_type"),
            text("route"),
            text("tenant"),
            flag("isolated"),
            added(flag("keyed")),
        ],
    },
    Section {
        name: "limit_rule",
        key: 1,
        columns: &[
            text("name"),
            text("scope"),
            text("of"),
            maybe(int("concurrency")),
            maybe(int("rate_starts")),
            maybe(int("rate_period_ms")),
            flag("configured"),
            text("set_by"),
            int("set_at"),
        ],
    },
    Section {
        name: "schedule",
        key: 1,
        columns: &[
            text("name"),
            int("revision"),
            flag("configured"),
            maybe(int("due")),
            text("definition"),
            text("progress"),
            text("set_by"),
            int("created"),
            int("updated"),
        ],
    },
    Section {
        name: "queue",
        key: 1,
        columns: &[
            text("name"),
            flag("paused"),
            added(maybe(text("settings"))),
            added(maybe(text("set_by"))),
            added(maybe(int("set_at"))),
        ],
    },
    Section {
        name: "job_row",
        key: 1,
        columns: &[
            int("seq"),
            id("id"),
            int("class"),
            int("priority"),
            maybe(text("rules")),
            maybe(int("timeout_ms")),
            maybe(int("visibility_ms")),
            maybe(int("strand_ms")),
            int("origin"),
            int("created"),
            maybe(int("scheduled_for")),
            maybe(int("expires_at")),
            text("args"),
            text("meta"),
            text("extra"),
            added(maybe(text("keys"))),
            added(maybe(int("lane"))),
        ],
    },
    Section {
        name: "ready",
        key: 3,
        columns: &[
            int("class"),
            int("rank"),
            int("seq"),
            int("epoch"),
            int("life"),
            int("failures"),
            int("losses"),
            int("interruptions"),
            int("since"),
            maybe(int("strand_ms")),
        ],
    },
    Section {
        name: "waiting",
        key: 1,
        columns: &[
            int("seq"),
            text("state"),
            maybe(int("due")),
            int("epoch"),
            int("life"),
            int("failures"),
            int("losses"),
            int("interruptions"),
            flag("isolated"),
            int("since"),
        ],
    },
    Section {
        name: "active",
        key: 1,
        columns: &[
            int("seq"),
            int("epoch"),
            int("life"),
            int("failures"),
            int("losses"),
            int("interruptions"),
            flag("isolated"),
            maybe(id("worker")),
            maybe(text("plain")),
            int("claimed"),
            maybe(int("started")),
            maybe(int("visible_until")),
            maybe(int("visibility_ms")),
            maybe(int("deadline")),
            flag("cancelled"),
            maybe(text("pack_digest")),
        ],
    },
    Section {
        name: "finished",
        key: 1,
        columns: &[
            int("seq"),
            text("state"),
            int("at"),
            int("epoch"),
            int("life"),
            int("failures"),
            int("losses"),
            int("interruptions"),
            flag("isolated"),
            int("attempt"),
            flag("shown"),
            maybe(text("result")),
            maybe(text("error")),
            text("ended_by"),
        ],
    },
    Section {
        name: "attempt_row",
        key: 2,
        columns: &[
            int("seq"),
            int("epoch"),
            int("life"),
            int("number"),
            maybe(id("worker")),
            maybe(text("plain")),
            int("claimed"),
            maybe(int("started")),
            int("finished"),
            text("outcome"),
            text("next_state"),
            maybe(text("error")),
            maybe(int("exit_code")),
            text("by"),
            text("evidence"),
            maybe(text("evidence_code")),
            maybe(text("pack_digest")),
            added(maybe(int("peak_memory"))),
            added(maybe(int("cpu_ms"))),
            added(maybe(int("charge"))),
        ],
    },
    Section { name: "expiry", key: 2, columns: &[int("at"), int("seq")] },
    Section {
        name: "dead_letter_row",
        key: 1,
        columns: &[int("seq"), text("reason"), int("at"), added(flag("unhandled"))],
    },
    Section { name: "checkpoint", key: 1, columns: &[int("seq"), bytes("bytes")] },
    Section {
        name: "log",
        key: 2,
        columns: &[
            int("seq"),
            int("id"),
            int("epoch"),
            int("n"),
            int("stream"),
            int("at"),
            bytes("bytes"),
        ],
    },
    Section { name: "log_size", key: 2, columns: &[int("seq"), int("epoch"), int("bytes")] },
    Section { name: "event_lane", key: 1, columns: &[int("id"), int("latest")] },
    Section {
        name: "event_batch",
        key: 2,
        columns: &[
            int("lane"),
            int("n"),
            id("server"),
            int("at"),
            text("body"),
            added(maybe(int("rare"))),
        ],
    },
    Section {
        name: "idempotency",
        key: 1,
        columns: &[bytes("key"), bytes("request"), int("expires")],
    },
    Section { name: "idempotency_job", key: 1, columns: &[int("seq"), bytes("key")] },
    Section { name: "unique_key", key: 1, columns: &[bytes("fp"), int("seq")] },
    Section {
        name: "workflow",
        key: 1,
        columns: &[
            id("id"),
            int("revision"),
            text("status"),
            maybe(int("due")),
            maybe(int("finished")),
            text("name"),
            text("tenant"),
            maybe(id("parent")),
            maybe(int("parent_step")),
            maybe(int("parent_item")),
            maybe(flag("parent_keeps")),
            int("created"),
            int("updated"),
            text("progress"),
            text("definition"),
        ],
    },
    Section {
        name: "workflow_step",
        key: 2,
        columns: &[id("workflow"), int("step"), text("state")],
    },
    Section {
        name: "workflow_item",
        key: 3,
        columns: &[
            id("workflow"),
            int("step"),
            int("item"),
            text("state"),
            maybe(id("job")),
            maybe(id("child")),
            maybe(text("input")),
            maybe(text("result")),
        ],
    },
    Section {
        name: "workflow_end",
        key: 1,
        columns: &[
            int("number"),
            id("workflow"),
            int("step"),
            int("item"),
            flag("keeps"),
            maybe(id("job")),
            maybe(id("child")),
            text("what"),
            maybe(text("error")),
            maybe(text("result")),
            int("at"),
        ],
    },
    Section {
        name: "duty",
        key: 1,
        columns: &[text("name"), id("holder"), int("epoch"), int("until")],
    },
    Section {
        name: "worker",
        key: 1,
        columns: &[
            id("id"),
            text("name"),
            text("worker_role"),
            text("status"),
            text("state"),
            int("phase"),
            int("liveness"),
            int("concurrency"),
            text("queues"),
            text("runtimes"),
            text("labels"),
            int("renewal_seq"),
            int("session_seq"),
            int("attachment"),
            int("lease_ms"),
            int("lease_until_ms"),
            int("last_heartbeat_ms"),
            int("created_ms"),
            int("updated_ms"),
            text("evidence"),
            text("about"),
            maybe(text("plain_id")),
            added(maybe(text("unhealthy"))),
            added(maybe(int("unhealthy_since_ms"))),
            added(maybe(text("ordered"))),
            added(maybe(int("ordered_ms"))),
            added(maybe(id("previous"))),
            added(maybe(id("followed_by"))),
            added(maybe(text("evidence_code"))),
        ],
    },
    Section {
        name: "worker_order",
        key: 1,
        columns: &[text("selector"), text("kind"), text("set_by"), int("set_at")],
    },
];
