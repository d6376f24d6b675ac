//! From an answer that is no success to what became of the request, and what to do about it.

use castle_engine::StoreErrorKind;
use castle_http::StatusCode;

use crate::model::xml::{self, Complaint};

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// To read a record.
    Get,
    /// To write one where there is none.
    PutNew,
    /// To write one over the version that is known.
    PutOver,
    /// To read a page of keys.
    List,
    /// To remove a record.
    Delete,
}

impl Deed {
    /// What is known of it if no answer came.
    pub(super) fn unanswered(self) -> StoreErrorKind {
        match self {
            Self::Get | Self::List => StoreErrorKind::Unavailable,
            Self::PutNew | Self::PutOver | Self::Delete => StoreErrorKind::Unknown,
        }
    }
}

/// Whether the answer says that there is no such record, by its code. An answer of something that is no object store does
/// not say it.
pub(super) fn is_absent(status: StatusCode, body: &[u8]) -> bool {
    status == StatusCode::NOT_FOUND && xml::complaint(body).code == "NoSuchKey"
}

/// What became of a request that was answered so.
pub(super) fn kind(deed: Deed, status: StatusCode, code: &str) -> StoreErrorKind {
    let is_put = matches!(deed, Deed::PutNew | Deed::PutOver);
    match (status.as_u16(), code) {
        (412, _) if is_put => StoreErrorKind::Conflict,
        // What was there was removed.
        (404, code) if deed == Deed::PutOver && code != "NoSuchBucket" => StoreErrorKind::Conflict,
        // Two writers met and neither was first, or the request was turned away at the door.
        (409, "ConditionalRequestConflict" | "OperationAborted") | (429, _) | (400, "RequestTimeout") => {
            StoreErrorKind::Unavailable
        }
        (503, code) if code.starts_with("SlowDown") => StoreErrorKind::Unavailable,
        // It knows no such request, or has no room.
        (501 | 507, _) => StoreErrorKind::Refused,
        (408 | 500..=599, _) => deed.unanswered(),
        _ => StoreErrorKind::Refused,
    }
}

/// What to do about it, if anything can be said.
pub(super) fn advice(
    deed: Deed,
    status: StatusCode,
    complaint: &Complaint,
    bucket: &str,
    region: &str,
    actual_region: Option<&str>,
) -> Option<String> {
    let is_put = matches!(deed, Deed::PutNew | Deed::PutOver);
    let advice = match (status.as_u16(), complaint.code.as_str()) {
        (412 | 404, code)
            if is_put && code != "NoSuchBucket" && kind(deed, status, code) == StoreErrorKind::Conflict =>
        {
            "someone else wrote in between".to_owned()
        }
        (_, "NoSuchBucket") => {
            format!(
                "there is no bucket `{bucket}` in region `{region}`: create it, or correct its name or the endpoint"
            )
        }
        (300..=399, _) | (_, "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException") => {
            match actual_region {
                Some(actual) => format!(
                    "the bucket `{bucket}` is not in region `{region}` but in `{actual}`: set region and endpoint to that"
                ),
                None => {
                    format!("the bucket `{bucket}` is not in region `{region}`: correct the region or the endpoint")
                }
            }
        }
        (_, "InvalidAccessKeyId" | "SignatureDoesNotMatch") => {
            format!("the credentials for bucket `{bucket}` in region `{region}` are wrong: correct the access key")
        }
        (_, "RequestTimeTooSkewed") => "this machine's clock is wrong: set it".to_owned(),
        (_, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired") => {
            "the session token is no longer valid: get new credentials".to_owned()
        }
        (401 | 403, _) => format!(
            "the credentials may not do this in bucket `{bucket}` in region `{region}`: allow s3:ListBucket on it, and \
             s3:GetObject, s3:PutObject and s3:DeleteObject on its objects"
        ),
        (501, _) if is_put => "this object store has no conditional writes, which castle needs: use another".to_owned(),
        (507, _) => format!("the object store has no room left for bucket `{bucket}`: make some"),
        (404, "") => "what answers is no object store: correct the endpoint".to_owned(),
        _ => return None,
    };
    Some(advice)
}
