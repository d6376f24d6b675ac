//! Masking: what is registered as secret is taken out of any text before anybody sees it.
//!
//! This is the second line. The first is that no text holds a secret; this one catches what slips through: the sentence
//! of a server that repeats what it was told, an error of a library that quotes its input.
//!
//! # What is registered
//!
//! Values from outside: what is read from files, the environment, SOPS files and the vault ([`crate::Secret::registered`]),
//! and what castle itself keeps for long. Masked are the value as it is, in base64 (both alphabets, padded or not, wherever
//! in a larger text it begins), percent-encoded, in hexadecimal, escaped as in JSON and as Rust shows texts; and of
//! text with several lines each line of a PEM block, and each long run of base64.
//!
//! # What is too short
//!
//! A value with fewer than [`SHORTEST`] bytes, or with fewer than four different ones, is not registered: `admin`, `true` or
//! `00000000` would blank what people need to read. Nobody should keep such a secret, and nothing here could.
//!
//! A value with more than [`LONGEST_ENCODED`] bytes is masked as it is and in parts, but in no other form: nobody shows a
//! sentence of that length.
//!
//! # Words of one's own
//!
//! A secret may be an ordinary word, and castle's sentences are made of such words. What comes from outside (values, answers, evidence) is masked by
//! [`redact()`] where it comes in; whole sentences, which castle itself has written around that, by [`redact_own`], which leaves a
//! secret that is nothing but a word of castle's own ([`speak`]) as it is: there it tells nobody anything.
//!
//! # What is left in memory
//!
//! The registry holds copies of what it masks as long as the process lives, and wipes them should it ever be dropped. That
//! is one of the reasons for which core dumps are off (`castle_seams::no_core_dumps`).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Bound, Range};
use std::panic::PanicHookInfo;
use std::sync::{Mutex, MutexGuard, PoisonError};

mod forms;
#[cfg(test)]
mod tests;
mod writer;

use forms::Form;
pub use writer::Redacting;

/// What stands where a secret stood.
pub const MASK: &str = "[secret]";

/// Values with fewer bytes are not registered.
pub const SHORTEST: usize = 8;

/// Values with more bytes are masked in their own form alone.
pub const LONGEST_ENCODED: usize = 128 << 10;

static REGISTRY: Mutex<Registry> = Mutex::new(Registry::new());

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets a value be masked from now on, in all its forms, wherever this process redacts.
pub(crate) fn register(value: &str) {
    registry().add(value);
}

/// The text with every registered secret replaced by [`MASK`].
#[must_use]
pub fn redact(text: &str) -> Cow<'_, str> {
    registry().redact(text)
}

/// The same for a sentence of castle's own, in which what comes from outside is masked already: its own words stay.
#[must_use]
pub fn redact_own(text: &str) -> Cow<'_, str> {
    registry().redact_but(text, true)
}

/// The words that sentences of one's own are made of, one a line.
pub fn speak(words: &'static str) {
    registry().own_words = words;
}

/// Whether a value would be masked: a shorter or plainer one would blank what people need to read.
#[must_use]
pub fn is_masked(value: &str) -> bool {
    forms::is_fit(value.trim())
}

/// What a panic hook may show: where it happened, and nothing of what was said there.
#[must_use]
pub fn panic_text(panic: &PanicHookInfo<'_>) -> String {
    let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    redact(&format!("castle stopped at {place}: this is a mistake in castle, please report it")).into_owned()
}

/// What is masked. The process has one; tests have their own.
struct Registry {
    forms: BTreeSet<Form>,
    /// A bit for what each form begins with: most places of most texts are passed over by it. Empty until there is a form.
    filter: Vec<u64>,
    longest: usize,
    /// Words that are not masked in sentences of one's own.
    own_words: &'static str,
}

/// What a place of a text begins with, as far as the filter looks.
fn bit_of(beginning: &[u8; SHORTEST]) -> (usize, u64) {
    // The upper bits of a product with an odd number that has no pattern depend on all of the bytes.
    let mixed = u64::from_le_bytes(*beginning).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 46;
    ((mixed >> 6) as usize, 1 << (mixed & 63))
}

impl Registry {
    /// 2^18 bits: a thousand secrets with all their forms set one in ten.
    const WORDS: usize = 1 << 12;

    const fn new() -> Self {
        Self { forms: BTreeSet::new(), filter: Vec::new(), longest: 0, own_words: "" }
    }

    fn add(&mut self, value: &str) {
        for form in forms::of(value) {
            let Some(beginning) = form.bytes().first_chunk() else { continue };
            let (word, bit) = bit_of(beginning);
            self.filter.resize(Self::WORDS, 0);
            self.filter[word] |= bit;
            self.longest = self.longest.max(form.bytes().len());
            self.forms.insert(form);
        }
    }

    fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.redact_but(text, false)
    }

    fn redact_but<'a>(&self, text: &'a str, spares_own: bool) -> Cow<'a, str> {
        let found = self.find_but(text.as_bytes(), spares_own);
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        let (mut shown, mut at) = (String::with_capacity(text.len()), 0);
        for range in found {
            // A form is whole letters, so it is found between letters.
            shown.push_str(text.get(at..range.start).unwrap_or_default());
            shown.push_str(MASK);
            at = range.end;
        }
        shown.push_str(text.get(at..).unwrap_or_default());
        Cow::Owned(shown)
    }

    /// Where secrets are; those that overlap are one.
    fn find(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        self.find_but(bytes, false)
    }

    fn find_but(&self, bytes: &[u8], spares_own: bool) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        if self.forms.is_empty() {
            return found;
        }
        for at in 0..bytes.len() {
            let Some(end) = self.longest_at(&bytes[at..], spares_own).map(|length| at + length) else { continue };
            match found.last_mut() {
                Some(last) if at < last.end => last.end = last.end.max(end),
                _ => found.push(at..end),
            }
        }
        found
    }

    /// The longest form that a text begins with.
    fn longest_at(&self, text: &[u8], spares_own: bool) -> Option<usize> {
        let beginning = text.first_chunk()?;
        let (word, bit) = bit_of(beginning);
        if self.filter.get(word)? & bit == 0 {
            return None;
        }
        let from = (Bound::Included(beginning.as_slice()), Bound::Unbounded);
        let alike = self.forms.range::<[u8], _>(from).take_while(|form| form.bytes().starts_with(beginning));
        let found = alike.filter(|form| text.starts_with(form.bytes()));
        found.filter(|form| !(spares_own && self.is_own(form))).map(|form| form.bytes().len()).max()
    }

    /// Whether a form is nothing but a word of one's own, or a part of one.
    fn is_own(&self, form: &Form) -> bool {
        let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_');
        let word = std::str::from_utf8(form.bytes()).ok().filter(|word| word.bytes().all(|byte| is_letter(&byte)));
        word.is_some_and(|word| self.own_words.contains(word))
    }

    /// Where the last part begins that may become a secret with what follows.
    fn unfinished(&self, bytes: &[u8]) -> usize {
        let first = bytes.len().saturating_sub(self.longest);
        (first..bytes.len()).find(|&at| self.is_beginning(&bytes[at..])).unwrap_or(bytes.len())
    }

    fn is_beginning(&self, part: &[u8]) -> bool {
        let longer = self.forms.range::<[u8], _>((Bound::Excluded(part), Bound::Unbounded)).next();
        longer.is_some_and(|form| form.bytes().starts_with(part))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("forms", &self.forms.len()).finish_non_exhaustive()
    }
}
