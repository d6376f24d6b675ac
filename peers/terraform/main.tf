# What people keep of a hypervisor in Terraform: an image, a template, a clone of it, a pool, and who looks after the clone.

terraform {
  required_providers {
    proxmox = { source = "bpg/proxmox" }
  }
}

# Where it is and who asks is told by the environment.
provider "proxmox" {
  insecure = true
}

variable "image" {
  type = string
}

variable "cores" {
  type    = number
  default = 2
}

resource "proxmox_virtual_environment_pool" "castle" {
  pool_id = "terraform"
  comment = "made by Terraform"
}

resource "proxmox_download_file" "talos" {
  content_type = "import"
  datastore_id = "local"
  node_name    = "pve"
  file_name    = "talos-terraform.qcow2"
  url          = var.image
}

resource "proxmox_virtual_environment_vm" "template" {
  name            = "terraform-template"
  description     = "made by Terraform"
  tags            = ["template", "terraform"]
  node_name       = "pve"
  vm_id           = 9100
  template        = true
  started         = false
  stop_on_destroy = true
  scsi_hardware   = "virtio-scsi-single"

  agent {
    enabled = true
  }

  cpu {
    cores = 2
    type  = "x86-64-v2-AES"
  }

  memory {
    dedicated = 2048
  }

  disk {
    datastore_id = "local-lvm"
    import_from  = proxmox_download_file.talos.id
    interface    = "scsi0"
    iothread     = true
    size         = 10
  }

  network_device {
    bridge = "vmbr0"
  }

  operating_system {
    type = "l26"
  }

  serial_device {}
}

resource "proxmox_virtual_environment_vm" "clone" {
  name            = "terraform-clone"
  node_name       = "pve"
  vm_id           = 431
  pool_id         = proxmox_virtual_environment_pool.castle.pool_id
  tags            = ["terraform"]
  stop_on_destroy = true

  clone {
    vm_id = proxmox_virtual_environment_vm.template.vm_id
    full  = false
  }

  agent {
    enabled = true
  }

  cpu {
    cores = var.cores
    type  = "x86-64-v2-AES"
  }

  memory {
    dedicated = 4096
  }

  disk {
    datastore_id = "local-lvm"
    interface    = "scsi0"
    iothread     = true
    size         = 20
  }

  initialization {
    datastore_id = "local-lvm"
    interface    = "ide2"

    dns {
      servers = ["192.168.1.1"]
    }

    ip_config {
      ipv4 {
        address = "192.168.1.231/24"
        gateway = "192.168.1.1"
      }
    }
  }

  network_device {
    bridge = "vmbr0"
  }
}

resource "proxmox_haresource" "clone" {
  resource_id = "vm:${proxmox_virtual_environment_vm.clone.vm_id}"
  state       = "started"
  comment     = "made by Terraform"
  max_restart = 2
}

data "proxmox_version" "all" {}

data "proxmox_virtual_environment_nodes" "all" {}

data "proxmox_virtual_environment_node" "first" {
  node_name = "pve"
}

data "proxmox_virtual_environment_datastores" "all" {
  node_name = "pve"
}

data "proxmox_virtual_environment_pools" "all" {
  depends_on = [proxmox_virtual_environment_pool.castle]
}

data "proxmox_virtual_environment_pool" "castle" {
  pool_id    = proxmox_virtual_environment_pool.castle.pool_id
  depends_on = [proxmox_virtual_environment_vm.clone]
}

data "proxmox_virtual_environment_roles" "all" {}

data "proxmox_virtual_environment_users" "all" {}

data "proxmox_vm" "clone" {
  node_name = "pve"
  id        = proxmox_virtual_environment_vm.clone.vm_id
}

data "proxmox_virtual_environment_vms" "ours" {
  node_name  = "pve"
  tags       = ["terraform"]
  depends_on = [proxmox_virtual_environment_vm.clone]
}

output "told" {
  value = {
    release    = data.proxmox_version.all.release
    nodes      = data.proxmox_virtual_environment_nodes.all.names
    online     = data.proxmox_virtual_environment_nodes.all.online
    cores      = data.proxmox_virtual_environment_node.first.cpu_count
    datastores = sort([for store in data.proxmox_virtual_environment_datastores.all.datastores : store.id])
    pools      = data.proxmox_virtual_environment_pools.all.pool_ids
    members    = [for member in data.proxmox_virtual_environment_pool.castle.members : member.id]
    roles      = contains(data.proxmox_virtual_environment_roles.all.role_ids, "Administrator")
    users      = contains(data.proxmox_virtual_environment_users.all.user_ids, "root@pam")
    clone      = data.proxmox_vm.clone.name
    ours       = sort([for vm in data.proxmox_virtual_environment_vms.ours.vms : vm.name])
    given      = data.proxmox_vm.clone.cpu.cores
    addresses  = proxmox_virtual_environment_vm.clone.ipv4_addresses
    size       = proxmox_download_file.talos.size
  }
}
