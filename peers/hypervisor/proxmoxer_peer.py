"""The embedded datacenter as proxmoxer sees it. Reads what `castle datacenter --json` said of itself from its input, prints
a line for each check that holds and at last their number; what does not hold goes to standard error."""
import hashlib
import json
import ssl
import sys
from urllib.parse import urlsplit

import requests
from proxmoxer import AuthenticationError, ProxmoxAPI
from proxmoxer.tools import Tasks

from checks import PATIENCE, PERIOD, equal, eventually, holds, matches, parts, refused, verdict

TEMPLATE, CLONE, ABSENT = 9000, 421, 555
STRANGERS = {100: "nas", 101: "router"}
IMAGE = "local:import/talos-peer.qcow2"
URL = f"https://factory.talos.dev/image/{'ab' * 32}/v1.13.9/nocloud-amd64.qcow2"
UNKNOWN = "property is not defined in schema and the schema does not allow additional properties"
MISSING = "property is missing and it is not optional"


def shut_out(what, **credentials):
    """Logging in raises AuthenticationError with 401."""
    try:
        login(**credentials)
    except AuthenticationError as error:
        holds(what, str(error).endswith("code: 401"), str(error))
    else:
        holds(what, False, "let in")


def ends(what, upid, kind, exit_text="OK", client=None):
    """The task is of this kind, and ends with these words."""
    told = Tasks.decode_upid(upid)
    status = Tasks.blocking_status(client or api, upid, timeout=PATIENCE, polling_interval=PERIOD)
    status = status or {"exitstatus": "nothing in time"}
    exited = status["exitstatus"]
    fits = exited == "OK" if exit_text == "OK" else exit_text in exited
    holds(what, fits and told["type"] == kind and told["node"] == node, (upid, status))
    return told, status


def login(**credentials):
    return ProxmoxAPI(place.hostname, port=place.port, verify_ssl=False, **credentials)


def volumes(storage, **filters):
    return {row["volid"]: row for row in host.storage(storage).content.get(**filters)}


def strangers():
    """All of a stranger that does not change with the time."""
    seen = {}
    for vmid in STRANGERS:
        vm = host.qemu(vmid)
        disks = {volid: (row["size"], row["format"]) for volid, row in volumes("local-lvm", vmid=vmid).items()}
        seen[vmid] = (vm.config.get(), vm.pending.get(), vm.status.current.get()["status"], disks)
    return seen


def logins():
    equal("a token gets no ticket", api.get_tokens(), (None, None))
    wrong = login(user=user, token_name=token_name, token_value="00000000-0000-4000-8000-000000000000")
    refused("a wrong token is 401", 401, "", wrong.version.get)
    nobody = login(user=user, token_name="nobody", token_value=secret)
    refused("an unknown token is 401", 401, "", nobody.nodes.get)
    shut_out("a wrong password is 401", user="root@pam", password="wrong")
    shut_out("an unknown user is 401", user="nobody@pam", password=said["password"])
    root = login(user="root@pam", password=said["password"])
    ticket, csrf = root.get_tokens()
    matches("a password gets a ticket", ticket, r"PVE:root@pam:[0-9A-F]{8}::.+")
    matches("a ticket comes with a CSRF token", csrf, r"[0-9A-F]{8}:.+")
    equal("a ticket opens", root.version.get()["release"], "9.2")
    renewed = login(user="root@pam", password=ticket)
    equal("a ticket renews itself", renewed.version.get()["release"], "9.2")
    equal("root may everything", root.access.permissions.get(path="/")["/"].get("Permissions.Modify"), 1)
    # Nothing is deleted: the ticket is refused before the number is looked at.
    root._backend.auth.csrf_prevention_token = "00000000:wrong"
    refused("a change without its CSRF token is 401", 401, "", host_of(root).qemu(ABSENT).delete)
    equal("a look needs no CSRF token", [row["node"] for row in root.nodes.get()], [node])


def host_of(client):
    return client.nodes(node)


def certificate():
    shown = ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((place.hostname, place.port)))
    digest = hashlib.sha256(shown).hexdigest().upper()
    pinned = ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))
    equal("the certificate has the fingerprint that was printed", pinned, said["fingerprint"])
    equal("the host tells the same fingerprint", api.nodes.get()[0]["ssl_fingerprint"], said["fingerprint"])
    trusting = ProxmoxAPI(place.hostname, port=place.port, user=user, token_name=token_name, token_value=secret)
    try:
        seen = trusting.version.get()
    except requests.exceptions.SSLError as error:
        holds("nobody else vouches for it", "CERTIFICATE_VERIFY_FAILED" in str(error), str(error))
    else:
        holds("nobody else vouches for it", False, seen)


def lists():
    version = api.version.get()
    equal("version", (version["release"], sorted(version)), ("9.2", ["release", "repoid", "version"]))
    equal("nodes", [(row["node"], row["type"], row["status"]) for row in api.nodes.get()], [("pve", "node", "online")])
    equal("the host's processors", host.status.get()["cpuinfo"]["cpus"], 64)
    equal("bridges", [row["iface"] for row in host.network.get(type="bridge")], ["vmbr0"])
    members = [(row["type"], row["name"], row["online"]) for row in api.cluster.status.get()]
    equal("cluster status", members, [("node", node, 1)])
    rows = api.cluster.resources.get()
    equal("kinds of resources", {row["type"] for row in rows}, {"qemu", "node", "storage", "sdn"})
    guests = api.cluster.resources.get(type="vm")
    equal("guests by number and name", {row["vmid"]: row["name"] for row in guests}, STRANGERS)
    equal("guests by state", {row["vmid"]: row["status"] for row in guests}, {100: "running", 101: "stopped"})
    equal("guests of the host", {row["vmid"]: row["name"] for row in host.qemu.get()}, STRANGERS)
    kinds = {"local": "dir", "local-lvm": "lvmthin"}
    equal("storages", {row["storage"]: row["type"] for row in api.storage.get()}, kinds)
    usable = {row["storage"]: row["active"] and row["enabled"] for row in host.storage.get()}
    equal("storages of the host", usable, {"local": 1, "local-lvm": 1})
    equal("storages for disks", [row["storage"] for row in host.storage.get(content="images")], ["local-lvm"])
    status = host.storage("local").status.get()
    equal("a storage adds up", status["used"] + status["avail"], status["total"])
    equal("an empty storage", host.storage("local").content.get(), [])
    owners = {volid: row["vmid"] for volid, row in volumes("local-lvm").items()}
    equal("volumes and their owners", owners, {f"local-lvm:vm-{vmid}-disk-0": vmid for vmid in STRANGERS})
    rights = api.access.permissions.get()["/"]
    equal("the token may clone, not migrate", (rights.get("VM.Clone"), rights.get("VM.Migrate")), (1, None))
    below = api.access.permissions.get(path=f"/vms/{CLONE}")
    equal("rights hold below", below[f"/vms/{CLONE}"].get("VM.Allocate"), 1)
    equal("pools", api.pools.get(), [])
    equal("the next number", api.cluster.nextid.get(), 102)
    equal("a free number", api.cluster.nextid.get(vmid=CLONE), str(CLONE))
    taken = {"vmid": "VM 100 already exists"}
    refused("a taken number", 400, "Parameter verification failed.", api.cluster.nextid.get, vmid=100, errors=taken)


def download():
    fetch = host.storage("local")("download-url")
    wanted = {"content": "import", "filename": IMAGE.split("/")[1], "url": URL}
    checksum = {"checksum": "0" * 64, "checksum-algorithm": "sha256"}
    ends("a wrong checksum fails", fetch.post(**wanted, **checksum), "download", "checksum mismatch")
    equal("and leaves nothing", volumes("local"), {})
    upid = fetch.post(**wanted)
    told, status = ends("an image is downloaded", upid, "download")
    equal("the task tells who began it", (told["user"], status["user"], status.get("tokenid")), (user, user, token_name))
    equal("the task has ended", status["status"], "stopped")
    log = Tasks.decode_log(host.tasks(upid).log.get())
    holds("the log tells what was downloaded", f"downloading {URL} to " in log, log)
    image = volumes("local", content="import").get(IMAGE, {})
    equal("the image is listed", (image.get("content"), image.get("format")), ("import", "qcow2"))
    equal("the image is found by its name", host.storage("local").content(IMAGE).get()["format"], "qcow2")
    ends("the image is not overwritten", fetch.post(**wanted), "download", "refusing to override existing file")
    bad = {**wanted, "filename": "talos.exe"}
    refused("a wrong ending", 400, "", fetch.post, **bad, errors={"filename": "invalid filename or wrong extension"})
    elsewhere = host.storage("local-lvm")("download-url")
    refused("not onto thin volumes", 500, "can't upload to storage type 'lvmthin'", elsewhere.post, **wanted)


def template():
    wanted = {
        "vmid": TEMPLATE, "name": "peer-template", "ostype": "l26", "cores": 2, "memory": 2048, "cpu": "x86-64-v2-AES",
        "scsihw": "virtio-scsi-single", "scsi0": f"local-lvm:0,import-from={IMAGE},iothread=on", "boot": "order=scsi0",
        "ide2": "local-lvm:cloudinit", "net0": "virtio,bridge=vmbr0", "agent": "enabled=1", "serial0": "socket",
        "tags": "zeta,alpha",
    }
    told, _ = ends("a VM is created from the image", host.qemu.post(**wanted), "qmcreate")
    equal("the task names the VM", told["id"], str(TEMPLATE))
    vm = host.qemu(TEMPLATE)
    config = vm.config.get()
    same = ("name", "ostype", "cores", "cpu", "scsihw", "boot", "agent", "serial0")
    equal("what was set is read back", {key: config.get(key) for key in same}, {key: wanted[key] for key in same})
    equal("memory is read back", str(config["memory"]), "2048")
    matches("net0 gains a MAC", config["net0"], r"virtio=BC:24:11(:[0-9A-F]{2}){3},bridge=vmbr0")
    equal("scsi0 is canonical", config["scsi0"], f"local-lvm:vm-{TEMPLATE}-disk-0,iothread=1,size=1246M")
    equal("ide2 is canonical", config["ide2"], f"local-lvm:vm-{TEMPLATE}-cloudinit,media=cdrom")
    equal("tags are sorted", config["tags"], "alpha;zeta")
    matches("smbios1 gains a UUID", config["smbios1"], r"uuid=[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
    matches("there is a digest", config["digest"], r"[0-9a-f]{40}")
    equal("it is off", vm.status.current.get()["status"], "stopped")
    refused("its number is taken", 500, "already exists", host.qemu.post, **wanted)
    own = {f"local-lvm:vm-{TEMPLATE}-disk-0", f"local-lvm:vm-{TEMPLATE}-cloudinit"}
    equal("its volumes", set(volumes("local-lvm", vmid=TEMPLATE)), own)

    root = host_of(login(user="root@pam", password=said["password"])).qemu(TEMPLATE)
    equal("a ticket with its CSRF token changes", root.config.put(description="by ticket\n"), None)
    equal("a description is trimmed", vm.config.get().get("description"), "by ticket")
    holds("the digest has changed", vm.config.get()["digest"] != config["digest"], config["digest"])

    ends("it becomes a template", vm.template.post(), "qmtemplate")
    config = vm.config.get()
    equal("it is one", config.get("template"), 1)
    equal("its disk is a base", config["scsi0"], f"local-lvm:base-{TEMPLATE}-disk-0,iothread=1,size=1246M")
    ends("a template cannot be started", vm.status.start.post(), "qmstart", "you can't start a vm if it's a template")
    refused("a template cannot become one", 500, "you can't convert a template", vm.template.post)
    # The cluster learns of it with the next round of what the hosts tell each other.
    told = {"name": "peer-template", "template": 1, "tags": "alpha;zeta"}
    eventually(
        "the cluster tells of the template",
        lambda: next(row for row in api.cluster.resources.get(type="vm") if row["vmid"] == TEMPLATE),
        lambda row: {key: row.get(key) for key in told} == told,
    )
    return config


def clone(source):
    base = host.qemu(TEMPLATE)
    told, _ = ends("a linked clone", base.clone.post(newid=CLONE, name="peer-1"), "qmclone")
    equal("the task names the source", told["id"], str(TEMPLATE))
    vm = host.qemu(CLONE)
    config = vm.config.get()
    equal("its name, and no template", (config["name"], config.get("template")), ("peer-1", None))
    equal("its tags and description are the source's", (config["tags"], config["description"]), ("alpha;zeta", "by ticket"))
    equal("its disk is its own", config["scsi0"], f"local-lvm:vm-{CLONE}-disk-0,iothread=1,size=1246M")
    equal("its cloud-init drive is its own", parts(config["ide2"])[0], f"local-lvm:vm-{CLONE}-cloudinit")
    matches("it has a MAC", config["net0"], r"virtio=BC:24:11(:[0-9A-F]{2}){3},bridge=vmbr0")
    news = [key for key in ("net0", "smbios1", "vmgenid") if config[key] != source[key]]
    equal("its MAC and ids are new", news, ["net0", "smbios1", "vmgenid"])
    refused("its number is taken for clones too", 500, "already exists", base.clone.post, newid=CLONE)
    elsewhere = {"newid": ABSENT, "storage": "local-lvm"}
    refused("a linked clone stays on its storage", 500, "not allowed for linked clones", base.clone.post, **elsewhere)
    refused("no clone of nothing", 500, "unable to find configuration file", host.qemu(ABSENT).clone.post, newid=CLONE + 1)
    return vm


def change(vm):
    network = {"ipconfig0": "ip=192.168.1.211/24,gw=192.168.1.1", "nameserver": "192.168.1.1"}
    ends("POST config is a task", vm.config.post(**network, onboot=1), "qmconfig")
    config = vm.config.get()
    equal("it holds", {key: config.get(key) for key in (*network, "onboot")}, {**network, "onboot": 1})
    equal("PUT config answers nothing", vm.config.put(cores=4, memory=4096, tags="b a"), None)
    config = vm.config.get()
    equal("it holds too", (config["cores"], str(config["memory"]), config["tags"]), (4, "4096", "a;b"))
    vm.config.put(delete="description,onboot")
    equal("options go", {"description", "onboot"} & set(vm.config.get()), set())
    refused("nothing to change", 500, "no options specified", vm.config.put)
    refused("an old digest", 500, "file change by other user", vm.config.put, cores=8, digest="0" * 40)
    vm.config.put(cores=4, digest=vm.config.get()["digest"])
    gone = {"delete": "unknown option 'colour'"}
    refused("an option that is none does not go", 400, "", vm.config.put, delete="colour", errors=gone)

    def size():
        return parts(vm.config.get()["scsi0"])[1]["size"]

    ends("a disk grows by", vm.resize.put(disk="scsi0", size="+8G"), "resize")
    equal("its size, not a round one", size(), f"{1246 + 8 * 1024}M")
    ends("a disk grows to", vm.resize.put(disk="scsi0", size="20G"), "resize")
    equal("its size, shortened", size(), "20G")
    ends("a disk does not shrink", vm.resize.put(disk="scsi0", size="10G"), "resize", "shrinking disks is not supported")
    equal("the volume has grown", volumes("local-lvm")[f"local-lvm:vm-{CLONE}-disk-0"]["size"], 20 << 30)
    ends("a disk that is not there", vm.resize.put(disk="scsi9", size="+1G"), "resize", "does not exist")


def run(vm):
    agent = vm.agent("network-get-interfaces")
    refused("a VM that is off tells nothing", 500, f"VM {CLONE} is not running", agent.get)
    ends("it starts", vm.status.start.post(), "qmstart")
    status = vm.status.current.get()
    equal("it runs", (status["status"], status["qmpstatus"]), ("running", "running"))
    ends("it does not start twice", vm.status.start.post(), "qmstart", f"VM {CLONE} already running")
    told = eventually("the agent answers", agent.get, lambda told: "result" in told) or {"result": []}
    cards = {card["name"]: card for card in told["result"]}
    mac = parts(vm.config.get()["net0"])[0].split("=")[1].lower()
    equal("with its own card", cards.get("eth0", {}).get("hardware-address"), mac)
    address = {"ip-address": "192.168.1.211", "ip-address-type": "ipv4", "prefix": 24}
    equal("and its address", cards.get("eth0", {}).get("ip-addresses"), [address])
    equal("and a loopback", "lo" in cards, True)

    vm.config.put(cores=6)
    equal("a change waits", (vm.config.get()["cores"], vm.config.get(current=1)["cores"]), (6, 4))
    waiting = {row["key"]: (row["value"], row["pending"]) for row in vm.pending.get() if "pending" in row}
    equal("and is told as pending", waiting, {"cores": (4, 6)})
    refused("a running VM is not deleted", 500, f"VM {CLONE} is running - destroy failed", vm.delete)
    refused("a running VM is no template", 500, "if VM is running", vm.template.post)

    ends("it shuts down", vm.status.shutdown.post(timeout=60), "qmshutdown")
    equal("it is off", vm.status.current.get()["status"], "stopped")
    equal("what was pending holds", vm.config.get(current=1)["cores"], 6)
    ends("it starts again", vm.status.start.post(), "qmstart")
    ends("it is switched off", vm.status.stop.post(), "qmstop")
    ends("stopping what is off is no error", vm.status.stop.post(), "qmstop")
    equal("it is off again", vm.status.current.get()["status"], "stopped")


def administrator():
    return login(user="root@pam", password=said["password"])


def looked_after(vm):
    root = administrator()
    resources, sid = root.cluster.ha.resources, f"vm:{CLONE}"
    equal("nothing is looked after", resources.get(), [])
    equal("somebody looks after a VM", resources.post(sid=sid, comment="peer", state="stopped", max_restart=2), None)
    told = resources(sid).get()
    wanted = {"sid": sid, "type": "vm", "comment": "peer", "state": "stopped", "max_restart": 2}
    equal("as was said", {key: told.get(key) for key in wanted}, wanted)
    equal("it is listed", [row["sid"] for row in resources.get()], [sid])
    refused("not twice", 500, "already defined", resources.post, sid=sid)
    refused("the token may not", 403, "Sys.Console", api.cluster.ha.resources.post, sid=sid)
    equal("it changes", resources(sid).put(comment="another", delete="max_restart"), None)
    told = resources(sid).get()
    equal("it has changed", (told["comment"], told.get("max_restart")), ("another", None))
    resources(sid).delete()
    refused("nobody looks after it any more", 500, f"no such resource '{sid}'", resources(sid).get)


def snapshots(vm):
    root = administrator()
    taken = host_of(root).qemu(CLONE).snapshot
    before = vm.config.get()["cores"]
    ends("a snapshot is taken", taken.post(snapname="before", description="as it was"), "qmsnapshot", client=root)
    rows = {row["name"]: (row.get("parent"), row["description"]) for row in taken.get()}
    equal("it is listed", rows, {"before": (None, "as it was"), "current": ("before", "You are here!")})
    kept = taken("before").config.get()
    equal("it has kept", (kept["cores"], kept["description"]), (before, "as it was"))
    equal("a description changes", taken("before").config.put(description="another"), None)
    equal("it has changed", taken("before").config.get()["description"], "another")
    vm.config.put(cores=before + 2)
    ends("not twice by one name", taken.post(snapname="before"), "qmsnapshot", "already used", client=root)
    ends("it goes back", taken("before").rollback.post(), "qmrollback", client=root)
    equal("to what it was", vm.config.get()["cores"], before)
    ends("a snapshot goes", taken("before").delete(), "qmdelsnapshot", client=root)
    equal("only the present is left", [row["name"] for row in taken.get()], ["current"])


def unlinked(vm):
    ends("another disk", vm.config.post(scsi1="local-lvm:1"), "qmconfig")
    disk = f"local-lvm:vm-{CLONE}-disk-1"
    equal("it is there", parts(vm.config.get()["scsi1"])[0], disk)
    equal("it is taken out", vm.unlink.put(idlist="scsi1"), None)
    config = vm.config.get()
    equal("and kept", (config.get("scsi1"), config.get("unused0")), (None, disk))
    equal("it is thrown away", vm.unlink.put(idlist="unused0"), None)
    equal("and gone", (vm.config.get().get("unused0"), disk in volumes("local-lvm")), (None, False))


def paused():
    root = administrator()
    vm = host_of(root).qemu(100)

    def state():
        told = vm.status.current.get()
        return told["status"], told["qmpstatus"]

    ends("a VM is reset", vm.status.reset.post(), "qmreset", client=root)
    equal("it runs", state(), ("running", "running"))
    ends("it is paused", vm.status.suspend.post(), "qmpause", client=root)
    equal("it stands still", state(), ("running", "paused"))
    ends("it goes on", vm.status.resume.post(), "qmresume", client=root)
    equal("it runs again", state(), ("running", "running"))
    off = host_of(root).qemu(101).status
    refused("what is off is not reset", 500, "VM 101 not running", off.reset.post)


def looked_up():
    root = administrator()
    told = host_of(root)("query-url-metadata").get(url=URL)
    equal("a file elsewhere", (told["filename"], "mimetype" in told, told["size"] > 0), (URL.rsplit("/", 1)[1], True, True))
    users = {row["userid"]: row["enable"] for row in root.access.users.get(full=1)}
    equal("users", (users.get("root@pam"), users.get(user)), (1, 1))
    roles = {row["roleid"]: (row["special"], row["privs"].split(",")) for row in root.access.roles.get()}
    special, privileges = roles["Administrator"]
    equal("the administrator's role", (special, "Permissions.Modify" in privileges), (1, True))
    equal("roles that come with it", {"NoAccess", "PVEAdmin", "PVEAuditor", "PVEVMUser"} - set(roles), set())
    equal("realms", {row["realm"]: row["type"] for row in root.access.domains.get()}, {"pam": "pam", "pve": "pve"})
    for what, rows in {
        "a VM": host.qemu(100).rrddata.get(timeframe="hour", cf="AVERAGE"),
        "a storage": host.storage("local").rrddata.get(timeframe="day"),
    }.items():
        equal(f"statistics of {what}", (len(rows) > 0, all("time" in row for row in rows)), (True, True))


def errors(vm):
    verification = "Parameter verification failed."
    refused("an unknown parameter", 400, verification, vm.config.put, colour="red", errors={"colour": UNKNOWN})
    refused("a missing parameter", 400, verification, host.qemu.post, name="x", errors={"vmid": MISSING})
    number = {"cores": "type check ('integer') failed - got 'many'"}
    refused("a word for a number", 400, verification, vm.config.put, cores="many", errors=number)
    few = {"cores": "value must have a minimum value of 1"}
    refused("a number too small", 400, verification, vm.config.put, cores=0, errors=few)
    low = {"vmid": "value does not look like a valid VM ID"}
    refused("a number that no VM has", 400, verification, host.qemu.post, vmid=5, errors=low)
    both = {"colour": UNKNOWN, "bios": "does not have a value in the enumeration"}
    refused("several at once", 400, verification, vm.config.put, colour="red", bios="rom", errors=both)
    inner = {"net0": "colour"}
    refused("a property that is none", 400, verification, vm.config.put, net0="virtio,colour=red", errors=inner)
    absent = f"Configuration file 'nodes/{node}/qemu-server/{ABSENT}.conf' does not exist"
    refused("no such VM", 500, absent, host.qemu(ABSENT).config.get)
    refused("no such VM to delete", 500, "does not exist", host.qemu(ABSENT).delete)
    refused("no such storage", 500, "storage 'attic' does not exist", host.storage("attic").content.get)
    refused("no such host", 500, "elsewhere", api.nodes("elsewhere").qemu.get)
    refused("no such path", 501, "not implemented", api.castles.get)
    forged = f"UPID:{node}:00000001:00000001:00000001:qmstart:{CLONE}:{user}:"
    refused("no such task", 400, "", host.tasks(forged).status.get, errors={"upid": "no such task"})
    forbidden = f"Permission check failed (/vms/{CLONE}, VM.Migrate)"
    refused("what the token may not", 403, forbidden, vm.migrate.post, target=node)
    refused("what only root may", 500, "only root can set 'args' config", vm.config.put, args="-S")
    refused("no agent", 500, "No QEMU guest agent configured", host.qemu(101).agent("network-get-interfaces").get)


def delete(vm):
    vm.config.put(protection=1)
    refused("a protected VM stays", 500, f"can't remove VM {CLONE} - protection mode enabled", vm.delete)
    vm.config.put(delete="protection")
    ends("it is deleted", vm.delete(purge=1), "qmdestroy")
    refused("it is gone", 500, "does not exist", vm.config.get)
    equal("its volumes are freed", volumes("local-lvm", vmid=CLONE), {})
    equal("its number is free", api.cluster.nextid.get(vmid=CLONE), str(CLONE))
    ends("the template is deleted", host.qemu(TEMPLATE).delete(), "qmdestroy")
    equal("its volumes are freed too", volumes("local-lvm", vmid=TEMPLATE), {})
    equal("the image is not", set(volumes("local")), {IMAGE})
    told, _ = ends("the image is deleted", host.storage("local").content(IMAGE).delete(), "imgdel")
    equal("the task names the storage", told["id"], "local")
    equal("the storage is empty", volumes("local"), {})
    equal("only strangers are left", {row["vmid"] for row in api.cluster.resources.get(type="vm")}, set(STRANGERS))
    kinds = {row["type"] for row in host.tasks.get(vmid=CLONE, source="all", limit=100)}
    switched, kept = {"qmstart", "qmshutdown", "qmstop"}, {"qmsnapshot", "qmrollback", "qmdelsnapshot"}
    equal("the tasks are remembered", kinds, {"qmconfig", "resize", "qmdestroy"} | switched | kept)


said = json.load(sys.stdin)
place = urlsplit(said["address"])
identity, secret = said["token"].split("=")
user, token_name = identity.split("!")
api = login(user=user, token_name=token_name, token_value=secret)
node = said["hosts"][0]
host = host_of(api)

certificate()
logins()
before = strangers()
lists()
download()
made = clone(template())
change(made)
run(made)
looked_after(made)
snapshots(made)
unlinked(made)
paused()
looked_up()
errors(made)
delete(made)
for vmid, seen in strangers().items():
    equal(f"stranger {vmid} is unchanged", seen, before[vmid])

sys.exit(verdict())
