//! Every bound on a workflow, with its reason.

/// Most steps of one workflow. More is a loop, and `for_each` says that in one step.
pub const STEPS_MAX: usize = 10_000;
/// Most names in all `after` together: what a look at every edge may cost.
pub const EDGES_MAX: usize = 100_000;
/// Most items of one step; as many as one request may enqueue.
pub const ITEMS_MAX: usize = 10_000;
/// Longest name of a workflow or step. Names are in the rows of jobs.
pub const NAME_BYTES_MAX: usize = 128;
/// Deepest nesting of chains, groups and batches in the standard's form.
pub const NESTING_MAX: usize = 16;
/// Deepest workflow that a step starts, counted from the first. The caller counts: this crate sees
/// one workflow at a time. A workflow that starts itself would never end.
pub const SUB_WORKFLOWS_MAX: usize = 8;
/// Deepest nesting of values in a definition, as for every body.
pub const DEPTH_MAX: usize = outlast_core::limits::JSON_DEPTH_MAX;
/// Largest definition as text. Each ended step may read it.
pub const DEFINITION_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Longest expression: what does not fit into a screen belongs into a step.
pub const EXPRESSION_BYTES_MAX: usize = 4 * 1024;
/// Most nodes of a parsed expression. Also bounds how deep it nests, so how much stack it takes.
pub const EXPRESSION_NODES_MAX: usize = 500;
/// Deepest nesting of brackets and of `? :`. The parser recurses on them.
pub const EXPRESSION_DEPTH_MAX: usize = 32;
/// Deepest nesting of nodes: a sum of as many numbers is as deep.
pub const NODES_DEPTH_MAX: usize = 100;

/// Work of one expression: a node, an element or 64 bytes looked at are one. Some 15 ms, in which
/// the workflow's row is locked.
pub const WORK_MAX: u64 = 1_000_000;
/// Work of the expressions of one item, where a step has many.
pub const ITEM_WORK_MAX: u64 = 10_000;
/// Largest value of one expression or one item's input, as for the body of a request.
pub const VALUE_BYTES_MAX: usize = outlast_core::limits::BODY_BYTES_MAX;
/// Largest inputs of all items of one step. They are written in one transaction.
pub const INPUTS_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Longest reason that is kept for a failed step.
pub const REASON_BYTES_MAX: usize = 1024;
