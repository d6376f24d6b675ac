//! Lanes: how many steps may trouble a host, a storage or an API at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::graph::Lane;

#[derive(Debug)]
struct State {
    width: usize,
    most: usize,
    busy: usize,
    /// Steps that ended well since the width last changed.
    calm: usize,
}

/// All lanes of a run. A lane halves when its host complains and grows back by one for each round without complaint.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    states: BTreeMap<Arc<str>, State>,
}

impl Lanes {
    fn state(&mut self, lane: &Lane) -> &mut State {
        let fresh = || State { width: lane.width, most: lane.width, busy: 0, calm: 0 };
        self.states.entry(lane.name.clone()).or_insert_with(fresh)
    }

    /// Takes a place, if there is one.
    pub(crate) fn enter(&mut self, lane: &Lane) -> bool {
        let state = self.state(lane);
        let fits = state.busy < state.width;
        state.busy += usize::from(fits);
        fits
    }

    /// Gives a place back; returns the new width if it grew.
    pub(crate) fn leave(&mut self, lane: &Lane, well: bool) -> Option<usize> {
        let state = self.state(lane);
        state.busy = state.busy.saturating_sub(1);
        state.calm += usize::from(well);
        if state.width < state.most && state.calm >= state.width {
            state.width += 1;
            state.calm = 0;
            return Some(state.width);
        }
        None
    }

    /// Takes note of a complaint; returns the new width if it shrank.
    pub(crate) fn complain(&mut self, lane: &Lane) -> Option<usize> {
        let state = self.state(lane);
        state.calm = 0;
        let width = (state.width / 2).max(1);
        (width < state.width).then(|| {
            state.width = width;
            width
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_halves_on_complaint_and_grows_back_by_one_a_round() {
        let lane = Lane::new("storage", 4);
        let mut lanes = Lanes::default();
        assert_eq!((0..5).filter(|_| lanes.enter(&lane)).count(), 4);
        assert_eq!(lanes.complain(&lane), Some(2));
        assert_eq!(lanes.complain(&lane), Some(1));
        assert_eq!(lanes.complain(&lane), None, "one always fits");
        (0..4).for_each(|_| assert_eq!(lanes.leave(&lane, false), None));
        assert!(lanes.enter(&lane) && !lanes.enter(&lane));
        assert_eq!(lanes.leave(&lane, true), Some(2));
        assert_eq!([lanes.leave(&lane, true), lanes.leave(&lane, true)], [None, Some(3)]);
        assert_eq!((0..4).filter(|_| lanes.enter(&lane)).count(), 3);
    }
}
