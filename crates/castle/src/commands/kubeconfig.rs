//! `castle kubeconfig`: what `kubectl` needs, issued from the bundle.

use castle_layers::cluster::api_address;
use castle_talos::model::clients;
use clap::Args;

use crate::doors::Doors;
use crate::issuing::{Issue, bundle, doors as issuers};
use crate::keeping::Kept;
use crate::output::{Exit, Printer};
use crate::stand::Trouble;

/// Issue a kubeconfig for the castle, without asking the castle
///
/// It is made from the sealed bundle, so it works whatever is down. Printed unless a file is named.
#[derive(Debug, Args)]
pub(crate) struct KubeconfigArgs {
    #[command(flatten)]
    issue: Issue,
}

pub(crate) async fn kubeconfig(args: &KubeconfigArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let _hushed = args.issue.hush(doors, printer);
    let kept = Kept::open(doors, &args.issue.path).map_err(Trouble::Invalid)?;
    let bundle = bundle(&kept).await?;
    let address = api_address(&kept.castle, &kept.nodes);
    let name = kept.castle.castle.as_str();
    let text = clients::kubeconfig(&bundle, name, &address, args.issue.lifetime(), issuers(&kept)).await;
    let text = text.map_err(|error| Trouble::of(&error))?;
    args.issue.deliver("kubeconfig", &kept, &text, clients::merge_kubeconfig, printer)
}
