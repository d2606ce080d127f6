//! Counts the values of a JSON body before it is parsed, because parsed values take far more memory
//! than text.

use capstan_protocol::{Fault, FaultKind};

/// Refuses a body with too many JSON values. A body that is not JSON is refused later, by the
/// parser.
pub fn check(body: &[u8], most: usize) -> Result<(), Fault> {
    if count_up_to(body, most) <= most {
        return Ok(());
    }
    Err(Fault::new(FaultKind::PayloadTooLarge)
        .with_message(format!("The request holds more than {most} JSON values.")))
}

/// Counts values, and stops at `most + 1`. Each object or array counts as one value, and each comma
/// separates two.
fn count_up_to(body: &[u8], most: usize) -> usize {
    let (mut values, mut is_text, mut is_escaped) = (1_usize, false, false);
    for byte in body {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'{' | b'[' | b',' if !is_text => {
                values += 1;
                if values > most {
                    break;
                }
            }
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_and_what_stands_in_text_is_none() {
        for (text, count) in [
            ("1", 1),
            (r#""a,b{[\",[""#, 1),
            (r#"{"a":{}}"#, 3),
            (r#"[{"a":{}},{"a":{}}]"#, 7),
            (r#"{"a":[1,2,3],"b":"\\"}"#, 6),
        ] {
            assert_eq!(count_up_to(text.as_bytes(), 1000), count, "{text}");
        }
        let many = format!("[{}1]", "1,".repeat(1000));
        assert_eq!(check(many.as_bytes(), 1001).unwrap_err().kind(), FaultKind::PayloadTooLarge);
        assert!(check(many.as_bytes(), 1002).is_ok());
    }
}
