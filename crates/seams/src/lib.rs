//! The only doors to the outside: the network ([`Dial`]), time ([`Clock`]), randomness ([`Entropy`], [`KeyMint`]),
//! files ([`Disk`]) and the operator's hand ([`Signals`]).
//!
//! Each door is an object-safe trait, handed to whoever needs it as an `Arc<dyn …>` through the constructor, and one
//! production implementation (`TcpDial`, `System…`). There is no bundle of all doors: a constructor that asks for
//! `Clock` and `Disk` says by that alone that it never touches the network.
//!
//! # Architecture invariant
//!
//! Nothing outside this crate touches the outside directly: the workspace's `clippy.toml` forbids it, and this crate's
//! own lifts the ban. In return this crate decides nothing: it knows no vendor, nothing of `castle.yaml`, and not that
//! a simulator exists. There are no test hooks and no `cfg(test)` behaviour: whoever wants another world implements the
//! traits. No door retries, logs, or reads the environment, and every failure names what was tried and on what.
//!
//! The asynchronous doors run on a tokio runtime with its I/O and time drivers enabled.

use std::pin::Pin;

mod calendar;
mod clock;
mod dial;
mod disk;
mod dumps;
mod entropy;
mod keys;
mod signals;

pub use calendar::calendar;
pub use clock::{Clock, Elapsed, SystemClock, deadline, spoken};
pub use dial::{ByteStream, Dial, DialError, DialErrorKind, Target, TcpDial};
pub use disk::{
    AppendFile, Disk, DiskError, DiskErrorKind, DiskOperation, FileKind, LockGuard, Metadata, SystemDisk,
    TEMPORARY_SUFFIX,
};
pub use dumps::no_core_dumps;
pub use entropy::{Entropy, EntropyError, SystemEntropy};
pub use keys::{KeyKind, KeyMint, MintError, PrivateKey, SystemKeyMint};
pub use signals::{Signal, Signals, SystemSignals, terminate};

/// What the asynchronous doors return, so that their traits stay object-safe.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
