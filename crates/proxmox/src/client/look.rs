//! Looking: nothing here changes anything.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Client, part};
use crate::model::{
    Config, ErrorClass, Form, Guest, Host, Place, Privileges, Refusal, Release, Storage, Task, Volume, each,
};

fn unreadable(subject: &str) -> Refusal {
    let sentence = "what answers is not what Proxmox answers to this".to_owned();
    Refusal { class: ErrorClass::Unreadable, subject: subject.to_owned(), sentence, changes: false }
}

impl Client {
    /// Which Proxmox VE it is.
    ///
    /// # Errors
    ///
    /// [`Refusal`], as all of these.
    pub async fn release(&self) -> Result<Release, Refusal> {
        let subject = "the version of Proxmox";
        let answer = self.get(subject, "/version", &Form::new()).await?;
        Release::read(&answer).ok_or_else(|| unreadable(subject))
    }

    /// All guests that the token may see, on all hosts: one request, however many there are.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub async fn guests(&self) -> Result<Vec<Guest>, Refusal> {
        let subject = "the list of guests";
        let list = self.get(subject, "/cluster/resources", &Form::new().with("type", "vm")).await?;
        let now = self.wall();
        if list.is_array() { Ok(each(&list, |row| Guest::read(row, now))) } else { Err(unreadable(subject)) }
    }

    /// Whether no guest of the whole cluster has this number: what a token may not see has one, too.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if Proxmox does not say.
    pub async fn is_free(&self, vmid: u32) -> Result<bool, Refusal> {
        let form = Form::new().with("vmid", vmid);
        match self.get(&format!("whether VM {vmid} exists"), "/cluster/nextid", &form).await {
            Ok(_) => Ok(true),
            Err(refusal) if refusal.class == ErrorClass::Exists => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    /// The hosts of the cluster.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub async fn hosts(&self) -> Result<Vec<Host>, Refusal> {
        let subject = "the list of hosts";
        let list = self.get(subject, "/nodes", &Form::new()).await?;
        if list.is_array() { Ok(each(&list, Host::read)) } else { Err(unreadable(subject)) }
    }

    /// Whether enough hosts are there to decide anything; nothing for a single host.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub async fn is_quorate(&self) -> Result<Option<bool>, Refusal> {
        let rows = self.get("the state of the cluster", "/cluster/status", &Form::new()).await?;
        let cluster = rows.as_array().and_then(|rows| rows.iter().find(|row| row["type"] == "cluster"));
        // The same answer tells the name, so that nobody need ask again.
        let _ = self.cluster.set(cluster.and_then(|row| row["name"].as_str()).map(str::to_owned));
        Ok(cluster.map(|row| row["quorate"] == 1 || row["quorate"] == "1" || row["quorate"] == true))
    }

    /// The name of the cluster; nothing for a single host, or if the token may not know. Asked once.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub async fn cluster(&self) -> Result<Option<&str>, Refusal> {
        let ask = async || match self.get("the name of the cluster", "/cluster/status", &Form::new()).await {
            Ok(rows) => {
                let cluster = rows.as_array().and_then(|rows| rows.iter().find(|row| row["type"] == "cluster"));
                Ok(cluster.and_then(|row| row["name"].as_str()).map(str::to_owned))
            }
            Err(refusal) if refusal.class == ErrorClass::Forbidden => Ok(None),
            Err(refusal) => Err(refusal),
        };
        Ok(self.cluster.get_or_try_init(ask).await?.as_deref())
    }

    /// Where a guest of this number is.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the cluster does not tell its name.
    pub async fn place(&self, vmid: u32) -> Result<Place, Refusal> {
        Ok(Place { vmid, cluster: self.cluster().await?.map(str::to_owned) })
    }

    /// What the token may do, by path.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub async fn privileges(&self) -> Result<Privileges, Refusal> {
        let subject = "the privileges of the token";
        let answer = self.get(subject, "/access/permissions", &Form::new()).await?;
        let paths = answer.as_object().ok_or_else(|| unreadable(subject))?;
        let privileges = |value: &Value| {
            let granted = value.as_object().into_iter().flatten();
            granted
                .map(|(name, spreads)| (name.clone(), *spreads == 1 || *spreads == "1" || *spreads == true))
                .collect()
        };
        Ok(paths.iter().map(|(path, value)| (path.clone(), privileges(value))).collect())
    }

    /// The storages of a host.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub async fn storages(&self, host: &str) -> Result<Vec<Storage>, Refusal> {
        let subject = format!("the storages of {host}");
        let list = self.get(&subject, &format!("/nodes/{}/storage", part(host)), &Form::new()).await?;
        if list.is_array() { Ok(each(&list, Storage::read)) } else { Err(unreadable(&subject)) }
    }

    /// The bridges of a host.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub async fn bridges(&self, host: &str) -> Result<BTreeSet<String>, Refusal> {
        let subject = format!("the bridges of {host}");
        let form = Form::new().with("type", "any_bridge");
        let list = self.get(&subject, &format!("/nodes/{}/network", part(host)), &form).await?;
        Ok(each(&list, |row| row["iface"].as_str().map(str::to_owned)).into_iter().collect())
    }

    /// The volumes of a storage: of one kind of content, or of one guest.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub async fn volumes(&self, host: &str, storage: &str, form: &Form) -> Result<Vec<Volume>, Refusal> {
        let subject = format!("the content of {storage} on {host}");
        let path = format!("/nodes/{}/storage/{}/content", part(host), part(storage));
        let list = self.get(&subject, &path, form).await?;
        if list.is_array() { Ok(each(&list, Volume::read)) } else { Err(unreadable(&subject)) }
    }

    /// What a guest is made of once it is started next; `None` if there is no such guest on that host.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub async fn config(&self, host: &str, vmid: u32) -> Result<Option<Config>, Refusal> {
        self.config_of(host, vmid, &Form::new()).await
    }

    /// What a running guest is made of now.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub async fn live_config(&self, host: &str, vmid: u32) -> Result<Option<Config>, Refusal> {
        self.config_of(host, vmid, &Form::new().with_flag("current", true)).await
    }

    async fn config_of(&self, host: &str, vmid: u32, form: &Form) -> Result<Option<Config>, Refusal> {
        let subject = format!("the configuration of VM {vmid}");
        match self.get(&subject, &format!("/nodes/{}/qemu/{vmid}/config", part(host)), form).await {
            Ok(answer) => Config::read(&answer).map(Some).ok_or_else(|| unreadable(&subject)),
            Err(refusal) if refusal.class == ErrorClass::Gone => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Whether a guest runs, asked of its host; `None` if there is no such guest.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub async fn is_running(&self, host: &str, vmid: u32) -> Result<Option<bool>, Refusal> {
        let subject = format!("the state of VM {vmid}");
        let path = format!("/nodes/{}/qemu/{vmid}/status/current", part(host));
        match self.get(&subject, &path, &Form::new()).await {
            Ok(answer) => {
                answer["status"].as_str().map(|status| Some(status == "running")).ok_or_else(|| unreadable(&subject))
            }
            Err(refusal) if refusal.class == ErrorClass::Gone => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// The guests of a host that run now, as the host itself sees them: one request, however many there are.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub async fn running(&self, host: &str) -> Result<BTreeSet<u32>, Refusal> {
        let subject = format!("the guests of {host}");
        let list = self.get(&subject, &format!("/nodes/{}/qemu", part(host)), &Form::new()).await?;
        let running = |row: &Value| (row["status"] == "running").then(|| crate::model::vmid(row)).flatten();
        if list.is_array() { Ok(each(&list, running).into_iter().collect()) } else { Err(unreadable(&subject)) }
    }

    /// The tasks that run on a host now, as far as the token may see them: its own always.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub async fn running_tasks(&self, host: &str) -> Result<Vec<Task>, Refusal> {
        let subject = format!("the tasks of {host}");
        let form = Form::new().with("source", "active");
        let list = self.get(&subject, &format!("/nodes/{}/tasks", part(host)), &form).await?;
        Ok(each(&list, Task::read).into_iter().filter(|task| task.is_running).collect())
    }
}
