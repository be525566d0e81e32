//! Leases of leadership. A refused request locks nothing, so candidates that retry never wait for
//! the leader.

use outlast_core::leadership::Leadership;

use crate::connection::values;
use crate::failure::{Conflict, Failure};
use crate::row::{int, text};
use crate::writer::Tx;

pub(super) const FOUND: &str = "select holder, epoch, until from duty where name = $1";
/// The next holder waits until the leader's work is committed.
pub(super) const FOUND_AND_LOCKED: &str =
    "select holder, epoch, until from duty where name = $1 for share";

impl Tx<'_> {
    pub(super) async fn compare_and_set_leadership(
        &mut self,
        name: &str,
        found: Option<Leadership>,
        leadership: Leadership,
    ) -> Result<(), Failure> {
        let epoch = int(leadership.epoch.0);
        let hit = match found {
            None => {
                self.query(
                    "insert into duty (name, holder, epoch, until) values ($1, $2, $3, $4)
                     on conflict (name) do nothing returning 1",
                    values![text(name), leadership.holder, epoch, leadership.until.0],
                )
                .await?
            }
            Some(found) => {
                self.query(
                    "update duty set holder = $2, epoch = $3, until = $4
                     where name = $1 and holder = $5 and epoch = $6 and until = $7 returning 1",
                    values![
                        text(name),
                        leadership.holder,
                        epoch,
                        leadership.until.0,
                        found.holder,
                        int(found.epoch.0),
                        found.until.0,
                    ],
                )
                .await?
            }
        };
        if hit.is_empty() {
            let words = format!("leadership of {name} changed meanwhile");
            return Err(Failure::Again(Conflict::Locks, words));
        }
        Ok(())
    }
}
