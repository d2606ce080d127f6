//! An AG-UI event or run input that is read survives writing, and so does the failure that a
//! RUN_ERROR carries.
#![no_main]

use std::fmt::Debug;

use capstan_protocol::agui::{AguiEvent, RunAgentInput, RunError, RunErrorForm};
use capstan_protocol::decode;
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fuzz_target!(|bytes: &[u8]| {
    if let Some(event) = read::<AguiEvent>(bytes) {
        check_run_error(&event);
    }
    read::<RunAgentInput>(bytes);
});

/// What plain serde reads must survive writing; what the strict reader takes, plain serde takes
/// alike.
fn read<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let plain = serde_json::from_slice::<T>(bytes).ok();
    let strict = decode::from_slice::<T>(bytes).ok();
    assert!(strict.is_none() || strict == plain);
    let written = serde_json::to_string(plain.as_ref()?).expect("what is read can be written");
    assert_eq!(decode::from_str::<T>(&written).ok(), plain);
    plain
}

fn check_run_error(event: &AguiEvent) {
    let Some(error) = RunError::from_event(event) else { return };
    for form in [RunErrorForm::Story, RunErrorForm::MetadataOnly] {
        assert_eq!(
            RunError::from_event(&error.to_event(form, event.timestamp)).as_ref(),
            Some(&error)
        );
    }
}
