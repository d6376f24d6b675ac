//! A request that has to wait for somebody: it is begun anew once the answers are there.
//!
//! Nobody may hold the world while a webhook is asked over a connection. So a request that needs an answer gives up, says what is to
//! be asked, and is tried again with what was answered. Until its object is kept it changes nothing, and what it drew by
//! chance it draws again, so that the second try is the first with more known. An object that somebody else changed
//! meanwhile makes other questions, which are asked as well: so it is on a real server.

use std::time::Duration;

use super::webhooks::reach::{Question, Told};

/// How often a request is begun anew. Each webhook that changes objects needs one more.
pub(crate) const TRIES: usize = 64;

/// What is known of a request that was tried before.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// When it came.
    pub(crate) at: Duration,
    /// What was drawn, and for what.
    draws: Vec<(String, [u8; 32])>,
    drawn: usize,
    answers: Vec<(Question, Told)>,
    /// What is to be asked before it can go on.
    pub(crate) asks: Vec<Question>,
}

impl Trial {
    /// Begins anew, at the moment at which the first try began.
    pub(crate) fn begin(&mut self, now: Duration) {
        if self.draws.is_empty() && self.answers.is_empty() {
            self.at = now;
        }
        self.drawn = 0;
        self.asks.clear();
    }

    /// What was drawn here the last time, or what is drawn now.
    pub(crate) fn bytes(&mut self, purpose: &str, draw: impl FnOnce() -> [u8; 32]) -> [u8; 32] {
        match self.draws.get(self.drawn) {
            Some((known, bytes)) if known == purpose => {
                self.drawn += 1;
                return *bytes;
            }
            _ => self.draws.truncate(self.drawn),
        }
        let bytes = draw();
        self.draws.push((purpose.to_owned(), bytes));
        self.drawn += 1;
        bytes
    }

    /// What was answered to a question; nothing if nobody was asked yet.
    pub(crate) fn answer(&self, question: &Question) -> Option<&Told> {
        self.answers.iter().find(|(asked, _)| asked == question).map(|(_, told)| told)
    }

    /// Takes what was answered to the questions, in their order.
    pub(crate) fn learn(&mut self, told: Vec<Told>) {
        self.answers.extend(std::mem::take(&mut self.asks).into_iter().zip(told));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_drawn_is_drawn_again() {
        let mut trial = Trial::default();
        trial.begin(Duration::from_secs(1));
        assert_eq!(trial.bytes("a", || [1; 32]), [1; 32]);
        assert_eq!(trial.bytes("b", || [2; 32]), [2; 32]);
        trial.begin(Duration::from_secs(9));
        assert_eq!(trial.at, Duration::from_secs(1));
        assert_eq!(trial.bytes("a", || [9; 32]), [1; 32]);
        // Another way is taken: what comes now was never drawn.
        assert_eq!(trial.bytes("c", || [3; 32]), [3; 32]);
        trial.begin(Duration::from_secs(9));
        assert_eq!([trial.bytes("a", || [9; 32]), trial.bytes("c", || [9; 32])], [[1; 32], [3; 32]]);
    }
}
