//! What one server does for all. Who asks in vain locks nothing, so servers that ask again
//! and again never wait for the one that works.

use outlast_core::duty::{self, Duty, DutyRefusal};
use outlast_store::command::{DutyAsk, DutyFence};
use outlast_store::settle::answer_duty;

use crate::failure::{Conflict, Failure};
use crate::link::values;
use crate::row::{self, int, text};
use crate::writer::Writing;

const FOUND: &str = "select holder, epoch, until from duty where name = $1";
/// Whoever takes the duty over waits until what is done under it is committed.
const FOUND_AND_HELD: &str = "select holder, epoch, until from duty where name = $1 for share";

impl Writing<'_> {
    pub(super) async fn duty(
        &mut self,
        ask: &DutyAsk,
    ) -> Result<Result<Duty, DutyRefusal>, Failure> {
        let found = self.found_duty(FOUND, &ask.name).await?;
        let duty = match answer_duty(found, ask, self.now) {
            Ok(duty) => duty,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let (name, epoch) = (text(&ask.name), int(duty.epoch.0));
        let hit = match found {
            None => {
                self.ask(
                    "insert into duty (name, holder, epoch, until) values ($1, $2, $3, $4)
                     on conflict (name) do nothing returning 1",
                    values![name, duty.holder, epoch, duty.until.0],
                )
                .await?
            }
            Some(found) => {
                self.ask(
                    "update duty set holder = $2, epoch = $3, until = $4
                     where name = $1 and holder = $5 and epoch = $6 and until = $7 returning 1",
                    values![
                        name,
                        duty.holder,
                        epoch,
                        duty.until.0,
                        found.holder,
                        int(found.epoch.0),
                        found.until.0,
                    ],
                )
                .await?
            }
        };
        if hit.is_empty() {
            let words = format!("duty {} was taken meanwhile", ask.name);
            return Err(Failure::Again(Conflict::Locks, words));
        }
        Ok(Ok(duty))
    }

    pub(super) async fn check_duty(
        &mut self,
        fence: &DutyFence,
    ) -> Result<Result<(), DutyRefusal>, Failure> {
        let found = self.found_duty(FOUND_AND_HELD, &fence.name).await?;
        Ok(duty::check(found, fence.holder, fence.epoch))
    }

    async fn found_duty(&mut self, sql: &'static str, name: &str) -> Result<Option<Duty>, Failure> {
        let rows = self.ask(sql, values![text(name)]).await?;
        Ok(rows.first().map(row::duty).transpose()?)
    }
}
