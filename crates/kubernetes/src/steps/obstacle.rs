//! What keeps a component from going to another owner, object by object.

use std::collections::BTreeSet;

use castle_engine::Fault;

use crate::model::{Key, Mark};

/// So many are told; the rest are counted.
const TOLD: usize = 8;

/// Something that is in the way.
pub(super) struct Obstacle {
    pub(super) key: Key,
    pub(super) what: String,
    pub(super) next: String,
}

impl Obstacle {
    pub(super) fn new(key: &Key, what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { key: key.clone(), what: what.into(), next: next.into() }
    }
}

/// Nothing, or one fault that tells of all that is in the way. Whatever it is, castle does not push it aside.
pub(super) fn clear(mark: &Mark, obstacles: &[Obstacle]) -> Result<(), Fault> {
    let fault = match obstacles {
        [] => return Ok(()),
        [one] => Fault::guard(one.key.to_string(), one.what.clone()),
        many => {
            let told = many.iter().take(TOLD).map(|one| format!("{}: {}", one.key, one.what)).collect::<Vec<_>>();
            let more = match many.len().saturating_sub(TOLD) {
                0 => String::new(),
                more => format!("; and {more} more"),
            };
            let subject = format!("{}/{} of {}", mark.layer, mark.component, mark.castle);
            Fault::guard(subject, format!("{}{more}", told.join("; ")))
        }
    };
    let next: BTreeSet<&str> = obstacles.iter().map(|one| one.next.as_str()).collect();
    Err(fault.next(next.into_iter().collect::<Vec<_>>().join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_in_the_way_is_told_at_once_within_bounds() {
        let (mark, key) = (Mark::new("blue", "networking", "x"), Key::new("", "ConfigMap", "n", "a"));
        assert!(clear(&mark, &[]).is_ok());
        let one = clear(&mark, &[Obstacle::new(&key, "is odd", "mend it")]).unwrap_err();
        assert_eq!((one.to_string().as_str(), one.next.as_str()), ("ConfigMap n/a: is odd", "mend it"));
        let many: Vec<Obstacle> = (0..10).map(|_| Obstacle::new(&key, "is odd", "mend it")).collect();
        let many = clear(&mark, &many).unwrap_err();
        assert!(many.guarded && many.evidence.ends_with("; and 2 more"), "{many}");
        assert_eq!(many.next, "mend it");
    }
}
