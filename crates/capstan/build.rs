//! Embeds the playground, if `npm run build` has left one in `web/playground/dist`. Without it the binary builds as well.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/playground");
    let dist = web.join("dist");
    // A path that does not exist counts as changed each time; its parent does not.
    let watched = if dist.exists() { &dist } else { &web };
    println!("cargo:rerun-if-changed={}", watched.display());
    let mut assets = String::new();
    for (path, file) in files(&dist)? {
        let _ = writeln!(assets, "    Asset {{ path: {path:?}, bytes: include_bytes!({file:?}) }},");
    }
    // What `capstan --version` tells.
    println!("cargo:rustc-env=CAPSTAN_PLATFORM={}", env::var("TARGET").unwrap_or_default());
    let source = format!("/// The files of the page.\npub(super) static ASSETS: &[Asset] = &[\n{assets}];\n");
    let out = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    fs::write(out.join("page.rs"), source)
}

/// `index.html` and everything in `assets/`, by their paths in the page.
fn files(dist: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let index = dist.join("index.html");
    if !index.exists() {
        return Ok(Vec::new());
    }
    let mut found = vec![("index.html".to_owned(), index.canonicalize()?)];
    for entry in fs::read_dir(dist.join("assets"))? {
        let entry = entry?;
        found.push((format!("assets/{}", entry.file_name().to_string_lossy()), entry.path().canonicalize()?));
    }
    found.sort();
    Ok(found)
}
