//! What time it is on a node, as far as it tells: nothing tells it always and outright.

use std::time::{Duration, UNIX_EPOCH};

use castle_talos_api::Timestamp;
use castle_talos_api::cosi::resource::GetRequest;
use castle_talos_api::time::time_service_client::TimeServiceClient;
use castle_yaml as yaml;
use serde_json::Value;
use tonic::Status;

use super::resources::{Kind, kinds, state};
use super::{Node, Refusal, only};
use crate::model::pki::Moment;

/// How long a node may take to ask its time server: it waits for five seconds for one that does not answer.
const WAITING: Duration = Duration::from_secs(3);

/// Whether the clock of a node follows a time server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSync {
    /// It does.
    Synced,
    /// It has reached none yet.
    Waiting,
    /// It asks none, and takes its clock to be right.
    Off,
}

/// The clock of a node beside that of its time server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// The time server.
    pub server: String,
    /// By the node's clock.
    pub there: Moment,
    /// By the time server's.
    pub right: Moment,
}

/// A moment that was told; nothing for one that was never set.
fn moment(told: Option<&Timestamp>) -> Option<Moment> {
    let seconds = u64::try_from(told?.seconds).ok().filter(|seconds| *seconds > 0)?;
    Some(Moment::of(UNIX_EPOCH + Duration::from_secs(seconds)))
}

fn sync(text: &str) -> Option<TimeSync> {
    let documents = yaml::parse(text).ok()?;
    let said = documents.first()?;
    let is = |key: &str| said[key] == Value::Bool(true);
    Some(match (is("syncDisabled"), is("synced")) {
        (true, _) => TimeSync::Off,
        (false, true) => TimeSync::Synced,
        (false, false) => TimeSync::Waiting,
    })
}

impl Node {
    /// The newest time of all that it has noted about its services, by its own clock then. Every node tells that.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it does not say.
    pub async fn noted(&self) -> Result<Option<Moment>, Refusal> {
        let services = self.services().await?;
        let times = services.iter().flat_map(|service| {
            let events = service.events.iter().flat_map(|events| &events.events);
            let changed = service.health.as_ref().and_then(|health| health.last_change.as_ref());
            events.filter_map(|event| event.ts.as_ref()).chain(changed)
        });
        Ok(times.filter_map(|time| moment(Some(time))).max())
    }

    /// Whether its clock follows a time server; nothing if it does not know itself yet.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it does not say.
    pub async fn time_sync(&self) -> Result<Option<TimeSync>, Refusal> {
        Ok(self.resource(kinds::TIME_STATUS, "node").await?.and_then(|status| sync(status.yaml.expose())))
    }

    /// When it last counted what its processors did, by its own clock: it does that twice a minute.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it does not say.
    pub async fn counted(&self) -> Result<Option<Moment>, Refusal> {
        let Kind { namespace, name } = kinds::CPU_STATS;
        let ask = async |channel| {
            let (namespace, r#type, id) = (namespace.to_owned(), name.to_owned(), "latest".to_owned());
            let request = GetRequest { namespace, r#type, id, options: None };
            let resource = state(channel).get(request).await?.into_inner().resource;
            Ok(moment(resource.and_then(|resource| resource.metadata?.updated).as_ref()))
        };
        self.glance("Get", ask).await
    }

    /// Its clock beside that of its time server, which it asks now.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it does not say, or its time server does not within three seconds.
    pub async fn compared(&self) -> Result<Compared, Refusal> {
        let ask = async |channel| {
            let answer = only(TimeServiceClient::new(channel).time(()).await?.into_inner().messages)?;
            let (there, right) = (moment(answer.localtime.as_ref()), moment(answer.remotetime.as_ref()));
            let (there, right) = there.zip(right).ok_or_else(|| Status::data_loss("there is no time in the answer"))?;
            Ok(Compared { server: answer.server, there, right })
        };
        self.look_with("Time", "", WAITING, ask).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_follows_nobody_is_not_in_sync() {
        let check = |text, expected| assert_eq!(sync(text), expected, "{text}");
        check("synced: true\nepoch: 0\nsyncDisabled: true\n", Some(TimeSync::Off));
        check("synced: true\nepoch: 1\nsyncDisabled: false\n", Some(TimeSync::Synced));
        check("synced: false\nepoch: 0\nsyncDisabled: false\n", Some(TimeSync::Waiting));
        check("- [", None);
    }

    #[test]
    fn what_was_never_set_is_no_time() {
        let told = |seconds| moment(Some(&Timestamp { seconds, nanos: 5 }));
        assert_eq!(told(1_790_000_000).unwrap().to_string(), "2026-09-21 14:13:20 UTC");
        assert_eq!((told(0), told(-62_135_596_800), moment(None)), (None, None, None));
    }
}
