//! Lanes: how many steps may trouble a host, a storage or an API at once.

/// The number of those steps that are in no lane. It is never entered, so nothing there is counted.
pub(crate) const NO_LANE: u32 = 0;

#[derive(Clone, Debug)]
struct State {
    width: usize,
    most: usize,
    busy: usize,
    /// Steps that ended well since the width last changed.
    calm: usize,
}

impl State {
    fn of(width: usize) -> Self {
        Self { width, most: width, busy: 0, calm: 0 }
    }
}

/// All lanes of a run, by number. A lane halves when its host complains and grows back by one for each round without complaint.
#[derive(Debug)]
pub(crate) struct Lanes {
    /// Nothing for a lane that nobody has entered.
    states: Vec<Option<State>>,
}

impl Lanes {
    /// As many lanes, numbered from one: zero is [`NO_LANE`].
    pub(crate) fn new(count: usize) -> Self {
        Self { states: vec![None; count + 1] }
    }

    /// Takes a place, if there is one. The first to enter a lane tells how wide it is.
    pub(crate) fn enter(&mut self, lane: u32, width: impl FnOnce() -> usize) -> bool {
        let state = self.states[lane as usize].get_or_insert_with(|| State::of(width()));
        let fits = state.busy < state.width;
        state.busy += usize::from(fits);
        fits
    }

    /// Gives a place back; returns the new width if it grew.
    pub(crate) fn leave(&mut self, lane: u32, well: bool) -> Option<usize> {
        let state = self.states[lane as usize].as_mut()?;
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
    pub(crate) fn complain(&mut self, lane: u32) -> Option<usize> {
        let state = self.states[lane as usize].as_mut()?;
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
        let lane = 1;
        let mut lanes = Lanes::new(1);
        assert_eq!((0..5).filter(|_| lanes.enter(lane, || 4)).count(), 4);
        assert_eq!(lanes.complain(lane), Some(2));
        assert_eq!(lanes.complain(lane), Some(1));
        assert_eq!(lanes.complain(lane), None, "one always fits");
        (0..4).for_each(|_| assert_eq!(lanes.leave(lane, false), None));
        assert!(lanes.enter(lane, || 4) && !lanes.enter(lane, || 4));
        assert_eq!(lanes.leave(lane, true), Some(2));
        assert_eq!([lanes.leave(lane, true), lanes.leave(lane, true)], [None, Some(3)]);
        assert_eq!((0..4).filter(|_| lanes.enter(lane, || 4)).count(), 3);
    }

    #[test]
    fn who_is_in_no_lane_changes_no_width() {
        let mut lanes = Lanes::new(0);
        assert_eq!((lanes.complain(NO_LANE), lanes.leave(NO_LANE, true)), (None, None));
    }
}
