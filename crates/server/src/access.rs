//! Who may do what: bearer tokens, their roles, and what each role allows.
//!
//! ```text
//! Authorization: Bearer … ─▶ SHA-256 ─▶ known? ─▶ role ─▶ may it do this?
//!                                        └ no: 401          └ no: 403, naming the roles that may
//! ```
//!
//! A browser may show a session instead, which was begun with a token and is of that token
//! ([`TokenHash::session_key`]). A client certificate stands in for both if neither is sent:
//! `server.tls.roles` maps names in it to roles.
//!
//! The server has only hashes of tokens, so neither its memory nor its store nor its log can leak
//! one. A server without tokens accepts every request; the configuration then makes it listen on
//! loopback.

use std::fmt;
use std::str::FromStr;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use outlast_store::idempotency::Fingerprint;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::tls::CertificateNames;

/// What a token may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Everything.
    Admin,
    /// Everything about jobs, queues and workers, except being a worker.
    Operator,
    /// Enqueue, cancel, read.
    Producer,
    /// Take jobs and report on them, read.
    Worker,
    /// Read.
    Viewer,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 5] =
        [Self::Admin, Self::Operator, Self::Producer, Self::Worker, Self::Viewer];

    /// Returns the role's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Operator => "operator",
            Self::Producer => "producer",
            Self::Worker => "worker",
            Self::Viewer => "viewer",
        }
    }

    /// The one table of roles.
    ///
    /// | | read | produce | work | operate | administer |
    /// |---|---|---|---|---|---|
    /// | viewer | x | | | | |
    /// | producer | x | x | | | |
    /// | worker | x | | x | | |
    /// | operator | x | x | | x | |
    /// | admin | x | x | x | x | x |
    #[must_use]
    pub const fn allows(self, permission: Scope) -> bool {
        match permission {
            Scope::Nothing | Scope::Read => true,
            Scope::Produce => matches!(self, Self::Admin | Self::Operator | Self::Producer),
            // An operator's token, often on a laptop, cannot take jobs and make up results.
            Scope::Work => matches!(self, Self::Admin | Self::Worker),
            Scope::Operate => matches!(self, Self::Admin | Self::Operator),
            Scope::Administer => matches!(self, Self::Admin),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a request needs its token to allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// No token at all: probes of liveness and readiness, the description of the API.
    Nothing,
    /// Looking at anything: jobs, workers, queues, metrics, events.
    Read,
    /// Enqueueing and cancelling jobs.
    Produce,
    /// Being a worker: the native session; fetch, ack, nack and heartbeat.
    Work,
    /// Orders to workers and queues, retries, dead letters.
    Operate,
    /// Emptying the store.
    Administer,
}

impl Scope {
    /// Lists the roles that allow it, the smallest first.
    pub(crate) fn roles(self) -> String {
        let mut names: Vec<_> =
            Role::ALL.iter().rev().filter(|role| role.allows(self)).map(|r| r.as_str()).collect();
        let last = names.pop().unwrap_or("admin");
        if names.is_empty() { last.to_owned() } else { format!("{} or {last}", names.join(", ")) }
    }
}

/// The SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Hashes a token.
    #[must_use]
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Returns the bytes of the hash.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns what sessions of this token are stored under. It is gone with the token, whatever its
    /// name; and it is not the hash by which the token is known.
    #[must_use]
    pub fn session_key(&self) -> Fingerprint {
        Sha256::new().chain_update(b"session of ").chain_update(self.0).finalize().into()
    }

    fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(hidden)")
    }
}

/// The text is not a SHA-256 hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not 64 hexadecimal digits")]
pub struct InvalidTokenHash;

impl FromStr for TokenHash {
    type Err = InvalidTokenHash;

    fn from_str(text: &str) -> Result<Self, InvalidTokenHash> {
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let digits: Option<Vec<u8>> = text.as_bytes().iter().map(digit).collect();
        let pairs = digits.ok_or(InvalidTokenHash)?;
        let bytes: Vec<u8> = pairs
            .chunks_exact(2)
            .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
            .collect();
        let whole = pairs.len() == 64;
        bytes.try_into().ok().filter(|_| whole).map(Self).ok_or(InvalidTokenHash)
    }
}

/// A token, or a name in certificates that has a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownToken {
    /// Name of its holder, for messages and the event log.
    pub name: String,
    /// What it may be used for.
    pub role: Role,
    /// Its hash.
    pub hash: TokenHash,
}

impl KnownToken {
    /// Whether a browser may sign in with it. A worker's token is on every host with workers.
    const fn may_sign_in(&self) -> bool {
        !matches!(self.role, Role::Worker)
    }
}

/// All tokens and names in certificates; may be replaced at any time.
#[derive(Debug, Default)]
pub struct Access {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    tokens: Vec<KnownToken>,
    /// By the name in the certificate.
    certificates: Vec<KnownToken>,
}

/// What a client authenticates with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credentials<'a> {
    /// Its `Authorization` header.
    pub authorization: Option<&'a str>,
    /// The token that its session is of, if it has one.
    pub session: Option<&'a KnownToken>,
    /// Names in its certificate, the common name first.
    pub certificate: Option<&'a CertificateNames>,
}

/// Who a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// Anybody: no token is needed.
    Anybody,
    /// The holder of a token.
    Token(KnownToken),
    /// A browser that is signed in with a token.
    Session(KnownToken),
    /// The holder of a certificate.
    Certificate(KnownToken),
}

/// Why a browser is not signed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignInRefusal {
    /// The token is unknown.
    #[error("this server does not know that token")]
    Unknown,
    /// It is a worker's.
    #[error("that is a token for workers, which cannot sign in")]
    Worker,
}

/// Why a request is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The token is missing or unknown.
    #[error("{0}")]
    Unauthenticated(String),
    /// Neither a token nor a certificate came with the request.
    #[error("{message}")]
    NoCredentials {
        /// What the server requires.
        message: String,
        /// What would do: `token`, `certificate`.
        accepts: &'static [&'static str],
    },
    /// The token's role does not allow it.
    #[error("{0}")]
    Forbidden(String),
}

impl Access {
    /// Returns access for these tokens, and for these names in certificates with their roles.
    /// With none of either, everything is allowed.
    #[must_use]
    pub fn new(tokens: Vec<KnownToken>, roles: Vec<(String, Role)>) -> Self {
        Self { known: RwLock::new(Known::new(tokens, roles)) }
    }

    /// Replaces tokens and names. Returns what the sessions of tokens are stored under that are gone, or
    /// can no longer sign in.
    pub fn replace(&self, tokens: Vec<KnownToken>, roles: Vec<(String, Role)>) -> Vec<Fingerprint> {
        let after = Known::new(tokens, roles);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *known, after);
        let keys = before.tokens.iter().map(|token| token.hash.session_key());
        keys.filter(|key| known.of_session(key).is_none()).collect()
    }

    /// Returns whether anyone can sign in: whether there are tokens.
    #[must_use]
    pub fn has_tokens(&self) -> bool {
        !self.known().tokens.is_empty()
    }

    /// Returns the token that a browser signs in with.
    ///
    /// # Errors
    /// Returns why it is not signed in.
    pub fn sign_in(&self, token: &str) -> Result<KnownToken, SignInRefusal> {
        let known = self.known();
        let found = known.with_hash(&TokenHash::of(token.trim()));
        let found = found.ok_or(SignInRefusal::Unknown)?;
        if found.may_sign_in() { Ok(found.clone()) } else { Err(SignInRefusal::Worker) }
    }

    /// Returns the token that a session is of, as it is now.
    #[must_use]
    pub fn of_session(&self, key: &Fingerprint) -> Option<KnownToken> {
        self.known().of_session(key).cloned()
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether everything is allowed without a token.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.known().is_open()
    }

    /// Checks a client's credentials against what a request needs, and returns who it is.
    ///
    /// # Errors
    /// Returns what is wrong with the token, or which roles would do.
    pub fn check(
        &self,
        shown: Credentials<'_>,
        permission: Scope,
        what: fmt::Arguments<'_>,
    ) -> Result<Principal, Denied> {
        let known = self.known();
        if known.is_open() || permission == Scope::Nothing {
            return Ok(Principal::Anybody);
        }
        let found = known.identify(shown)?;
        let (kind, known) = match &found {
            Principal::Anybody => return Ok(found),
            Principal::Token(token) | Principal::Session(token) => ("token", token),
            Principal::Certificate(name) => ("certificate", name),
        };
        if known.role.allows(permission) {
            return Ok(found);
        }
        let KnownToken { name, role, .. } = known;
        let roles = permission.roles();
        Err(Denied::Forbidden(format!(
            "{kind} {name:?} has the role {role}; {what} needs the role {roles}"
        )))
    }
}

impl Known {
    fn new(tokens: Vec<KnownToken>, roles: Vec<(String, Role)>) -> Self {
        let certificate = |(name, role): (String, Role)| {
            // Never compared with a token's. It separates the idempotency keys of clients.
            let hash = TokenHash::of(&format!("certificate {name}"));
            KnownToken { name, role, hash }
        };
        Self { tokens, certificates: roles.into_iter().map(certificate).collect() }
    }

    const fn is_open(&self) -> bool {
        self.tokens.is_empty() && self.certificates.is_empty()
    }

    fn identify(&self, shown: Credentials<'_>) -> Result<Principal, Denied> {
        if let (None, Some(token)) = (shown.authorization, shown.session) {
            return Ok(Principal::Session(token.clone()));
        }
        match (shown.authorization, shown.certificate) {
            (Some(header), _) if !self.tokens.is_empty() => {
                self.token(header).cloned().map(Principal::Token)
            }
            (_, Some(names)) => self.certificate(names).cloned().map(Principal::Certificate),
            _ => {
                let (wanted, accepts): (_, &[_]) =
                    match (self.tokens.is_empty(), self.certificates.is_empty()) {
                        (_, true) => ("a bearer token", &["token"]),
                        (true, false) => ("a client certificate", &["certificate"]),
                        (false, false) => {
                            ("a bearer token or a client certificate", &["token", "certificate"])
                        }
                    };
                let message = format!("this server requires {wanted}");
                Err(Denied::NoCredentials { message, accepts })
            }
        }
    }

    fn token(&self, header: &str) -> Result<&KnownToken, Denied> {
        let refuse = |message: &str| Denied::Unauthenticated(message.to_owned());
        let (scheme, token) = header.trim().split_once(' ').unwrap_or((header, ""));
        if !scheme.eq_ignore_ascii_case("bearer") || token.trim().is_empty() {
            return Err(refuse("the Authorization header is not of the form `Bearer TOKEN`"));
        }
        let found = self.with_hash(&TokenHash::of(token.trim()));
        found.ok_or_else(|| refuse("the bearer token is not known to this server"))
    }

    fn with_hash(&self, shown: &TokenHash) -> Option<&KnownToken> {
        // Compares every hash, so that timing reveals nothing about any of them.
        let mut found = None;
        for known in &self.tokens {
            if known.hash.is(shown) {
                found = Some(known);
            }
        }
        found
    }

    fn of_session(&self, key: &Fingerprint) -> Option<&KnownToken> {
        let mut all = self.tokens.iter().filter(|token| token.may_sign_in());
        all.find(|token| token.hash.session_key().ct_eq(key).into())
    }

    fn certificate(&self, names: &CertificateNames) -> Result<&KnownToken, Denied> {
        let mut shown = names.0.iter();
        let found = shown.find_map(|name| self.certificates.iter().find(|it| it.name == *name));
        found.ok_or_else(|| {
            Denied::Forbidden(format!(
                "no name in the client certificate has a role in `server.tls.roles`; its names \
                 are {:?}",
                names.0
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        let token = |role: Role| KnownToken {
            name: format!("a {role}"),
            role,
            hash: TokenHash::of(&format!("secret-{role}")),
        };
        Access::new(Role::ALL.map(token).to_vec(), vec![("ci".to_owned(), Role::Producer)])
    }

    fn check(authorization: Option<&str>, permission: Scope) -> Result<(), Denied> {
        let shown = Credentials { authorization, ..Credentials::default() };
        access().check(shown, permission, format_args!("this")).map(drop)
    }

    #[test]
    fn every_role_allows_what_the_table_says() {
        let table = [
            (Scope::Read, "viewer producer worker operator admin"),
            (Scope::Produce, "producer operator admin"),
            (Scope::Work, "worker admin"),
            (Scope::Operate, "operator admin"),
            (Scope::Administer, "admin"),
        ];
        for (permission, allowed) in table {
            for role in Role::ALL {
                let shown = format!("Bearer secret-{role}");
                let allows = allowed.split(' ').any(|word| word == role.as_str());
                assert_eq!(
                    check(Some(&shown), permission).is_ok(),
                    allows,
                    "{role} {permission:?}"
                );
            }
        }
    }

    #[test]
    fn refusal_names_the_token_its_role_and_the_roles_that_would_do() {
        let refused = check(Some("Bearer secret-viewer"), Scope::Produce);
        let message = r#"token "a viewer" has the role viewer; this needs the role producer, operator or admin"#;
        assert_eq!(refused, Err(Denied::Forbidden(message.to_owned())));
    }

    #[test]
    fn whatever_is_no_known_token_is_unauthenticated() {
        let long = format!("Bearer {}", "x".repeat(10_000));
        for header in [
            None,
            Some(""),
            Some("Bearer"),
            Some("Bearer "),
            Some("Basic secret-admin"),
            Some("secret-admin"),
            Some("Bearer secret-admin2"),
            Some(long.as_str()),
        ] {
            let refused = check(header, Scope::Read);
            let is_unknown = match header {
                None => matches!(refused, Err(Denied::NoCredentials { .. })),
                Some(_) => matches!(refused, Err(Denied::Unauthenticated(_))),
            };
            assert!(is_unknown, "{header:?}");
        }
        assert_eq!(check(Some("bearer  secret-admin"), Scope::Administer), Ok(()));
    }

    #[test]
    fn without_tokens_everybody_may_do_everything() {
        let open = Access::default();
        assert_eq!(
            open.check(Credentials::default(), Scope::Administer, format_args!("this")),
            Ok(Principal::Anybody)
        );
    }

    #[test]
    fn a_certificate_has_the_role_of_the_first_name_that_has_one() {
        let names = |all: &[&str]| CertificateNames(all.iter().map(|&it| it.to_owned()).collect());
        let check = |certificate: &CertificateNames, permission| -> Result<String, Denied> {
            let shown = Credentials { certificate: Some(certificate), ..Credentials::default() };
            match access().check(shown, permission, format_args!("this"))? {
                Principal::Certificate(found) => Ok(found.name),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(check(&names(&["host", "ci"]), Scope::Produce), Ok("ci".to_owned()));
        let small = check(&names(&["ci"]), Scope::Work).unwrap_err().to_string();
        assert!(small.starts_with(r#"certificate "ci" has the role producer"#), "{small}");
        let strange = check(&names(&["host"]), Scope::Read).unwrap_err();
        assert!(matches!(&strange, Denied::Forbidden(words) if words.contains("host")));
    }

    #[test]
    fn what_is_known_may_be_replaced() {
        let access = Access::default();
        access.replace(Vec::new(), vec![("ci".to_owned(), Role::Viewer)]);
        let refused = access.check(Credentials::default(), Scope::Read, format_args!("this"));
        assert!(refused.unwrap_err().to_string().contains("requires a client certificate"));
    }

    #[test]
    fn session_is_of_one_token_and_ends_with_it() {
        let access = access();
        let key = |role: Role| TokenHash::of(&format!("secret-{role}")).session_key();
        let viewer = access.sign_in(" secret-viewer ").unwrap();
        assert_eq!(viewer.hash.session_key(), key(Role::Viewer));
        assert_ne!(&viewer.hash.session_key(), viewer.hash.bytes());
        assert_eq!(access.of_session(&key(Role::Viewer)), Some(viewer.clone()));
        assert_eq!(access.sign_in("secret-worker"), Err(SignInRefusal::Worker));
        assert_eq!(access.sign_in("secret-x"), Err(SignInRefusal::Unknown));
        assert_eq!(access.of_session(&key(Role::Worker)), None, "it never signed in");
        // Another token of the same name, and one that has become an administrator's.
        let admin = KnownToken { role: Role::Admin, ..viewer.clone() };
        let other = KnownToken { hash: TokenHash::of("another secret"), ..viewer };
        assert_eq!(
            access.replace(vec![other, admin], Vec::new()),
            [Role::Admin, Role::Operator, Role::Producer, Role::Worker].map(key)
        );
        assert_eq!(access.of_session(&key(Role::Viewer)).map(|it| it.role), Some(Role::Admin));
    }

    #[test]
    fn header_goes_before_a_session_and_a_session_before_a_certificate() {
        let access = access();
        let token = access.sign_in("secret-viewer").unwrap();
        let names = CertificateNames(vec!["ci".to_owned()]);
        let check = |authorization| {
            let shown =
                Credentials { authorization, session: Some(&token), certificate: Some(&names) };
            access.check(shown, Scope::Read, format_args!("this"))
        };
        assert_eq!(check(None), Ok(Principal::Session(token.clone())));
        let named = |found| matches!(found, Ok(Principal::Token(it)) if it.role == Role::Admin);
        assert!(named(check(Some("Bearer secret-admin"))));
        assert!(check(Some("Bearer secret-x")).is_err());
    }

    #[test]
    fn a_hash_is_read_back_as_it_was_written() {
        let hash = TokenHash::of("abc");
        let text = hash.to_string();
        assert_eq!(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(text.to_uppercase().parse(), Ok(hash));
        for wrong in ["", "ba78", &text[1..], &format!("{text}0"), &text.replace('b', "g")] {
            assert_eq!(wrong.parse::<TokenHash>(), Err(InvalidTokenHash), "{wrong}");
        }
    }
}
