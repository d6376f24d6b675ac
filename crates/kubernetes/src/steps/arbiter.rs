//! Who keeps each component: as castle.yaml says, as the cluster says, and who has to give up what if two do.

use std::collections::{BTreeMap, BTreeSet};

use castle_engine::Fault;

use super::ownership::{fault_of, inventories};
use crate::client::{Api, Scope, together};
use crate::model::{Key, Mark, Object, Owner, Ownership, owners};

/// So many objects are told; the rest are counted.
const TOLD: usize = 5;

/// Who is to keep a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// castle.
    Castle,
    /// Flux, from the Git repository.
    Flux,
}

impl Keeper {
    /// The word in castle.yaml and on command lines.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Castle => "castle",
            Self::Flux => "flux",
        }
    }
}

/// A component, as castle.yaml has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// What castle's objects of it are marked with.
    pub mark: Mark,
    /// Who is to keep it.
    pub keeper: Keeper,
    /// Objects that it is known by, whoever has installed it.
    pub objects: BTreeSet<Key>,
    /// What `castle handover` calls it; nothing for what castle alone can have.
    pub name: Option<String>,
}

/// Who has a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenure {
    /// Which component.
    pub known: Known,
    /// Who has it in the cluster, by inventories and marks.
    pub holders: BTreeSet<Owner>,
    /// Those of its objects that two owners claim.
    pub contested: Vec<Ownership>,
    /// What is wrong, and the way out.
    pub quarrel: Option<(String, String)>,
}

impl Tenure {
    /// Whose it is in the cluster, for people.
    #[must_use]
    pub fn told(&self) -> String {
        let names: Vec<String> = self.holders.iter().map(ToString::to_string).collect();
        if names.is_empty() { "nobody".to_owned() } else { names.join(" and ") }
    }

    /// Why nothing may be applied to it.
    ///
    /// # Errors
    ///
    /// [`Fault`] if not exactly the one has it who should.
    pub fn settled(&self) -> Result<(), Fault> {
        let Some((what, next)) = &self.quarrel else { return Ok(()) };
        let Mark { layer, component, .. } = &self.known.mark;
        Err(Fault::guard(format!("{layer}/{component}"), what.clone()).next(next.clone()))
    }
}

/// Who has each of these components. Costs the lists of inventories, and one of each kind that castle has made objects of.
///
/// # Errors
///
/// [`Fault`] if the API does not say.
pub async fn tenures(api: &Api, components: &[Known]) -> Result<Vec<Tenure>, Fault> {
    let inventories = inventories(api).await?;
    let is_theirs = |owner: &Owner| match owner {
        Owner::Castle(Some(mark)) => components.iter().any(|known| known.mark == *mark),
        _ => false,
    };
    let recorded = inventories.iter().filter(|(_, owners)| owners.iter().any(is_theirs)).map(|(key, _)| key);
    let kinds: BTreeSet<(&str, &str)> = recorded.map(|key| (key.group.as_str(), key.kind.as_str())).collect();
    let castles: BTreeSet<&str> = components.iter().map(|known| known.mark.castle.as_str()).collect();
    let scope = Scope::labelled(&Mark::any_of(&castles));
    let served = api.served().await.map_err(fault_of("API"))?;
    let kinds: Vec<_> = kinds.into_iter().filter_map(|(group, kind)| served.preferred(group, kind)).collect();
    let scope = &scope;
    let lists = kinds.iter().map(|kind| async move { api.list(kind, scope).await.map_err(fault_of(&kind.kind)) });
    let mut marked: BTreeMap<Mark, Vec<Object>> = BTreeMap::new();
    for list in together(lists.collect()).await {
        for object in list?.objects {
            if let Some(mark) = Mark::of(&object) {
                marked.entry(mark).or_default().push(object);
            }
        }
    }
    let none = Vec::new();
    let tenure = |known: &Known| judge(known, marked.get(&known.mark).unwrap_or(&none), &inventories);
    Ok(components.iter().map(tenure).collect())
}

/// Who has a component, by the objects that bear castle's mark and by who has listed which.
fn judge(known: &Known, marked: &[Object], inventories: &BTreeMap<Key, BTreeSet<Owner>>) -> Tenure {
    let castle = Owner::Castle(Some(known.mark.clone()));
    let is_recorded = |key: &Key| inventories.get(key).is_some_and(|owners| owners.contains(&castle));
    let mut holders = BTreeSet::new();
    for (key, owners) in inventories {
        if known.objects.contains(key) || is_recorded(key) {
            holders.extend(owners.iter().filter(|owner| !matches!(owner, Owner::Castle(_))).cloned());
        }
    }
    let has_inventory = inventories.values().any(|owners| owners.contains(&castle));
    // What castle has written down and was then refused is not its own; what it has let go of is, until it is forgotten.
    let has_castle = !marked.is_empty() || has_inventory && known.keeper == Keeper::Flux;
    if has_castle {
        holders.insert(castle);
    }
    let contested: Vec<Ownership> =
        marked.iter().map(|object| owners(object, inventories)).filter(Ownership::is_contested).collect();
    let others = holders.iter().find(|owner| !matches!(owner, Owner::Castle(_)));
    let quarrel = match (known.keeper, contested.first(), others) {
        (Keeper::Flux, ..) if has_castle => {
            let what = format!("castle.yaml gives it to Flux, and castle still has it{}", told(&contested));
            Some((what, handover(known, Keeper::Flux)))
        }
        (Keeper::Castle, Some(first), _) => {
            let is_flux = first.claims.iter().any(|claim| matches!(claim.owner, Owner::Flux(..)));
            let way_out = if is_flux { handover(known, Keeper::Castle) } else { give_up(known) };
            Some((format!("has two owners{}", told(&contested)), way_out))
        }
        (Keeper::Castle, None, Some(other)) if !has_castle => {
            let what = format!("castle.yaml gives it to castle, and {other} has it");
            Some((what, handover(known, Keeper::Castle)))
        }
        _ => None,
    };
    Tenure { known: known.clone(), holders, contested, quarrel }
}

/// The objects that two have, and who.
fn told(contested: &[Ownership]) -> String {
    if contested.is_empty() {
        return String::new();
    }
    let one = |ownership: &Ownership| {
        let names: Vec<String> = ownership.claims.iter().map(|claim| claim.owner.to_string()).collect();
        let field = ownership.shared.first().map(|field| format!(" (both want {field})")).unwrap_or_default();
        format!("{}: {}{field}", ownership.key, names.join(" and "))
    };
    let more = match contested.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!(": {}{more}", contested.iter().take(TOLD).map(one).collect::<Vec<_>>().join("; "))
}

fn handover(known: &Known, to: Keeper) -> String {
    match (&known.name, to) {
        (Some(name), to) => format!("castle handover {name} --to {}", to.word()),
        (None, _) => "take it out of the Git repository: castle makes it from castle.yaml".to_owned(),
    }
}

/// The way out where nobody can be told to hand over.
fn give_up(known: &Known) -> String {
    let off = known.name.as_ref().map_or_else(String::new, |name| format!(", or switch {name} off in castle.yaml"));
    format!("one of the two must give them up: take them out of the chart or the file that they come from{off}")
}

#[cfg(test)]
mod tests;
