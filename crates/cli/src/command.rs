//! The commands, one file each.

pub(crate) mod actions;
mod await_end;
pub(crate) mod backup;
mod batch;
pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod cron;
pub(crate) mod dead_letters;
pub(crate) mod demo;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod export;
mod field_flags;
mod follow;
pub(crate) mod health;
pub(crate) mod import;
mod job_id;
pub(crate) mod jobs;
pub(crate) mod limits;
pub(crate) mod man;
pub(crate) mod migrate;
mod newest;
pub(crate) mod operations;
pub(crate) mod packs;
pub(crate) mod queues;
mod resources;
pub(crate) mod restore;
pub(crate) mod run;
mod search;
pub(crate) mod server;
pub(crate) mod sessions;
mod store;
pub(crate) mod token;
pub(crate) mod worker;
pub(crate) mod workers;
pub(crate) mod workflows;

use clap::Args;
use outlast_cli_core::client::Client;
use outlast_cli_core::exit::Failure;

use crate::config::token::TokenFlags;
use crate::config::{Environment, Flag, client};
use crate::output::Format;

/// Which server to ask, and how to print the response.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// Server to ask [default: OUTLAST_SERVER, OJS_URL, client.yaml or http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    #[command(flatten)]
    token: TokenFlags,
    #[command(flatten)]
    trust: TrustArgs,
    /// Output format: table, json or jsonl
    #[arg(short, long, value_enum, default_value_t = Format::Table, hide_possible_values = true,
          value_name = "FORMAT")]
    output: Format,
}

impl Target {
    /// How to print.
    pub(crate) const fn format(&self) -> Format {
        self.output
    }

    /// The keys that flags set.
    pub(crate) fn flags(&self) -> Vec<Flag> {
        server_flags(self.server.clone(), self.token.clone(), &self.trust)
    }

    fn client(&self, environment: &Environment) -> Result<Client, Failure> {
        Client::new(client::load(self.flags(), environment)?)
    }
}

/// Certificates for `https://`: which are trusted, and which is shown.
#[derive(Clone, Debug, Args)]
pub(crate) struct TrustArgs {
    /// Authorities trusted for https://, PEM [default: OUTLAST_CA_FILE, SSL_CERT_FILE, the system]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<String>,
    /// Certificate shown to the server, PEM [default: OUTLAST_CLIENT_CERT]
    #[arg(long, value_name = "FILE")]
    client_cert: Option<String>,
    /// Key of that certificate, PEM [default: OUTLAST_CLIENT_KEY]
    #[arg(long, value_name = "FILE")]
    client_key: Option<String>,
}

/// The keys that these flags set.
pub(crate) fn server_flags(
    server: Option<String>,
    token: TokenFlags,
    trust: &TrustArgs,
) -> Vec<Flag> {
    let mut flags = vec![
        Flag::new("worker.server", "--server", server),
        Flag::new("worker.ca_file", "--ca-file", trust.ca_file.clone()),
        Flag::new("worker.client_cert", "--client-cert", trust.client_cert.clone()),
        Flag::new("worker.client_key", "--client-key", trust.client_key.clone()),
    ];
    flags.extend(token.flags());
    flags
}

/// The settings of server and worker as text, for a test that compares them.
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
    format!("{:?} {:?} {settings:?} {daemon:?}", server.packs, server.tls)
}
