//! The commands, one file each.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod dead_letters;
pub(crate) mod demo;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod export;
mod follow;
pub(crate) mod health;
pub(crate) mod import;
pub(crate) mod jobs;
pub(crate) mod man;
pub(crate) mod migrate;
pub(crate) mod packs;
pub(crate) mod queues;
mod round;
pub(crate) mod run;
pub(crate) mod server;
mod store;
pub(crate) mod token;
pub(crate) mod worker;
pub(crate) mod workers;

use clap::Args;

use crate::client::Client;
use crate::config::Environment;
use crate::config::client::ClientConfig;
use crate::exit::Failure;
use crate::output::Format;

/// Which server to ask, and how to print its answer.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// Server to ask [default: OUTLAST_SERVER, OJS_URL or http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Bearer token [default: OUTLAST_TOKEN or OJS_AUTH_TOKEN]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// How to print: table, json or jsonl
    #[arg(short, long, value_enum, default_value_t = Format::Table, hide_possible_values = true,
          value_name = "FORMAT")]
    output: Format,
}

impl Target {
    /// How to print.
    pub(crate) const fn format(&self) -> Format {
        self.output
    }

    /// What the flags say about the server to ask.
    pub(crate) fn server_and_token(&self) -> (Option<String>, Option<String>) {
        (self.server.clone(), self.token.clone())
    }

    fn client(&self, environment: &Environment) -> Result<Client, Failure> {
        let config = ClientConfig::new(self.server.clone(), self.token.clone(), environment)?;
        Client::new(config)
    }
}

/// What server and worker are started with, as text, for a test that compares.
#[cfg(test)]
pub(crate) fn as_started(
    server: &crate::config::server::ServerConfig,
    worker: crate::config::worker::WorkerConfig,
) -> String {
    let packs = outlast_packs::PackSet::default();
    let settings = server::server_settings(server, packs);
    let daemon = worker::daemon_config(worker, &Environment::default()).map(|mut daemon| {
        daemon.variables.clear();
        daemon
    });
    format!("{:?} {settings:?} {daemon:?}", server.packs)
}
