use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::doors::Doors;

fn script(path: &Path) -> Arc<Script> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    Arc::new(runtime.block_on(Script::of(&Doors::system(), path, Props::default())).unwrap())
}

#[test]
fn blue_keeps_its_promises() {
    let script = script(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/blue"));
    for rehearsed in rehearse(&script, &[1]).unwrap() {
        assert_eq!(rehearsed.broken, [], "{}", rehearsed.story);
    }
}
