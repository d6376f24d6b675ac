//! `castle handover`: MetalLB from Flux to castle and back, with Flux's part played by hand.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_components::adapt;
use castle_components::{Fit, standin};
use castle_http::header::{CONTENT_TYPE, HeaderValue};
use castle_http::{Ask, Client, Endpoint, Identity, Method, Trust};
use castle_kubernetes::model::{Key, Object};
use castle_seams::{SystemClock, TcpDial};
use castle_spec::ComponentName;
use serde_json::{Value, json};

use crate::room::{BLUE, Room};

const KUSTOMIZATION: &str = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations/apps";

/// The castle of the room with MetalLB, which this one is to own.
fn owned_by(owner: &str) -> String {
    let pool = "vip: 127.42.0.10, loadBalancers: 127.42.0.200-127.42.0.220}";
    format!(
        "{}gitops: {{repository: 'https://git.example.com/r.git'}}\ncomponents: {{metallb: {{owner: {owner}}}}}\n",
        BLUE.replace("vip: 127.42.0.10}", pool)
    )
}

/// What castle wants of MetalLB in this castle.
fn metallb() -> Vec<Object> {
    let fit = Fit {
        replicas: 1,
        has_data_disks: true,
        is_without_workers: false,
        is_small: false,
        has_image_automation: false,
        has_source_watcher: false,
    };
    adapt(ComponentName::Metallb, &standin::objects(ComponentName::Metallb), &fit).unwrap()
}

/// Flux, as far as a test decides what it does.
struct Flux {
    client: Client,
    runtime: tokio::runtime::Runtime,
}

impl Flux {
    fn new(room: &Room) -> Self {
        let kubeconfig = room.castle(&["kubeconfig"]).stdout;
        let pem = |key: &str| {
            let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix(key)).unwrap();
            String::from_utf8(STANDARD.decode(line.trim()).unwrap()).unwrap()
        };
        let identity = Identity::from_pem(&pem("client-certificate-data:"), &pem("client-key-data:")).unwrap();
        let trust = Trust::Only(pem("certificate-authority-data:"));
        let endpoint = Endpoint::parse(&format!("https://{}.10:6443", room.network)).unwrap();
        let dial = Arc::new(TcpDial { timeout: Duration::from_secs(5) });
        let client = Client::new(endpoint, &trust, dial, Arc::new(SystemClock::new())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { client: client.with_identity(&identity).unwrap(), runtime }
    }

    /// Applies by force. A definition that is a moment old may not be served yet.
    fn apply(&self, path: &str, body: &Value) {
        let query = format!("{path}?fieldManager=kustomize-controller&force=true");
        let mut ask = Ask::new(Method::PATCH, &query);
        ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/apply-patch+yaml"));
        ask.body = body.to_string().into();
        for _ in 0..100 {
            let answer = self.runtime.block_on(self.client.ask(&ask)).unwrap();
            match answer.status.as_u16() {
                404 => std::thread::sleep(Duration::from_millis(50)),
                status => {
                    assert!(status < 300, "{path}: {}", String::from_utf8_lossy(&answer.body));
                    return;
                }
            }
        }
        panic!("{path} is not served");
    }

    fn installs(&self) {
        let definitions = standin::objects(ComponentName::Flux);
        let wanted = "kustomizations.kustomize.toolkit.fluxcd.io";
        let definition = definitions.iter().find(|object| object.name() == wanted).unwrap();
        self.apply(&path(definition), definition.value());
        for object in metallb() {
            let mut body = object.value().clone();
            body["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"] = json!("apps");
            body["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/namespace"] = json!("default");
            self.apply(&path(&object), &body);
        }
        self.lists(&metallb());
        self.waits_for_webhooks();
    }

    /// Until MetalLB's controller has written its authority into its webhooks: whoever hands over in that moment would see them change.
    fn waits_for_webhooks(&self) {
        let all = metallb();
        let webhooks = all.iter().find(|object| object.kind().kind == "ValidatingWebhookConfiguration").unwrap();
        let ask = Ask::new(Method::GET, &path(webhooks));
        for _ in 0..200 {
            let answer = self.runtime.block_on(self.client.ask(&ask)).unwrap();
            let told: Value = serde_json::from_slice(&answer.body).unwrap();
            let has_authority = |webhook: &Value| !webhook["clientConfig"]["caBundle"].is_null();
            if told["webhooks"].as_array().is_some_and(|all| all.iter().all(has_authority)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("MetalLB's controller does not serve");
    }

    fn lists(&self, objects: &[Object]) {
        let mut body = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"name": "apps"},
            "spec": {"path": "./apps", "interval": "1m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "castle"}},
        });
        self.apply(KUSTOMIZATION, &body);
        let id =
            |key: Key| json!({"id": format!("{}_{}_{}_{}", key.namespace, key.name, key.group, key.kind), "v": "v1"});
        body["status"] = json!({
            "observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}],
            "lastAppliedRevision": "main@sha1:1", "lastAttemptedRevision": "main@sha1:1",
            "inventory": {"entries": objects.iter().map(|object| id(object.key())).collect::<Vec<_>>()},
        });
        self.apply(&format!("{KUSTOMIZATION}/status"), &body);
    }
}

/// Where an object is.
fn path(object: &Object) -> String {
    let kind = object.kind();
    let base = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
    let space = match object.namespace() {
        "" => String::new(),
        space => format!("/namespaces/{space}"),
    };
    format!("{base}/{}{space}/{}s/{}", kind.version, kind.kind.to_lowercase(), object.name())
}

/// The managers of the controller, and whether every Pod is what it was.
fn proof(result: &Value) -> (Vec<&str>, bool) {
    let objects = result["objects"].as_array().unwrap();
    let controller = objects.iter().find(|it| it["object"] == "Deployment metallb-system/controller").unwrap();
    let managers = controller["managers"].as_array().unwrap().iter().filter_map(Value::as_str);
    let managers = managers.filter(|name| ["castle", "kustomize-controller"].contains(name)).collect();
    let pods = result["pods"].as_array().unwrap();
    let is_same = !pods.is_empty() && pods.iter().all(|pod| pod["same"] == true);
    (managers, is_same && result["disturbed"].as_array().unwrap().is_empty())
}

#[test]
fn what_cannot_be_is_refused_with_what_to_change() {
    let room = Room::new(400);
    room.write("castle.yaml", &owned_by("castle"));
    let ran = room.castle(&["handover", "metallb", "--to", "flux"]);
    insta::assert_snapshot!(ran.transcript(), @r"
    error: castle.yaml says that castle is the owner of metallb, and the next `castle up` would go by that
      next: write `components: {metallb: {owner: flux}}`, then castle handover metallb --to flux
    exit 3
    ");
    let ran = room.castle(&["handover", "flux", "--to", "flux"]);
    assert!(ran.code == Some(3) && ran.stderr.contains("it stays castle's"), "{}", ran.transcript());
    let ran = room.castle(&["handover", "longhorn", "--to", "flux"]);
    assert!(ran.code == Some(4) && ran.stderr.contains("castle.yaml has no longhorn"), "{}", ran.transcript());
    let ran = room.castle(&["handover", "metallb", "--to", "castle"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("was never raised"), "{}", ran.transcript());
    assert_eq!(room.castle(&["handover", "metallb"]).code, Some(4));
    assert_eq!(room.castle(&["handover", "nonsense", "--to", "flux"]).code, Some(4));
}

#[test]
fn metallb_goes_to_castle_and_back_to_flux() {
    let room = Room::new(400);
    assert_eq!(room.castle(&["up"]).code, Some(0));
    room.write("castle.yaml", &owned_by("castle"));
    let none = room.castle(&["handover", "metallb", "--to", "castle", "--yes"]);
    assert!(none.code == Some(3) && none.stdout.contains("Nothing was changed."), "{}", none.transcript());
    let flux = Flux::new(&room);
    flux.installs();
    let owners = room.castle(&["owners"]);
    assert!(owners.stdout.contains("castle handover metallb --to castle"), "{}", owners.transcript());

    let take = ["handover", "metallb", "--to", "castle"];
    let asked = room.castle(&take);
    assert!(asked.code == Some(3) && asked.stderr.contains("give --yes"), "{}", asked.transcript());
    let ran = room.castle(&[&take[..], &["--yes", "--json"]].concat());
    let first = ran.result();
    assert_eq!((ran.code, &first["result"]), (Some(0), &json!("waiting")), "{}", ran.transcript());
    assert_eq!(first["remove"][0]["owner"], "Flux (Kustomization default/apps)");
    assert_eq!(first["remove"][0]["objects"].as_array().unwrap().len(), metallb().len());
    assert_eq!(proof(&first), (vec!["castle", "kustomize-controller"], true), "{first}");
    let again = room.castle(&[&take[..], &["--yes"]].concat());
    assert!(again.stdout.contains("Remove from the Git repository, of Flux (Kustomization default/apps)"));
    assert!(again.stdout.contains("  Deployment metallb-system/controller\n"), "{}", again.transcript());

    flux.lists(&[]);
    let last = room.castle(&[&take[..], &["--yes", "--json"]].concat()).result();
    assert_eq!((&last["result"], proof(&last)), (&json!("moved"), (vec!["castle"], true)), "{last}");
    let done = room.castle(&[&take[..], &["--json"]].concat()).result();
    assert_eq!(done["result"], "unchanged", "with nothing to do nothing is asked: {done}");

    // And back.
    room.write("castle.yaml", &owned_by("flux"));
    let give = ["handover", "metallb", "--to", "flux", "--yes", "--json"];
    let lacking = room.castle(&give);
    assert_eq!((lacking.code, &lacking.result()["result"]), (Some(3), &json!("refused")), "{}", lacking.transcript());
    assert!(lacking.result()["problems"][0]["hint"].as_str().unwrap().contains("commit it"));
    flux.installs();
    let given = room.castle(&give).result();
    assert_eq!((&given["result"], proof(&given)), (&json!("moved"), (vec!["kustomize-controller"], true)), "{given}");
    assert_eq!(room.castle(&give).result()["result"], "unchanged");
    let owners = room.castle(&["owners", "--json"]).result();
    let of_metallb = owners["components"].as_array().unwrap().iter().find(|it| it["component"] == "metallb").unwrap();
    assert_eq!(of_metallb["holders"], json!(["Flux (Kustomization default/apps)"]));
    assert_eq!(of_metallb["quarrel"], Value::Null);
}
