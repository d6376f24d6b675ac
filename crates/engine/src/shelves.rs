//! Where the steps and gates of a graph stand: those of one type side by side, not each in a place of its own.

use std::any::Any;

use crate::erased::{AnyGate, AnyStep, With};
use crate::step::{Gate, Step};
use crate::value::Needs;

/// A step or a gate.
pub(crate) enum Work<'g> {
    Step(&'g dyn AnyStep),
    Gate(&'g dyn AnyGate),
}

/// Where one stands.
#[derive(Clone, Copy)]
pub(crate) struct Spot {
    shelf: u32,
    at: u32,
}

trait Shelf: Any + Send + Sync {
    fn work(&self, at: usize) -> Work<'_>;
    /// Puts first what stood at the first of these places, and so on.
    fn arrange(&mut self, places: &[u32]);
}

fn arranged<T>(all: Vec<T>, places: &[u32]) -> Vec<T> {
    let mut all: Vec<Option<T>> = all.into_iter().map(Some).collect();
    places.iter().filter_map(|&at| all[at as usize].take()).collect()
}

struct Steps<N, S>(Vec<With<N, S>>);

impl<N: Needs, S: Step<Needs = N::Values>> Shelf for Steps<N, S> {
    fn work(&self, at: usize) -> Work<'_> {
        Work::Step(&self.0[at])
    }

    fn arrange(&mut self, places: &[u32]) {
        self.0 = arranged(std::mem::take(&mut self.0), places);
    }
}

struct Gates<N, G>(Vec<With<N, G>>);

impl<N: Needs, G: Gate<Needs = N::Values>> Shelf for Gates<N, G> {
    fn work(&self, at: usize) -> Work<'_> {
        Work::Gate(&self.0[at])
    }

    fn arrange(&mut self, places: &[u32]) {
        self.0 = arranged(std::mem::take(&mut self.0), places);
    }
}

#[derive(Default)]
pub(crate) struct Shelves {
    shelves: Vec<Box<dyn Shelf>>,
}

impl Shelves {
    pub(crate) fn put_step<N: Needs, S: Step<Needs = N::Values>>(&mut self, step: With<N, S>) -> Spot {
        self.put(step, |Steps(steps)| steps, Steps)
    }

    pub(crate) fn put_gate<N: Needs, G: Gate<Needs = N::Values>>(&mut self, gate: With<N, G>) -> Spot {
        self.put(gate, |Gates(gates)| gates, Gates)
    }

    /// There are few types, so looking through all shelves is quick.
    fn put<S: Shelf, T>(&mut self, work: T, inside: fn(&mut S) -> &mut Vec<T>, new: fn(Vec<T>) -> S) -> Spot {
        for (shelf, any) in (0..).zip(&mut self.shelves) {
            let any: &mut dyn Any = any.as_mut();
            if let Some(found) = any.downcast_mut() {
                let all = inside(found);
                all.push(work);
                return Spot { shelf, at: all.len() as u32 - 1 };
            }
        }
        self.shelves.push(Box::new(new(vec![work])));
        Spot { shelf: self.shelves.len() as u32 - 1, at: 0 }
    }

    /// Makes the order on each shelf that of the spots given, which must be all there are.
    pub(crate) fn arrange<'s>(&mut self, spots: impl Iterator<Item = &'s mut Spot>) {
        let mut places: Vec<Vec<u32>> = vec![Vec::new(); self.shelves.len()];
        for spot in spots {
            let places = &mut places[spot.shelf as usize];
            let at = std::mem::replace(&mut spot.at, places.len() as u32);
            places.push(at);
        }
        self.shelves.iter_mut().zip(&places).for_each(|(shelf, places)| shelf.arrange(places));
    }

    pub(crate) fn work(&self, spot: Spot) -> Work<'_> {
        self.shelves[spot.shelf as usize].work(spot.at as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use castle_seams::BoxFuture;

    use super::*;
    use crate::fault::Fault;
    use crate::step::Verdict;

    /// Told from others by its deadline.
    struct Brief<const KIND: u8>(u64);

    impl<const KIND: u8> Gate for Brief<KIND> {
        type Needs = ();
        type Output = ();

        fn check<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<Verdict<()>, Fault>> {
            Box::pin(std::future::ready(Ok(Verdict::Open(()))))
        }

        fn deadline(&self) -> Duration {
            Duration::from_secs(self.0)
        }
    }

    #[test]
    fn each_is_found_again_however_they_are_arranged() {
        let mut shelves = Shelves::default();
        let mut spots: Vec<(u64, Spot)> = Vec::new();
        for number in 0..10 {
            let needs = ();
            let spot = if number % 3 == 0 {
                shelves.put_gate(With { needs, inner: Brief::<0>(number) })
            } else {
                shelves.put_gate(With { needs, inner: Brief::<1>(number) })
            };
            spots.push((number, spot));
        }
        for _ in 0..3 {
            spots.sort_by_key(|&(number, spot)| ((number * 7 + u64::from(spot.at)) % 10, number));
            shelves.arrange(spots.iter_mut().map(|(_, spot)| spot));
            for &(number, spot) in &spots {
                let Work::Gate(gate) = shelves.work(spot) else { panic!("{number} is a gate") };
                assert_eq!(gate.deadline(), Duration::from_secs(number));
            }
            let mut kinds = [0, 0];
            for (_, spot) in &spots {
                assert_eq!(spot.at, kinds[spot.shelf as usize], "those of one type stand in the order given");
                kinds[spot.shelf as usize] += 1;
            }
        }
    }
}
