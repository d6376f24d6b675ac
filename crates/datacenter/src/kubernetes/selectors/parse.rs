//! How a choice by labels is written: `a=b,c in (d, e),!f`.

use super::Demand;

/// A piece of a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    /// One of [`SIGNS`].
    Sign(&'static str),
    End,
}

const SIGNS: [&str; 9] = [")", ",", "!", "==", "=", ">", "<", "!=", "("];
const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

impl Token {
    fn shown(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Sign(sign) => sign,
            Self::End => "",
        }
    }
}

fn is_special(letter: char) -> bool {
    "=!(),><".contains(letter)
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_special(first) {
            // The longest sign that there is: `==` rather than `=`.
            let signs = SIGNS.iter().filter(|sign| rest.starts_with(**sign));
            let sign = signs.max_by_key(|sign| sign.len()).copied().unwrap_or("=");
            tokens.push(Token::Sign(sign));
            sign.len()
        } else {
            let end = rest.find(|letter: char| is_special(letter) || letter.is_whitespace()).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            end
        };
        rest = rest[length..].trim_start();
    }
    tokens
}

/// Reads a choice; or says what is wrong with it, as the real server does.
pub(super) fn parse(text: &str) -> Result<Vec<Demand>, String> {
    let mut reader = Reader { tokens: tokens(text), at: 0 };
    let mut demands = Vec::new();
    loop {
        match reader.peek() {
            Token::End => return Ok(demands),
            Token::Word(_) | Token::Sign("!") => {}
            other => return Err(format!("found '{}', expected: !, identifier, or 'end of string'", other.shown())),
        }
        demands.push(reader.demand().map_err(|why| format!("unable to parse requirement: {why}"))?);
        match reader.next() {
            Token::End => return Ok(demands),
            Token::Sign(",") => match reader.peek() {
                Token::Word(_) | Token::Sign("!") => {}
                other => return Err(format!("found '{}', expected: identifier after ','", other.shown())),
            },
            other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.shown())),
        }
    }
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
}

impl Reader {
    fn peek(&self) -> Token {
        self.tokens.get(self.at).cloned().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn word(&mut self) -> Result<String, String> {
        match self.next() {
            Token::Word(word) => Ok(word),
            other => Err(format!("found '{}', expected: identifier", other.shown())),
        }
    }

    fn demand(&mut self) -> Result<Demand, String> {
        let is_absent = self.peek() == Token::Sign("!");
        if is_absent {
            self.at += 1;
        }
        let key = self.word()?;
        if let Some(fault) = crate::kubernetes::validate::names::qualified(&key).into_iter().next() {
            return Err(format!("key: Invalid value: {key:?}: {fault}"));
        }
        if is_absent {
            return Ok(Demand::Absent(key));
        }
        if matches!(self.peek(), Token::End | Token::Sign(",")) {
            return Ok(Demand::Exists(key));
        }
        let operator = self.next();
        let demand = match &operator {
            Token::Word(word) if word == "in" => Demand::In(key.clone(), self.values()?),
            Token::Word(word) if word == "notin" => Demand::NotIn(key.clone(), self.values()?),
            Token::Sign("=" | "==") => Demand::In(key.clone(), vec![self.value()?]),
            Token::Sign("!=") => Demand::NotIn(key.clone(), vec![self.value()?]),
            Token::Sign(">") => Demand::Above(key.clone(), self.number(&key)?),
            Token::Sign("<") => Demand::Below(key.clone(), self.number(&key)?),
            other => return Err(format!("found '{}', expected: {OPERATORS}", other.shown())),
        };
        if let Demand::In(_, values) | Demand::NotIn(_, values) = &demand {
            for (at, value) in values.iter().enumerate() {
                if let Some(fault) = crate::kubernetes::validate::names::label_value(value) {
                    return Err(format!("values[{at}][{key}]: Invalid value: {value:?}: {fault}"));
                }
            }
        }
        Ok(demand)
    }

    /// What stands after a sign; nothing is something too.
    fn value(&mut self) -> Result<String, String> {
        if matches!(self.peek(), Token::End | Token::Sign(",")) { Ok(String::new()) } else { self.word() }
    }

    fn number(&mut self, key: &str) -> Result<i64, String> {
        let text = self.value()?;
        let why = "for 'Gt', 'Lt' operators, the value must be an integer";
        text.parse().map_err(|_| format!("values[0][{key}]: Invalid value: {text:?}: {why}"))
    }

    /// What stands in parentheses.
    fn values(&mut self) -> Result<Vec<String>, String> {
        match self.next() {
            Token::Sign("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.shown())),
        }
        let mut values = Vec::new();
        loop {
            match self.next() {
                Token::Word(word) => values.push(word),
                Token::Sign(")") if values.is_empty() => return Ok(vec![String::new()]),
                // Nothing between two commas is the empty value.
                Token::Sign(",") => {
                    values.push(String::new());
                    continue;
                }
                other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.shown())),
            }
            match self.next() {
                Token::Sign(")") => return Ok(values),
                Token::Sign(",") if self.peek() == Token::Sign(")") => {
                    self.at += 1;
                    values.push(String::new());
                    return Ok(values);
                }
                Token::Sign(",") => {}
                other => return Err(format!("found '{}', expected: ',' or ')'", other.shown())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_told_as_the_real_server_tells_them() {
        for (text, why) in [
            ("tier===front", "unable to parse requirement: found '=', expected: identifier"),
            ("tier in front", "unable to parse requirement: found 'front' expected: '('"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a,", "found '', expected: identifier after ','"),
            ("=a", "found '=', expected: !, identifier, or 'end of string'"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ] {
            assert_eq!(parse(text).unwrap_err(), why, "{text}");
        }
    }

    #[test]
    fn values_may_be_empty() {
        let any = |key: &str, values: &[&str]| {
            vec![Demand::In(key.to_owned(), values.iter().map(|value| (*value).to_owned()).collect())]
        };
        assert_eq!(parse("a=").unwrap(), any("a", &[""]));
        assert_eq!(parse("a in ()").unwrap(), any("a", &[""]));
        assert_eq!(parse("a in (,b)").unwrap(), any("a", &["", "b"]));
        assert_eq!(parse("a in (b,)").unwrap(), any("a", &["b", ""]));
    }
}
