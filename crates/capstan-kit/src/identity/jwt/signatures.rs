//! Checks signatures of tokens, with the library that TLS uses as well. Nothing here signs tokens.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: refuse_to_sign,
    verifier_factory: verifier,
    key_utils: KeyUtils {
        rsa_pub_components_from_private_key: |_| unsupported(),
        rsa_pub_components_from_public_key: |_| unsupported(),
        ec_pub_components_from_private_key: |_, _| unsupported(),
        ed_pub_components_from_private_key: |_, _| unsupported(),
        compute_digest: |_, _| unsupported(),
    },
};

/// Installs the provider for this process. If the embedding program has installed one, that one
/// stays.
pub(super) fn install() {
    let _chosen_before = PROVIDER.install_default();
}

fn unsupported<T>() -> Result<T> {
    Err(ErrorKind::InvalidKeyFormat.into())
}

fn refuse_to_sign(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    unsupported()
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let way = match algorithm {
        Algorithm::RS256 => Way::Rsa(&RSA_PKCS1_2048_8192_SHA256),
        Algorithm::PS256 => Way::Rsa(&RSA_PSS_2048_8192_SHA256),
        Algorithm::ES256 => Way::Curve(&ECDSA_P256_SHA256_FIXED),
        Algorithm::EdDSA => Way::Curve(&ED25519),
        Algorithm::HS256
        | Algorithm::HS384
        | Algorithm::HS512
        | Algorithm::ES384
        | Algorithm::RS384
        | Algorithm::RS512
        | Algorithm::PS384
        | Algorithm::PS512
        | _ => return Err(ErrorKind::InvalidAlgorithm.into()),
    };
    Ok(Box::new(Checker { algorithm: *algorithm, way, key: key.clone() }))
}

enum Way {
    Rsa(&'static RsaParameters),
    Curve(&'static dyn VerificationAlgorithm),
}

struct Checker {
    algorithm: Algorithm,
    way: Way,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for Checker {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let checked = match (&self.way, self.key.kind()) {
            (Way::Rsa(way), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(way, message, signature)
            }
            (Way::Curve(way), DecodingKeyKind::SecretOrDer(key)) => {
                UnparsedPublicKey::new(*way, key).verify(message, signature)
            }
            (Way::Rsa(_), DecodingKeyKind::SecretOrDer(_))
            | (Way::Curve(_), DecodingKeyKind::RsaModulusExponent { .. }) => {
                return Err(Error::new());
            }
        };
        checked.map_err(|_| Error::new())
    }
}

impl JwtVerifier for Checker {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
