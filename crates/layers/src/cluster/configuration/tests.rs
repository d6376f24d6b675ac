use super::*;

fn read(text: &str) -> Option<(String, String)> {
    match credential(&Secret::from(text.to_owned()))? {
        config::Credential::Password { username, password } => Some((username, password.expose().to_owned())),
        _ => None,
    }
}

#[test]
fn a_credential_is_a_name_and_its_password_in_either_form() {
    let me = Some(("me".to_owned(), "it's: a {secret}".to_owned()));
    assert_eq!(read("username: me\npassword: 'it''s: a {secret}'\n"), me);
    assert_eq!(read("{\"username\": \"me\", \"password\": \"it's: a {secret}\"}"), me);
    assert_eq!(read("me:hunter2\n"), Some(("me".to_owned(), "hunter2".to_owned())));
    assert_eq!(read("robot$castle:a:b"), Some(("robot$castle".to_owned(), "a:b".to_owned())));
}

#[test]
fn what_is_half_a_credential_is_none() {
    for text in
        ["", "me", "me:", ":hunter2", "username: me\n", "password: x\n", "[me, x]", "username: me\npassword: ''"]
    {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn logins_are_kept_by_host_and_port() {
    assert_eq!(host("https://mirror.lan:5000/v2/hub"), "mirror.lan:5000");
    assert_eq!(host("http://mirror.lan"), "mirror.lan");
    assert_eq!(host("https://[fd00::1]:5000/"), "[fd00::1]:5000");
}
