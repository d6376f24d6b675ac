//! What a node is asked for, and asked to do.

use castle_secrets::Secret;
use castle_talos_api::common::Data;
use castle_talos_api::machine::machine_service_client::MachineServiceClient;
use castle_talos_api::machine::{
    ApplyConfigurationRequest, BootstrapRequest, ReadRequest, RebootRequest, ResetPartitionSpec, ResetRequest,
    ServiceInfo, VersionInfo, apply_configuration_request::Mode, reboot_request, reset_request,
};
use castle_talos_api::storage::Disk;
use castle_talos_api::storage::storage_service_client::StorageServiceClient;
use tonic::{Status, Streaming};
use zeroize::Zeroizing;

use super::link::Line;
use super::refusal::{Call, Trouble};
use super::{ErrorClass, GLANCE, LIMIT, Node, Refusal, archive, checked, only};

/// When a node takes up a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyMode {
    /// As soon as it can be: at once where that is possible, else by a restart, up to Talos 1.13.
    Auto,
    /// At once, or not at all.
    NoReboot,
    /// By a restart. Talos 1.14 knows this in maintenance mode alone.
    Reboot,
    /// At the next restart, whenever that is.
    Staged,
}

impl ApplyMode {
    fn word(self) -> Mode {
        match self {
            Self::Auto => Mode::Auto,
            Self::NoReboot => Mode::NoReboot,
            Self::Reboot => Mode::Reboot,
            Self::Staged => Mode::Staged,
        }
    }
}

/// What became of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// How the node takes it up, which it decides itself if asked to. Nothing if it says what castle does not know.
    pub mode: Option<ApplyMode>,
    /// What the node warns of.
    pub warnings: Vec<String>,
}

/// How a node is to forget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reset {
    /// Whether it takes leave first: of Kubernetes, and of etcd.
    pub graceful: bool,
    /// Whether it starts again afterwards.
    pub reboot: bool,
    /// The labels of the partitions that are wiped. None means the whole system disk.
    pub partitions: Vec<String>,
}

pub(super) fn machine(channel: Line) -> MachineServiceClient<Line> {
    MachineServiceClient::new(channel).max_decoding_message_size(LIMIT)
}

impl Node {
    /// Which Talos it runs.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it does not say.
    pub async fn version(&self) -> Result<VersionInfo, Refusal> {
        let ask = async |channel| only(machine(channel).version(()).await?.into_inner().messages);
        let answer = self.glance("Version", ask).await?;
        answer.version.ok_or_else(|| self.unreadable("Version", "there is no version in the answer"))
    }

    /// Its services.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it does not say.
    pub async fn services(&self) -> Result<Vec<ServiceInfo>, Refusal> {
        let ask = async |channel| only(machine(channel).service_list(()).await?.into_inner().messages);
        Ok(self.glance("ServiceList", ask).await?.services)
    }

    /// Its disks.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it does not say.
    pub async fn disks(&self) -> Result<Vec<Disk>, Refusal> {
        let ask = async |channel| {
            let mut storage = StorageServiceClient::new(channel).max_decoding_message_size(LIMIT);
            only(storage.disks(()).await?.into_inner().messages)
        };
        Ok(self.look("Disks", ask).await?.disks)
    }

    /// A kubeconfig for an administrator, as a control plane issues it.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it gives none.
    pub async fn kubeconfig(&self) -> Result<Secret, Refusal> {
        let ask = async |channel| collect(machine(channel).kubeconfig(()).await?.into_inner()).await;
        let packed = self.look("Kubeconfig", ask).await?;
        archive::file(&packed, "kubeconfig", LIMIT)
            .ok_or_else(|| self.unreadable("Kubeconfig", "there is no kubeconfig in the archive"))
    }

    /// The content of a file on it.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it gives none.
    pub async fn read(&self, path: &str) -> Result<Zeroizing<Vec<u8>>, Refusal> {
        let ask = async |channel| {
            let request = ReadRequest { path: path.to_owned() };
            collect(machine(channel).read(request).await?.into_inner()).await
        };
        self.glance("Read", ask).await
    }

    /// What is another one after every start.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it does not say.
    pub async fn boot_id(&self) -> Result<String, Refusal> {
        let read = self.read("/proc/sys/kernel/random/boot_id").await?;
        let text = str::from_utf8(&read).map(str::trim).unwrap_or_default();
        if text.is_empty() { Err(self.unreadable("Read", "the boot id is no text")) } else { Ok(text.to_owned()) }
    }

    /// Gives it a configuration.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it does not take it, or if nobody knows. None of them tells what is in the configuration.
    pub async fn apply_configuration(&self, configuration: &Secret, mode: ApplyMode) -> Result<Applied, Refusal> {
        let ask = async |channel| {
            let request = request(configuration, mode.word(), false);
            only(machine(channel).apply_configuration(request).await?.into_inner().messages)
        };
        let answer = self.change("ApplyConfiguration", configuration.expose(), ask).await?;
        let mode = match answer.mode() {
            Mode::Auto => Some(ApplyMode::Auto),
            Mode::NoReboot => Some(ApplyMode::NoReboot),
            Mode::Reboot => Some(ApplyMode::Reboot),
            Mode::Staged => Some(ApplyMode::Staged),
            Mode::Try => None,
        };
        let warnings = answer.warnings.iter().map(|said| super::sentence::sentence(said, configuration.expose()));
        Ok(Applied { mode, warnings: warnings.collect() })
    }

    /// Whether it would have to start again to take up a configuration. Changes nothing: asked in any other mode than this one, Talos would keep for good
    /// what somebody is trying on it.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it would not take it. None of them tells what is in the configuration.
    pub async fn would_restart(&self, configuration: &Secret) -> Result<bool, Refusal> {
        let ask = async |channel| {
            let request = request(configuration, Mode::Try, true);
            only(machine(channel).apply_configuration(request).await?.into_inner().messages)
        };
        // The answer shows the lines around each difference, secrets among them: nobody looks at it.
        match self.look_with("ApplyConfiguration", configuration.expose(), GLANCE, ask).await {
            Ok(_) => Ok(false),
            Err(refusal) if refusal.class == ErrorClass::NotAtOnce => Ok(true),
            Err(refusal) => Err(refusal),
        }
    }

    /// Makes it the first member of etcd. To be asked of one control plane, once in the life of a castle.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it is not, or if nobody knows. [`ErrorClass::Exists`] means that it is a member of something already.
    pub async fn bootstrap(&self) -> Result<(), Refusal> {
        let ask =
            async |channel| only(machine(channel).bootstrap(BootstrapRequest::default()).await?.into_inner().messages);
        self.change("Bootstrap", "", ask).await.map(|_| ())
    }

    /// Starts it again.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it does not, or if nobody knows.
    pub async fn reboot(&self) -> Result<(), Refusal> {
        let ask = async |channel| {
            let request = RebootRequest { mode: reboot_request::Mode::Default.into() };
            only(machine(channel).reboot(request).await?.into_inner().messages)
        };
        self.change("Reboot", "", ask).await.map(|_| ())
    }

    /// Makes it forget.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it does not, or if nobody knows.
    pub async fn reset(&self, reset: &Reset) -> Result<(), Refusal> {
        let wiped = |label: &String| ResetPartitionSpec { label: label.clone(), wipe: true };
        let ask = async |channel| {
            let request = ResetRequest {
                graceful: reset.graceful,
                reboot: reset.reboot,
                system_partitions_to_wipe: reset.partitions.iter().map(wiped).collect(),
                user_disks_to_wipe: Vec::new(),
                mode: reset_request::WipeMode::SystemDisk.into(),
            };
            only(machine(channel).reset(request).await?.into_inner().messages)
        };
        self.change("Reset", "", ask).await.map(|_| ())
    }

    /// A refusal of what cannot be read.
    pub(super) fn unreadable(&self, name: &'static str, why: &str) -> Refusal {
        self.refusal(Call { name, changes: false }, Trouble::new(ErrorClass::Unreadable, why))
    }
}

fn request(configuration: &Secret, mode: Mode, dry_run: bool) -> ApplyConfigurationRequest {
    ApplyConfigurationRequest {
        data: configuration.expose().as_bytes().to_vec(),
        mode: mode.into(),
        dry_run,
        try_mode_timeout: None,
    }
}

/// The pieces of a stream in one.
async fn collect(mut stream: Streaming<Data>) -> Result<Zeroizing<Vec<u8>>, Status> {
    let mut whole = Zeroizing::new(Vec::new());
    while let Some(piece) = stream.message().await? {
        let piece = Zeroizing::new(checked(piece)?.bytes);
        if whole.len() + piece.len() > LIMIT {
            return Err(Status::out_of_range("the answer is too large"));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole)
}
