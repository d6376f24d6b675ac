//! Where a server may answer otherwise than recorded, each with its reason. One that no longer differs is an error too.

/// One answer, or all of a scenario, that a server gives in its own way.
pub(crate) struct Exception {
    /// The server: `1.37`, `embedded`.
    pub(crate) server: &'static str,
    pub(crate) theme: &'static str,
    /// The scenario's title.
    pub(crate) scenario: &'static str,
    /// The answers in the scenario, counted from one; none for all of them.
    pub(crate) answers: &'static [usize],
    /// Why that is right. Shown when the suite runs.
    pub(crate) reason: &'static str,
}

const fn newer(
    theme: &'static str,
    scenario: &'static str,
    answers: &'static [usize],
    reason: &'static str,
) -> Exception {
    Exception { server: "1.37", theme, scenario, answers, reason }
}

/// What the embedded server does not do as the real one does. Each is a gap to be closed, none is a right of its own.
const fn gap(
    theme: &'static str,
    scenario: &'static str,
    answers: &'static [usize],
    reason: &'static str,
) -> Exception {
    Exception { server: "embedded", theme, scenario, answers, reason }
}

/// All of them. The recordings are of the minor version that castle installs unless told otherwise.
pub(crate) const EXCEPTIONS: &[Exception] = &[
    newer("objects", "finalizers hold what is deleted", &[4], "1.37 names the same cause once and not twice"),
    newer("apply", "an apply must name itself and its object", &[10], "1.37 words unreadable YAML otherwise"),
    newer(
        "apply",
        "apply to a subresource and to an object that is being deleted",
        &[4],
        "1.37 names the same cause once and not twice",
    ),
    newer("patch", "a patch may not be what it is not", &[5], "1.37 words unreadable JSON otherwise"),
    newer("patch", "a patch may not be what it is not", &[9], "1.37 names the same cause once and not twice"),
    newer("workloads", "other workloads' defaults", &[2], "1.37 gives StatefulSets a maxUnavailable"),
    newer("workloads", "other workloads' defaults", &[13], "1.37 has one more field in CSIDriver"),
    newer("workloads", "Nodes, Leases, EndpointSlices, Events", &[9], "1.37 does not repeat the value"),
    newer("access", "a right is granted, used and taken", &[14], "1.37 validates RBAC by declaration, in other words"),
    newer("access", "a right is granted, used and taken", &[15], "1.37 validates RBAC by declaration, in other words"),
    newer("endings", "in the background what is owned goes after its owner", &[3], "1.37 says which reference it is"),
    newer("discovery", "OpenAPI", &[2], "its own version"),
    gap(
        "apply",
        "containers are one list by name, their values atomic where they are marked so",
        &[2],
        "not as the real one yet",
    ),
    gap("apply", "an apply must name itself and its object", &[10], "not as the real one yet"),
    gap("lists", "label selectors", &[11, 12], "not as the real one yet"),
    gap("lists", "pages", &[8], "not as the real one yet"),
    gap("lists", "what is older than the last compaction is gone", &[6], "not as the real one yet"),
    gap("workloads", "other workloads' defaults", &[10], "not as the real one yet"),
    gap("workloads", "Services and their addresses", &[10, 11, 12, 13, 14, 15], "not as the real one yet"),
    gap("workloads", "Pods", &[6, 7, 10, 13], "not as the real one yet"),
    gap("workloads", "a Pod that runs somewhere is given time to end", &[4], "not as the real one yet"),
    gap("workloads", "PodSecurity: baseline is enforced, restricted warned of", &[8, 9, 10], "not as the real one yet"),
    gap("workloads", "Nodes, Leases, EndpointSlices, Events", &[11, 12, 13, 14], "not as the real one yet"),
    gap("crds", "established, used, deleted", &[9, 10, 17, 23, 25, 27], "not as the real one yet"),
    gap("crds", "what a definition may not be", &[2, 3, 4, 5], "not as the real one yet"),
    gap("crds", "rules in CEL", &[5], "not as the real one yet"),
    gap("access", "a right is granted, used and taken", &[11, 12], "reviews of access give no reason yet"),
    gap("access", "nobody grants more than he has", &[4], "rights are not held against escalation yet"),
    gap("access", "in the name of another", &[1, 2, 3], "nobody acts in the name of another yet"),
    gap("endings", "a namespace's own finalizers", &[4], "not as the real one yet"),
    gap("endings", "in the background what is owned goes after its owner", &[3, 4], "not as the real one yet"),
    gap("discovery", "all at once", &[1, 2], "it serves fewer kinds"),
    gap("discovery", "OpenAPI", &[1, 3], "it serves fewer kinds"),
    gap("discovery", "tables", &[2, 8, 9, 10, 11, 12], "columns have no descriptions"),
    gap("mirror", "longhorn-v1.12.1.yaml", &[], "controllers of workloads run beside it"),
    gap("mirror", "flux-v2.9.0-components.yaml", &[], "controllers of workloads run beside it"),
];
