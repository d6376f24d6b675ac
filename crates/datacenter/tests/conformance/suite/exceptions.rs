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

/// What the embedded server does in its own way, and why that is right.
const fn embedded(
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
    newer("discovery", "tables of other kinds", &[32], "1.37 shows more of definitions"),
    embedded(
        "apply",
        "containers are one list by name, their values atomic where they are marked so",
        &[2],
        "its controllers of workloads have been at the Deployment; the recorded control plane has none",
    ),
    embedded("workloads", "other workloads' defaults", &[10], GO),
    embedded("workloads", "Pods", &[6], GO),
    embedded(
        "workloads",
        "Nodes, Leases, EndpointSlices, Events",
        &[3],
        "its controller of nodes has seen that the node is ready, and taken its taint; the recorded plane has none",
    ),
    embedded("crds", "established, used, deleted", &[17], DESCRIPTIONS),
    embedded("discovery", "tables", &[2], DESCRIPTIONS),
    embedded(
        "kubectl",
        "more of what people do",
        &[30],
        "its controller of EndpointSlices has made one; the recorded plane has none",
    ),
    embedded(
        "kubectl",
        "nodes",
        &[9],
        "its controller of DaemonSets has put Pods onto the node; the recorded plane has none",
    ),
    embedded(
        "mirror",
        "flux-v2.9.0-components.yaml",
        &[37, 38, 39, 40],
        "its controllers of workloads have been at the Deployments; the recorded control plane has none",
    ),
];

const GO: &str = "the real one adds a diff of its own Go structures, which it alone has";
const DESCRIPTIONS: &str =
    "what a column means is told in sentences of the Kubernetes documentation, which are not ours to repeat";
