//! The faces of this gateway.

use capstan_faces::FaceSettings;

use crate::face::Faces;

/// All faces. The crate's own tests add one.
pub(crate) fn all(settings: &FaceSettings) -> Faces {
    let faces = capstan_faces::all(settings);
    #[cfg(test)]
    let faces = faces.into_iter().chain([crate::numbers::face()]).collect::<Vec<_>>();
    faces.into()
}
