//! Rows of one sort as arrays of their columns, and the statement that takes them.
//!
//! A statement is written once, with `{rows}` for its rows: `unnest` of one array for each column,
//! under the name `k`. `{columns}` are the columns' names and `{count}` is how many rows there
//! are. Numbers and types of the arrays follow from the fields of the row. A table is joined by
//! `t.key = any(array[k.key])`: see [`crate::connect::Address::writer_settings`].

use uuid::Uuid;

/// A type of a column, as PostgreSQL calls it.
pub(super) trait Column {
    const TYPE: &'static str;
}

macro_rules! columns {
    ($($type:ty: $name:literal),* $(,)?) => {
        $(impl Column for $type { const TYPE: &'static str = $name; })*
    };
}

columns! {
    bool: "boolean", i16: "smallint", i32: "integer", i64: "bigint", Uuid: "uuid",
    String: "text", &'static str: "text", Vec<u8>: "bytea",
}

impl<T: Column> Column for Option<T> {
    const TYPE: &'static str = T::TYPE;
}

/// Names and types of a row's columns.
pub(super) type Columns = &'static [(&'static str, &'static str)];

/// Writes a statement out. Of several sorts of rows, those after the first are `{rows 2}` and so
/// on; each sort's arrays are followed by its count.
pub(super) fn statement(template: &str, sorts: &[Columns]) -> String {
    let mut sql = template.to_owned();
    let mut number = 0;
    for (nth, columns) in (1..).zip(sorts) {
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        let arrays = columns.iter().map(|(_, of)| {
            number += 1;
            format!("${number}::{of}[]")
        });
        let arrays: Vec<String> = arrays.collect();
        number += 1;
        let rows = format!("unnest({}) k({names})", arrays.join(", "));
        for (what, text) in [("rows", rows), ("columns", names), ("count", format!("${number}"))] {
            let place = if nth == 1 { format!("{{{what}}}") } else { format!("{{{what} {nth}}}") };
            sql = sql.replace(&place, &text);
        }
    }
    sql
}

/// Declares the rows of one statement: a struct for a row, one for all of them as columns,
/// and the statement.
macro_rules! rows {
    ($(#[$doc:meta])* $row:ident, $rows:ident, $sql:expr, { $($column:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $row { $(pub(super) $column: $type),* }

        #[derive(Debug, Default)]
        pub(super) struct $rows { len: i64, $($column: Vec<$type>),* }

        impl $rows {
            const COLUMNS: Columns = &[$((stringify!($column), <$type as Column>::TYPE)),*];

            pub(super) fn push(&mut self, row: $row) {
                self.len += 1;
                $(self.$column.push(row.$column);)*
            }

            /// Takes the columns and how many rows there are, unless there are none.
            fn values(&mut self) -> Option<Vec<Value>> {
                if self.len == 0 {
                    return None;
                }
                let all = std::mem::take(self);
                Some(values![$(all.$column),*, all.len])
            }

            fn take(&mut self) -> Option<Statement> {
                static SQL: LazyLock<String> =
                    LazyLock::new(|| statement($sql, &[$rows::COLUMNS]));
                self.values().map(|values| Statement::new(&SQL, values))
            }
        }
    };
}

pub(super) use rows;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_numbered_through_all_sorts_of_rows() {
        let first: Columns = &[("seq", "bigint"), ("state", "text")];
        let second: Columns = &[("id", "uuid")];
        let sql = statement(
            "{rows}; {columns}; {count}; {rows 2}; {columns 2}; {count 2}",
            &[first, second],
        );
        let wanted = "unnest($1::bigint[], $2::text[]) k(seq, state); seq, state; $3; \
            unnest($4::uuid[]) k(id); id; $5";
        assert_eq!(sql, wanted);
    }
}
