use super::*;

const ONE: &str = "age1lggyhqrw2nlhcxprm67z43rta597azn8gknawjehu9d9dl0jq3yqqvfafg";
const TWO: &str = "age1t7rxyev2z3rw82stdlrrepyc39nvn86l5078zqkf5uasdy86jp6svpy7pa";

fn policy(text: &str, file: &str) -> Result<Option<Policy>, Problem> {
    Config::read(Path::new("/project/.sops.yaml"), text.as_bytes())?.policy(Path::new(file))
}

#[test]
fn the_first_rule_that_matches_decides() {
    let text = format!(
        "creation_rules:\n- path_regex: ^prod/.*\\.yaml$\n  age: {ONE}\n- path_regex: \\.yaml$\n  age: [{ONE}, {TWO}]\n  encrypted_regex: ^data$\n  mac_only_encrypted: true\n"
    );
    let prod = policy(&text, "/project/prod/a.yaml").unwrap().unwrap();
    assert_eq!(prod.groups, [[ONE]]);
    assert!(prod.rule.is_none() && !prod.mac_only_encrypted);
    let other = policy(&text, "/project/x/prod/a.yaml").unwrap().unwrap();
    assert_eq!(other.groups, [[ONE, TWO]]);
    assert_eq!(other.rule.unwrap().name(), "encrypted_regex");
    assert!(other.mac_only_encrypted);
    assert!(matches!(policy(&text, "/project/a.json"), Err(Problem::Config { .. })));
    assert!(policy("stores: {}\n", "/project/a.json").unwrap().is_none());
}

#[test]
fn recipients_are_written_in_many_ways() {
    let groups = |text: &str| policy(text, "/project/a.yaml").unwrap().unwrap().groups;
    assert_eq!(groups(&format!("creation_rules: [{{age: '{ONE}, {TWO},'}}]\n")), [[ONE, TWO]]);
    assert_eq!(groups(&format!("keys: [&a {ONE}]\ncreation_rules: [{{age: [*a, *a]}}]\n")), [[ONE]]);
    let text = format!(
        "creation_rules:\n- shamir_threshold: 2\n  key_groups:\n  - age: [{ONE}]\n  - merge: [{{age: [{TWO}]}}]\n    age: [{ONE}]\n"
    );
    assert_eq!(groups(&text), [vec![ONE], vec![TWO, ONE]]);
    let shared = format!("base: &b {{age: {ONE}}}\ncreation_rules:\n- <<: *b\n  unencrypted_regex: ^x\n");
    assert_eq!(groups(&shared), [[ONE]]);
}

#[test]
fn what_cannot_be_used_is_refused() {
    for text in [
        "creation_rules: [{pgp: ABCD}]\n".to_owned(),
        format!("creation_rules: [{{age: {ONE}, encrypted_regex: a, unencrypted_suffix: b}}]\n"),
        format!("creation_rules: [{{age: {ONE}, encrypted_regex: '('}}]\n"),
        format!("creation_rules: [{{path_regex: '(', age: {ONE}}}]\n"),
        "creation_rules: [{age: age1nonsense}]\n".to_owned(),
        "creation_rules: [\n".to_owned(),
    ] {
        assert!(matches!(policy(&text, "/project/a.yaml"), Err(Problem::Config { .. })), "{text}");
    }
    let private = castle_engine::Seal::mint_identity(&castle_seams::SystemEntropy).unwrap();
    let shown =
        policy(&format!("creation_rules: [{{age: {}}}]\n", *private), "/project/a.yaml").unwrap_err().to_string();
    assert!(shown.contains("private identity") && !shown.contains(&private[20..]), "{shown}");
}

#[test]
fn the_indentation_can_be_chosen() {
    let text = format!("creation_rules: [{{age: {ONE}}}]\nstores: {{yaml: {{indent: 2}}, json: {{indent: 3}}}}\n");
    assert_eq!(policy(&text, "/project/a.yaml").unwrap().unwrap().layout, Layout { yaml: 2, json: Some(3) });
}

#[test]
fn it_is_found_above_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let disk = castle_seams::SystemDisk;
    let root = disk.real_path(folder.path()).unwrap();
    disk.create_dir_all(&root.join("a/b"), 0o700).unwrap();
    disk.create_new(&root.join(NAME), format!("creation_rules: [{{age: {ONE}}}]\n").as_bytes(), 0o600).unwrap();
    let found = Config::above(&root.join("a/b/c.yaml"), &disk).unwrap().unwrap();
    assert_eq!(found.file(), root.join(NAME));
}
