//! Groups besides the core: events in both views, autoscalers, requests for certificates, descriptions; and pods that end.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, IsCa, KeyPair};
use serde_json::{Value, json};

use super::{Bench, deployment};
use crate::kubernetes::api::Reply;
use crate::kubernetes::request::{Ask, User};
use crate::kubernetes::workloads::PodFault;
use crate::talos::config::Authority;

const PODS: &str = "/api/v1/namespaces/default/pods";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn condition(object: &Value, kind: &str) -> Value {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|it| it["type"] == kind).unwrap_or_default()
}

#[test]
fn the_same_events_are_seen_in_both_groups() {
    let mut bench = Bench::new();
    bench.node("n1");
    bench.post("/apis/apps/v1/namespaces/default/deployments", &deployment("d", 1));
    let (_, core) = bench.get("/api/v1/namespaces/default/events?fieldSelector=reason%3DScheduled");
    let (_, new) = bench.get(
        "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=reason%3DScheduled%2Cregarding.kind%3DPod",
    );
    let (core, new) = (&core["items"][0], &new["items"][0]);
    assert_eq!((&core["message"], &core["involvedObject"]["uid"]), (&new["note"], &new["regarding"]["uid"]));
    assert_eq!(new["deprecatedSource"]["component"], "default-scheduler");
    let path =
        format!("/apis/events.k8s.io/v1/namespaces/default/events/{}", new["metadata"]["name"].as_str().unwrap());
    let (code, changed) = bench.merge(&path, &json!({ "metadata": { "labels": { "a": "b" } } }));
    assert_eq!((code, &changed["apiVersion"]), (200, &json!("events.k8s.io/v1")));
    let (code, refused) = bench.merge(&path, &json!({ "note": "other" }));
    assert_eq!((code, &refused["details"]["causes"][0]["field"]), (422, &json!("note")));
    let (_, seen) = bench.get(&path.replace("apis/events.k8s.io", "api"));
    assert_eq!((&seen["metadata"]["labels"]["a"], &seen["message"]), (&json!("b"), &core["message"]));
    assert_eq!(bench.delete(&path).0, 200);
    assert_eq!(bench.get(&path.replace("apis/events.k8s.io", "api")).0, 404);
}

#[test]
fn autoscalers_are_kept_with_their_defaults_and_scale_nothing() {
    let mut bench = Bench::new();
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let wanted = |spec: Value| json!({ "metadata": { "name": "a" }, "spec": spec });
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "d" });
    let (code, made) = bench.post(
        path,
        &wanted(json!({ "scaleTargetRef": target, "maxReplicas": 3, "behavior": { "scaleDown": { "selectPolicy": "Min" } } })),
    );
    assert_eq!(code, 201, "{made}");
    let metric = &made["spec"]["metrics"][0]["resource"];
    assert_eq!((&made["spec"]["minReplicas"], &metric["target"]["averageUtilization"]), (&json!(1), &json!(80)));
    assert_eq!(made["spec"]["behavior"]["scaleUp"]["policies"].as_array().unwrap().len(), 2);
    assert_eq!(made["spec"]["behavior"]["scaleDown"]["selectPolicy"], "Min");
    assert_eq!(made["status"], json!({ "currentMetrics": null, "desiredReplicas": 0 }));
    let (_, looked_after) = bench.get(&format!("{path}/a"));
    assert!(condition(&looked_after, "ScalingActive")["message"].as_str().unwrap().contains("simulated"));
    let (code, refused) = bench.post(path, &wanted(json!({ "scaleTargetRef": { "kind": "x" }, "minReplicas": 2 })));
    let told = "HorizontalPodAutoscaler.autoscaling \"a\" is invalid: [spec.maxReplicas: Required value: must be set and greater than 0, \
                spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`, spec.scaleTargetRef.name: Required value]";
    assert_eq!((code, refused["message"].as_str()), (422, Some(told)));
}

/// An authority, and a request of somebody for a certificate.
fn asked(organization: &str, name: &str) -> (Authority, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = Authority { pem: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() };
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, name);
    let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    (authority, STANDARD.encode(request))
}

#[test]
fn a_request_for_a_certificate_is_signed_once_it_is_approved() {
    let mut bench = Bench::new();
    let (authority, request) = asked("people", "jane");
    bench.kube.setup.signer = Some(authority);
    let wanted = |name: &str, signer: &str| {
        let spec =
            json!({ "request": request, "signerName": signer, "usages": ["client auth"], "username": "somebody else" });
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    let (code, made) = bench.post(REQUESTS, &wanted("jane", "kubernetes.io/kube-apiserver-client"));
    assert_eq!((code, &made["spec"]["username"], &made["status"]), (201, &json!("admin"), &json!({})), "{made}");
    let approved = json!([{ "type": "Approved", "status": "True", "reason": "ByHand" }]);
    let (code, refused) =
        bench.merge(&format!("{REQUESTS}/jane/status"), &json!({ "status": { "conditions": approved } }));
    assert_eq!(code, 422, "{refused}");
    let approval = json!({ "status": { "conditions": approved } });
    assert_eq!(bench.merge(&format!("{REQUESTS}/jane/approval"), &approval).0, 200);
    let (_, signed) = bench.get(&format!("{REQUESTS}/jane"));
    let certificate = STANDARD.decode(signed["status"]["certificate"].as_str().unwrap()).unwrap();
    let (_, pem) = x509_parser::pem::parse_x509_pem(&certificate).unwrap();
    let certificate = pem.parse_x509().unwrap();
    assert!(certificate.subject().to_string().contains("CN=jane"), "{}", certificate.subject());
    assert!(condition(&signed, "Approved")["lastTransitionTime"].is_string());
    bench.post(REQUESTS, &wanted("node", "kubernetes.io/kube-apiserver-client-kubelet"));
    bench.merge(&format!("{REQUESTS}/node/approval"), &approval);
    let (_, refused) = bench.get(&format!("{REQUESTS}/node"));
    assert_eq!(condition(&refused, "Failed")["message"], "subject organization is not system:nodes");
    bench.post(REQUESTS, &wanted("other", "example.com/signer"));
    bench.merge(&format!("{REQUESTS}/other/approval"), &approval);
    assert_eq!(
        bench.get(&format!("{REQUESTS}/other")).1["status"].get("certificate"),
        None,
        "that is another's to sign"
    );
    let (code, refused) =
        bench.post(REQUESTS, &json!({ "metadata": { "name": "bad" }, "spec": { "request": "eA==" } }));
    let fields: Vec<&str> =
        refused["details"]["causes"].as_array().unwrap().iter().map(|it| it["field"].as_str().unwrap()).collect();
    assert_eq!((code, fields), (422, vec!["spec.request", "spec.usages", "spec.signerName"]));
}

#[test]
fn everything_is_described_in_the_older_form_as_well() {
    let mut bench = Bench::new();
    bench.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &super::life::definition());
    bench.pass(5.0);
    let (_, described) = bench.get("/openapi/v2");
    let definitions = described["definitions"].as_object().unwrap();
    assert!(definitions.len() > 300 && described["paths"].as_object().unwrap().len() > 80);
    let containers = &definitions["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["items"]["$ref"], "#/definitions/io.k8s.api.core.v1.Container");
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(definitions["io.x.v1.Cron"]["properties"]["spec"]["required"], json!(["cron"]));
    assert!(!described.to_string().contains("#/components/"));
    let ask = Ask {
        method: "GET".to_owned(),
        path: "/openapi/v2".to_owned(),
        accept: "application/com.github.proto-openapi.spec.v2@v1.0+protobuf".to_owned(),
        user: User::master("admin"),
        ..Ask::default()
    };
    let Reply::Raw(200, kind, bytes) = bench.kube.handle(&ask) else { panic!("no bytes") };
    assert_eq!(kind, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    // The first field is a text: the version of the format.
    assert_eq!(&bytes[..5], b"\x0a\x032.0");
}

#[test]
fn pods_of_nobody_that_are_not_started_again_end() {
    let mut bench = Bench::new();
    bench.node("n1");
    for policy in ["Always", "Never"] {
        let spec = json!({ "restartPolicy": policy, "containers": [{ "name": "a", "image": "x:1" }] });
        bench.post(PODS, &json!({ "metadata": { "name": policy.to_lowercase() }, "spec": spec }));
    }
    let phase = |bench: &mut Bench, name: &str| bench.get(&format!("{PODS}/{name}")).1["status"]["phase"].clone();
    assert_eq!((phase(&mut bench, "always"), phase(&mut bench, "never")), (json!("Running"), json!("Succeeded")));
}

#[test]
fn a_job_whose_pods_fail_is_given_up_and_forgotten_in_its_time() {
    let mut bench = Bench::with_factor(1.0);
    bench.pass(1.0);
    bench.node("n1");
    bench.kube.set_fault("default", "j-", Some(PodFault::CrashLoop));
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "a", "image": "x:1" }] } });
    let spec = json!({ "template": template, "backoffLimit": 1, "ttlSecondsAfterFinished": 600 });
    bench.post(JOBS, &json!({ "metadata": { "name": "j" }, "spec": spec }));
    bench.pass(120.0);
    let (_, job) = bench.get(&format!("{JOBS}/j"));
    assert_eq!(
        (&condition(&job, "Failed")["reason"], &job["status"]["failed"]),
        (&json!("BackoffLimitExceeded"), &json!(2))
    );
    bench.pass(600.0);
    assert_eq!(bench.get(&format!("{JOBS}/j")).0, 404);
    bench.pass(60.0);
    assert_eq!(bench.get(PODS).1["items"], json!([]));
}

#[test]
fn jobs_begin_when_their_schedule_says() {
    let mut bench = Bench::new();
    bench.node("n1");
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "a", "image": "x:1" }] } });
    let spec = json!({ "schedule": "*/5 * * * *", "successfulJobsHistoryLimit": 2, "jobTemplate": { "spec": { "template": template } } });
    let path = "/apis/batch/v1/namespaces/default/cronjobs";
    bench.post(path, &json!({ "metadata": { "name": "c" }, "spec": spec }));
    let names = |bench: &mut Bench| {
        let (_, list) = bench.get(JOBS);
        let all = list["items"].as_array().unwrap().iter();
        all.map(|job| job["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&mut bench), Vec::<String>::new());
    bench.pass(120.0);
    assert_eq!(names(&mut bench), ["c-29833335"]);
    let (_, cron) = bench.get(&format!("{path}/c"));
    assert_eq!(cron["status"]["lastScheduleTime"], "2026-09-21T14:15:00Z");
    assert_eq!(cron["status"]["lastSuccessfulTime"], "2026-09-21T14:15:00Z");
    bench.pass(900.0);
    assert_eq!(names(&mut bench), ["c-29833345", "c-29833350"], "two are kept");
    bench.merge(&format!("{path}/c"), &json!({ "spec": { "suspend": true } }));
    bench.pass(900.0);
    assert_eq!(names(&mut bench), ["c-29833345", "c-29833350"]);
}

#[test]
fn a_budget_tells_how_it_stands_and_who_evicts_is_told_why_not() {
    let mut bench = Bench::new();
    bench.node("n1");
    bench.post("/apis/apps/v1/namespaces/default/deployments", &deployment("d", 2));
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let spec = json!({ "maxUnavailable": 1, "selector": { "matchLabels": { "app": "d" } } });
    bench.post(budgets, &json!({ "metadata": { "name": "b" }, "spec": spec }));
    let (_, budget) = bench.get(&format!("{budgets}/b"));
    let numbers = ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed", "observedGeneration"];
    assert_eq!(numbers.map(|key| budget["status"][key].as_i64()), [2, 1, 2, 1, 1].map(Some));
    assert_eq!(condition(&budget, "DisruptionAllowed")["reason"], "SufficientPods");
    bench.merge(&format!("{budgets}/b"), &json!({ "spec": { "maxUnavailable": 0 } }));
    let (_, list) = bench.get(PODS);
    let name = list["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name } });
    let (code, refused) = bench.post(&format!("{PODS}/{name}/eviction"), &eviction);
    let told = "The disruption budget b needs 2 healthy pods and has 2 currently";
    assert_eq!((code, &refused["details"]["causes"][0]["message"]), (429, &json!(told)));
    bench.merge(&format!("{budgets}/b"), &json!({ "spec": { "maxUnavailable": "50%" } }));
    assert_eq!(bench.post(&format!("{PODS}/{name}/eviction"), &eviction).0, 201);
}
