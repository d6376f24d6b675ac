//! Who waits for whom, in two flat lists: walking a large graph must not cost a jump through memory for each step.

/// From each step to others. Steps are numbers below the count given; memory ends before 32 bits do.
pub(crate) struct Edges {
    /// Where the edges of each step begin in `ends`, and behind the last where they all end.
    starts: Vec<usize>,
    ends: Vec<u32>,
}

impl Edges {
    /// The edges of `count` steps. Those of one step stay in the order in which they are given.
    pub(crate) fn new(count: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        let mut starts = vec![0; count + 1];
        for (from, _) in pairs.clone() {
            starts[from as usize + 1] += 1;
        }
        for step in 0..count {
            starts[step + 1] += starts[step];
        }
        let mut free = starts.clone();
        let mut ends = vec![0; starts[count]];
        for (from, to) in pairs {
            let next = &mut free[from as usize];
            ends[*next] = to;
            *next += 1;
        }
        Self { starts, ends }
    }

    /// Where the edges of a step lead.
    pub(crate) fn of(&self, step: u32) -> &[u32] {
        let step = step as usize;
        &self.ends[self.starts[step]..self.starts[step + 1]]
    }

    /// The same edges, the other way round.
    pub(crate) fn reversed(&self) -> Self {
        let count = self.starts.len() - 1;
        Self::new(count, (0..count as u32).flat_map(|from| self.of(from).iter().map(move |&to| (to, from))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_keep_their_order_both_ways() {
        let pairs = [(2, 1), (0, 1), (2, 0), (2, 1), (3, 2)];
        let edges = Edges::new(4, pairs.into_iter());
        let all = |edges: &Edges| (0..4).map(|step| edges.of(step).to_vec()).collect::<Vec<_>>();
        assert_eq!(all(&edges), [vec![1], vec![], vec![1, 0, 1], vec![2]]);
        assert_eq!(all(&edges.reversed()), [vec![2], vec![0, 2, 2], vec![3], vec![]]);
    }
}
