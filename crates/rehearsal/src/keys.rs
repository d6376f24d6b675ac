//! Keys that were minted beforehand: minting takes real time, of which there is none in virtual time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use castle_seams::{BoxFuture, KeyKind, KeyMint, MintError, PrivateKey};
use zeroize::Zeroizing;

/// Keys in stock, the same for every world.
#[derive(Clone)]
pub struct KeyStock {
    keys: Arc<BTreeMap<KeyKind, Vec<Zeroizing<Vec<u8>>>>>,
}

impl KeyStock {
    /// Has so many keys of each of these kinds minted.
    ///
    /// # Errors
    ///
    /// [`MintError`] if the mint fails.
    pub async fn lay_in(mint: &dyn KeyMint, wanted: &[(KeyKind, usize)]) -> Result<Self, MintError> {
        let mut keys: BTreeMap<KeyKind, Vec<Zeroizing<Vec<u8>>>> = BTreeMap::new();
        for &(kind, count) in wanted {
            for _ in 0..count {
                let key = mint.mint(kind).await?;
                keys.entry(kind).or_default().push(Zeroizing::new(key.pkcs8_der().to_vec()));
            }
        }
        Ok(Self { keys: Arc::new(keys) })
    }

    /// All of them, as PKCS #8 has them.
    pub fn keys(&self) -> impl Iterator<Item = (KeyKind, &[u8])> {
        self.keys.iter().flat_map(|(kind, keys)| keys.iter().map(|der| (*kind, der.as_slice())))
    }

    /// A mint that hands them out in their order, and again from the first once all are given.
    #[must_use]
    pub fn mint(&self) -> StockedMint {
        StockedMint { stock: self.clone(), given: Mutex::default() }
    }
}

/// Hands out keys of a stock.
pub struct StockedMint {
    stock: KeyStock,
    given: Mutex<BTreeMap<KeyKind, usize>>,
}

impl KeyMint for StockedMint {
    fn mint(&self, kind: KeyKind) -> BoxFuture<'_, Result<PrivateKey, MintError>> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let count = given.entry(kind).or_default();
        let keys = self.stock.keys.get(&kind).map(Vec::as_slice).unwrap_or_default();
        let key = keys.get(*count % keys.len().max(1)).cloned();
        *count += 1;
        let key = key.map(|der| PrivateKey::from_pkcs8_der(kind, der)).ok_or(MintError::Failed { kind });
        Box::pin(async { key })
    }
}

#[cfg(test)]
mod tests {
    use castle_seams::SystemKeyMint;

    use super::*;

    #[tokio::test]
    async fn the_same_keys_in_the_same_order() {
        let stock = KeyStock::lay_in(&SystemKeyMint, &[(KeyKind::EcdsaP256, 3), (KeyKind::Ed25519, 1)]).await.unwrap();
        let (one, other) = (stock.mint(), stock.mint());
        let der = async |mint: &StockedMint, kind| mint.mint(kind).await.unwrap().pkcs8_der().to_vec();
        let first = der(&one, KeyKind::EcdsaP256).await;
        assert_ne!(first, der(&one, KeyKind::EcdsaP256).await);
        assert_eq!(first, der(&other, KeyKind::EcdsaP256).await);
        assert_eq!(der(&one, KeyKind::Ed25519).await, der(&one, KeyKind::Ed25519).await, "there is but one");
        assert!(one.mint(KeyKind::Rsa4096).await.is_err(), "there is none");
    }
}
