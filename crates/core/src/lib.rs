//! The rules of Outlast: job and worker state machines, budgets, retries, leases. Pure.
