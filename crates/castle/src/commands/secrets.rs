//! `castle secrets`: SOPS files, without sops.

mod at_hand;
mod decrypt;
mod edit;
mod encrypt;
mod get;
mod import_env;
mod rotate;
mod set;
mod updatekeys;
mod view;
mod workbench;

use castle_secrets::sops::{Problem, SopsError};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::doors::Doors;
use crate::output::{Exit, Printer};
use crate::stand::{self, Trouble};

/// Keep secrets in SOPS files: look, change, encrypt, without sops installed
///
/// Files are those of sops, in YAML, JSON, dotenv and binary form, told apart by their ending. They are encrypted for age keys (X25519)
/// and SSH keys (ed25519, rsa). Identities are looked for where sops looks: SOPS_AGE_KEY, SOPS_AGE_KEY_FILE, SOPS_AGE_KEY_CMD,
/// ~/.config/sops/age/keys.txt, SOPS_AGE_SSH_PRIVATE_KEY_FILE, SOPS_AGE_SSH_PRIVATE_KEY_CMD, ~/.ssh/id_ed25519 and ~/.ssh/id_rsa. No
/// value is ever an argument.
#[derive(Debug, Args)]
pub(crate) struct SecretsArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    View(view::ViewArgs),
    Edit(edit::EditArgs),
    Get(get::GetArgs),
    Set(set::SetArgs),
    Encrypt(encrypt::EncryptArgs),
    Decrypt(decrypt::DecryptArgs),
    Updatekeys(updatekeys::UpdatekeysArgs),
    Rotate(rotate::RotateArgs),
    ImportEnv(import_env::ImportEnvArgs),
}

pub(crate) async fn run(args: &SecretsArgs, doors: &Doors, printer: &mut Printer) -> Exit {
    let ended = match &args.what {
        What::View(args) => view::run(args, doors, printer),
        What::Edit(args) => edit::run(args, doors, printer).await,
        What::Get(args) => get::run(args, doors, printer),
        What::Set(args) => set::run(args, doors, printer),
        What::Encrypt(args) => encrypt::run(args, doors, printer),
        What::Decrypt(args) => decrypt::run(args, doors, printer),
        What::Updatekeys(args) => updatekeys::run(args, doors, printer),
        What::Rotate(args) => rotate::run(args, doors, printer),
        What::ImportEnv(args) => import_env::run(args, doors, printer),
    };
    stand::end("secrets", ended, printer)
}

impl From<SopsError> for Trouble {
    fn from(error: SopsError) -> Self {
        let text = error.to_string();
        match error.problem {
            Problem::Tampered { .. } | Problem::Mac | Problem::Clear { .. } => Self::Refused(text),
            Problem::Entropy(_) | Problem::NoKey { .. } => Self::Failed(text),
            _ => Self::Invalid(text),
        }
    }
}

impl From<Problem> for Trouble {
    fn from(problem: Problem) -> Self {
        Self::Invalid(problem.to_string())
    }
}

/// Objects for programs never hold a secret.
fn refuse_objects(printer: &Printer) -> Result<(), Trouble> {
    if printer.is_json() {
        return Err(Trouble::Invalid(
            "objects of --json never hold a secret: leave --json out, or use view --as json".to_owned(),
        ));
    }
    Ok(())
}

/// Says what was done.
fn done(printer: &mut Printer, action: &str, file: &std::path::Path, said: &str) -> Exit {
    printer.say(said);
    printer.result(&json!({"verb": "secrets", "action": action, "result": "done", "file": file}));
    Exit::Done
}
