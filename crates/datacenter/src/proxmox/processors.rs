//! The processors that a guest can have.

use super::api::{self, Version};

/// The models of both releases.
const MODELS: &str = "\
    486 pentium pentium2 pentium3 coreduo core2duo Conroe Penryn Nehalem Nehalem-IBRS Westmere Westmere-IBRS \
    SandyBridge SandyBridge-IBRS IvyBridge IvyBridge-IBRS Haswell Haswell-IBRS Haswell-noTSX Haswell-noTSX-IBRS \
    Broadwell Broadwell-IBRS Broadwell-noTSX Broadwell-noTSX-IBRS Skylake-Client Skylake-Client-IBRS \
    Skylake-Client-noTSX-IBRS Skylake-Client-v4 Skylake-Server Skylake-Server-IBRS Skylake-Server-noTSX-IBRS \
    Skylake-Server-v4 Skylake-Server-v5 Cascadelake-Server Cascadelake-Server-v2 Cascadelake-Server-noTSX \
    Cascadelake-Server-v4 Cascadelake-Server-v5 Cooperlake Cooperlake-v2 KnightsMill Icelake-Client \
    Icelake-Client-noTSX Icelake-Server Icelake-Server-noTSX Icelake-Server-v3 Icelake-Server-v4 \
    Icelake-Server-v5 Icelake-Server-v6 SapphireRapids SapphireRapids-v2 GraniteRapids athlon phenom Opteron_G1 \
    Opteron_G2 Opteron_G3 Opteron_G4 Opteron_G5 EPYC EPYC-IBPB EPYC-v3 EPYC-v4 EPYC-Rome EPYC-Rome-v2 \
    EPYC-Rome-v3 EPYC-Rome-v4 EPYC-Milan EPYC-Milan-v2 EPYC-Genoa kvm32 kvm64 qemu32 qemu64 max host x86-64-v2 \
    x86-64-v2-AES x86-64-v3 x86-64-v4 a64fx cortex-a35 cortex-a53 cortex-a55 cortex-a57 cortex-a710 cortex-a72 \
    cortex-a76 neoverse-n1 neoverse-n2 neoverse-v1";

/// Those that the newer release knows besides.
const NEWER: &str = "\
    Icelake-Server-v7 SapphireRapids-v3 SapphireRapids-v4 GraniteRapids-v2 GraniteRapids-v3 SierraForest \
    SierraForest-v2 SierraForest-v3 ClearwaterForest EPYC-v5 EPYC-Rome-v5 EPYC-Milan-v3 EPYC-Genoa-v2 \
    EPYC-Turin";

/// Refuses a processor that there is none of. The vendor does so while it reads the parameter.
pub(super) fn check(version: Version, value: &str) -> Result<(), String> {
    let Ok(parts) = api::properties(version, "cpu", value) else { return Ok(()) };
    let Some(model) = parts.get("cputype") else { return Ok(()) };
    if let Some(custom) = model.strip_prefix("custom-") {
        return Err(format!("invalid format - Custom cputype '{custom}' not found\n"));
    }
    let newer = if version == Version::Nine { NEWER } else { "" };
    if !MODELS.split(' ').chain(newer.split(' ')).any(|known| known == model) {
        let why = format!("Built-in cputype '{model}' is not defined (missing 'custom-' prefix?)");
        return Err(format!("invalid format - {why}\n"));
    }
    if parts.contains_key("reported-model") {
        return Err("invalid format - Property 'reported-model' not allowed in VM-specific CPU config.\n".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_one_that_there_is() {
        assert_eq!(check(Version::Nine, "x86-64-v2-AES,flags=+aes"), Ok(()));
        assert_eq!((check(Version::Nine, "EPYC-Turin"), check(Version::Eight, "EPYC-Turin").is_err()), (Ok(()), true));
        let nonsense = "invalid format - Built-in cputype 'nonsense' is not defined (missing 'custom-' prefix?)\n";
        assert_eq!(check(Version::Eight, "nonsense"), Err(nonsense.to_owned()));
    }
}
