//! MetalLB: speakers that announce even where there are control planes alone.

use serde_json::Value;

use super::PatchError;
use super::edit::Objects;
use crate::fit::Fit;

/// Talos marks control planes as no targets of load balancers, and speakers obey that unless told otherwise.
const FLAG: &str = "--ignore-exclude-lb";
const PURPOSE: &str = "announce addresses from control planes";

pub(crate) fn adapt(objects: &mut Objects, fit: &Fit) -> Result<(), PatchError> {
    objects.privilege()?;
    let missing = objects.missing("arguments of the container speaker in DaemonSet speaker", PURPOSE);
    let speaker = objects.container(("DaemonSet", "speaker"), "speaker", PURPOSE)?;
    let arguments = speaker.get_mut("args").and_then(Value::as_array_mut).ok_or(missing)?;
    if fit.is_without_workers && !arguments.iter().any(|argument| argument == FLAG) {
        arguments.push(FLAG.into());
    }
    Ok(())
}
