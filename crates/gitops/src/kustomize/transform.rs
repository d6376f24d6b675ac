//! What a kustomization changes about the objects it has.

use serde_json::Value;

use super::file::Kustomization;
use super::meta::Reach;
use super::piece::{self, Piece, is_built_in};
use super::select::Selector;
use super::{BuildError, Builder, Failure, Pile, images, json_patch, merge, meta, names, replace};
use crate::tree::joined;
use crate::yaml;

impl Builder<'_> {
    pub(super) fn transform(&mut self, own: &Kustomization, pile: &mut Pile) -> Result<(), BuildError> {
        for (line, patch) in own.list("patchesStrategicMerge") {
            self.merges(own, patch, line, pile)?;
        }
        for (line, patch) in own.list("patches") {
            self.patch(own, patch, line, pile)?;
        }
        let pieces = &mut pile.pieces;
        pieces.retain(|piece| !piece.value.is_null());
        let namespace = own.text("namespace");
        if !namespace.is_empty() {
            meta::namespace(pieces, namespace).map_err(|why| own.wrong(own.line("namespace"), &why))?;
        }
        names::rename(pieces, own.text("namePrefix"), own.text("nameSuffix"));
        for (line, label) in own.list("labels") {
            let reach = match (label["includeSelectors"] == true, label["includeTemplates"] == true) {
                (true, _) => Reach::Selectors,
                (false, true) => Reach::Templates,
                (false, false) => Reach::Metadata,
            };
            if label["fields"].is_array() {
                self.note(&own.file, line, "`fields` of `labels`");
            }
            meta::labels(pieces, &label["pairs"].as_object().cloned().unwrap_or_default(), reach);
        }
        if let Some(labels) = own.value["commonLabels"].as_object() {
            meta::labels(pieces, labels, Reach::Selectors);
        }
        if let Some(annotations) = own.value["commonAnnotations"].as_object() {
            meta::annotations(pieces, annotations);
        }
        for (line, patch) in own.list("patchesJson6902") {
            self.patch(own, patch, line, pile)?;
        }
        for (line, entry) in own.list("replicas") {
            let set = images::replicas(&mut pile.pieces, entry);
            self.after(set, pile, (&own.file, line))?;
        }
        for (line, image) in own.list("images") {
            images::image(&mut pile.pieces, image).map_err(|why| own.wrong(line, &why))?;
        }
        for (line, replacement) in own.list("replacements") {
            self.replacements(own, replacement, line, pile)?;
        }
        pile.pieces.retain(|piece| !piece.value.is_null());
        Ok(())
    }

    fn replacements(
        &mut self,
        own: &Kustomization,
        replacement: &Value,
        line: usize,
        pile: &mut Pile,
    ) -> Result<(), BuildError> {
        let Some(path) = replacement["path"].as_str() else {
            let replaced = replace::replace(&mut pile.pieces, replacement);
            return self.after(replaced, pile, (&own.file, line));
        };
        let file =
            joined(&own.folder, path).ok_or_else(|| own.wrong(line, "a path that leads out of the repository"))?;
        let documents = yaml::read(self.text(&file)?);
        for document in documents.map_err(|error| BuildError::new(&file, error.line, &error.to_string()))? {
            let all = match document.value {
                Value::Array(all) => all,
                one => vec![one],
            };
            for replacement in &all {
                let line = document.lines.of("");
                let replaced = replace::replace(&mut pile.pieces, replacement);
                self.after(replaced, pile, (&file, line))?;
            }
        }
        Ok(())
    }

    /// An entry of `patchesStrategicMerge`: a path, or the patch itself.
    fn merges(&mut self, own: &Kustomization, patch: &Value, line: usize, pile: &mut Pile) -> Result<(), BuildError> {
        let text = patch.as_str().ok_or_else(|| own.wrong(line, "a patch is a path, or a text"))?;
        if self.is_too_large(own, text, line) {
            return Ok(());
        }
        let file = joined(&own.folder, text).filter(|file| self.tree.file(file).is_some());
        let patches = match &file {
            Some(file) => piece::load(self.tree, file)?,
            None if text.contains('\n') || text.contains(": ") => piece::objects(text, &own.file, line)?,
            None => return Err(own.wrong(line, &format!("the patch {text} is not there"))),
        };
        self.merge(&patches, pile)
    }

    /// An entry of `patches` or `patchesJson6902`.
    fn patch(&mut self, own: &Kustomization, entry: &Value, line: usize, pile: &mut Pile) -> Result<(), BuildError> {
        let selector = entry.get("target").filter(|target| !target.is_null());
        let selector = selector.map(Selector::read).transpose().map_err(|why| own.wrong(line, &why))?;
        let (text, file, first_line) = match (entry["patch"].as_str(), entry["path"].as_str()) {
            (Some(patch), None) => (patch, own.file.clone(), line),
            (None, Some(path)) if self.is_too_large(own, path, line) => return Ok(()),
            (None, Some(path)) => {
                let file = joined(&own.folder, path).filter(|file| self.tree.file(file).is_some());
                let file = file.ok_or_else(|| own.wrong(line, &format!("the patch {path} is not there")))?;
                (self.text(&file)?, file, 1)
            }
            _ => return Err(own.wrong(line, "a patch has either `path` or `patch`")),
        };
        let documents = yaml::read(text).map_err(|error| {
            BuildError::new(&file, first_line + error.line - 1, &format!("cannot be read: {error}"))
        })?;
        let wrong = |what: &str| BuildError::new(&file, first_line, what);
        match documents.as_slice() {
            [operations] if operations.value.is_array() => {
                let selector = selector.ok_or_else(|| own.wrong(line, "a JSON patch needs a target"))?;
                for piece in pile.pieces.iter_mut().filter(|piece| selector.selects(piece)) {
                    piece.remember();
                    json_patch::apply(&mut piece.value, &operations.value).map_err(|why| wrong(&why))?;
                }
                Ok(())
            }
            [patch] if selector.is_some() => {
                let Some(selector) = selector else { return Ok(()) };
                let options = &entry["options"];
                for piece in pile.pieces.iter_mut().filter(|piece| selector.selects(piece)) {
                    merge_into(piece, &patch.value, options).map_err(|why| wrong(&why))?;
                }
                Ok(())
            }
            _ if selector.is_some() => Err(wrong("several patches cannot share one target")),
            _ => {
                let patches = piece::objects(text, &file, first_line)?;
                self.merge(&patches, pile)
            }
        }
    }

    /// Merges each patch into the object it names.
    fn merge(&mut self, patches: &[Piece], pile: &mut Pile) -> Result<(), BuildError> {
        patches.iter().try_for_each(|patch| {
            let merged = merge_by_name(patch, &mut pile.pieces);
            self.after(merged, pile, (&patch.file, patch.lines.of("")))
        })
    }

    /// Whether a patch is in a file that was not read for its size.
    fn is_too_large(&mut self, own: &Kustomization, path: &str, line: usize) -> bool {
        let is_too_large = joined(&own.folder, path).is_some_and(|file| self.tree.is_oversized(&file));
        if is_too_large {
            self.note(&own.file, line, &format!("{path}, which is larger than castle reads"));
        }
        is_too_large
    }
}

/// Merges a patch into the object it names.
fn merge_by_name(patch: &Piece, pieces: &mut [Piece]) -> Result<(), Failure> {
    let id = patch.id();
    let place = if id.namespace.is_empty() { String::new() } else { format!(" in namespace {}", id.namespace) };
    let what = || format!("a patch for {} {}{place} ({})", id.kind, id.name, id.api_version);
    let mut meant = pieces.iter_mut().filter(|piece| !piece.value.is_null() && piece.was_ever(&id));
    match (meant.next(), meant.next()) {
        (Some(piece), None) => Ok(merge_into(piece, &patch.value, &Value::Null)?),
        (None, _) => Err(Failure::Nobody(format!("{}, and no object is it", what()))),
        (Some(_), Some(_)) => Err(Failure::Wrong(format!("{}, and several objects are it", what()))),
    }
}

/// Merges a patch into an object, which stays who it is. An object that the patch deletes becomes nothing.
fn merge_into(piece: &mut Piece, patch: &Value, options: &Value) -> Result<(), String> {
    let id = piece.id();
    let may = |what: &str| options[what] == true;
    if may("allowNameChange") || may("allowKindChange") {
        piece.remember();
    }
    let merged = merge::merge(&piece.value, patch, is_built_in(id.group()))?.unwrap_or_default();
    piece.value = merged;
    let Value::Object(entries) = &mut piece.value else { return Ok(()) };
    if !may("allowKindChange") {
        entries.insert("kind".to_owned(), id.kind.into());
        entries.insert("apiVersion".to_owned(), id.api_version.into());
    }
    if !may("allowNameChange") {
        piece.rename(&id.name);
    }
    if id.namespace.is_empty() {
        if let Some(metadata) = piece.value["metadata"].as_object_mut() {
            metadata.shift_remove("namespace");
        }
    } else {
        piece.set("namespace", &id.namespace);
    }
    Ok(())
}
