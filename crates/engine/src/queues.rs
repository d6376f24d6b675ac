//! Steps whose needs are met and that wait for a place in their lane.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::lanes::NO_LANE;

/// The steps of one lane, by rank.
#[derive(Clone, Default)]
struct Queue {
    /// Those that need nothing, the most urgent last. Most steps of a wide graph are here, and need no sorting.
    free: Vec<u32>,
    /// Those whose needs were met later.
    freed: BinaryHeap<Reverse<u32>>,
    stirred: bool,
}

impl Queue {
    /// The most urgent.
    fn first(&self) -> Option<u32> {
        let freed = self.freed.peek().map(|&Reverse(rank)| rank);
        self.free.last().copied().into_iter().chain(freed).min()
    }

    fn remove_first(&mut self, first: u32) {
        if self.free.last() == Some(&first) {
            self.free.pop();
        } else {
            self.freed.pop();
        }
    }
}

/// The queues of all lanes, by number.
pub(crate) struct Queues {
    queues: Vec<Queue>,
    /// Lanes where something came or left since they were last looked at: only there can something start.
    stirred: Vec<u32>,
}

impl Queues {
    /// As many queues as lanes, and that of [`NO_LANE`].
    pub(crate) fn new(lanes: usize) -> Self {
        Self { queues: vec![Queue::default(); lanes + 1], stirred: Vec::new() }
    }

    /// Adds a step that needs nothing; the most urgent comes last.
    pub(crate) fn add_free(&mut self, lane: u32, rank: u32) {
        self.queues[lane as usize].free.push(rank);
        self.stir(lane);
    }

    /// Adds a step whose needs are met now.
    pub(crate) fn add_freed(&mut self, lane: u32, rank: u32) {
        self.queues[lane as usize].freed.push(Reverse(rank));
        self.stir(lane);
    }

    /// Says that a place in a lane may be free.
    pub(crate) fn stir(&mut self, lane: u32) {
        if !std::mem::replace(&mut self.queues[lane as usize].stirred, true) {
            self.stirred.push(lane);
        }
    }

    /// Takes out, of each lane, the most urgent steps as long as they fit; the most urgent of all first.
    pub(crate) fn take(&mut self, mut fits: impl FnMut(u32, u32) -> bool) -> Vec<u32> {
        let mut taken = Vec::new();
        for lane in self.stirred.drain(..) {
            let queue = &mut self.queues[lane as usize];
            queue.stirred = false;
            while let Some(first) = queue.first() {
                if lane != NO_LANE && !fits(lane, first) {
                    break;
                }
                queue.remove_first(first);
                taken.push(first);
            }
        }
        taken.sort_unstable();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_urgent_that_fit_are_taken_wherever_they_wait() {
        let mut queues = Queues::new(2);
        [9, 4, 2].into_iter().for_each(|rank| queues.add_free(1, rank));
        [8, 3].into_iter().for_each(|rank| queues.add_freed(1, rank));
        queues.add_freed(2, 1);
        queues.add_free(NO_LANE, 7);
        let mut room = 3;
        let mut fits = |lane: u32, _: u32| {
            room -= i32::from(lane == 1);
            lane == 1 && room >= 0
        };
        assert_eq!(queues.take(&mut fits), [2, 3, 4, 7], "without a lane everything fits");
        assert!(queues.take(|_, _| true).is_empty(), "nothing came or left");
        queues.stir(1);
        assert_eq!(queues.take(|_, _| true), [8, 9]);
        queues.stir(2);
        assert_eq!(queues.take(|_, _| true), [1]);
    }
}
