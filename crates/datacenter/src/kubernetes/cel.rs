//! Rules of schemas (`x-kubernetes-validations`), as far as definitions that people install use them: comparisons, `has`,
//! `in`, `size`, `filter`/`all`/`exists`, `startsWith`, `matches`, `duration`. A rule that says more is accepted and not
//! judged.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::{Value, json};

use super::status::Cause;
use super::value;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
enum Expression {
    Literal(Value),
    Name(String),
    List(Vec<Self>),
    Field(Box<Self>, String),
    Index(Box<Self>, Box<Self>),
    Call(Option<Box<Self>>, String, Vec<Self>),
    Not(Box<Self>),
    Negative(Box<Self>),
    Two(&'static str, Box<Self>, Box<Self>),
    Choice(Box<Self>, Box<Self>, Box<Self>),
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Number(f64, bool),
    Sign(&'static str),
}

/// What keeps a text from being a rule.
pub(crate) fn fault(rule: &str) -> Option<String> {
    parse(rule).err()
}

/// What is wrong with an object by the rules of its schema.
pub(crate) fn judge(schema: &Value, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    walk(schema, object, old, "", &mut causes);
    causes
}

/// Whether a rule about these holds; nothing if that cannot be told.
pub(crate) fn holds(rule: &str, names: &[(&str, &Value)]) -> Option<bool> {
    let expression = parse(rule).ok()?;
    let names = names.iter().map(|(name, value)| ((*name).to_owned(), Value::clone(value))).collect();
    Scope { names }.value(&expression).ok()?.as_bool()
}

fn walk(schema: &Value, own: &Value, old: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
    for rule in value::items(schema, "x-kubernetes-validations") {
        let text = value::text(rule, "rule");
        let Ok(expression) = parse(text) else { continue };
        // A rule about a change holds where there was nothing to change.
        if old.is_none() && text.contains("oldSelf") {
            continue;
        }
        let scope = Scope {
            names: vec![("self".to_owned(), own.clone()), ("oldSelf".to_owned(), old.cloned().unwrap_or_default())],
        };
        if scope.value(&expression) == Ok(Value::Bool(false)) {
            let message = value::text(rule, "message");
            let detail = if message.is_empty() { format!("failed rule: {}", text.trim()) } else { message.to_owned() };
            let place = format!("{path}{}", value::text(rule, "fieldPath"));
            let mut cause = Cause::required(if place.is_empty() { "<nil>" } else { &place }, "");
            // The value is told where it is a simple one.
            let shown = match own {
                Value::Object(_) | Value::Array(_) | Value::Null => String::new(),
                simple => format!("{}: ", super::status::shown(simple)),
            };
            (cause.reason, cause.message) = ("FieldValueInvalid", format!("Invalid value: {shown}{detail}"));
            match value::text(rule, "reason") {
                "FieldValueForbidden" => cause.reason = "FieldValueForbidden",
                "FieldValueRequired" => cause.reason = "FieldValueRequired",
                "FieldValueDuplicate" => cause.reason = "FieldValueDuplicate",
                _ => {}
            }
            causes.push(cause);
        }
    }
    match own {
        Value::Object(members) => {
            for (name, member) in members {
                let named = schema.get("properties").and_then(|all| all.get(name));
                let child = named.or_else(|| schema.get("additionalProperties").filter(|it| it.is_object()));
                if let Some(child) = child {
                    let place = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    walk(child, member, old.and_then(|old| old.get(name)), &place, causes);
                }
            }
        }
        Value::Array(items) => {
            if let Some(child) = schema.get("items") {
                for (at, item) in items.iter().enumerate() {
                    walk(child, item, None, &format!("{path}[{at}]"), causes);
                }
            }
        }
        _ => {}
    }
}

struct Scope {
    names: Vec<(String, Value)>,
}

impl Scope {
    fn with(&self, name: &str, value: &Value) -> Self {
        let mut names = self.names.clone();
        names.push((name.to_owned(), value.clone()));
        Self { names }
    }

    /// What an expression is; nothing if it cannot be told.
    fn value(&self, expression: &Expression) -> Result<Value, ()> {
        match expression {
            Expression::Literal(value) => Ok(value.clone()),
            Expression::Name(name) => {
                self.names.iter().rev().find(|(own, _)| own == name).map(|(_, value)| value.clone()).ok_or(())
            }
            Expression::List(items) => {
                items.iter().map(|item| self.value(item)).collect::<Result<Vec<_>, ()>>().map(Value::Array)
            }
            Expression::Field(of, name) => self.value(of)?.get(name).cloned().ok_or(()),
            Expression::Index(of, at) => match (self.value(of)?, self.value(at)?) {
                (Value::Array(items), at) => {
                    items.get(at.as_u64().and_then(|at| usize::try_from(at).ok()).ok_or(())?).cloned().ok_or(())
                }
                (of, Value::String(key)) => of.get(&key).cloned().ok_or(()),
                _ => Err(()),
            },
            Expression::Not(of) => self.truth(of).map(|truth| json!(!truth)),
            Expression::Negative(of) => Ok(json!(-self.value(of)?.as_f64().ok_or(())?)),
            Expression::Choice(when, yes, no) => {
                if self.truth(when)? {
                    self.value(yes)
                } else {
                    self.value(no)
                }
            }
            Expression::Two(sign, left, right) => self.two(sign, left, right),
            Expression::Call(of, name, arguments) => self.call(of.as_deref(), name, arguments),
        }
    }

    fn truth(&self, expression: &Expression) -> Result<bool, ()> {
        self.value(expression)?.as_bool().ok_or(())
    }

    fn two(&self, sign: &str, left: &Expression, right: &Expression) -> Result<Value, ()> {
        match sign {
            // One side that is certain decides, even if the other cannot be told.
            "||" => match (self.truth(left), self.truth(right)) {
                (Ok(true), _) | (_, Ok(true)) => return Ok(json!(true)),
                (Ok(false), Ok(false)) => return Ok(json!(false)),
                _ => return Err(()),
            },
            "&&" => match (self.truth(left), self.truth(right)) {
                (Ok(false), _) | (_, Ok(false)) => return Ok(json!(false)),
                (Ok(true), Ok(true)) => return Ok(json!(true)),
                _ => return Err(()),
            },
            _ => {}
        }
        let (left, right) = (self.value(left)?, self.value(right)?);
        let is_equal = left == right || left.is_number() && left.as_f64() == right.as_f64();
        let order = match (&left, &right) {
            (Value::String(left), Value::String(right)) => left.partial_cmp(right),
            _ => left.as_f64().and_then(|left| left.partial_cmp(&right.as_f64()?)),
        };
        let number = |of: &Value| of.as_f64().ok_or(());
        Ok(match sign {
            "==" => json!(is_equal),
            "!=" => json!(!is_equal),
            "<" => json!(order.ok_or(())?.is_lt()),
            "<=" => json!(order.ok_or(())?.is_le()),
            ">" => json!(order.ok_or(())?.is_gt()),
            ">=" => json!(order.ok_or(())?.is_ge()),
            "+" => match (&left, &right) {
                (Value::String(left), Value::String(right)) => json!(format!("{left}{right}")),
                _ => json!(number(&left)? + number(&right)?),
            },
            "-" => json!(number(&left)? - number(&right)?),
            "*" => json!(number(&left)? * number(&right)?),
            "/" => json!(number(&left)? / number(&right)?),
            "%" => json!(number(&left)? % number(&right)?),
            "in" => match right {
                Value::Array(items) => json!(items.contains(&left)),
                Value::Object(members) => json!(members.contains_key(left.as_str().ok_or(())?)),
                _ => return Err(()),
            },
            _ => return Err(()),
        })
    }

    fn call(&self, of: Option<&Expression>, name: &str, arguments: &[Expression]) -> Result<Value, ()> {
        match (of, name, arguments) {
            (None, "has", [Expression::Field(of, name)]) => {
                Ok(json!(self.value(of).is_ok_and(|of| of.get(name).is_some_and(|it| !it.is_null()))))
            }
            (None, "size", [of]) | (Some(of), "size", []) => match self.value(of)? {
                Value::Array(items) => Ok(json!(items.len())),
                Value::Object(members) => Ok(json!(members.len())),
                Value::String(text) => Ok(json!(text.chars().count())),
                _ => Err(()),
            },
            (None, "duration", [of]) => {
                seconds(self.value(of)?.as_str().ok_or(())?).map(|seconds| json!(seconds)).ok_or(())
            }
            (Some(of), "getSeconds", []) => self.value(of),
            (Some(of), "filter" | "all" | "exists" | "exists_one" | "map", [Expression::Name(name_of), body]) => {
                let items: Vec<Value> = match self.value(of)? {
                    Value::Array(items) => items,
                    Value::Object(members) => members.into_iter().map(|(key, _)| json!(key)).collect(),
                    _ => return Err(()),
                };
                let judged: Vec<Result<Value, ()>> =
                    items.iter().map(|item| self.with(name_of, item).value(body)).collect();
                if name == "map" {
                    return judged.into_iter().collect::<Result<Vec<_>, ()>>().map(Value::Array);
                }
                let judged = judged.into_iter().map(|it| it?.as_bool().ok_or(())).collect::<Result<Vec<bool>, ()>>()?;
                let count = judged.iter().filter(|truth| **truth).count();
                Ok(match name {
                    "all" => json!(count == judged.len()),
                    "exists" => json!(count > 0),
                    "exists_one" => json!(count == 1),
                    _ => items.into_iter().zip(judged).filter(|(_, truth)| *truth).map(|(item, _)| item).collect(),
                })
            }
            (Some(of), _, [argument]) => {
                let (of, argument) = (self.value(of)?, self.value(argument)?);
                let (of, argument) = (of.as_str().ok_or(())?, argument.as_str().ok_or(())?);
                Ok(match name {
                    "startsWith" => json!(of.starts_with(argument)),
                    "endsWith" => json!(of.ends_with(argument)),
                    "contains" => json!(of.contains(argument)),
                    "matches" => json!(regex::Regex::new(argument).map_err(drop)?.is_match(of)),
                    _ => return Err(()),
                })
            }
            _ => Err(()),
        }
    }
}

/// `1h30m` in seconds.
fn seconds(text: &str) -> Option<f64> {
    let (mut total, mut rest) = (0.0, text);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let (unit, factor) = [("ms", 0.001), ("h", 3600.0), ("m", 60.0), ("s", 1.0)]
            .into_iter()
            .find(|(unit, _)| rest.starts_with(unit))?;
        total += number * factor;
        rest = &rest[unit.len()..];
    }
    Some(total)
}

fn parse(rule: &str) -> Result<Expression, String> {
    let tokens = tokens(rule)?;
    let mut reader = Reader { tokens, at: 0 };
    let expression = reader.choice()?;
    match reader.tokens.get(reader.at) {
        None => Ok(expression),
        Some(token) => Err(format!("Syntax error: unexpected {token:?}")),
    }
}

const SIGNS: [&str; 25] = [
    "||", "&&", "==", "!=", "<=", ">=", "<", ">", "!", "(", ")", "[", "]", ",", ".", "?", ":", "+", "-", "*", "/", "%",
    "{", "}", "=",
];

fn tokens(rule: &str) -> Result<Vec<Token>, String> {
    let (mut tokens, mut rest) = (Vec::new(), rule.trim_start());
    while let Some(first) = rest.chars().next() {
        let length = if first == '\'' || first == '"' {
            let (text, length) = quoted(rest.chars().peekable(), first).ok_or("Syntax error: unterminated string")?;
            tokens.push(Token::Text(text));
            length
        } else if first.is_ascii_digit() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let number = rest[..end].parse().map_err(|_| "Syntax error: number".to_owned())?;
            tokens.push(Token::Number(number, rest[..end].contains('.')));
            end
        } else if first.is_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            end
        } else {
            let sign = SIGNS
                .iter()
                .find(|sign| rest.starts_with(**sign))
                .ok_or_else(|| format!("Syntax error: token recognition error at: '{first}'"))?;
            tokens.push(Token::Sign(sign));
            sign.len()
        };
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

/// A text in quotes, and how many bytes it takes.
fn quoted(mut rest: Peekable<Chars<'_>>, quote: char) -> Option<(String, usize)> {
    let (mut text, mut length) = (String::new(), rest.next()?.len_utf8());
    loop {
        let next = rest.next()?;
        length += next.len_utf8();
        match next {
            '\\' => {
                let escaped = rest.next()?;
                length += escaped.len_utf8();
                text.push(match escaped {
                    'n' => '\n',
                    't' => '\t',
                    other => other,
                });
            }
            _ if next == quote => return Some((text, length)),
            other => text.push(other),
        }
    }
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
}

/// The signs between two, the loosest first.
const LEVELS: [&[&str]; 5] =
    [&["||"], &["&&"], &["==", "!=", "<=", ">=", "<", ">", "in"], &["+", "-"], &["*", "/", "%"]];

impl Reader {
    fn takes(&mut self, sign: &str) -> bool {
        let is_next =
            self.tokens.get(self.at) == SIGNS.iter().find(|own| **own == sign).map(|sign| Token::Sign(sign)).as_ref();
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.takes(sign) { Ok(()) } else { Err(format!("Syntax error: missing '{sign}'")) }
    }

    fn choice(&mut self) -> Result<Expression, String> {
        let when = self.level(0)?;
        if !self.takes("?") {
            return Ok(when);
        }
        let yes = self.choice()?;
        self.expect(":")?;
        let no = self.choice()?;
        Ok(Expression::Choice(Box::new(when), Box::new(yes), Box::new(no)))
    }

    fn level(&mut self, level: usize) -> Result<Expression, String> {
        let Some(signs) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.level(level + 1)?;
        loop {
            let is_in = signs.contains(&"in") && self.tokens.get(self.at) == Some(&Token::Word("in".to_owned()));
            let sign = if is_in {
                self.at += 1;
                Some("in")
            } else {
                signs.iter().copied().filter(|sign| *sign != "in").find(|sign| self.takes(sign))
            };
            let Some(sign) = sign else { return Ok(left) };
            left = Expression::Two(sign, Box::new(left), Box::new(self.level(level + 1)?));
        }
    }

    fn unary(&mut self) -> Result<Expression, String> {
        if self.takes("!") {
            return Ok(Expression::Not(Box::new(self.unary()?)));
        }
        if self.takes("-") {
            return Ok(Expression::Negative(Box::new(self.unary()?)));
        }
        let mut expression = self.primary()?;
        loop {
            if self.takes(".") {
                let name = self.word()?;
                expression = if self.takes("(") {
                    Expression::Call(Some(Box::new(expression)), name, self.arguments(")")?)
                } else {
                    Expression::Field(Box::new(expression), name)
                };
            } else if self.takes("[") {
                let at = self.choice()?;
                self.expect("]")?;
                expression = Expression::Index(Box::new(expression), Box::new(at));
            } else {
                return Ok(expression);
            }
        }
    }

    fn word(&mut self) -> Result<String, String> {
        match self.tokens.get(self.at).cloned() {
            Some(Token::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            _ => Err("Syntax error: missing IDENTIFIER".to_owned()),
        }
    }

    fn arguments(&mut self, end: &str) -> Result<Vec<Expression>, String> {
        let mut all = Vec::new();
        while !self.takes(end) {
            all.push(self.choice()?);
            if !self.takes(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok(all)
    }

    fn primary(&mut self) -> Result<Expression, String> {
        let token = self.tokens.get(self.at).cloned().ok_or("Syntax error: mismatched input '<EOF>'")?;
        self.at += 1;
        match token {
            Token::Text(text) => Ok(Expression::Literal(json!(text))),
            Token::Number(number, true) => Ok(Expression::Literal(json!(number))),
            Token::Number(number, false) => Ok(Expression::Literal(json!(number as i64))),
            Token::Word(word) => match word.as_str() {
                "true" => Ok(Expression::Literal(json!(true))),
                "false" => Ok(Expression::Literal(json!(false))),
                "null" => Ok(Expression::Literal(Value::Null)),
                _ if self.takes("(") => Ok(Expression::Call(None, word, self.arguments(")")?)),
                _ => Ok(Expression::Name(word)),
            },
            Token::Sign("(") => {
                let inner = self.choice()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Sign("[") => Ok(Expression::List(self.arguments("]")?)),
            Token::Sign(sign) => Err(format!("Syntax error: mismatched input '{sign}'")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(rule: &str, own: &Value) -> Option<bool> {
        let scope = Scope { names: vec![("self".to_owned(), own.clone())] };
        scope.value(&parse(rule).unwrap()).ok()?.as_bool()
    }

    #[test]
    fn rules_hold_or_not() {
        let own = json!({ "a": 1, "name": "x", "list": [1, 2], "kind": "HelmRepository", "interval": "1h30m" });
        for (rule, expected) in [
            ("has(self.a) != has(self.b)", true),
            ("!has(self.verify) || self.kind == 'HelmRepository'", true),
            ("(has(self.a) && !has(self.b)) || (!has(self.a) && has(self.b))", true),
            ("[has(self.a),has(self.name)].filter(x,x==true).size() <= 1", false),
            ("!('a' in self) && !('b' in self)", false),
            ("self.name in ['x', 'y']", true),
            ("size(self.list) == 2 && self.list.all(x, x > 0)", true),
            ("duration(self.interval).getSeconds() >= 5400", true),
            ("self.name.startsWith('x') ? self.a == 1 : false", true),
        ] {
            assert_eq!(holds(rule, &own), Some(expected), "{rule}");
        }
        assert_eq!(holds("self.nope == 1", &own), None);
        assert!(fault("self.(").is_some());
    }

    #[test]
    fn a_broken_rule_is_told_where_it_is() {
        let rule = json!([{ "rule": "self == oldSelf", "message": "Value is immutable" }]);
        let schema =
            json!({ "properties": { "spec": { "properties": { "a": { "x-kubernetes-validations": rule } } } } });
        let (old, new) = (json!({ "spec": { "a": 1 } }), json!({ "spec": { "a": 2 } }));
        assert_eq!(judge(&schema, &new, None), []);
        let causes = judge(&schema, &new, Some(&old));
        assert_eq!(
            (causes[0].field.as_str(), causes[0].message.as_str()),
            ("spec.a", "Invalid value: 2: Value is immutable")
        );
    }
}
