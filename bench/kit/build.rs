//! Notes the compiler's version, so that a result can say what built it.

use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version =
        Command::new(rustc).arg("--version").output().map(|out| out.stdout).unwrap_or_default();
    println!("cargo:rustc-env=BENCH_RUSTC={}", String::from_utf8_lossy(&version).trim());
    println!("cargo:rerun-if-changed=build.rs");
}
