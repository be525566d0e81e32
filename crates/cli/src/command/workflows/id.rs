//! Workflows by a part of their ids, or by being the last.

use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};

use super::WORKFLOWS;
use crate::command::job_id::LAST;
use crate::command::newest;
use crate::last_job::{self, Last};

/// The whole id of a workflow: from its beginning, its end, or `@last`. What cannot be an id is left
/// to the server to refuse.
pub(super) async fn whole(client: &Client, given: &str) -> Result<String, Failure> {
    if given == LAST {
        let server = client.server();
        return last_job::of(Last::Workflow, &server).ok_or_else(|| {
            let message = format!("no workflow was started from here at {server}");
            Failure::new(Exit::NotFound, message).with_hint(
                "`outlast workflows run` sets @last; `outlast workflows list` shows the newest",
            )
        });
    }
    newest::whole_id(client, &WORKFLOWS, "workflow", given).await
}
