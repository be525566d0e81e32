//! What a client command needs: which server, with which token, and whom it trusts.

use outlast_cli_core::client::ClientConfig;
use outlast_sdk::Tls;

use super::client_file;
use super::token::{token, token_file};
use super::value;
use super::{ConfigError, Environment, Flag, Settings};

/// Flags over the environment over the client's file over the default. Settings of other sections
/// are not looked at: a client must work beside a server's broken configuration.
pub(crate) fn load(
    flags: Vec<Flag>,
    environment: &Environment,
) -> Result<ClientConfig, ConfigError> {
    let mut settings = Settings::load(None, &environment.for_clients(), flags)?;
    client_file::add(&mut settings, environment)?;
    of(&settings)
}

/// The server, token and trust of these settings, for a command that asks the server and ends.
pub(crate) fn of(settings: &Settings) -> Result<ClientConfig, ConfigError> {
    Ok(ClientConfig {
        server: settings.get("worker.server", value::servers)?,
        token: token(settings).map_err(ConfigError::for_command)?,
        token_file: token_file(settings)?,
        tls: tls(settings)?,
    })
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
