//! Packets between the worker and the thread of the event loop. The texts of a batch are in one
//! allocation. If one thread allocated each text and the other freed it, both would wait for the
//! allocator.

use std::collections::VecDeque;

use capstan_protocol::{Payload, StreamPacket, Timestamp};
use uuid::Uuid;

use crate::reader::{Item, Sink};

/// The items that wait, in order.
#[derive(Default)]
pub(crate) struct Parcels {
    /// None of them is empty.
    parcels: VecDeque<Parcel>,
    len: usize,
}

impl Parcels {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn append(&mut self, more: &mut Self) {
        self.parcels.append(&mut more.parcels);
        self.len += std::mem::take(&mut more.len);
    }

    pub(crate) fn next(&mut self) -> Option<Item> {
        let parcel = self.parcels.front_mut()?;
        let item = parcel.next();
        if parcel.places.is_empty() {
            self.parcels.pop_front();
        }
        self.len = self.len.saturating_sub(1);
        item
    }
}

impl Sink for Parcels {
    fn len(&self) -> usize {
        self.len
    }

    fn put(&mut self, item: Item) {
        self.len += 1;
        if let Some(parcel) = self.parcels.back_mut() {
            return parcel.put(item);
        }
        let mut parcel = Parcel::default();
        parcel.put(item);
        self.parcels.push_back(parcel);
    }
}

/// Items that arrived together.
#[derive(Default)]
struct Parcel {
    places: VecDeque<Place>,
    /// The stream of the DELTAs, and their texts joined.
    stream_id: Option<Uuid>,
    text: String,
    /// The items before this index were returned.
    at: usize,
    others: VecDeque<Item>,
}

enum Place {
    Text { seq: u64, t: Timestamp, end: usize },
    Other,
}

impl Parcel {
    fn put(&mut self, item: Item) {
        if let Item::Packet(StreamPacket { stream_id, seq, t, payload: Payload::Delta(text) }) =
            &item
            && stream_id == self.stream_id.get_or_insert(*stream_id)
        {
            self.text.push_str(text);
            self.places.push_back(Place::Text { seq: *seq, t: *t, end: self.text.len() });
        } else {
            self.others.push_back(item);
            self.places.push_back(Place::Other);
        }
    }

    fn next(&mut self) -> Option<Item> {
        let Place::Text { seq, t, end } = self.places.pop_front()? else {
            return self.others.pop_front();
        };
        let text = self.text.get(self.at..end).unwrap_or_default().to_owned();
        self.at = end;
        let (stream_id, payload) = (self.stream_id.unwrap_or_default(), Payload::Delta(text));
        Some(Item::Packet(StreamPacket { stream_id, seq, t, payload }))
    }
}
