//! What castle wants of a vault, in the words of Infisical.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use castle_http::Method;
use castle_seams::BoxFuture;
use serde_json::{Value, json};

use super::{Client, LARGEST_BODY, Request, Trouble, model, wire};
use crate::Secret;
use crate::redact;
use crate::vault::{Account, Entry, Folder, Vault, VaultError, VaultErrorKind};

impl Vault for Client {
    fn whoami(&self) -> BoxFuture<'_, Result<Account, VaultError>> {
        Box::pin(async move {
            self.project_id().await?;
            let Self { project, environment, .. } = self;
            Ok(Account { place: format!("{}, project {project}, environment {environment}", self.name()) })
        })
    }

    fn list<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<Folder>, VaultError>> {
        Box::pin(async move {
            let subject = format!("folder {path}");
            let Some(answer) = self.look(&subject, None, path).await? else { return Ok(None) };
            let request = Request { subject: &subject, method: Method::GET, target: String::new(), body: None };
            model::folder(&answer, path).map(Some).ok_or_else(|| self.unreadable(&request))
        })
    }

    fn get<'a>(&'a self, path: &'a str, name: &'a str) -> BoxFuture<'a, Result<Option<Entry>, VaultError>> {
        Box::pin(async move {
            wire::check_name(name)?;
            let subject = format!("{name} in {path}");
            let Some(answer) = self.look(&subject, Some(name), path).await? else { return Ok(None) };
            let request = Request { subject: &subject, method: Method::GET, target: String::new(), body: None };
            let (_, entry) = model::entry(&answer["secret"]).ok_or_else(|| self.unreadable(&request))?;
            Ok(Some(entry))
        })
    }

    fn upsert<'a>(
        &'a self,
        path: &'a str,
        secrets: &'a BTreeMap<String, Secret>,
        note: &'a str,
    ) -> BoxFuture<'a, Result<(), VaultError>> {
        Box::pin(async move {
            wire::check_path(path)?;
            for (name, secret) in secrets {
                wire::check_name(name)?;
                // Should the server repeat what it was told, nobody gets to see it.
                redact::register(secret.expose());
            }
            let head = json!({"projectId": self.project_id().await?, "environment": self.environment,
                "secretPath": path, "mode": "upsert"});
            for body in wire::bodies(&head, secrets, note, LARGEST_BODY)
                .map_err(|error| VaultError { subject: format!("{}, {}", self.name(), error.subject), ..error })?
            {
                self.change(path, Method::PATCH, body).await?;
            }
            Ok(())
        })
    }

    fn ensure_folder<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<(), VaultError>> {
        Box::pin(async move {
            wire::check_path(path)?;
            let Some((parent, name)) = path.rsplit_once('/').filter(|(_, name)| !name.is_empty()) else {
                return Ok(());
            };
            let parent = if parent.is_empty() { "/" } else { parent };
            let body = json!({"projectId": self.project_id().await?, "environment": self.environment,
                "name": name, "path": parent});
            let subject = format!("folder {path}");
            let target = "/v2/folders".to_owned();
            let request = Request { subject: &subject, method: Method::POST, target, body: Some(body.to_string()) };
            match self.ask(&request).await {
                Err(Trouble { error, .. })
                    if error.kind == VaultErrorKind::Invalid && error.evidence.contains("already exists") =>
                {
                    Ok(())
                }
                Err(trouble) => Err(trouble.error),
                Ok(_) => Ok(()),
            }
        })
    }

    fn remove<'a>(&'a self, path: &'a str, names: &'a BTreeSet<String>) -> BoxFuture<'a, Result<(), VaultError>> {
        Box::pin(async move {
            wire::check_path(path)?;
            if names.is_empty() {
                return Ok(());
            }
            let secrets: Vec<Value> = names.iter().map(|name| json!({"secretKey": name})).collect();
            let body = json!({"projectId": self.project_id().await?, "environment": self.environment,
                "secretPath": path, "secrets": secrets});
            self.change(path, Method::DELETE, body.to_string()).await
        })
    }

    fn kept<'a>(&self, value: &'a str) -> Cow<'a, str> {
        model::kept(value)
    }
}
