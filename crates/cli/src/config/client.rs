//! What a client command needs: which server, with which token, and whom it trusts.

use outlast_sdk::Tls;

use super::token::token;
use super::value;
use super::{ConfigError, Environment, Flag, Settings};

/// A server to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientConfig {
    /// Its base address.
    pub(crate) server: String,
    /// Bearer token shown to it.
    pub(crate) token: Option<String>,
    /// How its certificate is judged, and which one is shown to it.
    pub(crate) tls: Tls,
}

impl ClientConfig {
    /// Flags over the environment over the default. Settings of other sections are not looked
    /// at: a client must work beside a server's broken configuration.
    pub(crate) fn new(flags: Vec<Flag>, environment: &Environment) -> Result<Self, ConfigError> {
        Self::of(&Settings::load(None, &environment.for_clients(), flags)?)
    }

    /// The server, token and trust of these settings.
    pub(crate) fn of(settings: &Settings) -> Result<Self, ConfigError> {
        Ok(Self {
            server: settings.get("worker.server", value::url)?,
            token: token(settings)?,
            tls: tls(settings)?,
        })
    }

    /// A server of our own, which asks for nothing.
    pub(crate) fn plain(server: String) -> Self {
        Self { server, token: None, tls: Tls::new() }
    }
}

/// Whom clients and workers trust, and what they show.
pub(crate) fn tls(settings: &Settings) -> Result<Tls, ConfigError> {
    let mut tls = Tls::new();
    if let Some(file) = settings.get("worker.ca_file", value::file)? {
        tls = tls.ca_file(file);
    }
    let certificate = settings.get("worker.client_cert", value::file)?;
    match (certificate, settings.get("worker.client_key", value::file)?) {
        (Some(certificate), Some(key)) => Ok(tls.client_certificate(certificate, key)),
        (None, None) => Ok(tls),
        (Some(_), None) | (None, Some(_)) => Err(ConfigError::together(
            "a client certificate and its key go together".to_owned(),
            "set both --client-cert and --client-key, or worker.client_cert and worker.client_key",
        )),
    }
}
