//! The parts of a cluster that write objects.

/// A part of the cluster that writes objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) name: &'a str,
    pub(crate) subresource: &'a str,
}

/// The controllers.
pub(crate) const CONTROLLER: Writer<'_> = Writer { name: "kube-controller-manager", subresource: "" };
/// The controllers, writing what they saw.
pub(crate) const CONTROLLER_STATUS: Writer<'_> = Writer { name: "kube-controller-manager", subresource: "status" };
/// The agents of the nodes.
pub(crate) const KUBELET: Writer<'_> = Writer { name: "kubelet", subresource: "status" };
/// The scheduler.
pub(crate) const SCHEDULER: Writer<'_> = Writer { name: "kube-scheduler", subresource: "" };
/// The server itself.
pub(crate) const SERVER: Writer<'_> = Writer { name: "kube-apiserver", subresource: "" };
/// The server itself, writing what it found.
pub(crate) const SERVER_STATUS: Writer<'_> = Writer { name: "kube-apiserver", subresource: "status" };
/// What a node brings along when its cluster begins.
pub(crate) const TALOS: Writer<'_> = Writer { name: "talos", subresource: "" };
