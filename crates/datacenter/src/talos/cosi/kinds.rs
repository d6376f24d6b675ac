//! What kinds of resources there are, and what they say now.

use serde_json::{Value, json};

use super::{kubernetes, network, status};
use crate::talos::node::{Boot, Node};
use crate::talos::volumes;
use crate::world::World;

/// How a kind is told to programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As the message of this name.
    Message(&'static str),
    /// As one text.
    Text,
    /// As one word of these.
    Word(&'static str),
    /// As a value of any shape.
    Free,
}

/// A kind of resource.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) namespace: &'static str,
    /// Whether only administrators see it.
    pub(crate) is_secret: bool,
    /// The first version that has it.
    pub(super) since: u32,
    pub(super) aliases: &'static [&'static str],
    /// What tables show of it: title and path.
    pub(super) columns: &'static [(&'static str, &'static str)],
    /// What of the node keeps it.
    pub(super) owner: &'static str,
    pub(super) form: Form,
    pub(super) say: fn(&World, &Node, &Boot) -> Vec<(String, Value)>,
}

/// A kind by its name and place, who keeps it, and how it is told.
const fn kind(
    (name, namespace): (&'static str, &'static str),
    (owner, message): (&'static str, &'static str),
    aliases: &'static [&'static str],
    columns: &'static [(&'static str, &'static str)],
    say: fn(&World, &Node, &Boot) -> Vec<(String, Value)>,
) -> Kind {
    let form = Form::Message(message);
    Kind { name, namespace, is_secret: false, since: 0, aliases, columns, owner, form, say }
}

/// All kinds, except the one that tells them.
pub(crate) static KINDS: &[Kind] = &[
    kind(
        ("MachineStatuses.runtime.talos.dev", "runtime"),
        ("runtime.MachineStatusController", "MachineStatus"),
        &["machinestatus", "ms"],
        &[("Stage", "{.stage}"), ("Ready", "{.status.ready}")],
        |world, node, boot| one("machine", status::machine(world, node, boot)),
    ),
    kind(
        ("Services.v1alpha1.talos.dev", "runtime"),
        ("v1alpha1.ServiceController", "Service"),
        &["svc", "service"],
        &[("Running", "{.running}"), ("Healthy", "{.healthy}"), ("Health Unknown", "{.unknown}")],
        |_, _, boot| status::services(boot),
    ),
    kind(
        ("Disks.block.talos.dev", "runtime"),
        ("block.DisksController", "Disk"),
        &["disk"],
        &[
            ("Size", "{.pretty_size}"),
            ("Read Only", "{.readonly}"),
            ("Transport", "{.transport}"),
            ("Rotational", "{.rotational}"),
            ("WWID", "{.wwid}"),
            ("Model", "{.model}"),
            ("Serial", "{.serial}"),
        ],
        |world, node, _| status::disks(world, node.vmid),
    ),
    kind(
        ("SystemDisks.block.talos.dev", "runtime"),
        ("block.SystemDiskController", "SystemDisk"),
        &["systemdisk", "sd", "sds"],
        &[("Disk", "{.diskID}")],
        |world, node, _| {
            let found = world.block_devices(node.vmid).into_iter().find(|device| device.is_system);
            let say = |name: String| json!({ "diskID": name, "devPath": format!("/dev/{name}") });
            found.map(|device| ("system-disk".to_owned(), say(device.name))).into_iter().collect()
        },
    ),
    kind(
        ("VolumeStatuses.block.talos.dev", "runtime"),
        ("block.VolumeManagerController", "VolumeStatus"),
        &["volumestatus", "vs"],
        &[("Type", "{.type}"), ("Phase", "{.phase}"), ("Location", "{.location}"), ("Size", "{.prettySize}")],
        |world, node, boot| volumes::all(boot, &world.block_devices(node.vmid)),
    ),
    kind(
        ("VolumeMountStatuses.block.talos.dev", "runtime"),
        ("block.MountController", "VolumeMountStatus"),
        &["volumemountstatus"],
        &[("Volume ID", "{.volumeID}"), ("Requester", "{.requester}"), ("Target", "{.target}")],
        |_, node, boot| volumes::mounts(node, boot),
    ),
    kind(
        ("NodeAddresses.net.talos.dev", "network"),
        ("network.NodeAddressController", "NodeAddress"),
        &["nodeaddress", "na", "nas"],
        &[("Addresses", "{.addresses}"), ("SortAlgorithm", "{.sortAlgorithm}")],
        |world, node, _| network::node_addresses(world, node),
    ),
    kind(
        ("LinkStatuses.net.talos.dev", "network"),
        ("network.LinkStatusController", "LinkStatus"),
        &["link", "links"],
        &[
            ("Alias", "{.alias}"),
            ("Type", "{.type}"),
            ("Kind", "{.kind}"),
            ("Hw Addr", "{.hardwareAddr}"),
            ("Oper State", "{.operationalState}"),
            ("Link State", "{.linkState}"),
        ],
        |world, node, _| network::links(world, node),
    ),
    kind(
        ("HardwareAddresses.net.talos.dev", "network"),
        ("network.HardwareAddrController", "HardwareAddress"),
        &["hardwareaddress"],
        &[("Name", "{.name}"), ("Hardware Address", "{.hardwareAddr}")],
        |world, node, _| network::first_hardware(world, node.vmid),
    ),
    kind(
        ("AddressStatuses.net.talos.dev", "network"),
        ("network.AddressStatusController", "AddressStatus"),
        &["address", "addresses"],
        &[("Address", "{.address}"), ("Link", "{.linkName}")],
        |world, node, _| network::addresses(world, node),
    ),
    kind(
        ("RouteStatuses.net.talos.dev", "network"),
        ("network.RouteStatusController", "RouteStatus"),
        &["route", "routes"],
        &[("Destination", "{.dst}"), ("Gateway", "{.gateway}"), ("Link", "{.outLinkName}"), ("Metric", "{.priority}")],
        |world, node, _| network::routes(world, node),
    ),
    kind(
        ("ResolverStatuses.net.talos.dev", "network"),
        ("network.ResolverSpecController", "ResolverStatus"),
        &["resolvers"],
        &[("Resolvers", "{.dnsServers}"), ("Search Domains", "{.searchDomains}")],
        |world, node, _| one("resolvers", network::resolvers(world, node)),
    ),
    kind(
        ("HostnameStatuses.net.talos.dev", "network"),
        ("network.HostnameSpecController", "HostnameStatus"),
        &["hostname", "hostnamestatus", "hs"],
        &[("Hostname", "{.hostname}"), ("Domainname", "{.domainname}")],
        |_, node, _| one("hostname", json!({ "hostname": node.hostname(), "domainname": "" })),
    ),
    kind(
        ("TimeStatuses.v1alpha1.talos.dev", "runtime"),
        ("time.SyncController", "TimeStatus"),
        &["timestatus", "ts"],
        &[("Synced", "{.synced}")],
        |_, _, boot| one("node", status::time(boot)),
    ),
    kind(
        (super::CPU_STATS, "perf"),
        ("perf.StatsController", "CPUStats"),
        &[],
        &[("User", "{.cpuTotal.user}"), ("System", "{.cpuTotal.system}")],
        |world, _, boot| one("latest", status::processors(world, boot)),
    ),
    kind(
        ("Diagnostics.runtime.talos.dev", "runtime"),
        ("runtime.DiagnosticsController", "Diagnostic"),
        &["diagnostic"],
        &[("Message", "{.message}")],
        |world, node, _| network::overlap(world, node),
    ),
    kind(
        ("ExtensionStatuses.runtime.talos.dev", "runtime"),
        ("runtime.ExtensionStatusController", "ExtensionStatus"),
        &["extensions", "extensionstatus", "es"],
        &[("Name", "{.metadata.name}"), ("Version", "{.metadata.version}")],
        |_, node, _| status::extensions(node),
    ),
    kind(
        ("KernelCmdlines.runtime.talos.dev", "runtime"),
        ("runtime.KernelCmdlineController", "KernelCmdline"),
        &["cmdline"],
        &[("Cmdline", "{.cmdline}")],
        |_, node, _| one("cmdline", json!({ "cmdline": node.image.command_line() })),
    ),
    kind(
        ("SecurityStates.talos.dev", "runtime"),
        ("runtime.SecurityStateController", "SecurityState"),
        &["securitystate"],
        &[("SecureBoot", "{.secureBoot}")],
        |_, _, _| one("securitystate", json!({ "secureBoot": false })),
    ),
    kind(
        ("PlatformMetadatas.talos.dev", "runtime"),
        ("network.PlatformConfigApplyController", "PlatformMetadata"),
        &["platformmetadata"],
        &[("Platform", "{.platform}"), ("Type", "{.instanceType}")],
        |_, node, _| {
            let said = json!({ "platform": node.image.platform, "hostname": node.platform_name });
            one("platformmetadata", said)
        },
    ),
    kind(
        ("Versions.runtime.talos.dev", "runtime"),
        ("runtime.VersionController", "Version"),
        &["version"],
        &[("Name", "{.name}"), ("Version", "{.version}")],
        |_, node, _| one("version", json!({ "name": "Talos", "version": node.image.version })),
    ),
    kind(
        ("SystemInformations.hardware.talos.dev", "hardware"),
        ("hardware.SystemInfoController", "SystemInformation"),
        &["systeminformation"],
        &[
            ("Manufacturer", "{.manufacturer}"),
            ("ProductName", "{.productName}"),
            ("Version", "{.version}"),
            ("SerialNumber", "{.serialnumber}"),
            ("UUID", "{.uuid}"),
        ],
        |world, node, _| status::system_information(world, node.vmid),
    ),
    kind(
        ("Members.cluster.talos.dev", "cluster"),
        ("cluster.MemberController", "Member"),
        &["member"],
        &[
            ("Hostname", "{.hostname}"),
            ("Machine Type", "{.machineType}"),
            ("OS", "{.operatingSystem}"),
            ("Addresses", "{.addresses}"),
        ],
        |world, node, _| status::members(world, node),
    ),
    Kind {
        form: Form::Word("MachineType"),
        ..kind(
            ("MachineTypes.config.talos.dev", "config"),
            ("config.MachineTypeController", ""),
            &["machinetype", "mt", "mts"],
            &[("Type", "{@}")],
            |_, _, boot| {
                let role = boot.config.as_ref().map_or("unknown", |config| config.role.word());
                one("machine-type", json!(role))
            },
        )
    },
    kind(
        ("EtcdMembers.etcd.talos.dev", "etcd"),
        ("etcd.MemberController", "EtcdMember"),
        &["etcdmember", "em", "ems"],
        &[("Member ID", "{.memberID}")],
        |world, node, boot| {
            // Only who agrees with the others says which member it is.
            let member = world.membership(node.vmid).filter(|(etcd, _)| boot.serves_etcd && world.is_quorate(*etcd));
            let say = |id: u64| ("local".to_owned(), json!({ "memberID": format!("{id:016x}") }));
            member.map(|(_, id)| say(id)).into_iter().collect()
        },
    ),
    kind(
        ("EtcdSpecs.etcd.talos.dev", "etcd"),
        ("etcd.SpecController", "EtcdSpec"),
        &["etcdspec"],
        &[("Name", "{.name}"), ("AdvertisedAddresses", "{.advertisedAddresses}")],
        |_, node, _| status::etcd_spec(node),
    ),
    kind(
        ("Nodenames.kubernetes.talos.dev", "k8s"),
        ("k8s.NodenameController", "Nodename"),
        &["nodename"],
        &[("Nodename", "{.nodename}")],
        |_, node, boot| kubernetes::nodename(node, boot),
    ),
    kind(
        ("NodeStatuses.kubernetes.talos.dev", "k8s"),
        ("k8s.NodeStatusController", "NodeStatus"),
        &["nodestatus", "ns", "nss"],
        &[("Ready", "{.nodeReady}"), ("Unschedulable", "{.unschedulable}")],
        |world, node, _| kubernetes::node_status(world, node),
    ),
    Kind {
        form: Form::Free,
        ..kind(
            ("StaticPodStatuses.kubernetes.talos.dev", "k8s"),
            ("k8s.KubeletStaticPodController", ""),
            &["podstatus"],
            &[("Ready", "{.conditions[?(@.type==\"Ready\")].status}")],
            |world, node, _| kubernetes::static_pods(world, node),
        )
    },
    kind(
        ("BootstrapManifestsConfigs.kubernetes.talos.dev", "controlplane"),
        ("k8s.ControlPlaneBootstrapManifestsController", "BootstrapManifestsConfig"),
        &["bootstrapmanifestsconfig"],
        &[],
        |_, node, _| kubernetes::manifests(node),
    ),
    Kind {
        since: 14,
        ..kind(
            ("UnattendedInstallStatuses.runtime.talos.dev", "runtime"),
            ("runtime.UnattendedInstallController", "UnattendedInstallStatus"),
            &["unattendedinstallstatus", "uis"],
            &[("Phase", "{.phase}"), ("Error", "{.error}")],
            |_, _, boot| {
                let is_wanted =
                    boot.config.as_ref().is_some_and(|it| it.documents_of("UnattendedInstallConfig").next().is_some());
                // The image is installed already, so there is nothing to do.
                is_wanted
                    .then(|| ("unattended-install".to_owned(), json!({ "phase": "installed" })))
                    .into_iter()
                    .collect()
            },
        )
    },
    Kind {
        since: 14,
        ..kind(
            ("BootIDs.runtime.talos.dev", "runtime"),
            ("runtime.BootIDController", "BootID"),
            &["bootid", "bid"],
            &[("Boot ID", "{.bootID}")],
            |_, _, boot| one("boot-id", json!({ "bootID": boot.boot_id })),
        )
    },
    Kind {
        is_secret: true,
        ..kind(
            ("OSRootSecrets.secrets.talos.dev", "secrets"),
            ("secrets.RootOSController", "OSRoot"),
            &["osrootsecret"],
            &[],
            |_, _, boot| status::os_root(boot),
        )
    },
    Kind {
        is_secret: true,
        form: Form::Text,
        ..kind(
            ("MachineConfigs.config.talos.dev", "config"),
            ("", ""),
            &["machineconfig", "mc", "mcs"],
            &[],
            |_, node, boot| {
                let held = boot.config.as_ref().map(|config| ("v1alpha1".to_owned(), json!(config.text)));
                let kept = node.disk.config.as_ref().map(|config| ("persistent".to_owned(), json!(config.text)));
                kept.into_iter().chain(held).collect()
            },
        )
    },
];

fn one(id: &str, value: Value) -> Vec<(String, Value)> {
    vec![(id.to_owned(), value)]
}
