//! The Kustomizations themselves: whether they can be built, in which order, and how they go on after a failure.

use super::{Case, Code, Finding, unless_made_by};
use crate::flux::{Group, KUSTOMIZE, folder, possible_maker};
use crate::kustomize::{FILES, Note};
use crate::object::Object;
use crate::substitute::is_unknown;

pub(super) fn judge(case: &mut Case<'_>) {
    let mut found = Vec::new();
    for group in &case.forest.groups {
        built(case, group, &mut found);
        depends(case, group, &mut found);
        encrypted(group, &mut found);
        dropped(case, group, &mut found);
        if group.reference() != case.world.entry.reference() {
            habits(&group.kustomization, &mut found);
        }
    }
    for circle in &case.order.cycles {
        let names: Vec<&str> = circle.iter().map(|it| it.name.as_str()).collect();
        let first = case.forest.groups.iter().find(|group| Some(&group.reference()) == circle.first());
        found.extend(first.map(|group| {
            Finding::of(
                Code::DependsOnCycle,
                &group.kustomization,
                "/spec/dependsOn",
                format!("{} wait for each other, so none of them is ever applied", names.join(", ")),
                "remove one of the dependencies; what both sides need belongs into a Kustomization of its own that both wait for",
            )
        }));
    }
    for (_, release) in case.forest.releases().filter(|(_, release)| release.value["spec"]["suspend"] == true) {
        found.push(suspended(release));
    }
    case.findings.extend(found);
}

fn built(case: &Case<'_>, group: &Group, found: &mut Vec<Finding>) {
    let own = &group.kustomization;
    if !group.has_folder {
        let path = folder(own).map_or_else(|| own.text("/spec/path").to_owned(), |path| format!("the folder {path}"));
        let is_entry = group.reference() == case.world.entry.reference();
        let fix = if is_entry {
            "set gitops.path in castle.yaml to a folder of the repository, or commit that folder"
        } else {
            "correct spec.path (it counts from the top of the repository), or commit that folder"
        };
        let link = folder(own).and_then(|path| case.tree.link(&path).map(str::to_owned));
        let link = link.map_or_else(String::new, |link| format!(" ({link} is a symbolic link, and Flux drops those)"));
        let why = format!("{path} is not in the repository{link}: Flux stops with ArtifactFailed");
        found.push(Finding::of(Code::PathMissing, own, "/spec/path", why, fix));
    }
    if let Some(failure) = &group.failure {
        let why = format!("{}: Flux applies nothing of {} (BuildFailed)", failure.what, group.name());
        let fix = format!("mend it; kustomize build {} shows the same", folder(own).unwrap_or_default());
        let finding = Finding::of(Code::BuildFailed, own, "", why, fix).because(failure.to_string());
        found.push(Finding { file: failure.file.clone(), line: failure.line, ..finding });
    }
    for (object, names) in &group.missing {
        if names.is_empty() {
            let mut finding = Finding::of(
                Code::VariableUnset,
                object,
                "",
                format!("{} has no variable at all: then Flux substitutes nothing, not even defaults", group.name()),
                format!(
                    "give at least one under spec.postBuild.substitute of {}, or gitops.vars of castle.yaml; nothing, if it is not Flux's",
                    group.name()
                ),
            );
            finding.line = line_of(case, object, "${").unwrap_or(finding.line);
            found.push(finding.because(group.name()));
        }
        found.extend(names.iter().map(|name| valueless(case, group, object, name)));
    }
    for (pointer, kind, name) in &group.sources_missing {
        let namespace = own.reference().namespace;
        let what = format!("{kind} {name} in {namespace}");
        let missing = Finding::of(
            Code::SubstitutionSourceMissing,
            own,
            pointer,
            format!("variables come from {what}, which neither castle nor the repository makes"),
            "make it, correct the name, or write optional: true",
        );
        // Nothing of the Kustomization is there before.
        let waits = |other: &Group, _: &Object| other.reference() == own.reference();
        found.push(case.unless_made(own, pointer, (kind, &namespace, name), missing.because(&what), &waits));
    }
    for note in group.notes.iter().filter(|_| !group.is_foreign) {
        let why = match note.hides {
            true => format!("castle does not build {}: what it brings is not judged", note.what),
            false => format!("castle does not judge {}", note.what),
        };
        let finding = Finding::of(Code::NotJudged, own, "", why, "flux build kustomization shows what it comes to");
        found.push(Finding { file: note.file.clone(), line: note.line, ..finding.because(&note.what) });
    }
}

/// A variable without a value.
fn valueless(case: &Case<'_>, group: &Group, object: &Object, name: &str) -> Finding {
    let (code, ends) = if case.world.is_lenient() {
        (Code::VariableUnset, format!("Flux {} leaves it empty; from 2.9 on it refuses", case.world.flux))
    } else {
        (Code::VariableMissing, format!("Flux 2.9 substitutes strictly and applies nothing of {}", group.name()))
    };
    let mut finding = Finding::of(
        code,
        object,
        "",
        format!("${{{name}}} has no value and no default: {ends}"),
        format!(
            "give it under gitops.vars of castle.yaml or spec.postBuild.substitute of {}, write a default (${{{name}:=...}}), or write $${{{name}}} if it is not Flux's",
            group.name()
        ),
    );
    finding.line = line_of(case, object, &format!("${{{name}")).unwrap_or(finding.line);
    finding.because(name)
}

/// What is in the repository and not in what Flux builds.
fn dropped(case: &Case<'_>, group: &Group, found: &mut Vec<Finding>) {
    let own = &group.kustomization;
    for Note { file, line, what, .. } in &group.dropped {
        let why = format!("`{what}` is no key of a kustomization file, and Flux drops it");
        let finding = Finding::of(Code::KeyDropped, own, "", why, "correct the key, or remove it").because(what);
        found.push(Finding { file: file.clone(), line: *line, ..finding });
    }
    let Some(folder) = folder(own).filter(|_| !group.is_foreign) else { return };
    let within = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let is_file = |path: &str| FILES.iter().any(|name| case.tree.file(&format!("{path}{name}")).is_some());
    for link in case.tree.links_below(&folder) {
        let (above, name) = link.rsplit_once('/').map_or(("", link), |(_, name)| (link.trim_end_matches(name), name));
        // A folder with a kustomization file is taken by that file, wherever below it is.
        let ends = above.match_indices('/').map(|(at, _)| at + 1).filter(|end| *end > within.len());
        let has_file = is_file(&within) || ends.into_iter().any(|end| is_file(&above[..end]));
        let is_meant = name.ends_with(".yaml") || name.ends_with(".yml") || !name.contains('.');
        // What a kustomization file names and is not there stops the build; what it does not name nobody misses.
        if !is_meant || (has_file && !FILES.contains(&name)) {
            continue;
        }
        let why = format!("is a symbolic link, and Flux drops those: {} does not get what it leads to", group.name());
        let fix = "commit the file itself; or name what it leads to in the resources of a kustomization.yaml";
        let finding = Finding::of(Code::LinkDropped, own, "", why, fix).because(link);
        found.push(Finding { file: link.to_owned(), line: 1, subject: link.to_owned(), ..finding });
    }
}

/// The first line of an object's file, from the object on, that holds a text.
fn line_of(case: &Case<'_>, object: &Object, text: &str) -> Option<usize> {
    let file = String::from_utf8_lossy(case.tree.file(&object.file)?);
    let from = object.line("");
    file.lines().enumerate().skip(from - 1).find(|(_, line)| line.contains(text)).map(|(index, _)| index + 1)
}

fn depends(case: &Case<'_>, group: &Group, found: &mut Vec<Finding>) {
    for (index, needed) in group.depends_on() {
        let is_known = case.forest.groups.iter().any(|other| other.reference() == needed) || case.world.has(&needed);
        if is_known || is_unknown(&needed.name) || is_unknown(&needed.namespace) {
            continue;
        }
        let (own, pointer) = (&group.kustomization, format!("/spec/dependsOn/{index}"));
        let missing = Finding::of(
            Code::DependsOnUnknown,
            own,
            &pointer,
            format!("waits for {needed}, which does not exist: it stays at DependencyNotReady for ever"),
            "correct the name (and namespace), or remove the entry",
        );
        let what = (needed.kind.as_str(), needed.namespace.as_str(), needed.name.as_str());
        let waits = |group: &Group, _: &Object| group.depends_on().any(|(_, theirs)| theirs == needed);
        let maker = possible_maker(case.forest, &needed.kind, &needed.namespace, &waits);
        let missing = missing.because(needed.to_string());
        found.push(unless_made_by((case.unread.as_deref(), maker), own, &pointer, what, missing));
    }
}

fn encrypted(group: &Group, found: &mut Vec<Finding>) {
    if group.kustomization.text("/spec/decryption/provider") == "sops" {
        return;
    }
    let fix = format!("add spec.decryption: {{provider: sops, secretRef: {{name: sops-age}}}} to {}", group.name());
    for object in group.objects.iter().filter(|object| object.value.pointer("/sops/mac").is_some()) {
        let why = format!(
            "the file is encrypted with SOPS, and {} does not decrypt: the API server refuses the field sops",
            group.name()
        );
        found.push(Finding::of(Code::SopsWithoutDecryption, object, "/sops", why, &fix).because(group.name()));
    }
    for Note { file, line, what, .. } in &group.sealed {
        let why = format!(
            "{what} is encrypted with SOPS, and {} does not decrypt: the Secret would hold what is encrypted",
            group.name()
        );
        let finding = Finding::of(Code::SopsWithoutDecryption, &group.kustomization, "", why, &fix);
        found.push(Finding { file: file.clone(), line: *line, ..finding.because(group.name()) });
    }
}

/// How a Kustomization goes on after a failure, and whether it works at all.
fn habits(own: &Object, found: &mut Vec<Finding>) {
    if own.value["spec"]["suspend"] == true {
        found.push(suspended(own));
    }
    if own.text("/spec/retryInterval").is_empty() {
        let interval = own.text("/spec/interval");
        found.push(Finding::of(
            Code::RetryIntervalMissing,
            own,
            "/spec/interval",
            format!(
                "without spec.retryInterval one lost race costs the whole interval ({interval}) before Flux tries again"
            ),
            "add spec.retryInterval: 30s",
        ).because("retryInterval"));
    }
}

fn suspended(object: &Object) -> Finding {
    let kind = if object.group() == KUSTOMIZE { "kustomization" } else { "helmrelease" };
    Finding::of(
        Code::Suspended,
        object,
        "/spec/suspend",
        "is suspended: nothing of it is applied, and whatever waits for it waits for ever",
        format!("remove spec.suspend, or: flux resume {kind} {} -n {}", object.name(), object.reference().namespace),
    )
    .because(kind)
}
