//! Where in the file a value stands, and how to speak of it in lines and columns.

use std::ops::Deref;

/// A half-open range of bytes in the text of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// A place as people name it: both numbers start at one, columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

/// Turns byte offsets into lines and columns.
#[derive(Clone, Debug)]
pub struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    /// Indexes `text`.
    #[must_use]
    pub fn new(text: &'t str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    /// The line and column of a byte offset; an offset past the end is the end.
    #[must_use]
    pub fn position(&self, offset: usize) -> Position {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.starts.partition_point(|&start| start <= offset);
        let column = self.text[self.starts[line - 1]..offset].chars().count() + 1;
        Position { line, column }
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is written in the file.
    File(Span),
    /// It follows from what is written there.
    Derived(Span),
    /// It is the documented default.
    Default,
    /// It could not be read, which has been reported; what is said about it would only repeat that.
    Broken,
}

impl Origin {
    /// The place in the file, if there is one.
    #[must_use]
    pub fn span(self) -> Option<Span> {
        match self {
            Self::File(span) | Self::Derived(span) => Some(span),
            Self::Default | Self::Broken => None,
        }
    }

    /// The origin of something computed from a value of this origin.
    #[must_use]
    pub fn derived(self) -> Self {
        match self {
            Self::File(span) => Self::Derived(span),
            other => other,
        }
    }
}

/// A value together with its origin.
#[derive(Clone, Debug)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub origin: Origin,
}

impl<T> Sourced<T> {
    /// A value written at `span`, or otherwise originating there.
    #[must_use]
    pub fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }

    /// Another value computed from this one.
    #[must_use]
    pub fn derive<U>(&self, value: U) -> Sourced<U> {
        Sourced { value, origin: self.origin.derived() }
    }

    /// Whether this stands in for something that could not be read.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.origin == Origin::Broken
    }
}

impl<T> Deref for Sourced<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let lines = Lines::new("a: ü1\nb: 2");
        let at = |offset| {
            let Position { line, column } = lines.position(offset);
            (line, column)
        };
        assert_eq!(at(0), (1, 1));
        assert_eq!(at(5), (1, 5), "ü is two bytes and one column");
        assert_eq!(at(7), (2, 1));
        assert_eq!(at(999), (2, 5), "past the end is the end");
    }
}
