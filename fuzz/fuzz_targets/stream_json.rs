//! Any lines of stream-json come to an outcome, and a frame that is read reads the same when it is
//! written again.
#![no_main]

use capstan_protocol::assistant::{Assembler, Frame, Line};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let mut assembler = Assembler::new();
    for line in text.split('\n') {
        let Ok(Line::Object(object)) = Line::decode(line) else { continue };
        let written = serde_json::to_string(&object).expect("a map of values can be written");
        assert_eq!(Line::decode(&written), Ok(Line::Object(object.clone())));
        if let Ok(frame) = Frame::from_object(&object) {
            assert_eq!(frame.class().is_none(), matches!(frame, Frame::Unknown(_)));
            assembler.push(&frame);
        }
    }
    let outcome = assembler.finish();
    let has_failed = outcome.result.as_ref().is_some_and(|result| result.is_error);
    assert!(has_failed || outcome.error().is_none());
});
