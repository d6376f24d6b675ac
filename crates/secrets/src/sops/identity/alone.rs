//! Identities for what is sealed with age alone: castle's own records.

use zeroize::Zeroizing;

use super::{KEY_COMMAND, Keyring, Locked};
use crate::Secret;

impl Keyring<'_> {
    /// The words of all age identities, to seal for. Whoever has some is not asked for the passphrase of more, and no command is run for
    /// more. Identities add up: a place that cannot be read is among the [hindrances](Self::hindrances), and takes no other away.
    pub fn own(&mut self, recipients: &[String]) -> Vec<Secret> {
        if self.words().is_empty() {
            let locked = std::mem::take(&mut self.found.locked).into_iter();
            let (files, left): (Vec<_>, Vec<_>) = locked.partition(|locked| matches!(locked, Locked::File { .. }));
            self.found.locked = left;
            for locked in files {
                self.unlock(locked);
            }
        }
        // A command is told whose identity is wanted; who seals for nobody in particular wants any.
        let anyone = [String::new()];
        let command = self.found.commands.iter().find(|(name, _)| *name == KEY_COMMAND).cloned();
        for recipient in if recipients.is_empty() { &anyone } else { recipients } {
            if let (true, Some(command)) = (self.words().is_empty(), command.clone()) {
                self.ask_command(command, recipient);
            }
        }
        self.words()
    }

    /// What was in the way of identities of age.
    #[must_use]
    pub fn hindrances(&self) -> Vec<String> {
        let of_age = |remark: &&String| !self.found.about_ssh.contains(*remark);
        self.found.remarks.iter().filter(of_age).cloned().collect()
    }

    fn words(&self) -> Vec<Secret> {
        let own = self.found.ready.iter().filter(|identity| !identity.is_spare);
        own.filter_map(|identity| identity.words.clone()).collect()
    }

    /// The public keys of SSH whose private halves are at hand, locked or not.
    #[must_use]
    pub fn ssh_publics(&self) -> Vec<String> {
        let ready = self.found.ready.iter().filter(|identity| identity.words.is_none());
        let locked = self.found.locked.iter().filter_map(|locked| match locked {
            Locked::Ssh { public, .. } => public.clone(),
            Locked::File { .. } => None,
        });
        ready.filter_map(|identity| identity.public.clone()).chain(locked).collect()
    }

    /// What is in an age file, if an identity opens it: any that is at hand, then what a passphrase unlocks, then what commands print for
    /// `recipients`.
    pub fn open(&mut self, file: &[u8], recipients: &[String]) -> Option<Zeroizing<Vec<u8>>> {
        let recipients: Vec<&str> =
            if recipients.is_empty() { vec![""] } else { recipients.iter().map(String::as_str).collect() };
        // The head of an age file is text: a line for everyone who may open it, then three dashes.
        let mut lines = file.split(|&byte| byte == b'\n').take_while(|line| !line.starts_with(b"---"));
        let wants_ssh = lines.any(|line| line.starts_with(b"-> ssh-"));
        self.open_one(&[file], &recipients, wants_ssh)
    }

    /// Every place that was looked at, and what was there: never an identity itself.
    #[must_use]
    pub fn places(&self) -> Vec<String> {
        let (tried, remarks) = (self.tried(), self.found.remarks.clone());
        tried.into_iter().chain(remarks).chain(self.in_vain()).collect()
    }

    /// The places where nothing was.
    #[must_use]
    pub fn in_vain(&self) -> Vec<String> {
        let absent = (!self.found.absent.is_empty()).then(|| format!("not there: {}", self.found.absent.join(", ")));
        let unset = (!self.found.unset.is_empty()).then(|| format!("not set: {}", self.found.unset.join(", ")));
        absent.into_iter().chain(unset).collect()
    }

    /// What was in the way of identities that were looked at.
    pub(in crate::sops) fn remarks(&self) -> &[String] {
        &self.found.remarks
    }
}
