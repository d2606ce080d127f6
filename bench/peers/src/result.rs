//! Results, a part at a time: a part that is measured anew replaces its predecessor, and says when
//! the machine was how busy.

use std::io;
use std::path::{Path, PathBuf};

use capstan_bench_kit::environment;
use serde_json::{Value, json};

/// `bench/peers`.
pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn environment() -> Value {
    environment::describe(&["axum", "tokio"])
}

/// Keeps the result of a part, with the versions of all that was measured.
pub fn save(part: &str, environment: Value, mut outcome: Value) -> io::Result<()> {
    let kept = std::fs::read(path()).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let mut results: Value = kept.unwrap_or_else(|| json!({ "bench": "peers", "parts": {} }));
    outcome["environment"] = environment;
    results["versions"] = versions()?;
    results["parts"][part] = outcome;
    environment::save("peers", &results)
}

fn path() -> PathBuf {
    here().with_file_name("results").join("peers.json")
}

/// What the manifests ask for.
fn versions() -> io::Result<Value> {
    let read = |name: &str| std::fs::read_to_string(here().join(name));
    let mut versions: Value =
        serde_json::from_str::<Value>(&read("node/package.json")?)?["dependencies"].take();
    let lines = format!(
        "{}\n{}\n{}",
        read("python/fastapi.txt")?,
        read("python/litellm.txt")?,
        read("rust.txt")?
    );
    for line in lines.lines() {
        if let Some((name, version)) = line.split_once("==").or_else(|| line.split_once(' ')) {
            versions[name] = version.into();
        }
    }
    Ok(versions)
}
