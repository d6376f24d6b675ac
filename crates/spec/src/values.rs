//! The single values of the file: sizes, addresses, ids, versions, references.

mod ids;
mod net;
mod numbers;
mod places;
mod reference;
mod version;

pub use ids::{
    ExtensionName, KernelArg, LabelKey, LabelValue, Line, ModuleName, Name, RegistryName, Taint, TimeServer, Vmid,
    VmidRange, Word,
};
pub use net::{AddressRange, Mac};
pub(crate) use net::{step, steps_between};
pub use numbers::{Bounded, Size, Time};
pub use places::{AgeRecipient, Endpoint, Fingerprint, Region, Sha256, WebAddress};
pub use reference::SecretReference;
pub use version::{ComponentVersion, Contract, KubernetesVersion, TalosVersion};

#[cfg(test)]
pub(crate) mod tests {
    use crate::shape::Scalar;

    /// Reads each text and shows it again, or says why it cannot be read.
    pub(crate) fn read_all<T: Scalar>(texts: &[&str]) -> String {
        let line = |text: &&str| match T::parse(text) {
            Ok(value) => format!("{text:?} is {}\n", value.show()),
            Err(reason) => format!("{text:?}: {reason}\n"),
        };
        texts.iter().map(line).collect()
    }
}
