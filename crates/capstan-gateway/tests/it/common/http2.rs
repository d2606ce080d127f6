//! HTTP/2 by hand: what no well-behaved client sends. Keys are sent if there are any.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::indexing_slicing)]

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// What a connection begins with; settings are pairs of a number and a value.
pub fn opening(settings: &[(u16, u32)]) -> Vec<u8> {
    let settings: Vec<u8> = settings
        .iter()
        .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
        .collect();
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &settings)].concat()
}

/// A header as it is, by the number of its name or by the name itself.
fn header(name: Result<u8, &str>, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let name = name.map_or_else(|name| [vec![0], text(name)].concat(), |number| vec![number]);
    [name, text(value)].concat()
}

fn head(method: u8, path: &str, key: &str) -> Vec<u8> {
    let about = [vec![method, 0x86], header(Ok(4), path), header(Ok(1), "localhost")].concat();
    if key.is_empty() {
        return about;
    }
    [about, header(Err("authorization"), &format!("Bearer {key}"))].concat()
}

/// A connection with a POST on it, whose body is still to come.
pub fn post(path: &str, key: &str) -> Vec<u8> {
    let head = [head(0x83, path, key), header(Err("content-type"), "application/json")].concat();
    [opening(&[]), frame(HEADERS, END_HEADERS, 1, &head)].concat()
}

/// A piece of a body.
pub fn data(stream: u32, size: usize) -> Vec<u8> {
    frame(DATA, 0, stream, &vec![b' '; size])
}

/// A connection with so many GETs on it, none of which gets a window.
pub fn gets(path: &str, key: &str, count: u32) -> Vec<u8> {
    const INITIAL_WINDOW: u16 = 4;
    let one = |n| frame(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, &head(0x82, path, key));
    [opening(&[(INITIAL_WINDOW, 0)]), (0..count).flat_map(one).collect()].concat()
}

/// What came, frame by frame: kind, stream and payload. The last may be cut off.
pub fn read(mut bytes: &[u8]) -> Vec<(u8, u32, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let Some((payload, after)) = rest.split_at_checked(length) else { break };
        frames.push((head[3], stream, payload.to_vec()));
        bytes = after;
    }
    frames
}

/// Of the answers that began, how many are 200, and how many are something else.
pub fn statuses(bytes: &[u8]) -> (usize, usize) {
    /// `:status: 200`, by its number.
    const OK: u8 = 0x88;
    let heads: Vec<_> = read(bytes).into_iter().filter(|(kind, ..)| *kind == HEADERS).collect();
    let ok = heads.iter().filter(|(.., payload)| payload.first() == Some(&OK)).count();
    (ok, heads.len() - ok)
}
