//! Schedules that the server's configuration lists: what makes the store have them, and no others
//! from a configuration.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use outlast_core::schedule::ScheduleName;
use outlast_core::time::Timestamp;
use outlast_store::schedule::ScheduleQuery;
use outlast_wire::Fault;
use outlast_wire::schedule::NamedSchedule;

use super::definition::Definition;
use super::job::job_of_now;
use super::service::{self, Author, Change, ScheduleError, Wanted};
use crate::engine::Engine;

/// Who sets them, for the event log.
const BY: &str = "configuration";
/// Time between two tries while the store does not answer.
const PAUSE: Duration = Duration::from_secs(1);
/// How many are read at once.
const PAGE: u32 = 1_000;
/// How many are set side by side; their commands share transactions.
const SIDE_BY_SIDE: usize = 64;

/// Why the store does not have the schedules of the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigureSchedulesError {
    /// One of them cannot be read.
    #[error("schedule {0} of the configuration: {1}")]
    Wrong(ScheduleName, Fault),
    /// The store refuses one of them.
    #[error("schedule {0} of the configuration: {1}")]
    Refused(ScheduleName, String),
    /// The store does not answer.
    #[error("{0}")]
    Unavailable(String),
}

impl ConfigureSchedulesError {
    /// Whether another try may go well.
    pub(crate) const fn may_pass(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

impl Engine {
    /// Makes the store have these schedules, which commands then cannot change, and no others from a
    /// configuration.
    ///
    /// # Errors
    /// Returns why it does not have them.
    pub async fn configure_schedules(
        &self,
        schedules: &[NamedSchedule],
    ) -> Result<(), ConfigureSchedulesError> {
        let author = Author { by: BY.to_owned(), is_configuration: true, tenant: None };
        let listed: HashSet<&ScheduleName> = schedules.iter().map(|it| &it.name).collect();
        for name in self.configured_schedules().await? {
            if !listed.contains(&name) {
                match service::remove(self, &name, &author).await {
                    Ok(_) | Err(ScheduleError::NotFound(_)) => {}
                    Err(error) => return Err(refused(&name, &error)),
                }
                tracing::warn!(schedule = %name, "schedule removed: the configuration no longer has it");
            }
        }
        let now = self.now().await.map_err(|error| unavailable(&error))?;
        // One that is refused keeps no other from being set.
        let mut refused = Ok(());
        for some in schedules.chunks(SIDE_BY_SIDE) {
            let sets = some.iter().map(|schedule| self.configure(schedule, &author, now).boxed());
            for set in join_all(sets).await {
                refused = refused.and(set);
            }
        }
        refused?;
        tracing::info!(schedules = schedules.len(), "schedules of the configuration are in force");
        Ok(())
    }

    async fn configure(
        &self,
        NamedSchedule { name, request }: &NamedSchedule,
        author: &Author,
        now: Timestamp,
    ) -> Result<(), ConfigureSchedulesError> {
        let definition = Definition::of(request, None, now)
            .map_err(|fault| ConfigureSchedulesError::Wrong(name.clone(), fault))?;
        // It is set all the same: a pack may come, and another server may have it.
        if let Err(error) = job_of_now(self.settings(), name, &definition, now) {
            tracing::warn!(schedule = %name, %error, "schedule cannot fire at this server as it is");
        } else if definition.timing.next_after(now, now).is_none() {
            tracing::warn!(schedule = %name, "schedule does not fire any more");
        }
        let wanted = Wanted { definition, paused: request.paused.clone() };
        match service::set(self, name, &wanted, author).await {
            Ok(Change::Unchanged) => {}
            Ok(Change::Created | Change::Changed) => {
                tracing::info!(schedule = %name, "schedule set: commands cannot change it");
            }
            Err(error) => return Err(refused(name, &error)),
        }
        Ok(())
    }

    /// Does the same in the background, again and again until the store takes it.
    pub fn reconfigure_schedules(&self, schedules: Vec<NamedSchedule>) {
        let engine = self.clone();
        tokio::spawn(async move {
            // Older ones first.
            let _turn = engine.shared().schedules_turn.lock().await;
            let mut is_logged = false;
            while let Err(error) = engine.configure_schedules(&schedules).await {
                let is_hopeless = !error.may_pass();
                if !is_logged || is_hopeless {
                    tracing::error!("schedules of the configuration are not in force: {error}");
                    is_logged = true;
                }
                if is_hopeless || engine.shared().is_stopping() {
                    return;
                }
                // Nothing says when the store answers again.
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    /// Returns the names of the schedules that come from a configuration.
    async fn configured_schedules(&self) -> Result<Vec<ScheduleName>, ConfigureSchedulesError> {
        let mut configured = Vec::new();
        let mut after = None;
        loop {
            let query = ScheduleQuery { after, limit: PAGE };
            let page = self.store().schedules(query).await.map_err(|error| unavailable(&error))?;
            let is_last = page.len() < usize::try_from(PAGE).unwrap_or(usize::MAX);
            after = page.last().map(|last| last.name.clone());
            configured.extend(page.into_iter().filter(|it| it.state.configured).map(|it| it.name));
            if is_last {
                return Ok(configured);
            }
        }
    }
}

fn refused(name: &ScheduleName, error: &ScheduleError) -> ConfigureSchedulesError {
    match error {
        ScheduleError::Store(_) | ScheduleError::Unavailable(_) | ScheduleError::Contended(_) => {
            unavailable(error)
        }
        _ => ConfigureSchedulesError::Refused(name.clone(), error.to_string()),
    }
}

fn unavailable(error: &impl std::fmt::Display) -> ConfigureSchedulesError {
    ConfigureSchedulesError::Unavailable(error.to_string())
}
