//! One writer at a time: asked before every effect.

use castle_seams::BoxFuture;

use crate::fault::Fault;

/// Says whether this writer may still write.
pub trait Fence: Send + Sync {
    /// The epoch under which it may.
    ///
    /// # Errors
    ///
    /// A final fault if someone else writes now: then nothing more may be done.
    fn check(&self) -> BoxFuture<'_, Result<u64, Fault>>;
}

/// A fence around nothing: for runs that nobody else could disturb.
#[derive(Clone, Copy, Debug)]
pub struct Alone {
    /// The epoch to write under.
    pub epoch: u64,
}

impl Fence for Alone {
    fn check(&self) -> BoxFuture<'_, Result<u64, Fault>> {
        Box::pin(std::future::ready(Ok(self.epoch)))
    }
}
