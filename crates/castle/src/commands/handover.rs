//! `castle handover`: a component that goes from castle to Flux, or back, as it stands.

use std::path::PathBuf;
use std::time::Duration;

use castle_components::{Fit, choose};
use castle_engine::{
    Alone, CastleId, Chosen, Closed, Deaf, Fault, Gate, Graph, GraphBuilder, Layer, Outcome, Place, Report, Retry,
    StepId, Taking, Tools, Verdict, Wanted, run,
};
use castle_kubernetes::client::{Access, Api};
use castle_kubernetes::model::{Mark, Object};
use castle_kubernetes::steps::{Keeper, Proof, Waiting, declared, give, prove, recorded, take};
use castle_layers::layer_of;
use castle_layers::owners::keeper;
use castle_seams::BoxFuture;
use castle_spec::ComponentName;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::commands::confirm::confirmed;
use crate::commands::owners::api_access;
use crate::components::Manifests;
use crate::doors::Doors;
use crate::drive::{Setting, conclude, drive, problems};
use crate::keeping::{ANOTHER_LIFE, Kept};
use crate::masking;
use crate::output::{Exit, Printer};
use crate::stand::{REACHING, Trouble, while_held};

/// How long the API may take to answer.
const ANSWERING: Duration = Duration::from_secs(60);
/// So many objects are named to people; programs are told of all.
const NAMED: usize = 40;

const WHY_NOT_FLUX: &str = "Flux follows the Git repository because castle has told it to: it stays castle's, so that there is somebody who \
                            can mend it when it cannot mend itself\n  next: castle up";

/// Hand a component over to Flux, or take it back, without deleting or restarting anything
///
/// First change `components.NAME.owner` in castle.yaml, and for Flux commit the component to the Git repository. Castle lets go of a component
/// only if Flux has applied every field of it. It takes one over in two steps: run it, remove the component from the Git repository, and
/// run it again. It can be interrupted or killed at any moment and run again.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  castle handover metallb --to flux\n  castle handover metallb --to castle examples/blue"
)]
pub(crate) struct HandoverArgs {
    /// The component
    #[arg(value_parser = ComponentName::ALL.map(ComponentName::word))]
    component: String,
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Who is to own it from now on
    #[arg(long, value_parser = ["flux", "castle"])]
    to: String,
    /// Have manifests from this mirror: a folder, or a tar archive of one. Default: CASTLE_MIRROR
    #[arg(long, value_name = "PLACE")]
    mirror: Option<PathBuf>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// Gives a client of the castle's API to those who need one, once it answers.
struct Reached {
    access: Access,
    doors: Doors,
}

impl Reached {
    fn api(&self) -> Result<Api, Fault> {
        let unfit = |error: castle_kubernetes::client::AccessError| {
            Fault::new(castle_engine::Class::Final, "the API", error.to_string())
        };
        Api::new(&self.access, self.doors.dial(REACHING), self.doors.clock.clone()).map_err(unfit)
    }
}

impl Gate for Reached {
    type Needs = ();
    type Output = Api;

    fn check<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<Verdict<Api>, Fault>> {
        Box::pin(async move {
            let api = self.api()?;
            let silent = match api.discover().await {
                Ok(_) => return Ok(Verdict::Open(api)),
                // No waiting helps whoever is turned away.
                Err(trouble) if matches!(trouble.class(), castle_engine::Class::Final) => {
                    return Err(
                        Fault::new(castle_engine::Class::Final, "the API", trouble.to_string()).next("castle status")
                    );
                }
                Err(trouble) => trouble.to_string(),
            };
            let (subject, next) = ("the API".to_owned(), "castle status".to_owned());
            Ok(Verdict::Closed(Closed { subject, evidence: format!("does not answer: {silent}"), next }))
        })
    }

    fn deadline(&self) -> Duration {
        ANSWERING
    }
}

/// One move of one component.
struct Move<'m> {
    args: &'m HandoverArgs,
    kept: &'m Kept,
    mark: Mark,
    to: Keeper,
    /// What castle wants of it; nothing if castle is to let go of it.
    objects: Vec<Object>,
    access: Access,
}

pub(crate) async fn handover(args: &HandoverArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let kept = Kept::open(doors, &args.path).map_err(Trouble::Invalid)?;
    let to = if args.to == "flux" { Keeper::Flux } else { Keeper::Castle };
    let name = agreed(args, &kept, to)?;
    let objects = if to == Keeper::Castle { wanted_objects(args, doors, name).await? } else { Vec::new() };
    if kept.castle_id().await.map_err(Trouble::Failed)?.is_some() {
        kept.seal().map_err(Trouble::Failed)?;
    }
    let access = api_access(&kept).await?;
    let mark = Mark::new(kept.castle.castle.as_str(), layer_of(name), name.word());
    Move { args, kept: &kept, mark, to, objects, access }.make(printer).await
}

/// Which component it is, if castle.yaml wants of it what was asked for.
fn agreed(args: &HandoverArgs, kept: &Kept, to: Keeper) -> Result<ComponentName, Trouble> {
    let Some(name) = ComponentName::of_word(&args.component).filter(|name| *name != ComponentName::Flux) else {
        return Err(Trouble::Refused(WHY_NOT_FLUX.to_owned()));
    };
    let file = kept.file.display();
    let Some(wanted) = kept.castle.wanted_components().into_iter().find(|wanted| wanted.name == name) else {
        return Err(Trouble::Invalid(format!(
            "{file} has no {name}: nothing in it calls for one, or it is switched off\n  next: castle status tells which components it has"
        )));
    };
    if keeper(wanted.owner) == to {
        return Ok(name);
    }
    let (is, wanted, key) = (keeper(wanted.owner).word(), to.word(), name.key());
    Err(Trouble::Refused(format!(
        "{file} says that {is} is the owner of {name}, and the next `castle up` would go by that\n  next: write `components: {{{key}: \
         {{owner: {wanted}}}}}`, then castle handover {name} --to {wanted}"
    )))
}

/// What castle wants of a component, as it would install it.
async fn wanted_objects(args: &HandoverArgs, doors: &Doors, name: ComponentName) -> Result<Vec<Object>, Trouble> {
    let manifests = Manifests::open(doors, &args.path, args.mirror.as_deref())?;
    let chosen = choose(&manifests.castle, manifests.lock.as_ref(), manifests.supply.mirror().is_some());
    let chosen = chosen.map_err(|error| Trouble::of(&error))?;
    let Some(chosen) = chosen.iter().find(|chosen| chosen.wanted.name == name) else { return Ok(Vec::new()) };
    let fit = Fit::of(&manifests.castle, &manifests.nodes);
    manifests.supply.objects(chosen, &fit).await.map_err(|error| Trouble::of(&error))
}

impl Move<'_> {
    async fn make(&self, printer: &mut Printer) -> Result<Exit, Trouble> {
        let kept = self.kept;
        let never = || Trouble::Failed(kept.unknown());
        let castle = kept.castle_id().await.map_err(Trouble::Failed)?.ok_or_else(never)?;
        let _at = kept.doors.at("asking the cluster's API");
        let api = self.reached().api()?;
        let keys = match self.to {
            Keeper::Castle => self.objects.iter().map(Object::key).collect(),
            Keeper::Flux => recorded(&api, &self.mark).await?.unwrap_or_default(),
        };
        let before = prove(&api, &keys).await?;
        let first_look = self.look(&castle).await?;
        let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::Failed { fault } if fault.guarded);
        if first_look.ended(is_refused).next().is_some() {
            let mut told = self.told("refused");
            told["problems"] = problems(&first_look, printer).into();
            printer.result(&told);
            printer.say("Nothing was changed.");
            return Ok(Exit::Refused);
        }
        let is_planned = first_look.ended(|outcome| matches!(outcome, Outcome::Planned { .. })).next().is_some();
        let (name, to) = (&self.args.component, self.args.to.as_str());
        let question = format!("{name} of {} goes to {to}: {} objects.", kept.name(), before.objects.len());
        if is_planned && !confirmed(&question, self.args.yes, printer) {
            return Err(Trouble::Refused("nothing was changed: answer yes, or give --yes".to_owned()));
        }
        let held = kept.lease(Taking::Politely, 0).await?;
        let work = async {
            // Whatever decides is read once more, now that nobody else writes.
            if kept.castle_id().await.map_err(Trouble::Failed)? != Some(castle.clone()) {
                return Err(Trouble::Refused(kept.moved_on(ANOTHER_LIFE)));
            }
            self.drive(&castle, &held.lease, printer).await
        };
        let driven = while_held(&kept.doors, &held.lease, work).await;
        // A lease that cannot be given back runs out by itself.
        let _ = held.lease.release().await;
        let driven = driven?;
        if !driven.report.is_done() {
            return Ok(conclude("handover", "moved", kept.castle.castle.as_str(), &driven, Map::new(), printer));
        }
        let after = prove(&api, &keys).await?;
        let waiting = match self.to {
            Keeper::Castle => declared(&api, &keys).await?,
            Keeper::Flux => Vec::new(),
        };
        self.conclude((&before, &after), &waiting, driven.report.effects() > 0, printer);
        Ok(Exit::Done)
    }

    fn reached(&self) -> Reached {
        Reached { access: self.access.clone(), doors: self.kept.doors.clone() }
    }

    fn graph(&self) -> Result<Graph, Trouble> {
        let mut graph = GraphBuilder::new();
        let id = StepId::new(&Layer::new(&self.mark.layer), &self.mark.component, "api");
        let api = graph.gate(id, Place::default(), (), self.reached());
        match self.to {
            Keeper::Castle => take(&mut graph, &api, &self.objects, &self.mark),
            Keeper::Flux => give(&mut graph, &api, &self.mark),
        }
        graph.build().map_err(|error| Trouble::of(&error))
    }

    /// What would be done.
    async fn look(&self, castle: &CastleId) -> Result<Report, Trouble> {
        let (clock, entropy) = (self.kept.doors.clock.as_ref(), self.kept.doors.entropy.as_ref());
        let fence = Alone { epoch: 0 };
        let tools = Tools { clock, entropy, fence: &fence, listener: &Deaf, signals: None, journal: None };
        let retry = Retry { attempts: 3, first: Duration::from_millis(300), longest: Duration::from_secs(2) };
        Ok(masking::report(run(&self.graph()?, tools, &Wanted { retry, ..Wanted::all(castle.clone()) }).await))
    }

    async fn drive(
        &self,
        castle: &CastleId,
        lease: &castle_engine::Lease,
        printer: &mut Printer,
    ) -> Result<crate::drive::Driven, Trouble> {
        let (doors, seal) = (&self.kept.doors, self.kept.seal().map_err(Trouble::Failed)?);
        let signals = doors.signals().map_err(|error| Trouble::of(&error))?;
        let setting = Setting {
            verb: "handover",
            castle: castle.clone(),
            name: self.kept.name(),
            nodes: Vec::new(),
            layers: Chosen::default(),
            within: None,
            goes_on: false,
            folder: &self.kept.own_folder(),
            disk: doors.disk.clone(),
            clock: doors.clock.as_ref(),
            entropy: doors.entropy.as_ref(),
            fence: lease,
            seal: Some(&seal),
            signals: &signals,
        };
        Ok(drive(self.graph()?, setting, printer).await?)
    }

    fn told(&self, result: &str) -> Value {
        json!({"verb": "handover", "castle": self.kept.castle.castle.as_str(), "result": result,
            "component": self.args.component, "to": self.args.to, "problems": []})
    }

    /// Says how it ended, with the proof.
    fn conclude(&self, (before, after): (&Proof, &Proof), waiting: &[Waiting], has_acted: bool, printer: &mut Printer) {
        let name = &self.args.component;
        let (result, closing) = match (waiting.is_empty(), has_acted) {
            (false, _) => ("waiting", format!("{name} is castle's, and Flux is kept from it for now.")),
            (true, true) => ("moved", format!("{name} is {}'s.", self.to.word())),
            (true, false) => ("unchanged", format!("{name} is {}'s already.", self.to.word())),
        };
        let disturbed: Vec<String> = before.disturbed(after).iter().map(|one| masking::text(one)).collect();
        let objects = before.objects.iter().map(|(key, seen)| {
            let now = after.objects.get(key).map(|now| &now.managers);
            json!({"object": key.to_string(), "group": key.group, "managers_before": seen.managers, "managers": now})
        });
        let pods = before.pods.iter().map(|(name, pod)| {
            let is_same = after.pods.get(name) == Some(pod);
            json!({"pod": name, "uid": pod.uid, "restarts": pod.restarts, "same": is_same})
        });
        let remove = waiting.iter().map(|one| {
            let objects: Vec<String> = one.objects.iter().map(ToString::to_string).collect();
            json!({"owner": one.owner.to_string(), "objects": objects, "behind": one.behind})
        });
        let mut told = self.told(result);
        told["objects"] = masking::value(objects.collect());
        told["pods"] = masking::value(pods.collect());
        told["remove"] = masking::value(remove.collect());
        told["disturbed"] = disturbed.clone().into();
        printer.say(&closing);
        printer.say(&match disturbed.is_empty() {
            true => format!("{} objects and {} Pods are what they were.", before.objects.len(), before.pods.len()),
            false => format!("Meanwhile: {}.", disturbed.join("; ")),
        });
        if !waiting.is_empty() {
            printer.say(&self.instructions(waiting));
        }
        printer.result(&told);
    }

    /// What to take out of the Git repository, and then.
    fn instructions(&self, waiting: &[Waiting]) -> String {
        let HandoverArgs { component, path, .. } = self.args;
        let mut lines = Vec::new();
        for Waiting { owner, objects, behind } in waiting {
            let owner = masking::text(&owner.to_string());
            if objects.is_empty() {
                lines.push(format!("\n{owner} has applied nothing yet, and may declare it."));
            } else {
                lines.push(format!("\nRemove from the Git repository, of {owner}, these and nothing else:"));
            }
            lines.extend(objects.iter().take(NAMED).map(|key| format!("  {}", masking::text(&key.to_string()))));
            if objects.len() > NAMED {
                lines.push(format!("  and {} more, see --json", objects.len() - NAMED));
            }
            lines.extend(behind.iter().map(|why| format!("Note: {}", masking::text(why))));
        }
        lines.push(format!("\nWhen that is applied: castle handover {component} --to castle {}", path.display()));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rehearsal::fixture::{blue, in_a_world, written};

    /// An API that turns castle away is not asked again, and one that does not answer is.
    #[test]
    fn whoever_is_turned_away_does_not_wait() {
        in_a_world(&written(&blue(0, "none")), 3, async |life| {
            assert_eq!(life.run(&["up"]).await.exit, Some(Exit::Done));
            let kept = Kept::open(&life.doors(), &life.script.file).unwrap();
            let reached = async |change: &dyn Fn(&mut Access)| {
                let mut access = api_access(&kept).await.unwrap();
                change(&mut access);
                Reached { access, doors: life.doors() }.check(&()).await
            };
            assert!(matches!(reached(&|_| {}).await, Ok(Verdict::Open(_))));
            let Err(fault) = reached(&|access| access.certificate.clear()).await else { panic!("it is let in") };
            assert_eq!((fault.to_string().as_str(), fault.is_final()), ("the API: Unauthorized (401)", true));
            assert_eq!(fault.next, "castle status");
            life.datacenter.switch(1000, false);
            let Ok(Verdict::Closed(closed)) = reached(&|_| {}).await else { panic!("it is not waited for") };
            assert!(closed.evidence.starts_with("does not answer: "), "{closed:?}");
        });
    }
}
