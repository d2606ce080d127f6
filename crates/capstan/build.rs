//! Embeds the playground and the console, with a compressed twin of each file, if `npm run build`
//! has left one in `web/playground/dist`. Without it the binary builds as well.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> io::Result<()> {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/playground");
    let dist = web.join("dist");
    // A path that does not exist counts as changed each time; its parent does not.
    let watched = if dist.exists() { &dist } else { &web };
    println!("cargo:rerun-if-changed={}", watched.display());
    let out = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let mut assets = String::new();
    for (path, file) in files(&dist)? {
        let _ =
            writeln!(assets, "    Asset {{ path: {path:?}, bytes: include_bytes!({file:?}) }},");
        if let Some(twin) = twin(&path, &file, &out)? {
            let path = format!("{path}.gz");
            let _ = writeln!(
                assets,
                "    Asset {{ path: {path:?}, bytes: include_bytes!({twin:?}) }},"
            );
        }
    }
    // The platform for `capstan --version`.
    println!("cargo:rustc-env=CAPSTAN_PLATFORM={}", env::var("TARGET").unwrap_or_default());
    let source = format!(
        "/// The files of the page.\npub(super) static ASSETS: &[Asset] = &[\n{assets}];\n"
    );
    fs::write(out.join("page.rs"), source)
}

/// The file compressed, if that is worth it.
fn twin(path: &str, file: &Path, out: &Path) -> io::Result<Option<PathBuf>> {
    let is_text =
        ["html", "js", "css", "svg"].iter().any(|kind| path.ends_with(&format!(".{kind}")));
    if !is_text {
        return Ok(None);
    }
    let bytes = fs::read(file)?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&bytes)?;
    let compressed = encoder.finish()?;
    let twin = out.join(format!("{}.gz", path.replace('/', "_")));
    fs::write(&twin, &compressed)?;
    Ok(Some(twin).filter(|_| compressed.len() < bytes.len()))
}

/// The pages and everything in `assets/`, by their paths in the page.
fn files(dist: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for page in ["index.html", "console.html"] {
        let file = dist.join(page);
        if file.exists() {
            found.push((page.to_owned(), file.canonicalize()?));
        }
    }
    if found.is_empty() {
        return Ok(found);
    }
    for entry in fs::read_dir(dist.join("assets"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Twins are made here.
        if !name.ends_with(".gz") {
            found.push((format!("assets/{name}"), entry.path().canonicalize()?));
        }
    }
    found.sort();
    Ok(found)
}
