//! The server of the client bench: the same bytes to whoever asks, as fast as the socket takes
//! them.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use capstan_protocol::{Close, Payload, StreamPacket, Timestamp, sse};
use uuid::Uuid;

pub const ROLE: &str = "client-server";

pub fn run(args: &[String]) -> io::Result<()> {
    let packets: u64 = args.first().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let answer = Arc::new(answer(packets));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("http://{}", listener.local_addr()?);
    for socket in listener.incoming() {
        let (mut socket, answer) = (socket?, Arc::clone(&answer));
        std::thread::spawn(move || drop(respond(&mut socket, &answer)));
    }
    Ok(())
}

/// Tokens as a model says them, and CLOSE.
fn answer(packets: u64) -> Vec<u8> {
    let mut body = Vec::new();
    for seq in 1..=packets {
        let payload = if seq == packets {
            Payload::Close(Close::Reason(Close::COMPLETED.into()))
        } else {
            Payload::Delta(format!(" token{}", seq % 1000))
        };
        let packet = StreamPacket {
            stream_id: Uuid::from_u128(7),
            seq,
            t: Timestamp::from_micros(0),
            payload,
        };
        sse::encode_packet(&packet, &mut body);
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n";
    let mut answer = format!("{head}content-length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend(body);
    answer
}

fn respond(socket: &mut TcpStream, answer: &[u8]) -> io::Result<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    // The body is small and follows the head at once, so one look after the head's end is enough.
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = socket.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        request.extend_from_slice(&buffer[..read]);
    }
    socket.write_all(answer)
}
