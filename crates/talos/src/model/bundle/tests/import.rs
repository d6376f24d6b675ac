//! Bundles out of machine configurations.

use super::*;

fn machine_config(bundle: &Bundle, contract: Contract) -> Vec<Value> {
    let saved = value(bundle);
    let certs = &saved["certs"];
    let mut main = json!({
        "version": "v1alpha1",
        "machine": {"type": "controlplane", "token": saved["trustdinfo"]["token"], "ca": certs["os"]},
        "cluster": {"token": saved["secrets"]["bootstraptoken"], "etcd": {"ca": certs["etcd"]}},
    });
    if contract < Contract::V1_14 {
        let cluster = main["cluster"].as_object_mut().unwrap();
        let own = json!({
            "id": saved["cluster"]["id"],
            "secret": saved["cluster"]["secret"],
            "secretboxEncryptionSecret": saved["secrets"]["secretboxencryptionsecret"],
            "ca": certs["k8s"],
            "aggregatorCA": certs["k8saggregator"],
            "serviceAccount": certs["k8sserviceaccount"],
        });
        cluster.extend(own.as_object().unwrap().clone());
        return vec![main, json!({"apiVersion": "v1alpha1", "kind": "HostnameConfig", "auto": "stable"})];
    }
    let pair = |pair: &Credential| json!({"cert": pair.certificate, "key": pair.key.expose()});
    let keys = json!([{"name": "key2", "secret": saved["secrets"]["secretboxencryptionsecret"]}]);
    let sealing = json!([
        {"resources": ["configmaps"], "providers": [{"identity": {}}]},
        {"resources": ["secrets"], "providers": [{"secretbox": {"keys": keys}}, {"identity": {}}]},
    ]);
    let identity = json!({
        "kind": "DiscoveryIdentityConfig",
        "clusterID": saved["cluster"]["id"],
        "clusterSecret": saved["cluster"]["secret"],
    });
    vec![
        main,
        identity,
        json!({"kind": "KubeAPIServerCAConfig", "issuingCA": pair(&bundle.kubernetes)}),
        json!({"kind": "KubeAggregatorCAConfig", "issuingCA": pair(&bundle.aggregator)}),
        json!({"kind": "KubeEtcdEncryptionConfig", "config": {"resources": sealing}}),
        json!({"kind": "KubeServiceAccountConfig", "issuer": {"privateKey": bundle.service_account.expose()}}),
    ]
}

#[tokio::test]
async fn the_configuration_of_a_control_plane_gives_its_bundle() {
    for contract in [Contract::V1_12, Contract::V1_13, Contract::V1_14] {
        let bundle = new(contract).await;
        let text = yaml::emit_all(&machine_config(&bundle, contract));
        for loaded in [Bundle::from_machine_config(&text, now()), Bundle::import(&text, now())] {
            assert_eq!(loaded.unwrap().bundle.save().expose(), bundle.save().expose(), "{contract:?}");
        }
    }
}

#[tokio::test]
async fn problems_of_a_configuration_are_told_by_its_own_fields() {
    let bundle = new(Contract::V1_14).await;
    let mut documents = machine_config(&bundle, Contract::V1_14);
    documents[0]["machine"]["ca"]["key"] = "******".into();
    documents[1]["clusterSecret"] = "x".into();
    documents[2]["issuingCA"]["key"] = "******".into();
    documents[4]["config"]["resources"][1]["providers"][0] = json!({"identity": {}});
    documents[5]["issuer"]["privateKey"] = "planted".into();
    let error = Bundle::from_machine_config(&yaml::emit_all(&documents), now()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the secrets cannot be used: \
         DiscoveryIdentityConfig.clusterSecret is not valid base64; \
         KubeEtcdEncryptionConfig.config is missing; \
         KubeAPIServerCAConfig.issuingCA.key is the marker that stands for a hidden secret, not the secret; \
         KubeServiceAccountConfig.issuer.privateKey holds no PEM block; \
         machine.ca.key is the marker that stands for a hidden secret, not the secret"
    );

    let mut documents = machine_config(&new(Contract::V1_13).await, Contract::V1_13);
    documents[0]["cluster"].as_object_mut().unwrap().remove("aggregatorCA");
    let error = Bundle::from_machine_config(&yaml::emit_all(&documents), now()).unwrap_err();
    let fields: Vec<_> = error.problems().iter().map(|problem| problem.field).collect();
    assert_eq!(fields, ["cluster.aggregatorCA.crt", "cluster.aggregatorCA.key"]);
}
