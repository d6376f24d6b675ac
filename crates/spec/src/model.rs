//! What can be written in `castle.yaml`.
//!
//! The comments on the keys are the documentation people read: in the JSON Schema, in their editor and in
//! `docs/castle-yaml.md`.

mod components;

use std::net::IpAddr;

use ipnet::IpNet;

use crate::shape::{Entries, List, choice, section, words};
use crate::span::Sourced;
use crate::values::{
    AddressRange, AgeRecipient, Bounded, ComponentVersion, Endpoint, ExtensionName, Fingerprint, KernelArg,
    KubernetesVersion, LabelKey, LabelValue, Line, Mac, ModuleName, Name, Region, RegistryName, SecretReference,
    Sha256, Size, Taint, TalosVersion, Time, TimeServer, Vmid, VmidRange, WebAddress, Word,
};

pub use components::{Component, ComponentName, WantedComponent};

section! {
    /// A castle: a Talos Kubernetes cluster on a hypervisor, from its machines to the Git repository it follows.
    Castle {
        /// The name of the castle: lower-case letters, digits and `-`. Its nodes are named after it.
        castle: Sourced<Name>;
        /// Where the machines stand.
        platform: Sourced<Platform>;
        /// The operating system of the nodes.
        talos: Sourced<Talos>;
        /// The Kubernetes that runs on them.
        kubernetes: Sourced<Kubernetes>;
        /// The network the nodes share.
        network: Sourced<Network>;
        /// The machines.
        nodes: Sourced<Nodes>;
        /// Where the cluster keeps volumes: `longhorn` on the nodes' data disks, or `none`.
        storage: Sourced<Storage> = "longhorn";
        /// The vault that `vault:` references are read from, and that castle saves its client files to.
        secrets: Option<Sourced<Vault>>;
        /// The Git repository that Flux follows once the castle stands.
        gitops: Option<Sourced<Gitops>>;
        /// What is special about the components that castle installs in the cluster. Which they are follows from the rest of the file.
        components: Sourced<Components> = "{}";
        /// Where castle keeps what it remembers of this castle, and who may read it.
        state: Sourced<Keeping> = "{}";
    }
}

choice! {
    /// Where the machines stand.
    Platform ("exactly one platform") {
        /// Your own Proxmox VE, 8.4 or later.
        Proxmox(Proxmox) = "proxmox";
        /// The datacenter inside castle itself: nothing to install, nothing to break.
        Embedded(Embedded) = "embedded" bare;
    }
}

section! {
    /// A Proxmox VE cluster or single host, reached with an API token.
    Proxmox {
        /// The address of any one host of it.
        endpoint: Sourced<Endpoint>;
        /// The SHA-256 fingerprint of that host's certificate. Leave it out if a public authority signed the certificate.
        fingerprint: Option<Sourced<Fingerprint>>;
        /// A PEM file with the authority that signed the certificate, beside castle.yaml: on a Proxmox host it is
        /// `/etc/pve/pve-root-ca.pem`. Either this or `fingerprint`.
        ca: Option<Sourced<Line>>;
        /// The API token, as `USER@REALM!NAME=SECRET`.
        token: Sourced<SecretReference>;
        /// The hosts that may carry nodes, by their Proxmox names.
        nodes: Sourced<List<Word>>;
        /// Which storage takes what.
        storage: Sourced<ProxmoxStorage> = "{}";
        /// The bridge the nodes are attached to.
        bridge: Sourced<Word> = "vmbr0";
        /// The VLAN tag of the nodes on that bridge. Without it they are untagged.
        vlan: Option<Sourced<Bounded<1, 4094>>>;
        /// The VMIDs that belong to this castle. It makes and changes no guest outside of them; `castle down` removes one
        /// there only with the castle's whole mark, and only if castle has written down that it made it, or if it is a
        /// Talos image. The node at `nodes.controlPlanes.firstAddress` gets the first; one whose address is three further
        /// gets one three further. The last two for each host are kept for the Talos image.
        vmids: Sourced<VmidRange>;
        /// The resource pool the guests are put in. It must exist.
        pool: Option<Sourced<Word>>;
        /// The virtual hardware of the nodes.
        hardware: Sourced<Hardware> = "{}";
    }
}

section! {
    /// Which Proxmox storage takes what.
    ProxmoxStorage {
        /// The storage of the nodes' disks.
        disks: Sourced<Word> = "local-lvm";
        /// The storage of the Talos image; it must allow the content type `import`.
        images: Sourced<Word> = "local";
    }
}

section! {
    /// The virtual hardware of a node.
    Hardware {
        /// The machine type.
        machine: Sourced<Machine> = "q35";
        /// The CPU type. Talos needs at least `x86-64-v2`; `host` is fastest and ties the guest to equal hosts.
        cpu: Sourced<Word> = "x86-64-v2-AES";
        /// The SCSI controller.
        scsi_controller: Sourced<ScsiController> = "virtio-scsi-pci";
        /// Gives each disk a thread of its own. Works with `virtio-scsi-single` only.
        iothread: Sourced<bool> = "false";
        /// The drive that carries a node's address and host name to it.
        cloud_init_drive: Sourced<Drive> = "ide2";
        /// A CD image to attach to every node, for instance with rescue tools.
        iso: Option<Sourced<Iso>>;
    }
}

section! {
    /// A CD image attached to every node.
    Iso {
        /// The image, as Proxmox names it.
        file: Sourced<Line>;
        /// The drive it is put in.
        drive: Sourced<Drive> = "ide0";
    }
}

words! {
    /// A machine type.
    Machine ("a machine type") {
        /// PCI Express.
        Q35 = "q35",
        /// The older chipset.
        I440fx = "i440fx",
    }
}

words! {
    /// A SCSI controller.
    ScsiController ("a SCSI controller") {
        /// One controller for all disks.
        VirtioScsiPci = "virtio-scsi-pci",
        /// A controller a disk, which I/O threads need.
        VirtioScsiSingle = "virtio-scsi-single",
        /// An emulated LSI 53C895A.
        Lsi = "lsi",
        /// An emulated MegaRAID.
        Megasas = "megasas",
        /// An emulated VMware controller.
        Pvscsi = "pvscsi",
    }
}

words! {
    /// A drive that can hold a CD.
    Drive ("a CD drive") {
        /// First channel, first unit.
        Ide0 = "ide0",
        /// First channel, second unit.
        Ide1 = "ide1",
        /// Second channel, first unit.
        Ide2 = "ide2",
        /// Second channel, second unit.
        Ide3 = "ide3",
        /// SATA port 0.
        Sata0 = "sata0",
        /// SATA port 1.
        Sata1 = "sata1",
        /// SATA port 2.
        Sata2 = "sata2",
        /// SATA port 3.
        Sata3 = "sata3",
        /// SATA port 4.
        Sata4 = "sata4",
        /// SATA port 5.
        Sata5 = "sata5",
    }
}

section! {
    /// The embedded datacenter.
    Embedded {
        /// The hosts of the embedded hypervisor.
        nodes: Sourced<List<Word>> = "[pve]";
        /// The VMIDs that belong to this castle.
        vmids: Sourced<VmidRange> = "1000-9999";
        /// How many of its seconds pass in one of yours, if castle starts it for this castle.
        speed: Sourced<Bounded<1, 1000>> = "30";
    }
}

section! {
    /// The operating system of the nodes.
    Talos {
        /// The version, with all three numbers.
        version: Sourced<TalosVersion>;
        /// The official system extensions in the image, in this order. They decide the image's schematic id.
        extensions: Sourced<List<ExtensionName>> = "[iscsi-tools, util-linux-tools, qemu-guest-agent]";
        /// Kernel arguments to add, in this order. They decide the image's schematic id.
        kernel_args: Sourced<List<KernelArg>> = "[]";
        /// Kernel modules to load at boot. Longhorn needs none: what it uses is built in.
        kernel_modules: Sourced<List<ModuleName>> = "[]";
        /// Where the disk image comes from. The hypervisor downloads it by itself.
        image: Sourced<Image> = "{}";
        /// Where container images of a registry are pulled from instead, by the registry's name (`docker.io`).
        mirrors: Sourced<Entries<RegistryName, Mirror>> = "{}";
        /// Files with patches for the configuration of all nodes, beside castle.yaml, in Talos' own form. Merged in this order.
        patches: Sourced<List<Line>> = "[]";
        /// The kind of key that service accounts are signed with. `p256` is made at once, `rsa4096` takes a second or two.
        service_account_key: Sourced<ServiceAccountKey> = "rsa4096";
        /// The secrets of an existing cluster, to be used instead of new ones: talosctl's `secrets.yaml`, or the configuration of
        /// a control plane; sealed by SOPS as a whole it is `sops:FILE#.`. Taken once, when there are none yet; after that castle's own state has them, and
        /// this key may go: while it is there, it is held against what stands.
        bundle: Option<Sourced<SecretReference>>;
    }
}

section! {
    /// Where container images of a registry are pulled from.
    Mirror {
        /// The addresses, tried in this order; the registry itself comes last.
        endpoints: Sourced<List<WebAddress>>;
        /// Who castle's nodes are there: an entry with `username` and `password`.
        credential: Option<Sourced<SecretReference>>;
    }
}

words! {
    /// A kind of key.
    ServiceAccountKey ("a kind of key") {
        /// RSA with 4096 bits, as Talos itself makes it.
        Rsa4096 = "rsa4096",
        /// ECDSA on P-256.
        P256 = "p256",
    }
}

section! {
    /// The disk image of the nodes.
    Image {
        /// The Image Factory that makes it: the public one, or your own.
        factory: Sourced<WebAddress> = "https://factory.talos.dev";
        /// The SHA-256 of the image, which Proxmox then checks. The public factory tells none; your own mirror can.
        sha256: Option<Sourced<Sha256>>;
    }
}

section! {
    /// The Kubernetes that runs on the nodes.
    Kubernetes {
        /// The version, with all three numbers. It must be one that the version of Talos runs.
        version: Sourced<KubernetesVersion>;
        /// The addresses of pods. They may not overlap the nodes' network.
        pod_subnets: Sourced<List<IpNet>> = "[10.244.0.0/16]";
        /// The addresses of services. They may not overlap the nodes' network.
        service_subnets: Sourced<List<IpNet>> = "[10.96.0.0/12]";
        /// The network of the pods: `flannel`, which comes with Talos, or `none` if you bring your own.
        cni: Sourced<Cni> = "flannel";
        /// Whether kube-proxy runs. Some networks replace it.
        kube_proxy: Sourced<bool> = "true";
        /// Whether control planes run the workload, too. Default: only in a castle without workers.
        schedule_on_control_planes: Option<Sourced<bool>>;
    }
}

words! {
    /// The network of the pods.
    Cni ("a pod network") {
        /// Flannel, which comes with Talos.
        Flannel = "flannel",
        /// None: you bring your own, and nodes are not ready before that.
        None = "none",
    }
}

section! {
    /// The network the nodes share.
    Network {
        /// The network, IPv4 or IPv6.
        cidr: Sourced<IpNet>;
        /// The way out of it.
        gateway: Sourced<IpAddr>;
        /// The DNS servers of the nodes.
        nameservers: Sourced<List<IpAddr>>;
        /// The time servers of the nodes, by name or address; or clocks of their hosts, such as `/dev/ptp0`. Default: those of Talos.
        time_servers: Sourced<List<TimeServer>> = "[]";
        /// The address at which the Kubernetes API is always reached, whichever control plane answers. It must be free.
        vip: Option<Sourced<IpAddr>>;
        /// The addresses that MetalLB gives to services. They must be free. Without them there is no MetalLB.
        load_balancers: Option<Sourced<AddressRange>>;
    }
}

section! {
    /// The machines. Their names, addresses, VMIDs and hardware addresses follow from the file alone.
    Nodes {
        /// The nodes that run the control plane, named `CASTLE-cp-N`. One, three, five or seven.
        control_planes: Sourced<Pool>;
        /// The nodes that run the workload, named `CASTLE-worker-N`. Without workers the control planes run it.
        workers: Option<Sourced<Pool>>;
        /// Further pools of workers, by name; their nodes are named `CASTLE-POOL-N`. What a pool leaves out is as in `workers`.
        pools: Sourced<Entries<Name, Pool>> = "{}";
        /// What is different about single nodes, by the name they would have otherwise.
        overrides: Sourced<Entries<Name, Override>> = "{}";
    }
}

section! {
    /// Nodes that are alike.
    Pool {
        /// How many.
        count: Sourced<Bounded<0, 5000>>;
        /// The address of the first; the others follow one by one.
        first_address: Sourced<IpAddr>;
        /// The VMID of the first; the others follow one by one. By default as far from the first VMID of the platform as
        /// `firstAddress` is from that of the control planes.
        first_vmid: Option<Sourced<Vmid>>;
        /// CPU cores of each. Default: 2.
        cores: Option<Sourced<Bounded<1, 1024>>>;
        /// Memory of each. Default: 4GiB.
        memory: Option<Sourced<Size>>;
        /// System disk of each. Default: 32GiB.
        disk: Option<Sourced<Size>>;
        /// A second disk of each, for volumes. Default: none.
        data_disk: Option<Sourced<Size>>;
        /// Labels of each in Kubernetes.
        labels: Sourced<Entries<LabelKey, LabelValue>> = "{}";
        /// Taints of each in Kubernetes, as `KEY=VALUE:EFFECT` or `KEY:EFFECT`.
        taints: Sourced<List<Taint>> = "[]";
        /// Files with patches for the configuration of these nodes, merged after those of `talos.patches`.
        patches: Sourced<List<Line>> = "[]";
    }
}

section! {
    /// What is different about a single node. What is left out is as in its pool.
    Override {
        /// Another name.
        hostname: Option<Sourced<Name>>;
        /// Another address.
        address: Option<Sourced<IpAddr>>;
        /// Another VMID.
        vmid: Option<Sourced<Vmid>>;
        /// Another hardware address.
        mac: Option<Sourced<Mac>>;
        /// The host that carries it. Otherwise castle spreads the nodes.
        host: Option<Sourced<Word>>;
        /// Other CPU cores.
        cores: Option<Sourced<Bounded<1, 1024>>>;
        /// Other memory.
        memory: Option<Sourced<Size>>;
        /// Another system disk.
        disk: Option<Sourced<Size>>;
        /// Another second disk.
        data_disk: Option<Sourced<Size>>;
    }
}

choice! {
    /// Where the cluster keeps volumes.
    Storage ("exactly one kind of storage") {
        /// Longhorn, on the data disks of the nodes that run the workload.
        Longhorn(Longhorn) = "longhorn" bare;
        /// Nothing: you bring your own.
        None(()) = "none" bare;
    }
}

section! {
    /// Longhorn.
    Longhorn {
        /// How many nodes hold a copy of each volume. Default: 3, or as many as there are.
        replicas: Option<Sourced<Bounded<1, 20>>>;
        /// Whether a first volume is bound, written and deleted before storage counts as ready. It takes a minute more.
        proof: Sourced<bool> = "false";
    }
}

choice! {
    /// The castle's vault.
    Vault ("exactly one vault") {
        /// Infisical, in the cloud or your own.
        Infisical(Infisical) = "infisical";
        /// The vault of the datacenter inside castle itself, for castles that stand there.
        Embedded(()) = "embedded" bare;
    }
}

section! {
    /// A folder of an Infisical project.
    Infisical {
        /// Where the project is: `eu`, `us`, or the address of your own Infisical. A wrong region answers as wrong
        /// credentials do, so there is no default.
        region: Sourced<Region>;
        /// A PEM file with the authority that signed the certificate of your own Infisical, beside castle.yaml.
        ca: Option<Sourced<Line>>;
        /// The slug of the project.
        project: Sourced<Line>;
        /// The slug of the environment.
        environment: Sourced<Line>;
        /// The folder of this castle. Default: `/castle/CASTLE/PLATFORM`.
        path: Option<Sourced<Line>>;
        /// The machine identity: an entry with `clientId` and `clientSecret`.
        identity: Sourced<SecretReference>;
    }
}

section! {
    /// The Git repository that Flux follows.
    Gitops {
        /// Its address: `https://...` or `ssh://...`; or `embedded`, in the embedded datacenter: a folder of this machine, followed as
        /// it is.
        repository: Sourced<Line>;
        /// The folder that `repository: embedded` follows, beside castle.yaml. Default: `gitops`.
        folder: Option<Sourced<Line>>;
        /// The branch.
        branch: Sourced<Line> = "main";
        /// The folder in it. Default: `clusters/CASTLE`.
        path: Option<Sourced<Line>>;
        /// The token, SSH key or GitHub App that may read it. A public repository needs none. One of the vault (`vault:`) is read by the
        /// cluster itself, through External Secrets; any other is given to it by castle.
        credential: Option<Sourced<SecretReference>>;
        /// A PEM file with the authority that signed the certificate of your own Git server, beside castle.yaml. Castle reads the
        /// repository by it, and so does Flux.
        ca: Option<Sourced<Line>>;
        /// The age key that opens what is sealed by SOPS in it.
        age_key: Option<Sourced<SecretReference>>;
        /// How long Flux may take until it has applied the newest commit of the branch.
        within: Sourced<Time> = "15m";
        /// Kustomizations that the castle does not stand without, by name, and how long each may take.
        critical: Sourced<Entries<Name, Time>> = "{}";
        /// Kustomizations that nobody waits for, by name, and after which time `castle status` calls them late.
        background: Sourced<Entries<Name, Time>> = "{}";
        /// Values that the manifests in it may use, as `cluster-vars`. Not for secrets.
        vars: Sourced<Entries<Line, Line>> = "{}";
        /// Whether Flux's controllers for new image tags run, too: image-reflector and image-automation.
        image_automation: Sourced<bool> = "false";
    }
}

section! {
    /// The components that castle installs in the cluster: External Secrets if there are `secrets`, MetalLB if there are
    /// `network.loadBalancers`, Longhorn unless `storage` is `none`, Flux if there is `gitops`. `castle lock` pins them.
    Components {
        /// External Secrets Operator, which reads the vault.
        external_secrets: Option<Sourced<Component>>;
        /// MetalLB, which gives addresses to services.
        metallb: Option<Sourced<Component>>;
        /// Longhorn, which keeps volumes.
        longhorn: Option<Sourced<Component>>;
        /// Flux, which follows the Git repository.
        flux: Option<Sourced<Component>>;
    }
}

section! {
    /// What is special about a component. `off` instead of all this: castle neither installs it nor expects it.
    ComponentSettings {
        /// The version. Default: the newest that this castle was tested with.
        version: Option<Sourced<ComponentVersion>>;
        /// Who installs it and keeps it as it should be: `castle`, or `flux` if the Git repository does.
        owner: Sourced<ComponentOwner> = "castle";
        /// Files with patches for its objects, beside castle.yaml, in this order: parts of objects that are merged, or a `target` with a
        /// `patch` of operations (RFC 6902).
        patches: Sourced<List<Line>> = "[]";
        /// A file with its manifest, beside castle.yaml, instead of upstream's.
        source: Option<Sourced<Line>>;
        /// Of Flux alone: whether its source-watcher runs, too, which makes parts of a repository sources of their own
        /// (`ArtifactGenerator`).
        source_watcher: Sourced<bool> = "false";
    }
}

words! {
    /// Who installs a component.
    ComponentOwner ("the owner of a component") {
        /// castle itself.
        Castle = "castle",
        /// Flux, from the Git repository.
        Flux = "flux",
    }
}

section! {
    /// What castle remembers of a castle: sealed with age, and no more than the castle itself could tell.
    Keeping {
        /// The age public keys that may read it. Default: those of the age identities of whoever runs castle.
        recipients: Option<Sourced<List<AgeRecipient>>>;
        /// Where it is kept: a `directory` of the machine that runs castle, or a bucket that several machines share.
        store: Sourced<StateStore> = "directory";
    }
}

choice! {
    /// Where castle keeps what it remembers.
    StateStore ("exactly one store") {
        /// A folder: `CASTLE_STATE_DIR`, or `castle` under `XDG_STATE_HOME` or `~/.local/state`.
        Directory(()) = "directory" bare;
        /// A bucket of S3, or of anything that speaks like it.
        S3(S3Bucket) = "s3";
    }
}

section! {
    /// A bucket.
    S3Bucket {
        /// Its name.
        bucket: Sourced<Word>;
        /// Its region.
        region: Sourced<Word> = "us-east-1";
        /// Where it is, if not at AWS: `https://...`, or `http://...` on a network you trust.
        endpoint: Option<Sourced<WebAddress>>;
        /// What its keys begin with. Default: `castle`.
        prefix: Option<Sourced<Word>>;
        /// The id of the access key.
        access_key: Sourced<SecretReference>;
        /// The secret access key.
        secret_key: Sourced<SecretReference>;
    }
}

/// The defaults of a pool that no other pool decides.
pub(crate) const CORES: u32 = 2;
pub(crate) const MEMORY: Size = Size::from_mib(4 << 10);
pub(crate) const DISK: Size = Size::from_mib(32 << 10);

impl Platform {
    /// The VMIDs that belong to the castle.
    #[must_use]
    pub fn vmids(&self) -> &Sourced<VmidRange> {
        match self {
            Self::Proxmox(proxmox) => &proxmox.vmids,
            Self::Embedded(embedded) => &embedded.vmids,
        }
    }

    /// The hosts that may carry nodes.
    #[must_use]
    pub fn hosts(&self) -> &Sourced<List<Word>> {
        match self {
            Self::Proxmox(proxmox) => &proxmox.nodes,
            Self::Embedded(embedded) => &embedded.nodes,
        }
    }
}

impl Castle {
    /// Every secret the castle refers to.
    #[must_use]
    pub fn references(&self) -> Vec<Sourced<SecretReference>> {
        let mut references = Vec::new();
        if let Platform::Proxmox(proxmox) = &self.platform.value {
            references.push(proxmox.token.clone());
        }
        if let Some(Vault::Infisical(infisical)) = self.secrets.as_deref() {
            references.push(infisical.identity.clone());
        }
        references.extend(self.gitops.as_ref().and_then(|gitops| gitops.credential.clone()));
        references.extend(self.gitops.as_ref().and_then(|gitops| gitops.age_key.clone()));
        references.extend(self.talos.bundle.clone());
        references.extend(self.talos.mirrors.iter().filter_map(|(_, mirror)| mirror.credential.clone()));
        if let StateStore::S3(bucket) = &self.state.store.value {
            references.extend([bucket.access_key.clone(), bucket.secret_key.clone()]);
        }
        references.retain(|reference| !reference.is_broken());
        references
    }
}
