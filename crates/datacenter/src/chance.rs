//! Draws that repeat themselves.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use sha2::{Digest, Sha256};

/// How long something takes: a lognormal that has this mean, and stays under `p95` in 95 of 100 draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The mean, in seconds.
    pub mean: f64,
    /// The 95th percentile, in seconds.
    pub p95: f64,
}

impl Span {
    /// A span of this mean and 95th percentile, in seconds.
    #[must_use]
    pub const fn new(mean: f64, p95: f64) -> Self {
        Self { mean, p95 }
    }

    /// The duration at this normal deviate.
    fn at(self, deviate: f64) -> f64 {
        if self.mean <= 0.0 {
            return 0.0;
        }
        // mean = exp(mu + s²/2) and p95 = exp(mu + z s), solved for the smaller s. Beyond mean * exp(z²/2) there is no
        // such lognormal; the widest one stands in.
        const Z: f64 = 1.644_853_626_951_472_2;
        let ratio = (self.p95 / self.mean).max(1.0).ln();
        let sigma = Z - (Z * Z - 2.0 * ratio).max(0.0).sqrt();
        (self.mean.ln() - sigma * sigma / 2.0 + sigma * deviate).exp()
    }
}

/// What all draws come from: a number, for worlds that are to repeat themselves, or bytes that were drawn themselves and that nobody knows.
#[derive(Clone, PartialEq, Eq)]
pub struct Seed(Vec<u8>);

impl From<u64> for Seed {
    fn from(number: u64) -> Self {
        Self(number.to_le_bytes().to_vec())
    }
}

impl From<[u8; 32]> for Seed {
    fn from(drawn: [u8; 32]) -> Self {
        Self(drawn.to_vec())
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed")
    }
}

/// Chance with a stream of its own for every purpose: a draw more of one kind moves no draw of another.
#[derive(Debug)]
pub(crate) struct Chance {
    seed: Seed,
    drawn: BTreeMap<String, u64>,
}

impl Chance {
    pub(crate) fn new(seed: impl Into<Seed>) -> Self {
        Self { seed: seed.into(), drawn: BTreeMap::new() }
    }

    /// A seed for whatever has a chance of its own: as hard to guess as this one's.
    pub(crate) fn seed(&mut self, purpose: &str) -> Seed {
        let mut drawn = self.bytes(purpose).to_vec();
        drawn.truncate(self.seed.0.len());
        Seed(drawn)
    }

    /// The next bytes of this purpose.
    pub(crate) fn bytes(&mut self, purpose: &str) -> [u8; 32] {
        let count = self.drawn.entry(purpose.to_owned()).or_insert(0);
        let mut hash = Sha256::new();
        hash.update(&self.seed.0);
        hash.update(count.to_le_bytes());
        hash.update(purpose.as_bytes());
        *count += 1;
        hash.finalize().into()
    }

    /// The next number of this purpose.
    pub(crate) fn number(&mut self, purpose: &str) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.bytes(purpose);
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// The next duration of this purpose.
    pub(crate) fn span(&mut self, purpose: &str, span: Span, factor: f64) -> Duration {
        if span.mean <= 0.0 || factor <= 0.0 {
            return Duration::ZERO;
        }
        let bytes = self.bytes(purpose);
        let unit = |at: usize| {
            let mut part = [0; 8];
            part.copy_from_slice(&bytes[at..at + 8]);
            // 53 bits, never zero.
            ((u64::from_le_bytes(part) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
        };
        let deviate = (-2.0 * unit(0).ln()).sqrt() * (std::f64::consts::TAU * unit(8)).cos();
        // Whole microseconds: what is drawn can be told, and is the same on every machine.
        Duration::from_micros((span.at(deviate) * factor * 1e6).round().min(1e15) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_its_mean_and_its_percentile() {
        let mut chance = Chance::new(7);
        let span = Span::new(14.0, 25.0);
        let mut drawn: Vec<f64> = (0..20_000).map(|_| chance.span("boot", span, 1.0).as_secs_f64()).collect();
        drawn.sort_by(f64::total_cmp);
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        assert!((mean - 14.0).abs() < 0.2, "{mean}");
        assert!((drawn[19_000] - 25.0).abs() < 0.7, "{}", drawn[19_000]);
    }

    #[test]
    fn each_purpose_has_a_stream_of_its_own() {
        let mut alone = Chance::new(1);
        let expected = [alone.number("a"), alone.number("a")];
        let mut mixed = Chance::new(1);
        let first = mixed.number("a");
        assert_ne!(mixed.number("b"), first);
        assert_eq!([first, mixed.number("a")], expected);
        assert_ne!(Chance::new(2).number("a"), first);
    }

    #[test]
    fn what_comes_of_a_secret_is_as_hard_to_guess_and_never_shown() {
        let mut secret = Chance::new([7; 32]);
        assert_eq!((secret.seed("a").0.len(), Chance::new(7).seed("a").0.len()), (32, 8));
        assert_ne!(secret.seed("a"), Chance::new([8; 32]).seed("a"));
        assert!(!format!("{secret:?}").contains('7'), "{secret:?}");
    }

    #[test]
    fn nothing_takes_no_time() {
        assert_eq!(Chance::new(1).span("x", Span::new(0.0, 0.0), 1.0), Duration::ZERO);
        assert_eq!(Chance::new(1).span("x", Span::new(1.0, 2.0), 0.0), Duration::ZERO);
    }
}
