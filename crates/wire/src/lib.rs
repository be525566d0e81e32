//! Open Job Spec JSON and the executions API's JSON, and what they mean to the core.
