use super::*;

fn variables() -> BTreeMap<String, String> {
    [("name", "blue"), ("empty", "")].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

#[test]
fn what_is_missing_is_told_at_once() {
    let missing = substitute("${a} ${name} ${b:=x} ${c^^}", &variables()).unwrap_err();
    assert_eq!(missing, SubstituteError::Missing(["a", "c"].map(str::to_owned).into()));
    assert_eq!(missing.to_string(), "no value for a, c");
}

#[test]
fn what_is_no_expression_is_told_with_its_place() {
    assert_eq!(substitute("ab ${", &variables()), Err(SubstituteError::Expression(5)));
    assert_eq!(substitute("${name-x}", &variables()), Err(SubstituteError::Expression(6)));
    let deep = "${a:=".repeat(10_000);
    assert!(matches!(substitute(&deep, &variables()), Err(SubstituteError::Expression(_))));
}

#[test]
fn what_is_escaped_is_left() {
    assert_eq!(substitute("$${name} $name $", &variables()).unwrap(), "${name} $name $");
}
