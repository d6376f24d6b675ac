//! What each level does not allow.

use serde_json::Value;

use super::Level;
use crate::kubernetes::value;

/// What every container may have beyond nothing.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// What is wrong with a pod, by a level.
pub(super) fn violations(spec: &Value, level: Level) -> Vec<String> {
    let mut wrong = Vec::new();
    if level >= Level::Baseline {
        baseline(spec, level, &mut wrong);
    }
    if level >= Level::Restricted {
        restricted(spec, &mut wrong);
    }
    wrong
}

/// All containers of a pod.
pub(super) fn containers(spec: &Value) -> Vec<&Value> {
    let list = |key: &str| value::items(spec, key).iter();
    list("initContainers").chain(list("containers")).chain(list("ephemeralContainers")).collect()
}

fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        let name = format!("{name:?}");
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all.join(", ")
}

/// The containers of which something is true, as messages name them.
fn those(spec: &Value, is_wrong: impl Fn(&Value) -> bool) -> Option<String> {
    let names: Vec<&str> = containers(spec)
        .into_iter()
        .filter(|container| is_wrong(container))
        .map(|container| value::text(container, "name"))
        .collect();
    let word = if names.len() == 1 { "container" } else { "containers" };
    (!names.is_empty()).then(|| format!("{word} {}", quoted(names.into_iter())))
}

fn is_not(value: Option<&Value>, allowed: &[&str]) -> bool {
    value.and_then(Value::as_str).is_some_and(|word| !allowed.contains(&word))
}

fn baseline(spec: &Value, level: Level, wrong: &mut Vec<String>) {
    let added = |container: &Value| -> Vec<String> {
        let list = value::items(container, "securityContext.capabilities.add").iter().filter_map(Value::as_str);
        list.filter(|name| !CAPABILITIES.contains(name)).map(Into::into).collect()
    };
    if level == Level::Baseline
        && let Some(names) = those(spec, |container| !added(container).is_empty())
    {
        let mut all: Vec<String> = containers(spec).into_iter().flat_map(added).collect();
        all.sort();
        all.dedup();
        let words = quoted(all.iter().map(String::as_str));
        wrong.push(format!(
            "non-default capabilities ({names} must not include {words} in securityContext.capabilities.add)"
        ));
    }
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|key| value::is_true(spec, key))
        .map(|key| format!("{key}=true"))
        .collect();
    if !shared.is_empty() {
        wrong.push(format!("host namespaces ({})", shared.join(", ")));
    }
    let volumes = value::items(spec, "volumes").iter().filter(|volume| volume.get("hostPath").is_some());
    let names: Vec<&str> = volumes.map(|volume| value::text(volume, "name")).collect();
    // Who is restricted is told of all volumes that he may not have.
    if !names.is_empty() && level == Level::Baseline {
        let word = if names.len() == 1 { "volume" } else { "volumes" };
        wrong.push(format!("hostPath volumes ({word} {})", quoted(names.into_iter())));
    }
    let ports = |container: &Value| -> Vec<i64> {
        value::items(container, "ports")
            .iter()
            .filter_map(|port| value::number(port, "hostPort"))
            .filter(|port| *port != 0)
            .collect()
    };
    if let Some(names) = those(spec, |container| !ports(container).is_empty()) {
        let mut all: Vec<i64> = containers(spec).into_iter().flat_map(ports).collect();
        all.sort_unstable();
        all.dedup();
        let (verb, noun) = (
            if names.starts_with("containers") { "use" } else { "uses" },
            if all.len() == 1 { "hostPort" } else { "hostPorts" },
        );
        let all: Vec<String> = all.iter().map(ToString::to_string).collect();
        wrong.push(format!("hostPort ({names} {verb} {noun} {})", all.join(", ")));
    }
    if let Some(names) = those(spec, |container| value::is_true(container, "securityContext.privileged")) {
        wrong.push(format!("privileged ({names} must not set securityContext.privileged=true)"));
    }
    let unmasked = |container: &Value| is_not(value::at(container, "securityContext.procMount"), &["Default", ""]);
    if let Some(names) = those(spec, unmasked) {
        wrong.push(format!("procMount ({names} must not set securityContext.procMount to \"Unmasked\")"));
    }
    if level == Level::Baseline {
        let unconfined = |of: &Value| value::text(of, "securityContext.seccompProfile.type") == "Unconfined";
        let mut who: Vec<String> = Vec::new();
        if unconfined(spec) {
            who.push("pod".to_owned());
        }
        who.extend(those(spec, unconfined));
        if !who.is_empty() {
            wrong.push(format!(
                "seccompProfile ({} must not set securityContext.seccompProfile.type to \"Unconfined\")",
                who.join(" and ")
            ));
        }
    }
    let safe = [
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
    ];
    let sysctls: Vec<&str> = (value::items(spec, "securityContext.sysctls").iter())
        .map(|it| value::text(it, "name"))
        .filter(|name| !safe.contains(name))
        .collect();
    if !sysctls.is_empty() {
        wrong.push(format!("forbidden sysctls ({})", sysctls.join(", ")));
    }
}

fn restricted(spec: &Value, wrong: &mut Vec<String>) {
    let at = |path: &'static str| move |container: &Value| value::at(container, path).cloned();
    let escalation = at("securityContext.allowPrivilegeEscalation");
    if let Some(names) = those(spec, |container| escalation(container) != Some(Value::Bool(false))) {
        wrong.push(format!(
            "allowPrivilegeEscalation != false ({names} must set securityContext.allowPrivilegeEscalation=false)"
        ));
    }
    let drops = |container: &Value| {
        value::items(container, "securityContext.capabilities.drop").iter().any(|word| word == "ALL")
    };
    let adds = |container: &Value| {
        value::items(container, "securityContext.capabilities.add").iter().any(|word| word != "NET_BIND_SERVICE")
    };
    let mut parts: Vec<String> = Vec::new();
    parts.extend(
        those(spec, |container| !drops(container))
            .map(|names| format!("{names} must set securityContext.capabilities.drop=[\"ALL\"]")),
    );
    if let Some(names) = those(spec, adds) {
        let mut all: Vec<&str> = containers(spec)
            .into_iter()
            .flat_map(|it| value::items(it, "securityContext.capabilities.add"))
            .filter_map(Value::as_str)
            .filter(|word| *word != "NET_BIND_SERVICE")
            .collect();
        all.sort_unstable();
        all.dedup();
        parts.push(format!("{names} must not include {} in securityContext.capabilities.add", quoted(all.into_iter())));
    }
    if !parts.is_empty() {
        wrong.push(format!("unrestricted capabilities ({})", parts.join("; ")));
    }
    let volumes = value::items(spec, "volumes").iter();
    let allowed = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
        "image",
        "name",
    ];
    let bad: Vec<&Value> = volumes
        .filter(|volume| volume.as_object().is_some_and(|all| all.keys().any(|key| !allowed.contains(&key.as_str()))))
        .collect();
    if !bad.is_empty() {
        let mut kinds: Vec<&str> = bad
            .iter()
            .filter_map(|volume| volume.as_object())
            .flat_map(|all| all.keys().map(String::as_str))
            .filter(|key| !allowed.contains(key))
            .collect();
        kinds.sort_unstable();
        kinds.dedup();
        let (word, verb) = if bad.len() == 1 { ("volume", "uses") } else { ("volumes", "use") };
        let noun = if kinds.len() == 1 { "type" } else { "types" };
        let names = quoted(bad.iter().map(|volume| value::text(volume, "name")));
        wrong.push(format!(
            "restricted volume types ({word} {names} {verb} restricted volume {noun} {})",
            quoted(kinds.into_iter())
        ));
    }
    let pod_is = |path: &str, fits: &dyn Fn(&Value) -> bool| value::at(spec, path).is_some_and(fits);
    let is_true = |value: &Value| *value == Value::Bool(true);
    let path = "securityContext.runAsNonRoot";
    let lacks = |container: &Value| match value::at(container, path) {
        Some(own) => !is_true(own),
        None => !pod_is(path, &is_true),
    };
    if let Some(names) = those(spec, lacks) {
        wrong.push(format!("runAsNonRoot != true (pod or {names} must set securityContext.runAsNonRoot=true)"));
    }
    let zero = |of: &Value| value::number(of, "securityContext.runAsUser") == Some(0);
    let mut roots: Vec<String> = Vec::new();
    if zero(spec) {
        roots.push("pod".to_owned());
    }
    roots.extend(those(spec, zero));
    if !roots.is_empty() {
        wrong.push(format!("runAsUser=0 ({} must not set runAsUser=0)", roots.join(" and ")));
    }
    let path = "securityContext.seccompProfile.type";
    let is_confined = |value: &Value| ["RuntimeDefault", "Localhost"].iter().any(|word| value == word);
    let lacks = |container: &Value| match value::at(container, path) {
        Some(own) => !is_confined(own),
        None => !pod_is(path, &is_confined),
    };
    if let Some(names) = those(spec, lacks) {
        wrong.push(format!("seccompProfile (pod or {names} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_too_free_is_told_in_the_words_of_the_real_server() {
        let spec = json!({ "hostNetwork": true, "hostPID": true, "containers": [{ "name": "a", "ports": [{ "containerPort": 80, "hostPort": 80 }],
            "securityContext": { "privileged": true, "capabilities": { "add": ["NET_RAW", "SYS_ADMIN"] } } }],
            "volumes": [{ "name": "h", "hostPath": { "path": "/" } }] });
        let told = violations(&spec, Level::Baseline).join(", ");
        let expected = "non-default capabilities (container \"a\" must not include \"NET_RAW\", \"SYS_ADMIN\" in securityContext.capabilities.add), \
                        host namespaces (hostNetwork=true, hostPID=true), hostPath volumes (volume \"h\"), hostPort (container \"a\" uses hostPort 80), \
                        privileged (container \"a\" must not set securityContext.privileged=true)";
        assert_eq!(told, expected);
    }

    #[test]
    fn restricted_wants_everything_said() {
        let spec = json!({ "containers": [{ "name": "a" }] });
        let told = violations(&spec, Level::Restricted).join(", ");
        let expected = "allowPrivilegeEscalation != false (container \"a\" must set securityContext.allowPrivilegeEscalation=false), unrestricted \
                        capabilities (container \"a\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"a\" \
                        must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"a\" must set \
                        securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";
        assert_eq!(told, expected);
        assert_eq!(violations(&spec, Level::Baseline), Vec::<String>::new());
    }
}
