//! Prepared statements of a batch. Most of its commands run the same few, and looking one up by its
//! text costs as much as running it.

use std::cell::RefCell;

use outlast_store::StoreError;
use rusqlite::{CachedStatement, Connection};

use crate::row::failed;

/// The statements that a batch has prepared so far. They go back to the connection with it.
pub(super) struct Statements<'db> {
    db: &'db Connection,
    idle: RefCell<Vec<(&'static str, CachedStatement<'db>)>>,
}

impl<'db> Statements<'db> {
    pub(super) const fn new(db: &'db Connection) -> Self {
        Self { db, idle: RefCell::new(Vec::new()) }
    }

    /// Runs a statement. Rows that `run` leaves unread are given up.
    pub(super) fn run<T>(
        &self,
        sql: &'static str,
        run: impl FnOnce(&mut CachedStatement<'db>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let found = {
            let mut idle = self.idle.borrow_mut();
            // The latest are last.
            let at = idle.iter().rposition(|(of, _)| std::ptr::eq(*of, sql) || *of == sql);
            at.map(|at| idle.remove(at).1)
        };
        let mut statement = match found {
            Some(statement) => statement,
            None => self.db.prepare_cached(sql).map_err(failed)?,
        };
        let result = run(&mut statement);
        self.idle.borrow_mut().push((sql, statement));
        result
    }
}
