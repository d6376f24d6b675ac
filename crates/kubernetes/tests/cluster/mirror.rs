//! The upstream manifests and castle's stand-ins for them, adapted and applied by castle as a layer does.

use castle_components::adapt;
use castle_components::pins::pin;
use castle_components::{Fit, standin};
use castle_kubernetes::model::{Object, manifest};
use castle_kubernetes::steps::install;
use castle_spec::ComponentName;

use crate::room::{Room, in_room, mark, well};

const FIT: Fit = Fit {
    replicas: 2,
    has_data_disks: true,
    is_without_workers: true,
    is_small: true,
    has_image_automation: false,
    has_source_watcher: false,
};

/// The objects of a file of the mirror, or nothing where there is none (which is a skip).
fn read(file: &str) -> Option<Vec<Object>> {
    castle_testbed::oracle_text(&format!("mirror/{file}")).map(|text| manifest(&text).unwrap())
}

async fn converge(room: &Room, component: &str, objects: &[Object]) {
    well(&room.run(|graph, api| drop(install(graph, api, objects, &mark(component)))).await);
}

#[test]
fn everything_is_applied_once_and_a_second_time_changes_nothing() {
    let mut count = 0;
    in_room(async |room| {
        for name in ComponentName::ALL {
            let (component, file) = (name.word(), pin(name, &name.newest()).unwrap().file);
            let Some(objects) = read(file) else {
                castle_testbed::skipped(&format!("there is no mirror with {file}"));
                return;
            };
            let objects = adapt(name, &objects, &FIT).unwrap();
            count += objects.len();
            converge(room, component, &objects).await;
            let kinds: std::collections::BTreeSet<String> =
                objects.iter().map(|object| object.kind().to_string()).collect();
            room.seen.take();
            converge(room, component, &objects).await;
            let asked = room.seen.take();
            let (looks, others): (Vec<String>, Vec<String>) =
                asked.into_iter().partition(|method| method.starts_with("GET"));
            assert!(others.iter().all(|method| method.starts_with("TRY")), "{component}: {others:?}");
            let lists = looks.iter().filter(|method| !method.ends_with("/api") && !method.ends_with("/apis")).count();
            // One list of each kind; beside them the inventory is read before and after, and the definitions for their gate.
            assert!(lists <= kinds.len() + 3, "{component}: {lists} looks at {} kinds", kinds.len());
        }
    });
    assert!(count == 0 || count == 154, "{count}");
}

#[test]
fn the_stand_ins_are_applied_once_and_a_second_time_changes_nothing() {
    in_room(async |room| {
        for name in ComponentName::ALL {
            let objects = adapt(name, &standin::objects(name), &FIT).unwrap();
            converge(room, name.word(), &objects).await;
            room.seen.take();
            converge(room, name.word(), &objects).await;
            let asked = room.seen.take();
            assert!(!asked.is_empty(), "{name} is looked at");
            let changes: Vec<&String> =
                asked.iter().filter(|method| !method.starts_with("GET") && !method.starts_with("TRY")).collect();
            assert!(changes.is_empty(), "{name}: {changes:?}");
        }
    });
}
