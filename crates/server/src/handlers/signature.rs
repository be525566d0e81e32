//! Signatures of webhooks, as Standard Webhooks 1.0 defines them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// What the text of a secret begins with; the rest is base64.
const PREFIX: &str = "whsec_";

/// Least and most bytes of a secret, as the standard recommends.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// What messages to one receiver are signed with.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

/// A text is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a secret is `whsec_` and 24 to 64 random bytes in base64, such as `openssl rand -base64 32` prints"
)]
pub struct BadSecret;

impl Secret {
    /// Reads a secret.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &str) -> Result<Self, BadSecret> {
        let encoded = text.trim().strip_prefix(PREFIX).ok_or(BadSecret)?;
        let bytes = STANDARD.decode(encoded).map_err(|_base64| BadSecret)?;
        if BYTES.contains(&bytes.len()) { Ok(Self(bytes)) } else { Err(BadSecret) }
    }

    /// Returns the signature of a message of this id, sent at this time in seconds.
    pub(super) fn sign(&self, id: &str, sent: i64, body: &str) -> String {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length");
        mac.update(format!("{id}.{sent}.").as_bytes());
        mac.update(body.as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the standard's specification.
    #[test]
    fn a_message_is_signed_as_the_standard_says() {
        let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature =
            secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, "{\"test\": 2432232314}");
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(format!("{secret:?}"), "Secret(***)");
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        for text in
            ["", "whsec_", "whsec_c2hvcnQ=", "whsec_not base64", "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"]
        {
            assert_eq!(Secret::parse(text), Err(BadSecret), "{text}");
        }
    }
}
