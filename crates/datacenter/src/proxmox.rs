//! The Proxmox personality: from a request to a change of the world and an answer, in the vendor's order.
//!
//! Authenticate, find the operation, see whether a token may, check permissions, forward to the host, verify parameters, run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::access::Identity;
use crate::witness::Reply;
use crate::world::World;
use crate::world::locks::LockName;

mod agent;
pub mod api;
mod auth;
mod clone;
mod cluster;
pub(crate) mod config;
mod create;
mod destroy;
mod directory;
mod disks;
mod download;
pub(crate) mod drive;
mod guests;
mod ha;
mod indices;
mod migrate;
mod nodes;
mod options;
mod pending;
mod permissions;
mod pools;
mod power;
mod processors;
mod rights;
mod snapshots;
mod statistics;
mod storage;
mod tasks;
mod template;

use api::{Call, Operation, Params, Version};
pub(crate) use clone::by_hand as clone_by_hand;
pub use download::{Download, checksum};
pub(crate) use ha::Managed;

/// A request as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub(crate) method: String,
    /// After `/api2/json`, decoded.
    pub(crate) path: String,
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) authorization: Option<String>,
    pub(crate) ticket: Option<String>,
    pub(crate) csrf: Option<String>,
}

/// A request that may run.
pub(crate) struct Request {
    pub(crate) who: Identity,
    pub(crate) params: Params,
    /// The host that it runs on.
    pub(crate) host: String,
}

impl Request {
    pub(crate) fn vmid(&self) -> u32 {
        self.number("vmid")
    }

    /// A number that was verified; zero if it is absent.
    pub(crate) fn number(&self, name: &str) -> u32 {
        self.params.number(name).and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.params.text(name)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.params.flag(name).unwrap_or(false)
    }
}

/// A success.
pub(crate) struct Done {
    data: Value,
    total: Option<usize>,
    delay: Duration,
}

impl Done {
    fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }
}

impl<T: Into<Value>> From<T> for Done {
    fn from(data: T) -> Self {
        Self { data: data.into(), total: None, delay: Duration::ZERO }
    }
}

/// A refusal.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: u16,
    message: String,
    errors: BTreeMap<String, String>,
    delay: Duration,
}

impl Refusal {
    fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), errors: BTreeMap::new(), delay: Duration::ZERO }
    }

    /// A parameter that is not acceptable.
    fn parameter(name: &str, complaint: impl Into<String>) -> Self {
        Self::parameters(BTreeMap::from([(name.to_owned(), complaint.into())]))
    }

    fn parameters(errors: BTreeMap<String, String>) -> Self {
        Self { errors, ..Self::new(400, "Parameter verification failed.") }
    }

    /// What the vendor has and this datacenter has not.
    fn simulated(what: &str) -> Self {
        Self::new(501, format!("this hypervisor is simulated and {what}"))
    }

    fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// The text that a task ends with where this happens inside of one: the whole of it, in one line.
    fn into_text(self) -> String {
        let code = if self.status == 500 { String::new() } else { format!("{} ", self.status) };
        let errors = self.errors.iter().map(|(name, complaint)| format!(" {name}: {complaint}"));
        format!("{code}{}{}", self.message, errors.collect::<String>()).replace('\n', " ")
    }
}

/// Whatever fails while an operation runs is status 500 with the words of the failure.
impl From<String> for Refusal {
    fn from(message: String) -> Self {
        Self::new(500, message)
    }
}

type Outcome = Result<Done, Refusal>;

/// How long an answer to somebody unknown is held back.
const UNKNOWN_DELAY: Duration = Duration::from_secs(3);

/// Handles a request. `has_waited` says that the lock it needs did not become free in time.
pub(crate) fn answer(world: &mut World, entry: &str, raw: &Raw, has_waited: bool) -> Reply {
    let outcome = judged(world, entry, raw).and_then(|(operation, request)| {
        if has_waited && let Some((name, _)) = needed_lock(world, raw) {
            return Err(name.timeout_text().into());
        }
        run(world, operation.call, &request)
    });
    match outcome {
        Ok(done) => {
            let mut reply = Reply { delay: done.delay, ..Reply::data(&done.data) };
            // Of nothing there is no number: the vendor takes a zero for none.
            let total = done.total.filter(|total| *total > 0);
            if let (Some(total), Some(Value::Object(body))) = (total, &mut reply.body) {
                body.insert("total".to_owned(), json!(total));
            }
            reply
        }
        Err(refusal) if refusal.status == 401 => {
            let reason = Some(refusal.message);
            Reply { status: 401, reason, body: None, delay: UNKNOWN_DELAY }
        }
        Err(refusal) if refusal.status == 501 => {
            let (reason, body) = (refusal.message.clone(), json!({ "data": null, "message": refusal.message }));
            Reply { status: 501, reason: Some(reason), body: Some(body), delay: Duration::ZERO }
        }
        Err(refusal) => {
            let mut reply = Reply { delay: refusal.delay, ..Reply::failure(refusal.status, &refusal.message) };
            if let (false, Some(Value::Object(body))) = (refusal.errors.is_empty(), &mut reply.body) {
                body.insert("errors".to_owned(), json!(refusal.errors));
            }
            reply
        }
    }
}

/// Everything that is decided before an operation runs.
fn judged(world: &World, entry: &str, raw: &Raw) -> Result<(&'static Operation, Request), Refusal> {
    let found = api::find(world.version, &raw.method, &raw.path);
    let is_open = found.as_ref().is_some_and(|(operation, _)| operation.permission == api::Permission::World);
    let who = match auth::identify(world, raw) {
        Ok(who) => who,
        Err(_) if is_open => Identity { user: String::new(), token: None },
        Err(refusal) => return Err(refusal),
    };
    let Some((operation, from_path)) = found else {
        let what = format!("Method '{} {}' not implemented", raw.method, raw.path);
        return Err(Refusal::new(501, format!("{what} (this hypervisor is simulated)")));
    };
    if who.token.is_some() && !operation.allow_token {
        return Err(Refusal::new(403, "Permission check failed"));
    }
    operation.conflict(&from_path, &raw.parameters).map_err(Refusal::parameters)?;
    permissions::check(world, &who, operation.permission, &from_path, &raw.parameters)?;
    let host = match from_path.get("node") {
        Some(node) if operation.proxied_to_node => forwarded(world, entry, node)?,
        _ => entry.to_owned(),
    };
    let params = operation.verify(world.version, &from_path, &raw.parameters).map_err(Refusal::parameters)?;
    if [Call::Create, Call::SetConfig, Call::SetConfigAsTask].contains(&operation.call)
        && let Some(value) = params.text("cpu")
    {
        processors::check(world.version, value).map_err(|complaint| Refusal::parameter("cpu", complaint))?;
    }
    Ok((operation, Request { who, params, host }))
}

/// The host that runs a request for `node`.
fn forwarded(world: &World, entry: &str, node: &str) -> Result<String, Refusal> {
    if node == entry || node == "localhost" {
        return Ok(entry.to_owned());
    }
    if !world.hosts.contains_key(node) {
        let why = "failed to get address info for";
        let message = format!("hostname lookup '{node}' failed - {why}: {node}: Name or service not known");
        return Err(Refusal::new(500, message));
    }
    if !world.is_up(node) {
        return Err(Refusal::new(595, "No route to host"));
    }
    Ok(node.to_owned())
}

/// The lock that a request needs while it is answered, and how long it waits for it.
pub(crate) fn needed_lock(world: &World, raw: &Raw) -> Option<(LockName, Duration)> {
    let (operation, from_path) = api::find(world.version, &raw.method, &raw.path)?;
    let vmid = match operation.call {
        Call::Create => raw.parameters.iter().find(|(name, _)| name == "vmid").map(|(_, value)| value)?,
        Call::SetConfig | Call::CloudInit | Call::Unlink | Call::DescribeSnapshot => from_path.get("vmid")?,
        // Since 9.1.19 the task takes it.
        Call::SetConfigAsTask if world.version == Version::Eight => from_path.get("vmid")?,
        _ => return None,
    };
    let name = LockName::Guest(vmid.parse().ok()?);
    let patience = if operation.call == Call::Create { Duration::from_secs(5) } else { name.patience() };
    Some((name, patience))
}

/// The task that a client would rather see finished than be told of, and how long it waits.
pub(crate) fn awaited(world: &World, raw: &Raw, reply: &Reply) -> Option<(String, Duration)> {
    let (operation, _) = api::find(world.version, &raw.method, &raw.path)?;
    let name = match operation.call {
        Call::SetConfigAsTask => "background_delay",
        Call::DeleteVolume => "delay",
        _ => return None,
    };
    let (_, delay) = raw.parameters.iter().find(|(given, _)| given == name)?;
    let upid = reply.as_data()?.as_str()?;
    Some((upid.to_owned(), Duration::from_secs(delay.parse().ok()?)))
}

/// The answer once the awaited task has ended.
pub(crate) fn finished(exit: &str, upid: &str) -> Reply {
    if exit == "OK" || exit.starts_with("WARNINGS") {
        return Reply::data(&Value::Null);
    }
    let mut parts = upid.split(':').skip(5);
    match (parts.next(), parts.next()) {
        (Some("qmconfig"), Some(vmid)) => Reply::failure(500, &format!("failed to update VM {vmid}: {exit}")),
        _ => Reply::failure(500, exit),
    }
}

/// What the time of a request is drawn for.
pub(crate) fn purpose(world: &World, raw: &Raw) -> String {
    match api::find(world.version, &raw.method, &raw.path) {
        Some((operation, from_path)) => {
            let vmid = from_path.get("vmid").map_or("", String::as_str);
            format!("rest {} {} {vmid}", operation.method, operation.path)
        }
        None => "rest".to_owned(),
    }
}

fn run(world: &mut World, call: Call, request: &Request) -> Outcome {
    match call {
        Call::Version | Call::NodeVersion => Ok(nodes::version(world.version)),
        Call::Ticket => auth::ticket(world, request),
        Call::Permissions => permissions::list(world, request),
        Call::Nodes => nodes::list(world, request),
        Call::NodeStatus => nodes::status(world, request),
        Call::NodeIndex => Ok(indices::node(world.version)),
        Call::NodeNetwork => nodes::network(world, request),
        Call::ClusterStatus => cluster::status(world, request),
        Call::Resources => cluster::resources(world, request),
        Call::ClusterTasks => tasks::of_cluster(world, request),
        Call::NextId => cluster::next_id(world, request),
        Call::HaResources => ha::list(world, request),
        Call::HaResource => ha::read(world, request),
        Call::CreateHaResource => ha::create(world, request),
        Call::SetHaResource => ha::update(world, request),
        Call::DeleteHaResource => ha::delete(world, request),
        Call::Containers => Ok(json!([]).into()),
        Call::Index => Ok(indices::root()),
        Call::ClusterIndex => Ok(indices::cluster(world.version)),
        Call::AccessIndex => Ok(indices::access()),
        Call::HaIndex => Ok(indices::ha(world.version)),
        Call::StatusIndex => indices::status(world, request),
        Call::ClusterOptions => Ok(json!({ "keyboard": "en-us", "allowed-tags": [] }).into()),
        Call::Users => directory::users(world, request),
        Call::Roles => directory::roles(world),
        Call::Acl => directory::acl(world, request),
        Call::Domains => directory::domains(),
        Call::UrlMetadata => download::metadata(world, request),
        Call::NodeStatistics => statistics::of_node(world, request),
        Call::StorageStatistics => statistics::of_storage(world, request),
        Call::GuestStatistics => statistics::of_guest(world, request),
        Call::Storages => storage::list(world, request),
        Call::Storage => storage::read(world, request),
        Call::NodeStorages => storage::of_node(world, request),
        Call::StorageStatus => storage::status(world, request),
        Call::Volumes => storage::volumes(world, request),
        Call::Volume => storage::volume(world, request),
        Call::DeleteVolume => storage::delete(world, request),
        Call::DownloadUrl => download::download(world, request),
        Call::Guests => guests::list(world, request),
        Call::GuestIndex => Ok(indices::guest()),
        Call::Snapshots => snapshots::list(world, request),
        Call::TakeSnapshot => snapshots::take(world, request),
        Call::SnapshotIndex => Ok(snapshots::index()),
        Call::SnapshotConfig => snapshots::read(world, request),
        Call::DescribeSnapshot => snapshots::describe(world, request),
        Call::DeleteSnapshot => snapshots::delete(world, request),
        Call::RollBack => snapshots::roll_back(world, request),
        Call::Feature => guests::feature(world, request),
        Call::Create => create::create(world, request),
        Call::Destroy => destroy::destroy(world, request),
        Call::Config => config::get(world, request),
        Call::SetConfig => config::set(world, request),
        Call::SetConfigAsTask => config::set_as_task(world, request),
        Call::Pending => pending::list(world, request),
        Call::Status => guests::status(world, request),
        Call::Start => power::start(world, request),
        Call::Stop => power::stop(world, request),
        Call::Shutdown => power::shutdown(world, request),
        Call::Reboot => power::reboot(world, request),
        Call::Reset => power::reset(world, request),
        Call::Suspend => power::suspend(world, request),
        Call::Resume => power::resume(world, request),
        Call::Unlink => config::unlink(world, request),
        Call::Clone => clone::clone(world, request),
        Call::Template => template::template(world, request),
        Call::Resize => disks::resize(world, request),
        Call::MoveDisk => disks::move_disk(world, request),
        Call::Migrate => migrate::migrate(world, request),
        Call::CloudInit => config::regenerate_cloud_init(world, request),
        Call::AgentPing => agent::ping(world, request),
        Call::AgentInfo => agent::info(world, request),
        Call::AgentInterfaces => agent::interfaces(world, request),
        Call::Tasks => tasks::list(world, request),
        Call::Task => tasks::index(world, request),
        Call::StopTask => tasks::stop(world, request),
        Call::TaskStatus => tasks::status(world, request),
        Call::TaskLog => tasks::log(world, request),
        Call::Pools => pools::list(world, request),
        Call::Pool => pools::get(world, request),
        Call::CreatePool => pools::create(world, request),
        Call::DeletePool => pools::delete(world, request),
        Call::SetPool => pools::set(world, request),
    }
}
