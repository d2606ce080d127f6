//! The files of the page that the gateway serves.

/// A file of the page. Names of all but its `.html` change with their content, as bundlers do it.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    /// Its place: `index.html`, which is served at `/`, `console.html`, which is served at
    /// `/console`, or `assets/<name>`. A twin of the same name and `.gz` is sent in its place to
    /// whoever takes it.
    pub path: &'static str,
    /// What it holds.
    pub bytes: &'static [u8],
}
