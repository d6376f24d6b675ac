//! `castle talosconfig`: what `talosctl` needs, issued from the bundle.

use castle_spec::{Node, Role};
use castle_talos::model::clients;
use clap::Args;

use crate::doors::Doors;
use crate::issuing::{Issue, bundle, doors as issuers};
use crate::keeping::Kept;
use crate::output::{Exit, Printer};
use crate::stand::Trouble;

/// Issue a talosconfig for the castle, without asking the castle
///
/// It is made from the sealed bundle, so it works whatever is down. Its endpoints are the control planes themselves, never the
/// shared address, which dies with etcd. Printed unless a file is named.
#[derive(Debug, Args)]
pub(crate) struct TalosconfigArgs {
    #[command(flatten)]
    issue: Issue,
}

pub(crate) async fn talosconfig(args: &TalosconfigArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let _hushed = args.issue.hush(doors, printer);
    let kept = Kept::open(doors, &args.issue.path).map_err(Trouble::Invalid)?;
    let bundle = bundle(&kept).await?;
    let addresses = |keep: fn(&&Node) -> bool| -> Vec<String> {
        kept.nodes.iter().filter(keep).map(|node| node.address.value.to_string()).collect()
    };
    let (endpoints, nodes) = (addresses(|node| node.role == Role::ControlPlane), addresses(|_| true));
    let (name, lifetime) = (kept.castle.castle.as_str(), args.issue.lifetime());
    let text = clients::talosconfig(&bundle, name, &endpoints, &nodes, lifetime, issuers(&kept)).await;
    let text = text.map_err(|error| Trouble::of(&error))?;
    args.issue.deliver("talosconfig", &kept, &text, clients::merge_talosconfig, printer)
}
