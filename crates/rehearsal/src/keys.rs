//! Keys that were minted beforehand: minting takes real time, of which there is none in virtual time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use castle_seams::{BoxFuture, KeyKind, KeyMint, MintError, PrivateKey};
use zeroize::Zeroizing;

/// How many keys of a kind there are, unless they are dear: more than one castle needs.
const MANY: usize = 24;

/// Keys in stock, the same for every world.
#[derive(Clone)]
pub struct KeyStock {
    keys: Arc<BTreeMap<KeyKind, Vec<Zeroizing<Vec<u8>>>>>,
}

impl KeyStock {
    /// Has keys of every kind minted; one of the kind that takes long.
    ///
    /// # Errors
    ///
    /// [`MintError`] if the mint fails.
    pub async fn lay_in(mint: &dyn KeyMint) -> Result<Self, MintError> {
        let mut keys: BTreeMap<KeyKind, Vec<Zeroizing<Vec<u8>>>> = BTreeMap::new();
        for (kind, count) in [(KeyKind::Ed25519, MANY), (KeyKind::EcdsaP256, MANY), (KeyKind::Rsa4096, 1)] {
            for _ in 0..count {
                let key = mint.mint(kind).await?;
                keys.entry(kind).or_default().push(Zeroizing::new(key.pkcs8_der().to_vec()));
            }
        }
        Ok(Self { keys: Arc::new(keys) })
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
        let stock = KeyStock::lay_in(&SystemKeyMint).await.unwrap();
        let (one, other) = (stock.mint(), stock.mint());
        let der = async |mint: &StockedMint, kind| mint.mint(kind).await.unwrap().pkcs8_der().to_vec();
        let first = der(&one, KeyKind::EcdsaP256).await;
        assert_ne!(first, der(&one, KeyKind::EcdsaP256).await);
        assert_eq!(first, der(&other, KeyKind::EcdsaP256).await);
        assert_eq!(der(&one, KeyKind::Rsa4096).await, der(&one, KeyKind::Rsa4096).await, "there is but one");
    }
}
