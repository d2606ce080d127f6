//! Reads the packets of a run into an answer.

use std::sync::Arc;

use capstan_engine::cpu_offload;
use capstan_journal::Run;
use capstan_protocol::{Fault, Payload, StreamError, StreamPacket};

use super::super::output::Offered;
use super::answer::Answer;
use crate::face::FaceContext;
use crate::face::reader::{self, Collected, Fold};

/// The packets of a run. The tools that the request offers decide which items they make.
#[derive(Default)]
struct Packets(Vec<StreamPacket>);

impl Fold for Packets {
    fn add(&mut self, packet: &StreamPacket) {
        self.0.push(packet.clone());
    }

    fn error(&self) -> Option<&StreamError> {
        self.0.iter().rev().find_map(|packet| match &packet.payload {
            Payload::Error(error) => Some(&**error),
            Payload::Delta(_) | Payload::Event(_) | Payload::Close(_) => None,
        })
    }
}

/// Follows a run to its end, or until it waits for its client.
pub(super) async fn follow(
    cx: &FaceContext,
    run: &Run,
    offered: &Arc<Offered>,
) -> Result<Collected<Answer>, Fault> {
    Ok(fold(reader::collect_to_end(cx, run).await?, offered))
}

/// Reads the present output of a run.
pub(super) async fn so_far(
    cx: &FaceContext,
    run: &Run,
    offered: &Arc<Offered>,
) -> Result<Collected<Answer>, Fault> {
    Ok(fold(reader::collect_so_far(cx, run).await?, offered))
}

fn fold(whole: Collected<Packets>, offered: &Arc<Offered>) -> Collected<Answer> {
    let Collected { transcript, run, state, load } = whole;
    let transcript = cpu_offload::run(load.held(), || {
        let mut answer = Answer::new(offered.clone());
        transcript.0.iter().for_each(|packet| Fold::add(&mut answer, packet));
        answer
    });
    Collected { transcript, run, state, load }
}
