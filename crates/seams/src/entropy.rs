//! Randomness.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use thiserror::Error;

/// The door to randomness. Everything it gives is fit for secrets.
pub trait Entropy: Send + Sync {
    /// Fills all of `bytes`.
    ///
    /// # Errors
    ///
    /// [`EntropyError`] if the source fails; `bytes` is then not to be used.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), EntropyError>;
}

/// The source of randomness failed. It does not say why.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("cannot draw {bytes} random bytes: the system's source failed")]
pub struct EntropyError {
    /// How many bytes were asked for.
    pub bytes: usize,
}

/// The system's generator, seeded by the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        let wanted = bytes.len();
        SystemRandom::new().fill(bytes).map_err(|_| EntropyError { bytes: wanted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_everything_and_never_the_same() {
        // The chance of a false alarm is 2^-256 for the first assertion and less for the second.
        let (mut one, mut two) = ([0; 32], [0; 64]);
        SystemEntropy.fill(&mut one).unwrap();
        SystemEntropy.fill(&mut two).unwrap();
        assert_ne!(one, two[..32]);
        assert_ne!(two[32..], [0; 32]);
    }

    #[test]
    fn nothing_asked_is_nothing_given() {
        assert_eq!(SystemEntropy.fill(&mut []), Ok(()));
    }

    #[test]
    fn the_error_names_what_was_asked() {
        let error = EntropyError { bytes: 32 };
        assert_eq!(error.to_string(), "cannot draw 32 random bytes: the system's source failed");
    }
}
