//! Which names of files say that a workspace is a project of source code.

/// Markers that are looked at (per evaluation).
pub const MARKERS_MAX: usize = 32;

/// Bytes of a marker.
pub const MARKER_BYTES_MAX: usize = 128;

const NAMES: [&str; 10] = [
    "go.mod",
    "go.work",
    "cargo.toml",
    "pyproject.toml",
    "package.json",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "composer.json",
    "gemfile",
];

const ENDINGS: [&str; 9] = [
    ".sln",
    ".slnx",
    ".csproj",
    ".fsproj",
    ".vbproj",
    ".vcxproj",
    ".proj",
    ".xcodeproj",
    ".xcworkspace",
];

/// Whether one of the first [`MARKERS_MAX`] markers is a project's. What is no base name is passed over;
/// the folder of a version control is not decisive.
#[must_use]
pub fn has_project_marker<'a>(markers: impl IntoIterator<Item = &'a str>) -> bool {
    markers.into_iter().take(MARKERS_MAX).any(is_project_marker)
}

/// Whether this is the base name of a project's file, in any letter case.
#[must_use]
pub fn is_project_marker(marker: &str) -> bool {
    let is_base_name = (1..=MARKER_BYTES_MAX).contains(&marker.len())
        && !marker.contains(['/', '\\'])
        && !marker.chars().any(char::is_control);
    let ends = |ending: &&str| {
        let split = marker.len().checked_sub(ending.len()).filter(|at| *at > 0);
        let tail = split.and_then(|at| marker.get(at..));
        tail.is_some_and(|tail| tail.eq_ignore_ascii_case(ending))
    };
    let is = |name: &&str| marker.eq_ignore_ascii_case(name);
    is_base_name && (NAMES.iter().any(is) || ENDINGS.iter().any(ends))
}
