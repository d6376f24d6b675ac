//! The mark of a control plane, once the etcd of its life has begun.

use std::collections::BTreeSet;
use std::sync::Arc;

use castle_engine::{Change, Class, Decision, Fault, Impact, Operation, Step};
use castle_http::Method;
use castle_seams::BoxFuture;

use super::ground::{Ground, Looks};
use crate::client::{Bound, part};
use crate::model::{Config, Form, Mark};

/// The tag of control planes whose mark says that etcd has begun: one list of the cluster shows it. It has no version: it says which marks are to be read, and
/// they have one.
pub const BEGUN_TAG: &str = "castle-etcd";

/// Writes into the mark of a control plane that the etcd of its life has begun. `B` is what says so.
pub struct MarkBegun<B> {
    ground: Arc<Ground>,
    vmid: u32,
    name: String,
    looks: Looks,
    begun: std::marker::PhantomData<fn() -> B>,
}

/// What the mark says.
#[derive(Debug)]
pub enum Noted {
    /// That it has begun; or there is no machine.
    AsWanted,
    /// Nothing of that yet.
    NotYet {
        /// The host that carries the guest.
        host: String,
        /// The guest.
        config: Box<Config>,
        /// Its mark.
        mark: Box<Mark>,
    },
}

impl<B> MarkBegun<B> {
    /// The step for the control plane of this name.
    #[must_use]
    pub fn new(ground: Arc<Ground>, vmid: u32, name: &str) -> Self {
        Self { ground, vmid, name: name.to_owned(), looks: Looks::default(), begun: std::marker::PhantomData }
    }

    async fn look(&self) -> Result<Noted, Fault> {
        let client = &self.ground.client;
        let guests = self.ground.guests(self.looks.since(client.clock().monotonic())).await?;
        let Some(row) = guests.get(&self.vmid) else { return Ok(Noted::AsWanted) };
        let is_tagged = row.tags.contains(BEGUN_TAG);
        if is_tagged && !self.ground.deep {
            return Ok(Noted::AsWanted);
        }
        let Some(config) = client.config(&row.host, self.vmid).await? else { return Ok(Noted::AsWanted) };
        let mark = self.ground.guard(self.vmid, &self.name, &config).await?;
        if is_tagged && mark.etcd.as_ref().is_some_and(|etcd| etcd.has_begun) {
            return Ok(Noted::AsWanted);
        }
        Ok(Noted::NotYet { host: row.host.clone(), config: Box::new(config), mark: Box::new(mark) })
    }
}

impl<B: Send + Sync + 'static> Step for MarkBegun<B> {
    type Needs = (Arc<B>,);
    type Observed = Noted;
    type Action = ();
    type Output = ();

    fn observe<'a>(&'a self, _: &'a Self::Needs) -> BoxFuture<'a, Result<Noted, Fault>> {
        Box::pin(self.look())
    }

    fn decide(&self, _: &Self::Needs, noted: &Noted) -> Decision {
        match noted {
            Noted::AsWanted => Decision::Nothing,
            Noted::NotYet { .. } => {
                let change = Change::new("note", Impact::InPlace);
                Decision::Act((), change.differing("mark", None, Some("etcd has begun".to_owned())))
            }
        }
    }

    fn act<'a>(
        &'a self,
        _: &'a Self::Needs,
        noted: &'a Noted,
        (): &'a (),
        operation: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let Noted::NotYet { host, config, mark } = noted else {
                return Err(Fault::defect("a mark that tells of etcd already was to be written once more"));
            };
            Ground::fence(self.vmid, mark, operation.epoch)?;
            let subject = format!("VM {} ({})", self.vmid, self.name);
            let description = Mark::with_begun_etcd(config.description());
            if !Mark::read(&description)
                .is_ok_and(|mark| mark.is_some_and(|mark| mark.etcd.is_some_and(|etcd| etcd.has_begun)))
            {
                let evidence = "has a mark that does not tell where etcd begins";
                return Err(Fault::new(Class::Final, subject, evidence).next("castle status"));
            }
            let there = config.get("tags").unwrap_or_default().split([';', ',', ' ']).filter(|tag| !tag.is_empty());
            let tags: BTreeSet<&str> = there.chain([BEGUN_TAG]).collect();
            // If anyone has changed it since, Proxmox refuses by the digest.
            let form = Form::new()
                .with("description", description)
                .with("tags", tags.into_iter().collect::<Vec<_>>().join(";"))
                .with("digest", config.digest.clone().unwrap_or_default());
            let path = format!("/nodes/{}/qemu/{}/config", part(host), self.vmid);
            self.ground.client.run(&subject, Method::POST, &path, &form, Bound::SHORT).await?;
            Ok(())
        })
    }

    fn expect(&self, _: &Self::Needs, _: &Noted) -> Option<()> {
        Some(())
    }

    fn output(&self, _: &Self::Needs, _: &Noted) {}
}

#[cfg(test)]
mod tests {
    /// The tag as guests have it. It is found again by castles to come.
    #[test]
    fn the_recorded_tag_is_written() {
        assert_eq!(super::BEGUN_TAG, "castle-etcd");
    }
}
