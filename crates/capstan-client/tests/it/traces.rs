//! The machine's traces: events in, actions out, as JSON that the clients of other languages
//! replay.
//!
//! `UPDATE=1 cargo test -p capstan-client --test it traces::` writes the file again.

mod scenarios;
mod script;

use std::path::Path;

#[test]
fn the_machine_does_what_its_traces_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/machine/traces.jsonl");
    let traces: String =
        scenarios::all().iter().map(|script| format!("{}\n", script.run())).collect();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &traces).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    for (kept, now) in kept.lines().zip(traces.lines()) {
        assert_eq!(kept, now, "a trace has changed; UPDATE=1 writes it anew");
    }
    assert_eq!(kept.lines().count(), traces.lines().count());
}
