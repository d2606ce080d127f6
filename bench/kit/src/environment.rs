//! What a result depends on beside the code: compiler, processor, versions of the crates.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::rounds::is_short;

pub fn describe(crates: &[&str]) -> Value {
    let versions: Map<String, Value> =
        crates.iter().map(|name| ((*name).to_owned(), locked_version(name).into())).collect();
    json!({ "rustc": env!("BENCH_RUSTC"), "cpu": cpu(), "cores": cores(), "kernel": kernel(),
    "load": load(), "crates": versions })
}

/// Keeps a result under `bench/results`, unless it is none.
pub fn save(bench: &str, result: &Value) -> std::io::Result<()> {
    if is_short() {
        return Ok(());
    }
    let path = path(bench);
    std::fs::create_dir_all(path.with_file_name(""))?;
    std::fs::write(path, format!("{result:#}\n"))
}

/// Keeps a part of a result beside the other parts, with the machine as it was when the part was
/// measured.
pub fn save_part(
    bench: &str,
    part: &str,
    environment: Value,
    mut result: Value,
) -> std::io::Result<()> {
    let kept = std::fs::read(path(bench)).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let mut all = kept.unwrap_or_else(|| json!({ "bench": bench, "parts": {} }));
    result["environment"] = environment;
    all["parts"][part] = result;
    save(bench, &all)
}

fn path(bench: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("results").join(format!("{bench}.json"))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// How busy the machine was in the last minute: figures of a busy one are rough.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned())
}

/// The version in our lock file; the line after the name.
fn locked_version(name: &str) -> &'static str {
    let mut lines = include_str!("../../Cargo.lock").lines();
    let wanted = format!("name = \"{name}\"");
    lines.by_ref().find(|line| *line == wanted);
    lines
        .next()
        .and_then(|line| line.strip_prefix("version = "))
        .map_or("?", |v| v.trim_matches('"'))
}
