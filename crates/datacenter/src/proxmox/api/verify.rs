//! Whether the parameters of a request are acceptable, and in which words they are not.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::field::{self, Field, Format, Kind};
use super::{Operation, Version, format, pattern, property};

/// The parameters of a request, verified.
#[derive(Debug, Clone)]
pub struct Params {
    version: Version,
    fields: &'static [&'static [Field]],
    values: BTreeMap<String, String>,
}

impl Params {
    /// A parameter as it was given.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// A parameter that is 0 or 1.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.text(name).map(|value| value == "1")
    }

    /// A parameter that is a whole number; what is too great is as great as it can be.
    pub fn number(&self, name: &str) -> Option<i64> {
        let value = self.text(name).filter(|value| is_whole(value))?;
        let extreme = if value.starts_with('-') { i64::MIN } else { i64::MAX };
        Some(value.parse().unwrap_or(extreme))
    }

    /// All parameters by name, those of the path among them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The properties of a parameter that is a property string: the default key named, aliases resolved, flags 0 or 1.
    pub fn properties(&self, name: &str) -> Option<BTreeMap<String, String>> {
        let field = field::of(self.fields, self.version).find(|field| field.is_called(name))?;
        let Format::Keys(keys) = field.format else { return None };
        property::parse(self.version, keys, name, self.text(name)?).ok()
    }
}

impl Operation {
    /// The complaint if a parameter contradicts the path. The vendor looks for this before it checks permissions.
    ///
    /// # Errors
    /// The first such parameter by name.
    pub fn conflict(
        &self,
        from_path: &BTreeMap<&'static str, String>,
        given: &[(String, String)],
    ) -> Result<(), BTreeMap<String, String>> {
        let conflicting = given
            .iter()
            .filter(|(name, value)| {
                !value.is_empty() && from_path.get(name.as_str()).is_some_and(|inside| inside != value)
            })
            .map(|(name, _)| name)
            .min();
        conflicting.map_or(Ok(()), |name| {
            let complaint = "duplicate parameter (already defined in URI) with conflicting values!";
            Err(BTreeMap::from([(name.clone(), complaint.to_owned())]))
        })
    }

    /// The parameters of a request if they are acceptable, otherwise the complaint about each that is not.
    ///
    /// Empty values count as absent. A name given twice is a list. JSON's true and false are given as 1 and 0.
    ///
    /// # Errors
    /// What the vendor answers as `errors` with status 400.
    pub fn verify(
        &self,
        version: Version,
        from_path: &BTreeMap<&'static str, String>,
        given: &[(String, String)],
    ) -> Result<Params, BTreeMap<String, String>> {
        self.conflict(from_path, given)?;
        let mut lists: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, value) in given.iter().filter(|(_, value)| !value.is_empty()) {
            lists.entry(name).or_default().push(value);
        }
        let mut errors = Errors::default();
        let mut refused = BTreeSet::new();
        let mut values: BTreeMap<String, String> =
            from_path.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        for (name, list) in lists {
            let field = self.parameters(version).find(|field| field.is_called(name));
            let takes_lists =
                field.is_some_and(|field| matches!(field.format, Format::Named(format) if format.ends_with("-list")));
            if list.len() > 1
                && !takes_lists
                && let Some(field) = field
            {
                errors.add(name, &format!("type check ('{}') failed - got ARRAY", field.kind.name()));
                refused.insert(name);
            }
            values.insert(name.to_owned(), list.join(","));
        }
        let mut checked = Errors::default();
        check_object(version, self.parameters, "", &values, &mut checked);
        for (name, complaint) in checked.0 {
            if !refused.contains(name.as_str()) {
                errors.add(&name, &complaint);
            }
        }
        if errors.is_empty() { Ok(Params { version, fields: self.parameters, values }) } else { Err(errors.0) }
    }
}

/// What is wrong, by the name of what it is wrong with.
#[derive(Debug, Default)]
pub(super) struct Errors(BTreeMap<String, String>);

impl Errors {
    /// The vendor joins complaints about the same thing by a backslash and an n, not by a new line.
    fn add(&mut self, path: &str, complaint: &str) {
        let all = self.0.entry(path.to_owned()).or_default();
        if !all.is_empty() {
            all.push_str("\\n");
        }
        all.push_str(complaint);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All in one text, as it becomes the complaint about the parameter around it.
    pub(super) fn in_one(&self) -> String {
        self.0
            .iter()
            .fold("format error\n".to_owned(), |text, (path, complaint)| format!("{text}{path}: {complaint}\n"))
    }
}

/// Checks named values against fields: each on its own, then what requires another, then what is unknown.
pub(super) fn check_object(
    version: Version,
    fields: &'static [&'static [Field]],
    path: &str,
    values: &BTreeMap<String, String>,
    errors: &mut Errors,
) {
    let full = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for field in field::of(fields, version).filter(|field| !field.optional && !values.contains_key(field.name)) {
        errors.add(&full(field.name), "property is missing and it is not optional");
    }
    for (name, value) in values {
        let Some(field) = field::of(fields, version).find(|field| field.alias.is_none() && field.is_called(name))
        else {
            let unknown = "property is not defined in schema and the schema does not allow additional properties";
            errors.add(&full(name), unknown);
            continue;
        };
        if let Err(complaint) = check(version, field, &full(name), value) {
            errors.add(&full(name), &complaint);
        }
        if let Some(other) = field.requires.filter(|other| !values.contains_key(*other)) {
            let complaint = match version {
                Version::Eight => format!("missing property - '{}' requires this property", full(name)),
                Version::Nine => format!("missing property required by '{}'", full(name)),
            };
            errors.add(&full(other), &complaint);
        }
    }
}

/// Checks one value; the order is the vendor's, since only the first complaint is told.
fn check(version: Version, field: &Field, path: &str, value: &str) -> Result<(), String> {
    let has_type = match field.kind {
        Kind::Text => true,
        Kind::Flag => matches!(value, "0" | "1"),
        Kind::Whole => is_whole(value),
        Kind::Number => is_number(value),
    };
    if !has_type {
        return Err(format!("type check ('{}') failed - got '{value}'", field.kind.name()));
    }
    match field.format {
        Format::Free => Ok(()),
        Format::Named(name) => format::check(version, name, value).map_err(|complaint| format!("{complaint}\n")),
        Format::Keys(keys) => property::parse(version, keys, path, value).map(drop),
    }
    .map_err(|complaint| format!("invalid format - {complaint}"))?;
    if field.pattern.is_some_and(|pattern| !pattern::matches(pattern, value)) {
        return Err("value does not match the regex pattern".to_owned());
    }
    if let Some(longest) = field.longest.filter(|&longest| value.chars().count() > longest) {
        return Err(format!("value may only be {longest} characters long"));
    }
    if let Some(maximum) = field.maximum.filter(|&maximum| compare(value, maximum).is_some_and(Ordering::is_gt)) {
        return Err(format!("value must have a maximum value of {maximum}"));
    }
    if let Some(minimum) = field.minimum.filter(|&minimum| compare(value, minimum).is_some_and(Ordering::is_lt)) {
        return Err(format!("value must have a minimum value of {minimum}"));
    }
    let choices = field.choices.list();
    if !choices.is_empty() && !choices.iter().any(|choice| choice == value) {
        let all = choices.join(", ");
        return Err(format!("value '{value}' does not have a value in the enumeration '{all}'"));
    }
    Ok(())
}

/// How a value stands to a bound, if it is a number.
fn compare(value: &str, bound: i64) -> Option<Ordering> {
    if let Ok(value) = value.parse::<i64>() {
        return Some(value.cmp(&bound));
    }
    let bound = bound as f64;
    is_number(value).then(|| value.parse::<f64>().ok())?.and_then(|value| value.partial_cmp(&bound))
}

fn is_whole(value: &str) -> bool {
    pattern::matches(r"[+-]?\d+", value)
}

fn is_number(value: &str) -> bool {
    pattern::matches(r"[+-]?(\d+\.\d+|\d+\.|\.\d+|\d+)([eE][+-]?\d+)?", value)
}
