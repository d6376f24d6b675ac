use super::*;

#[test]
fn every_definition_can_be_read_and_every_name_is_defined() {
    for table in TABLES {
        for definition in definitions(table) {
            assert!(shape(&definition).is_some(), "{definition}");
        }
    }
    fn names(kind: &Kind) -> Vec<&str> {
        match kind {
            Kind::List(inner) | Kind::Map(inner) => names(inner),
            Kind::Shape(name) => vec![name],
            _ => Vec::new(),
        }
    }
    for shape in SHAPES.values() {
        for field in &shape.fields {
            for name in names(&field.kind) {
                assert!(SHAPES.contains_key(name), "{} of {}", name, shape.name);
            }
        }
    }
}

#[test]
fn versions_decide_what_there_is() {
    assert!(document(13, "HostnameConfig").is_some() && document(14, "HostnameConfig").is_some());
    assert!(document(13, "KubeletConfig").is_none() && document(14, "KubeletConfig").is_some());
    assert!(document(14, "MachineConfig").is_none(), "it is no document of its own");
    let dhcp = document(13, "DHCPv4Config").unwrap();
    assert!(dhcp.field(13, "ignoreRoutes").is_none() && dhcp.field(14, "ignoreRoutes").is_some());
    assert!(dhcp.field(13, "name").unwrap().is_required);
}
