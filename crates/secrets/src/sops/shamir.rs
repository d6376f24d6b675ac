//! Shamir's secret sharing over GF(256), a share being its values and then its place, as in HashiCorp's Vault.

use castle_seams::{Entropy, EntropyError};
use zeroize::Zeroizing;

type Share = Zeroizing<Vec<u8>>;

/// The secret that `shares` are of; none if they do not belong together.
pub(super) fn combine(shares: &[Share]) -> Option<Share> {
    let length = shares.first()?.len();
    let places: Vec<u8> = shares.iter().filter_map(|share| share.last().copied()).collect();
    let distinct = places.iter().enumerate().all(|(index, place)| *place != 0 && !places[..index].contains(place));
    if length < 2 || !distinct || shares.iter().any(|share| share.len() != length) {
        return None;
    }
    let mut secret = Zeroizing::new(vec![0; length - 1]);
    for (index, byte) in secret.iter_mut().enumerate() {
        for (share, &place) in shares.iter().zip(&places) {
            // The share's part of the polynomial's value at nought.
            let others = places.iter().filter(|other| **other != place);
            let weight = others.fold(1, |weight, &other| times(weight, divided(other, other ^ place)));
            *byte ^= times(share[index], weight);
        }
    }
    Some(secret)
}

/// As many shares as `parts`, of which `threshold` give the secret back.
pub(super) fn split(
    secret: &[u8],
    parts: u8,
    threshold: u8,
    entropy: &dyn Entropy,
) -> Result<Vec<Share>, EntropyError> {
    let mut shares: Vec<Share> = (1..=parts).map(|_| Zeroizing::new(Vec::with_capacity(secret.len() + 1))).collect();
    let mut drawn = Zeroizing::new(vec![0; usize::from(threshold.saturating_sub(1))]);
    for &byte in secret {
        entropy.fill(&mut drawn)?;
        for (place, share) in (1..=parts).zip(&mut shares) {
            share.push(drawn.iter().rev().fold(0, |sum, &factor| times(sum ^ factor, place)) ^ byte);
        }
    }
    for (place, share) in (1..=parts).zip(&mut shares) {
        share.push(place);
    }
    Ok(shares)
}

/// The product in the field of AES, in constant time.
fn times(one: u8, other: u8) -> u8 {
    (0..8).rev().fold(0_u8, |sum, bit| {
        let doubled = (sum << 1) ^ ((sum >> 7) * 0x1b);
        doubled ^ (((other >> bit) & 1) * one)
    })
}

fn divided(one: u8, other: u8) -> u8 {
    // To the power of 254, which is the inverse.
    let inverse = (0..7).fold((1, other), |(product, power), _| {
        let squared = times(power, power);
        (times(product, squared), squared)
    });
    times(one, inverse.0)
}

#[cfg(test)]
mod tests {
    use castle_seams::SystemEntropy;

    use super::*;

    #[test]
    fn enough_shares_give_the_secret_and_fewer_do_not() {
        let secret: Vec<u8> = (0..32).collect();
        let shares = split(&secret, 5, 3, &SystemEntropy).unwrap();
        for chosen in [[0, 1, 2], [4, 2, 0], [1, 3, 4]] {
            let chosen: Vec<Share> = chosen.iter().map(|&index| shares[index].clone()).collect();
            assert_eq!(combine(&chosen).unwrap().as_slice(), secret);
        }
        assert_ne!(combine(&shares[..2]).unwrap().as_slice(), secret);
        assert!(combine(&[shares[0].clone(), shares[0].clone()]).is_none());
        assert!(combine(&[]).is_none());
    }

    #[test]
    fn the_field_is_that_of_aes() {
        assert_eq!(times(0x57, 0x83), 0xc1);
        for number in 1..=255 {
            assert_eq!(times(divided(1, number), number), 1);
        }
    }
}
