//! The way to the hypervisor that a castle's file names, whichever platform that is.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use castle_http::{Endpoint, Trust};
use castle_proxmox::client::{Access, Client, Token};
use castle_spec::model::{Embedded, Platform, Proxmox};

use crate::doors::{Around, Doors};
use crate::embedded;
use crate::keeping::Kept;
use crate::output::Printer;

/// A host that does not answer the first packet for so long is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// No file of authorities is longer.
const MAX_CA_BYTES: u64 = 1 << 20;

/// That there is no hypervisor to be looked at.
pub(crate) const ABSENT: &str = "no embedded datacenter runs";

/// A client of the castle's hypervisor; nothing is asked yet. The embedded one is started if none runs.
pub(crate) async fn connect(kept: &Kept, printer: &mut Printer) -> Result<Arc<Client>, String> {
    let access = match &kept.castle.platform.value {
        Platform::Proxmox(proxmox) => access(proxmox, kept).await?,
        Platform::Embedded(embedded) => {
            embedded::ensure(&kept.doors, &hosts(embedded), embedded.speed.get(), printer).await?.access()?
        }
    };
    client(access, kept)
}

/// The same for whoever only looks: nothing is started for them.
pub(crate) async fn reach(kept: &Kept) -> Result<Arc<Client>, String> {
    let access = match &kept.castle.platform.value {
        Platform::Proxmox(proxmox) => access(proxmox, kept).await?,
        Platform::Embedded(embedded) => match embedded::running(&kept.doors, &hosts(embedded))? {
            Some(serving) => serving.access()?,
            None => return Err(format!("{ABSENT}: there is no castle to be looked at\n  next: castle up starts one")),
        },
    };
    client(access, kept)
}

/// The doors of whoever plans: where no embedded datacenter runs, into one that nobody has started. Returns whether that is so.
pub(crate) fn foreseen(kept: &Kept) -> Result<Option<Doors>, String> {
    match (&kept.castle.platform.value, &kept.doors.around) {
        (Platform::Embedded(embedded), Around::Machine) if embedded::find(&kept.doors)?.is_none() => {
            Ok(Some(embedded::Foreseen::doors(&kept.doors, &hosts(embedded))))
        }
        _ => Ok(None),
    }
}

fn hosts(embedded: &Embedded) -> Vec<String> {
    embedded.nodes.iter().map(|host| host.to_string()).collect()
}

fn client(access: Access, kept: &Kept) -> Result<Arc<Client>, String> {
    let access = Access { trust: kept.doors.trust(access.trust), ..access };
    Client::new(access, kept.doors.dial(CONNECT_TIMEOUT), kept.doors.clock.clone())
        .map(Arc::new)
        .map_err(|error| error.to_string())
}

async fn access(proxmox: &Proxmox, kept: &Kept) -> Result<Access, String> {
    let (castle_file, doors) = (&kept.file, &kept.doors);
    let endpoint =
        Endpoint::parse(proxmox.endpoint.as_str()).map_err(|error| format!("platform.proxmox.endpoint: {error}"))?;
    let trust = match (&proxmox.fingerprint, &proxmox.ca) {
        (Some(fingerprint), _) => Trust::fingerprint(fingerprint.as_str()).map_err(|error| error.to_string())?,
        (None, Some(ca)) => {
            let file = castle_file.parent().unwrap_or(Path::new("")).join(ca.as_str());
            let bytes =
                doors.disk.read(&file, MAX_CA_BYTES).map_err(|error| format!("platform.proxmox.ca: {error}"))?;
            Trust::Authorities(String::from_utf8_lossy(&bytes).into_owned())
        }
        (None, None) => Trust::PublicRoots,
    };
    let named = |why: String| format!("platform.proxmox.token: {why}");
    let text = kept.secret(&proxmox.token).await.map_err(named)?;
    let token = Token::parse(text.expose()).map_err(|error| named(error.to_string()))?;
    Ok(Access { endpoint, trust, token })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use castle_secrets::Secret;
    use castle_secrets::validate::{self, Kind, Origin};

    use super::*;

    /// Goal: the two readings of a token's shape do not disagree. Method: what one calls valid, the other takes.
    #[test]
    fn what_is_a_valid_token_is_taken_by_the_client() {
        const UUID: &str = "ca571e00-0000-4000-8000-000000000000";
        let shapes = [
            format!("castle@pve!t={UUID}"),
            format!("PVEAPIToken=castle@pve!t={UUID}\n"),
            format!("a@b@pve!t-1_x={UUID}\r\n"),
            format!(" castle@pve!t={UUID}"),
            format!("castle@pve!={UUID}"),
            format!("castle!t={UUID}"),
            format!("@pve!t={UUID}"),
            format!("cästle@pve!t={UUID}"),
            format!("cas\u{7f}tle@pve!t={UUID}"),
            "castle@pve!t=secret".to_owned(),
            "castle@pve!t".to_owned(),
            UUID.to_owned(),
        ];
        let mut valid = 0;
        for shape in shapes {
            let origin = Origin::new("platform.proxmox.token", "env:TOKEN");
            let secret = Secret::from(shape.clone());
            if validate::check(Kind::ProxmoxToken, &secret, &origin, SystemTime::UNIX_EPOCH).is_ok() {
                valid += 1;
                assert!(Token::parse(&shape).is_ok(), "{shape:?}");
            }
        }
        assert!(valid >= 3, "{valid}");
    }
}
