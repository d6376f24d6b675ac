//! The Kustomizations themselves: whether they can be built, in which order, and how they go on after a failure.

use super::{Case, Code, Finding};
use crate::flux::{Group, KUSTOMIZE, folder};
use crate::object::Object;

pub(super) fn judge(case: &mut Case<'_>) {
    let mut found = Vec::new();
    for group in &case.forest.groups {
        built(case, group, &mut found);
        depends(case, group, &mut found);
        encrypted(group, &mut found);
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
    for (_, object) in case.forest.objects() {
        if object.is("helm.toolkit.fluxcd.io", "HelmRelease") && object.value["spec"]["suspend"] == true {
            found.push(suspended(object));
        }
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
        found.push(Finding::of(
            Code::PathMissing,
            own,
            "/spec/path",
            format!("{path} is not in the repository: Flux stops with ArtifactFailed"),
            fix,
        ));
    }
    if let Some(failure) = &group.failure {
        found.push(Finding {
            code: Code::BuildFailed,
            file: failure.file.clone(),
            line: failure.line,
            subject: own.reference().to_string(),
            why: format!("{}: Flux applies nothing of {} (BuildFailed)", failure.what, group.name()),
            fix: format!("mend it; kustomize build {} shows the same", folder(own).unwrap_or_default()),
        });
    }
    for (object, names) in &group.missing {
        if names.is_empty() {
            let mut finding = Finding::of(
                Code::VariableMissing,
                object,
                "",
                format!("{} has no variable at all: then Flux substitutes nothing, not even defaults", group.name()),
                format!(
                    "give at least one under spec.postBuild.substitute of {}, or gitops.vars of castle.yaml",
                    group.name()
                ),
            );
            finding.line = line_of(case, object, "${").unwrap_or(finding.line);
            found.push(finding);
        }
        for name in names {
            let mut finding = Finding::of(
                Code::VariableMissing,
                object,
                "",
                format!(
                    "${{{name}}} has no value and no default: Flux 2.9 substitutes strictly and applies nothing of {}",
                    group.name()
                ),
                format!(
                    "give it under gitops.vars of castle.yaml or spec.postBuild.substitute of {}, write a default (${{{name}:=...}}), or write $${{{name}}} if it is not Flux's",
                    group.name()
                ),
            );
            finding.line = line_of(case, object, &format!("${{{name}")).unwrap_or(finding.line);
            found.push(finding);
        }
    }
    for (pointer, kind, name) in &group.sources_missing {
        found.push(Finding::of(
            Code::SubstitutionSourceMissing,
            own,
            pointer,
            format!(
                "variables come from {kind} {name} in {}, which neither castle nor the repository makes",
                own.reference().namespace
            ),
            "make it, correct the name, or write optional: true",
        ));
    }
    for note in &group.notes {
        found.push(Finding {
            code: Code::NotJudged,
            file: note.file.clone(),
            line: note.line,
            subject: own.reference().to_string(),
            why: format!("castle does not build {}: what it brings is not judged", note.what),
            fix: "flux build kustomization shows what it comes to".to_owned(),
        });
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
        if !case.forest.groups.iter().any(|other| other.reference() == needed) {
            found.push(Finding::of(
                Code::DependsOnUnknown,
                &group.kustomization,
                &format!("/spec/dependsOn/{index}"),
                format!("waits for {needed}, which does not exist: it stays at DependencyNotReady for ever"),
                "correct the name (and namespace), or remove the entry",
            ));
        }
    }
}

fn encrypted(group: &Group, found: &mut Vec<Finding>) {
    let decrypts = group.kustomization.text("/spec/decryption/provider") == "sops";
    for object in group.objects.iter().filter(|object| !decrypts && object.value.pointer("/sops/mac").is_some()) {
        found.push(Finding::of(
            Code::SopsWithoutDecryption,
            object,
            "/sops",
            format!(
                "the file is encrypted with SOPS, and {} does not decrypt: the API server refuses the field sops",
                group.name()
            ),
            format!("add spec.decryption: {{provider: sops, secretRef: {{name: sops-age}}}} to {}", group.name()),
        ));
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
        ));
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
}
