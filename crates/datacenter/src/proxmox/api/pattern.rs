//! Regular expressions, as far as the vendor's patterns go: groups, alternatives, classes, repetition, anchors.
//!
//! Matching follows all readings at once, so that no pattern takes exponential time.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::str::Chars;

/// Whether the whole of a value matches. A pattern that cannot be read matches nothing.
pub(super) fn matches(pattern: &str, value: &str) -> bool {
    let Some(node) = read(pattern) else { return false };
    let text: Vec<char> = value.chars().collect();
    node.ends(&text, &BTreeSet::from([0])).contains(&text.len())
}

/// A pattern that was understood.
pub(super) fn read(pattern: &str) -> Option<Node> {
    let mut rest = pattern.chars().peekable();
    let node = either(&mut rest)?;
    rest.peek().is_none().then_some(node)
}

#[derive(Debug)]
pub(super) enum Node {
    One(Class),
    Start,
    End,
    Sequence(Vec<Node>),
    Either(Vec<Node>),
    Repeat { inner: Box<Node>, least: usize, most: Option<usize> },
}

#[derive(Debug, Clone)]
pub(super) struct Class {
    ranges: Vec<(char, char)>,
    spaces: bool,
    words: bool,
    negated: bool,
}

type Rest<'a> = Peekable<Chars<'a>>;

fn either(rest: &mut Rest<'_>) -> Option<Node> {
    let mut branches = vec![sequence(rest)?];
    while rest.next_if_eq(&'|').is_some() {
        branches.push(sequence(rest)?);
    }
    Some(Node::Either(branches))
}

fn sequence(rest: &mut Rest<'_>) -> Option<Node> {
    let mut nodes = Vec::new();
    while rest.peek().is_some_and(|next| !matches!(next, '|' | ')')) {
        let node = atom(rest)?;
        nodes.push(repeated(rest, node)?);
    }
    Some(Node::Sequence(nodes))
}

fn atom(rest: &mut Rest<'_>) -> Option<Node> {
    Some(match rest.next()? {
        '(' => {
            if rest.next_if_eq(&'?').is_some() {
                rest.next_if_eq(&':')?;
            }
            let inner = either(rest)?;
            rest.next_if_eq(&')')?;
            inner
        }
        '[' => Node::One(class(rest)?),
        '\\' => Node::One(escape(rest.next()?)?),
        '^' => Node::Start,
        '$' => Node::End,
        '.' => Node::One(Class { negated: true, ..Class::one('\n') }),
        '*' | '+' | '?' | '{' => return None,
        plain => Node::One(Class::one(plain)),
    })
}

fn repeated(rest: &mut Rest<'_>, node: Node) -> Option<Node> {
    let (least, most) = match rest.peek() {
        Some('*') => (0, None),
        Some('+') => (1, None),
        Some('?') => (0, Some(1)),
        Some('{') => {
            let bounds: String = rest.by_ref().skip(1).take_while(|&next| next != '}').collect();
            let (least, most) = bounds.split_once(',').unwrap_or((&bounds, &bounds));
            let least = if least.is_empty() { 0 } else { least.parse().ok()? };
            let most = if most.is_empty() { None } else { Some(most.parse().ok()?) };
            return Some(Node::Repeat { inner: Box::new(node), least, most });
        }
        _ => return Some(node),
    };
    rest.next();
    Some(Node::Repeat { inner: Box::new(node), least, most })
}

fn class(rest: &mut Rest<'_>) -> Option<Class> {
    let mut class = Class { negated: rest.next_if_eq(&'^').is_some(), ..Class::none() };
    loop {
        let member = match rest.next()? {
            ']' => return Some(class),
            '\\' => escape(rest.next()?)?,
            plain => Class::one(plain),
        };
        if member.negated {
            return None;
        }
        class.spaces |= member.spaces;
        class.words |= member.words;
        // A hyphen before the closing bracket is only a hyphen.
        let is_range = rest.peek() == Some(&'-') && rest.clone().nth(1).is_some_and(|next| next != ']');
        match member.ranges.as_slice() {
            [(low, high)] if low == high && is_range => {
                rest.next();
                let high = match rest.next()? {
                    '\\' => rest.next()?,
                    plain => plain,
                };
                class.ranges.push((*low, high));
            }
            ranges => class.ranges.extend(ranges),
        }
    }
}

fn escape(escaped: char) -> Option<Class> {
    Some(match escaped {
        'd' => Class { ranges: vec![('0', '9')], ..Class::none() },
        's' => Class { spaces: true, ..Class::none() },
        'S' => Class { spaces: true, negated: true, ..Class::none() },
        'w' => Class { words: true, ..Class::none() },
        letter if letter.is_ascii_alphanumeric() => return None,
        plain => Class::one(plain),
    })
}

impl Class {
    fn none() -> Self {
        Self { ranges: Vec::new(), spaces: false, words: false, negated: false }
    }

    fn one(plain: char) -> Self {
        Self { ranges: vec![(plain, plain)], ..Self::none() }
    }

    fn holds(&self, letter: char) -> bool {
        let found = self.ranges.iter().any(|&(low, high)| (low..=high).contains(&letter))
            || (self.spaces && letter.is_whitespace())
            || (self.words && (letter.is_alphanumeric() || letter == '_'));
        found != self.negated
    }
}

impl Node {
    /// Where this can end if it begins at any of these places.
    fn ends(&self, text: &[char], starts: &BTreeSet<usize>) -> BTreeSet<usize> {
        match self {
            Self::One(class) => starts
                .iter()
                .filter(|&&at| text.get(at).is_some_and(|&letter| class.holds(letter)))
                .map(|at| at + 1)
                .collect(),
            Self::Start => starts.iter().copied().filter(|&at| at == 0).collect(),
            Self::End => starts.iter().copied().filter(|&at| at == text.len()).collect(),
            Self::Sequence(nodes) => nodes.iter().fold(starts.clone(), |starts, node| node.ends(text, &starts)),
            Self::Either(nodes) => nodes.iter().flat_map(|node| node.ends(text, starts)).collect(),
            Self::Repeat { inner, least, most } => {
                let mut latest = (0..*least).fold(starts.clone(), |starts, _| inner.ends(text, &starts));
                let mut found = latest.clone();
                let mut left = most.map(|most| most.saturating_sub(*least));
                while !latest.is_empty() && left != Some(0) {
                    latest = inner.ends(text, &latest).difference(&found).copied().collect();
                    found.extend(&latest);
                    left = left.map(|left| left - 1);
                }
                found
            }
        }
    }
}
