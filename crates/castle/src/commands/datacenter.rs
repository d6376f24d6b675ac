//! `castle datacenter`: the embedded datacenter on loopback, for castle and for any other client.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;

use castle_datacenter::{Blueprint, Datacenter, EMBEDDED_GIT, EMBEDDED_VAULT, Keys, Latencies, ScaledClock};
use castle_seams::{Clock, Signals as _};
use castle_secrets::Secret;
use clap::{Args, Subcommand};
use futures_util::future::{Either, select};
use serde_json::json;

use crate::doors::Doors;
use crate::embedded::{self, Serving};
use crate::output::{Exit, Printer};

/// A castle is raised in about ten seconds. `platform.embedded.speed` has the same default.
const SPEED: u32 = 30;
/// Where Proxmox is usually found.
const USUAL_PORT: u16 = 8006;

/// Serve the embedded datacenter on loopback: a hypervisor to try castle on, and any other client of Proxmox
///
/// A simulation: nothing of it leaves this machine, and nothing in it is real. Castles whose platform is `embedded` find it by
/// themselves, and start it if none runs. It is for its owner alone: what opens it is drawn anew each time, and kept in files that nobody else
/// can read.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DatacenterArgs {
    #[command(subcommand)]
    what: Option<What>,
    /// A host of the hypervisor; may be given several times
    #[arg(long = "host", value_name = "NAME", default_value = "pve")]
    hosts: Vec<String>,
    /// Where to listen, on loopback. Default: 127.0.0.1:8006, or another port if that is taken
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// How many seconds of the datacenter pass in one of yours
    #[arg(long, value_name = "FACTOR", default_value_t = SPEED, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    speed: u32,
    /// Let nothing in it take any time: what is left is what castle itself takes
    #[arg(long)]
    instant: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Tell whether it runs, and how to reach it
    Status,
    /// End it; all that stood in it is gone
    Stop,
}

pub(crate) async fn run(args: &DatacenterArgs, doors: &Doors, printer: &mut Printer) -> Exit {
    let result = match args.what {
        None => serve(args, doors, printer).await,
        Some(What::Status) => status(doors, printer),
        Some(What::Stop) => stop(doors, printer).await,
    };
    result.unwrap_or_else(|why| printer.failed("datacenter", &why))
}

async fn serve(args: &DatacenterArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, String> {
    let Some(_claim) = embedded::claim(doors)? else {
        return Ok(printer.refused("datacenter", "the embedded datacenter runs already: castle datacenter status"));
    };
    embedded::forget(doors)?;
    if args.listen.is_some_and(|listen| !listen.ip().is_loopback()) {
        return Ok(printer.invalid("datacenter", "the embedded datacenter listens on loopback alone: 127.0.0.1:PORT"));
    }
    let signals = doors.signals().map_err(|error| error.to_string())?;
    let clock: Arc<dyn Clock> = Arc::new(ScaledClock::new(doors.clock.clone(), f64::from(args.speed)));
    let keys = embedded::Keys::draw(doors.entropy.as_ref())?;
    let seed = embedded::Keys::draw_seed(doors.entropy.as_ref())?;
    let mut blueprint = Blueprint::embedded(&args.hosts).with_keys(&Keys {
        token: keys.token.expose(),
        password: keys.password.as_ref().map(Secret::expose).unwrap_or_default(),
        client_secret: keys.client_secret.expose(),
        seed: &seed,
    });
    if args.instant {
        blueprint = blueprint.with_latencies(Latencies::none());
    }
    let datacenter = Datacenter::new(blueprint, clock);
    let usual = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let served = match args.listen {
        Some(listen) => datacenter.serve(listen).await,
        None => match datacenter.serve(usual(USUAL_PORT)).await {
            Ok(served) => Ok(served),
            // Someone else has that port: any other will do.
            Err(_) => datacenter.serve(usual(0)).await,
        },
    };
    let served = served.map_err(|error| error.to_string())?;
    let vault = datacenter.serve_vault(EMBEDDED_VAULT, usual(0)).await.map_err(|error| error.to_string())?;
    let files = doors.clone();
    datacenter.follow_repositories(EMBEDDED_GIT, Arc::new(move |name| embedded::followed(&files, name)));
    datacenter.close_git_host(EMBEDDED_GIT, keys.git.as_ref().map(Secret::expose).unwrap_or_default());
    let git = datacenter.serve_git(EMBEDDED_GIT, usual(0)).await.map_err(|error| error.to_string())?;
    let serving = Serving {
        address: served.address,
        fingerprint: served.fingerprint.clone(),
        process: std::process::id(),
        hosts: args.hosts.clone(),
        speed: args.speed,
        is_instant: args.instant,
        vault: vault.address,
        vault_fingerprint: vault.fingerprint.clone(),
        git: git.address,
        git_fingerprint: git.fingerprint.clone(),
        key_digests: keys.digests(git.address),
        keys,
    };
    embedded::announce(doors, &serving)?;
    tell(&serving, &embedded::kept_keys(doors)?, printer);
    printer.say("Ctrl-C ends it.");
    if let Either::Right((lost, _)) = select(signals.next(), pin!(embedded::lost(doors, &serving))).await {
        lost?;
        printer.complain_to_people("What castle keeps of this datacenter was removed: it ends.");
    }
    git.stop();
    vault.stop();
    served.stop();
    Ok(Exit::Done)
}

fn tell(serving: &Serving, kept: &embedded::KeptKeys, printer: &mut Printer) {
    let pace = if serving.is_instant {
        "and nothing in it takes any time".to_owned()
    } else {
        format!("{} times as fast as real time", serving.speed)
    };
    printer.say(&format!(
        "The embedded datacenter serves Proxmox VE 9.2 at {}, {pace}.\n\
         fingerprint  {}\n\
         token        in {}; for root@pam, the password is in {}\n\
         vault        https://{}\n\
         fingerprint  {}\n\
         login        in {}\n\
         git          https://{}/CASTLE-embedded.git\n\
         fingerprint  {}\n\
         login        git -c credential.helper='store --file {}'\n\
         It is a simulation, for you alone: nobody else can read these files, and they open nothing else.",
        serving.url(),
        serving.fingerprint,
        kept.token.display(),
        kept.password.display(),
        serving.vault,
        serving.vault_fingerprint,
        kept.vault.display(),
        serving.git,
        serving.git_fingerprint,
        kept.git.display(),
    ));
    printer.result(&json!({
        "verb": "datacenter", "result": "serving", "address": serving.url(), "fingerprint": serving.fingerprint,
        "token_file": kept.token, "password_file": kept.password, "hosts": serving.hosts, "speed": (!serving.is_instant).then_some(serving.speed),
        "instant": serving.is_instant,
        "vault": {"address": format!("https://{}", serving.vault), "fingerprint": serving.vault_fingerprint, "login_file": kept.vault},
        "git": {"address": format!("https://{}", serving.git), "fingerprint": serving.git_fingerprint, "login_file": kept.git},
    }));
}

fn status(doors: &Doors, printer: &mut Printer) -> Result<Exit, String> {
    match embedded::find(doors)? {
        Some(serving) => tell(&serving, &embedded::kept_keys(doors)?, printer),
        None => {
            printer.say("The embedded datacenter does not run. castle datacenter starts it.");
            printer.result(&json!({"verb": "datacenter", "result": "stopped"}));
        }
    }
    Ok(Exit::Done)
}

async fn stop(doors: &Doors, printer: &mut Printer) -> Result<Exit, String> {
    match embedded::stop(doors).await? {
        Some(serving) => printer.say(&format!("The embedded datacenter at {} has ended.", serving.url())),
        None => printer.say("The embedded datacenter does not run."),
    }
    printer.result(&json!({"verb": "datacenter", "result": "stopped"}));
    Ok(Exit::Done)
}
