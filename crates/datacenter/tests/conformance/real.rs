//! A real control plane on loopback, for the time of a run: etcd, kube-apiserver, kube-controller-manager.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_http::{Ask, Client, Endpoint, Method, Trust};
use castle_seams::{Clock, SystemClock, TcpDial};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose};
use serde_json::{Value, json};

use crate::suite::authority::{Authority, Issued};
use crate::suite::server::{Clients, Server};

/// How often it is asked whether it is ready, and how long between.
const TRIES: usize = 300;
const PAUSE: Duration = Duration::from_millis(200);

/// What Talos configures: everything is held to `baseline`, and what is not `restricted` is warned of.
const ADMISSION: &str = "apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults:
      enforce: baseline
      enforce-version: latest
      audit: restricted
      audit-version: latest
      warn: restricted
      warn-version: latest
    exemptions:
      namespaces: [kube-system]
";

/// The controllers whose work shows in the suite. Those of workloads are left out: nothing here could run a Pod.
const CONTROLLERS: &str = "namespace-controller,garbage-collector-controller,serviceaccount-controller,\
root-ca-certificate-publisher-controller,clusterrole-aggregation-controller";

/// Those of workloads, for whoever wants to see them.
const WORKLOADS: &str = "deployment-controller,replicaset-controller,job-controller";

/// Where the programs are.
pub(crate) struct Programs {
    pub(crate) etcd: PathBuf,
    /// With `kube-apiserver` and `kube-controller-manager`.
    pub(crate) kubernetes: PathBuf,
}

/// The running programs; they end with this.
pub(crate) struct Real {
    children: Vec<Child>,
    folder: tempfile::TempDir,
    pub(crate) server: Server,
}

impl Real {
    /// Starts all and waits until they serve.
    pub(crate) async fn start(name: &str, programs: &Programs, has_workloads: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [port, clients, peers, controllers] = free_ports();
        let authority = Authority::new("kubernetes");
        let server = Server {
            name: name.to_owned(),
            url: format!("https://127.0.0.1:{port}"),
            authority: authority.pem(),
            admin: client(&authority, "admin", "system:masters"),
            stranger: client(&authority, "stranger", "strangers"),
            node: client(&authority, "system:node:kubelet", "system:nodes"),
            compact: Box::new(move || Box::pin(compact(clients))),
        };
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("ca.crt", &authority.pem());
        write("admission.yaml", ADMISSION);
        for (name, Issued { certificate, key }) in [
            ("server", authority.server()),
            ("controllers", client(&authority, "system:kube-controller-manager", "system:masters")),
            ("tokens", client(&authority, "tokens", "castle")),
        ] {
            write(&format!("{name}.crt"), &certificate);
            write(&format!("{name}.key"), &key);
            write(&format!("{name}.kubeconfig"), &kubeconfig(&server.url, name, folder.path()));
        }
        let mut real = Self { children: Vec::new(), folder, server };
        real.run(
            &programs.etcd,
            &[
                "--data-dir=etcd",
                "--unsafe-no-fsync",
                &format!("--listen-client-urls=http://127.0.0.1:{clients}"),
                &format!("--advertise-client-urls=http://127.0.0.1:{clients}"),
                &format!("--listen-peer-urls=http://127.0.0.1:{peers}"),
            ],
        );
        real.run(
            &programs.kubernetes.join("kube-apiserver"),
            &[
                &format!("--etcd-servers=http://127.0.0.1:{clients}"),
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                // Its own endpoint would be on loopback, which it refuses.
                "--endpoint-reconciler-type=none",
                &format!("--secure-port={port}"),
                "--cert-dir=certificates",
                "--tls-cert-file=server.crt",
                "--tls-private-key-file=server.key",
                "--client-ca-file=ca.crt",
                "--service-account-key-file=tokens.crt",
                "--service-account-signing-key-file=tokens.key",
                "--service-account-issuer=https://castle.test",
                "--service-cluster-ip-range=10.96.0.0/12",
                "--authorization-mode=Node,RBAC",
                "--anonymous-auth=false",
                "--enable-admission-plugins=NodeRestriction",
                "--admission-control-config-file=admission.yaml",
                "--allow-privileged=true",
                // Without it a webhook's Service is dialled by a name that leads off this machine.
                "--enable-aggregator-routing=true",
            ],
        );
        real.wait("/readyz").await;
        let workloads = if has_workloads { format!("{CONTROLLERS},{WORKLOADS}") } else { CONTROLLERS.to_owned() };
        real.run(
            &programs.kubernetes.join("kube-controller-manager"),
            &[
                "--kubeconfig=controllers.kubeconfig",
                "--bind-address=127.0.0.1",
                &format!("--secure-port={controllers}"),
                "--leader-elect=false",
                "--service-account-private-key-file=tokens.key",
                "--root-ca-file=ca.crt",
                &format!("--controllers={workloads}"),
            ],
        );
        real.wait("/api/v1/namespaces/default/serviceaccounts/default").await;
        real
    }

    fn run(&mut self, program: &Path, args: &[&str]) {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log = std::fs::File::create(self.folder.path().join(format!("{name}.log"))).unwrap();
        let mut command = Command::new(program);
        command.args(args).current_dir(self.folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
        self.children.push(child);
    }

    async fn wait(&mut self, path: &str) {
        let clients = Clients::new(&self.server);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        for _ in 0..TRIES {
            if clients.ask("admin", "GET", path, &[], "").await.is_ok_and(|answer| answer.status == 200) {
                return;
            }
            let ended = self.children.iter_mut().any(|child| child.try_wait().is_ok_and(|status| status.is_some()));
            assert!(!ended, "a program ended by itself:\n{}", self.last_words());
            clock.sleep(PAUSE).await;
        }
        panic!("{path} is not answered:\n{}", self.last_words());
    }

    /// The end of each log.
    fn last_words(&self) -> String {
        let mut words = String::new();
        for entry in std::fs::read_dir(self.folder.path()).unwrap().map_while(Result::ok) {
            if entry.path().extension().is_some_and(|ending| ending == "log") {
                let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                words.push_str(&lines[lines.len().saturating_sub(8)..].join("\n"));
                words.push('\n');
            }
        }
        words
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Tells etcd to forget all revisions but the last, over its gateway to HTTP.
async fn compact(port: u16) {
    let endpoint = Endpoint::parse(&format!("http://127.0.0.1:{port}")).unwrap();
    let dial = Arc::new(TcpDial { timeout: PAUSE * 25 });
    let client = Client::new(endpoint, &Trust::PublicRoots, dial, Arc::new(SystemClock::new())).unwrap();
    let ask = async |path: &str, body: String| -> Value {
        let mut ask = Ask::new(Method::POST, path);
        ask.body = body.into();
        serde_json::from_slice(&client.ask(&ask).await.unwrap().body).unwrap()
    };
    let now = ask("/v3/kv/range", r#"{"key": "YQ=="}"#.to_owned()).await;
    let revision = now["header"]["revision"].as_str().unwrap();
    // Where API servers tell each other of it: what they hold in memory goes by this.
    let noted = json!({"key": STANDARD.encode("compact_rev_key"), "value": STANDARD.encode(revision)});
    ask("/v3/kv/put", noted.to_string()).await;
    let done = ask("/v3/kv/compaction", format!(r#"{{"revision": "{revision}", "physical": true}}"#)).await;
    assert!(done["header"].is_object(), "etcd does not compact: {done}");
}

fn client(authority: &Authority, name: &str, group: &str) -> Issued {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    authority.issue(&params)
}

fn free_ports<const N: usize>() -> [u16; N] {
    // All are held until all are known, so that none is had twice.
    let held: [std::net::TcpListener; N] =
        std::array::from_fn(|_| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    held.map(|listener| listener.local_addr().unwrap().port())
}

fn kubeconfig(url: &str, name: &str, folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: castle\n\
         clusters:\n- name: castle\n  cluster: {{server: '{url}', certificate-authority: '{folder}/ca.crt'}}\n\
         users:\n- name: castle\n  user: {{client-certificate: '{folder}/{name}.crt', client-key: '{folder}/{name}.key'}}\n\
         contexts:\n- name: castle\n  context: {{cluster: castle, user: castle}}\n"
    )
}
