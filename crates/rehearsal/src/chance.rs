//! Chance that repeats itself.

use std::sync::{Mutex, PoisonError};

use castle_seams::{Entropy, EntropyError};

/// Numbers that look like chance and are the same for the same seed (SplitMix64).
#[derive(Debug)]
pub struct Chance {
    state: Mutex<u64>,
}

impl Chance {
    /// The chance of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: Mutex::new(seed) }
    }

    /// The next number.
    pub fn draw(&self) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub fn below(&self, limit: u64) -> u64 {
        self.draw() % limit.max(1)
    }
}

impl Entropy for Chance {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        for chunk in bytes.chunks_mut(8) {
            let drawn = self.draw().to_le_bytes();
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
        Ok(())
    }
}
