//! One who makes tokens, without the library that checks them: a mistake of its cannot hide here.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use serde_json::{Value, json};

/// Made for these tests alone; the library cannot make keys of this kind.
const RSA: &[u8] = include_bytes!("rsa.pk8");

/// A key of each kind, each named after its algorithm.
pub(crate) struct Issuer {
    edwards: Ed25519KeyPair,
    curve: EcdsaKeyPair,
    rsa: RsaKeyPair,
    random: SystemRandom,
}

impl Issuer {
    pub(crate) fn new() -> Self {
        let random = SystemRandom::new();
        let edwards = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let way = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let curve = EcdsaKeyPair::generate_pkcs8(way, &random).unwrap();
        Self {
            edwards: Ed25519KeyPair::from_pkcs8(edwards.as_ref()).unwrap(),
            curve: EcdsaKeyPair::from_pkcs8(way, curve.as_ref(), &random).unwrap(),
            rsa: RsaKeyPair::from_pkcs8(RSA).unwrap(),
            random,
        }
    }

    /// The set of keys that it publishes (RFC 7517).
    pub(crate) fn published(&self) -> Value {
        let rsa = ring::rsa::PublicKeyComponents::<Vec<u8>>::from(self.rsa.public());
        let [n, e] = [base64(&rsa.n), base64(&rsa.e)];
        // Uncompressed: a byte that says so, and two halves.
        let point = self.curve.public_key().as_ref();
        let [x, y] = [base64(&point[1..33]), base64(&point[33..])];
        let edwards = base64(self.edwards.public_key().as_ref());
        json!({ "keys": [
            { "kid": "EdDSA", "alg": "EdDSA", "kty": "OKP", "crv": "Ed25519", "x": edwards },
            { "kid": "ES256", "alg": "ES256", "kty": "EC", "crv": "P-256", "x": x, "y": y },
            { "kid": "RS256", "alg": "RS256", "kty": "RSA", "n": n, "e": e },
            { "kid": "PS256", "alg": "PS256", "kty": "RSA", "n": n, "e": e },
        ]})
    }

    /// A token under the key of that name.
    pub(crate) fn token(&self, algorithm: &str, claims: &Value) -> String {
        self.signed(algorithm, Some(algorithm), claims)
    }

    /// A token that may name another key than the one that signed it, or none.
    pub(crate) fn signed(&self, algorithm: &str, key_id: Option<&str>, claims: &Value) -> String {
        let said = said(algorithm, key_id, claims);
        let signature = self.signature(algorithm, said.as_bytes());
        format!("{said}.{}", base64(&signature))
    }

    /// A token that says that something of it has to be understood.
    pub(crate) fn critical(&self, claims: &Value) -> String {
        let header =
            json!({ "alg": "EdDSA", "kid": "EdDSA", "crit": ["word"], "word": 1 }).to_string();
        let said =
            format!("{}.{}", base64(header.as_bytes()), base64(claims.to_string().as_bytes()));
        format!("{said}.{}", base64(&self.signature("EdDSA", said.as_bytes())))
    }

    fn signature(&self, algorithm: &str, said: &[u8]) -> Vec<u8> {
        match algorithm {
            "EdDSA" => self.edwards.sign(said).as_ref().to_vec(),
            "ES256" => self.curve.sign(&self.random, said).unwrap().as_ref().to_vec(),
            "RS256" => self.rsa_signature(&RSA_PKCS1_SHA256, said),
            "PS256" => self.rsa_signature(&RSA_PSS_SHA256, said),
            other => panic!("there is no key for {other}"),
        }
    }

    fn rsa_signature(&self, way: &'static dyn RsaEncoding, said: &[u8]) -> Vec<u8> {
        let mut signature = vec![0; self.rsa.public().modulus_len()];
        self.rsa.sign(way, &self.random, said, &mut signature).unwrap();
        signature
    }
}

/// A token that is signed with a shared secret.
pub(crate) fn with_secret(secret: &[u8], key_id: &str, claims: &Value) -> String {
    let said = said("HS256", Some(key_id), claims);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), said.as_bytes());
    format!("{said}.{}", base64(tag.as_ref()))
}

fn said(algorithm: &str, key_id: Option<&str>, claims: &Value) -> String {
    let mut header = json!({ "typ": "JWT", "alg": algorithm });
    if let Some(id) = key_id {
        header["kid"] = id.into();
    }
    format!("{}.{}", base64(header.to_string().as_bytes()), base64(claims.to_string().as_bytes()))
}

fn base64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
