//! Masking what is written in pieces.

use std::fmt;
use std::io::{self, Write};

use zeroize::Zeroizing;

use super::{MASK, registry};

/// Passes on what is written with every registered secret masked, wherever the pieces are cut.
///
/// What may be the beginning of a secret is held back until what follows tells, also when flushed; the end of a line never
/// is one, unless a secret has several lines. What is held back when it is dropped is written then: [`Redacting::finish`]
/// does so and tells of errors.
pub struct Redacting<W: Write> {
    /// Nothing once it is finished.
    inner: Option<W>,
    held: Zeroizing<Vec<u8>>,
    /// How many of the bytes held belong to a secret whose mask is written already.
    masked: usize,
}

impl<W: Write> Redacting<W> {
    /// Writes to `inner`.
    pub fn new(inner: W) -> Self {
        Self { inner: Some(inner), held: Zeroizing::new(Vec::new()), masked: 0 }
    }

    /// Writes what is held back, and gives back what it writes to.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.release(true)?;
        self.inner.take().ok_or_else(|| io::Error::other("finished twice"))
    }

    fn release(&mut self, is_last: bool) -> io::Result<()> {
        let Some(inner) = &mut self.inner else { return Ok(()) };
        let (end, found) = {
            let registry = registry();
            let end = if is_last { self.held.len() } else { registry.unfinished(&self.held) };
            (end, registry.find(&self.held))
        };
        let (mut at, mut masked) = (self.masked, 0);
        for range in found {
            if range.start >= end.max(self.masked) {
                break;
            }
            if range.start > at {
                inner.write_all(&self.held[at..range.start])?;
            }
            // What overlaps a secret whose mask is written is told by the same mask.
            if range.start >= self.masked {
                inner.write_all(MASK.as_bytes())?;
            }
            at = at.max(range.end);
            masked = at.saturating_sub(end);
        }
        if at < end {
            inner.write_all(&self.held[at..end])?;
        }
        self.masked = masked.max(self.masked.saturating_sub(end));
        // Wiped where it stood, too: what moves up leaves a copy behind.
        let rest = Zeroizing::new(self.held[end..].to_vec());
        self.held = rest;
        Ok(())
    }
}

impl<W: Write> Write for Redacting<W> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(piece);
        self.release(false)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl<W: Write> Drop for Redacting<W> {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.release(true);
        let _ = self.flush();
    }
}

impl<W: Write> fmt::Debug for Redacting<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redacting").field("held_bytes", &self.held.len()).finish_non_exhaustive()
    }
}
