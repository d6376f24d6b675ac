//! What became of a question, in the words of the real server.

use serde_json::Value;

use super::reach::Told;
use crate::kubernetes::status::Failure;
use crate::kubernetes::{body, value};

/// What a webhook answered; or how it failed, in the words of the real server.
pub(super) fn response(url: &str, uid: &str, told: Told) -> Result<Value, String> {
    let failed = |why: &str| format!("failed to call webhook: {why}");
    let (status, body) = match told {
        Told::Unreached(why) => return Err(failed(&format!("Post {url:?}: {why}"))),
        Told::Said { status, body } => (status, body),
    };
    match status {
        200..=299 => {}
        400 => return Err(failed("the server rejected our request for an unknown reason")),
        401 => return Err(failed("the server has asked for the client to provide credentials")),
        403 => return Err(failed("unknown")),
        404 => return Err(failed("the server could not find the requested resource")),
        405 => return Err(failed("the server does not allow this method on the requested resource")),
        429 => return Err(failed("the server has received too many requests and has asked us to try again later")),
        503 => return Err(failed("the server is currently unable to handle the request")),
        500.. => return Err(failed("an error on the server (\"unknown\") has prevented the request from succeeding")),
        other => {
            return Err(failed(&format!(
                "the server responded with the status code {other} but did not return more information"
            )));
        }
    }
    let read = body::yaml(&body)
        .map_err(|error| failed(&format!("couldn't get version/kind; json parse error: {error}")))?
        .value;
    if !read.is_object() {
        let what = match read {
            Value::Array(_) => "array",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
            _ => "string",
        };
        return Err(failed(&format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go value of type struct {{ APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        )));
    }
    let invalid = |why: &str| format!("received invalid webhook response: {why}");
    let Some(response) = read.get("response").filter(|response| !response.is_null()) else {
        return Err(invalid("webhook response was absent"));
    };
    let given = value::text(response, "uid");
    if given != uid {
        return Err(invalid(&format!("expected response.uid={uid:?}, got {given:?}")));
    }
    let has_patch = !value::text(response, "patch").is_empty();
    match value::text(response, "patchType") {
        "" if has_patch => Err(invalid("webhook returned response.patch but not response.patchType")),
        "" | "JSONPatch" => Ok(response.clone()),
        other => Err(invalid(&format!("unexpected response.patchType: {other:?}"))),
    }
}

/// What is told of a request that a webhook denied.
pub(super) fn denial(name: &str, response: &Value) -> Failure {
    let (message, reason) = (value::text(response, "status.message"), value::text(response, "status.reason"));
    let told = match (message, reason) {
        ("", "") => format!("admission webhook {name:?} denied the request without explanation"),
        ("", reason) => format!("admission webhook {name:?} denied the request: {reason}"),
        (message, _) => format!("admission webhook {name:?} denied the request: {message}"),
    };
    let code = value::number(response, "status.code").and_then(|code| u16::try_from(code).ok());
    let failure = Failure::new(code.filter(|code| *code >= 400).unwrap_or(400), "", told);
    Failure { reason: reason.to_owned().into(), ..failure }
}
