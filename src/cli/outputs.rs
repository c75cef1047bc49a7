//! What a job kept, brought home.

use std::path::{Component, Path, PathBuf};

use super::{Context, Fault, job_root};
use crate::jobdir::{JobDir, layout};
use crate::wire;

/// Where outputs come home to, below the current folder: `lamp-outputs/<job>/`. Never packed.
pub const FOLDER: &str = "lamp-outputs";

/// Fetches all outputs of a job into a folder; says how many on the way. Nothing kept is fine.
///
/// # Errors
/// The job root does not answer, or the folder cannot be written.
pub async fn fetch(context: &Context, dir: &JobDir, into: Option<&Path>) -> Result<Option<PathBuf>, Fault> {
    let prefix = layout::outputs(dir.job());
    let fault = |error| job_root::record_fault(&crate::jobdir::JobDirError::Store(error));
    let listed = dir.store().list(&prefix).await.map_err(fault)?;
    if listed.is_empty() {
        return Ok(None);
    }
    let folder = into.map_or_else(|| context.current_dir.join(FOLDER).join(dir.job().as_str()), |into| context.current_dir.join(into));
    let (mut files, mut bytes) = (0, 0);
    for object in &listed {
        let Some(relative) = object.key.strip_prefix(&prefix).map(Path::new) else { continue };
        // A key of a strange machine must not lead out of the folder.
        if !relative.components().all(|part| matches!(part, Component::Normal(_))) {
            context.printer.warn(format!("output `{}` was left where it is: its name leads out of the folder", object.key));
            continue;
        }
        let path = folder.join(relative);
        if let Some((size, _)) = dir.store().get_file(&object.key, &path).await.map_err(fault)? {
            files += 1;
            bytes += size;
        }
    }
    let shown = crate::config::shown(&folder, &context.current_dir);
    context.printer.note(format!("outputs: {files} files, {} in {shown}", wire::show_bytes(bytes)));
    Ok(Some(folder))
}
