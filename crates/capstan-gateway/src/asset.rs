//! The files of the page that the gateway serves.

/// A file of the web page. As bundlers do it, every file name except `*.html` contains a hash of
/// the content.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    /// The file's path: `index.html` is served at `/`, `console.html` at `/console`, and
    /// `assets/<name>` under its own path. If a file `<path>.gz` exists, the gateway sends it to
    /// clients that accept gzip.
    pub path: &'static str,
    /// The file's content.
    pub bytes: &'static [u8],
}
