//! Keys that sign: a client's own, given as PEM, which shows who asks an authorization server (`private_key_jwt`, RFC 7523),
//! and one of ours per login, which shows that a token is in the right hands (DPoP, `bound.rs`).

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};

/// A private key, of which nothing is shown.
pub(super) enum SigningKey {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(Box<RsaKeyPair>),
}

const UNREADABLE: &str = "the client's key cannot be read: it must be a private key in PKCS#8 (\"BEGIN PRIVATE KEY\") on \
    P-256, P-384 or Ed25519, or one of RSA; openssl pkcs8 -topk8 -nocrypt makes one of other forms";

impl SigningKey {
    /// From PEM; ends of lines may be written as `\n`, as environments have them.
    pub(super) fn of_pem(pem: &str) -> Result<Self, String> {
        let inner = pem.split_once("-----BEGIN PRIVATE KEY-----").and_then(|(_, rest)| rest.split_once("-----END"));
        let (inner, _) = inner.ok_or(UNREADABLE)?;
        let text: String = inner.replace("\\n", "").split_whitespace().collect();
        let bytes = BASE64_STANDARD.decode(text).map_err(|_| UNREADABLE)?;
        let random = SystemRandom::new();
        let p256 = || EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &bytes, &random).map(Self::P256);
        let p384 = || EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, &bytes, &random).map(Self::P384);
        let ed25519 = || Ed25519KeyPair::from_pkcs8_maybe_unchecked(&bytes).map(Self::Ed25519);
        let rsa = || RsaKeyPair::from_pkcs8(&bytes).map(|key| Self::Rsa(Box::new(key)));
        let key = p256().or_else(|_| p384()).or_else(|_| ed25519()).or_else(|_| rsa());
        key.map_err(|_| UNREADABLE.to_owned())
    }

    /// A new key on P-256, as [`SigningKey::of_kept`] reads it.
    pub(super) fn made() -> Result<String, String> {
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        Ok(BASE64_STANDARD.encode(made.map_err(|_| "no key could be made")?))
    }

    pub(super) fn of_kept(text: &str) -> Result<Self, String> {
        let bytes = BASE64_STANDARD.decode(text).map_err(|_| DAMAGED)?;
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &bytes, &SystemRandom::new());
        Ok(Self::P256(key.map_err(|_| DAMAGED)?))
    }

    /// Its name in a signed token.
    pub(super) fn algorithm(&self) -> &'static str {
        match self {
            Self::P256(_) => "ES256",
            Self::P384(_) => "ES384",
            Self::Ed25519(_) => "EdDSA",
            Self::Rsa(_) => "RS256",
        }
    }

    /// The public half, members in the order of a thumbprint. None: of a kind that binds no token.
    pub(super) fn public(&self) -> Option<Value> {
        let Self::P256(key) = self else { return None };
        // an uncompressed point: 4, x, y
        let point = key.public_key().as_ref();
        let (x, y) = point.get(1..)?.split_at_checked(32)?;
        Some(json!({"crv": "P-256", "kty": "EC", "x": url_safe(x), "y": url_safe(y)}))
    }

    /// A signed token (JWS, compact).
    pub(super) fn signed(&self, header: &Value, claims: &Value) -> Result<String, String> {
        let mut text = format!("{}.{}", url_safe(header.to_string()), url_safe(claims.to_string()));
        let random = SystemRandom::new();
        let failed = |_: ring::error::Unspecified| "the key could not sign".to_owned();
        let signature = match self {
            Self::P256(key) | Self::P384(key) => key.sign(&random, text.as_bytes()).map_err(failed)?.as_ref().to_vec(),
            Self::Ed25519(key) => key.sign(text.as_bytes()).as_ref().to_vec(),
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, text.as_bytes(), &mut signature).map_err(failed)?;
                signature
            }
        };
        text.push('.');
        text.push_str(&url_safe(signature));
        Ok(text)
    }
}

const DAMAGED: &str = "the key that its token is bound to is damaged: log in again";

/// As tokens are written.
pub(super) fn url_safe(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    #[test]
    fn what_is_signed_can_be_verified_by_the_public_half() {
        let kept = SigningKey::made().unwrap();
        let key = SigningKey::of_kept(&kept).unwrap();
        let header = json!({"alg": key.algorithm()});
        let token = key.signed(&header, &json!({"jti": "1"})).unwrap();
        let (text, signature) = token.rsplit_once('.').unwrap();
        let public = key.public().unwrap();
        let part = |name: &str| BASE64_URL_SAFE_NO_PAD.decode(public[name].as_str().unwrap()).unwrap();
        let point = [vec![4], part("x"), part("y")].concat();
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(text.as_bytes(), &signature).unwrap();
        let (header, claims) = text.split_once('.').unwrap();
        assert_eq!(BASE64_URL_SAFE_NO_PAD.decode(header).unwrap(), br#"{"alg":"ES256"}"#);
        assert_eq!(BASE64_URL_SAFE_NO_PAD.decode(claims).unwrap(), br#"{"jti":"1"}"#);
    }

    #[test]
    fn a_key_is_read_as_people_keep_it_and_never_quoted() {
        let kept = SigningKey::made().unwrap();
        for end in ["\n", "\\n", "\r\n"] {
            let pem = format!("-----BEGIN PRIVATE KEY-----{end}{kept}{end}-----END PRIVATE KEY-----{end}");
            assert_eq!(SigningKey::of_pem(&pem).unwrap().algorithm(), "ES256");
        }
        for wrong in [
            "",
            "hush-hush",
            "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----",
        ] {
            let said = SigningKey::of_pem(wrong).err().unwrap();
            assert!(said.contains("openssl pkcs8") && !said.contains("hush"), "{said}");
        }
    }
}
