//! What a client command needs: which server, with which token.

use super::value;
use super::{ConfigError, Environment, Flag, Settings};

/// A server to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientConfig {
    /// Its base address.
    pub(crate) server: String,
    /// Bearer token shown to it.
    pub(crate) token: Option<String>,
}

impl ClientConfig {
    /// `--server` and `--token` over the environment over the default. Settings of other
    /// sections are not looked at: a client must work beside a server's broken configuration.
    pub(crate) fn new(
        server: Option<String>,
        token: Option<String>,
        environment: &Environment,
    ) -> Result<Self, ConfigError> {
        let flags = vec![
            Flag::new("worker.server", "--server", server),
            Flag::new("worker.token", "--token", token),
        ];
        Self::of(&Settings::load(None, &environment.for_clients(), flags)?)
    }

    /// The server and token of these settings.
    pub(crate) fn of(settings: &Settings) -> Result<Self, ConfigError> {
        Ok(Self {
            server: settings.get("worker.server", value::url)?,
            token: settings.get("worker.token", value::shown_token)?,
        })
    }
}
