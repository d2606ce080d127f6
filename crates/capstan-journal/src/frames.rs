//! A batch of frames for a viewer, in one buffer where possible.

use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::Frame;

/// Frames with the `seq` of the last one; `None` if there are none.
pub type Piece = Option<(Frames, u64)>;

/// Consecutive frames of a stream. Callers that only forward them can take them as one buffer.
#[derive(Clone)]
pub struct Frames(Shape);

#[derive(Clone)]
enum Shape {
    /// The usual case of a live viewer. It needs no allocation.
    One(Bytes),
    Several(Vec<Bytes>),
    /// One buffer, and the end of each frame in it.
    Joined {
        bytes: Bytes,
        ends: Vec<u32>,
    },
}

impl Frames {
    /// Creates frames from one buffer and the end of each frame. `None` if the ends do not fit the
    /// buffer.
    pub fn joined(bytes: Bytes, ends: Vec<u32>) -> Option<Self> {
        let is_whole =
            ends.is_sorted() && ends.last().map_or(0, |last| *last as usize) == bytes.len();
        is_whole.then_some(Self(Shape::Joined { bytes, ends }))
    }

    /// No frames.
    pub fn none() -> Self {
        Self(Shape::Several(Vec::new()))
    }

    /// The number of frames.
    pub fn len(&self) -> usize {
        match &self.0 {
            Shape::One(_) => 1,
            Shape::Several(frames) => frames.len(),
            Shape::Joined { ends, .. } => ends.len(),
        }
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The total number of bytes.
    pub fn size(&self) -> usize {
        match &self.0 {
            Shape::One(bytes) | Shape::Joined { bytes, .. } => bytes.len(),
            Shape::Several(frames) => frames.iter().map(Bytes::len).sum(),
        }
    }

    /// All frames in one buffer. Copies them only if they are in several.
    pub fn into_bytes(self) -> Bytes {
        let size = self.size();
        match self.0 {
            Shape::One(bytes) | Shape::Joined { bytes, .. } => bytes,
            Shape::Several(frames) => {
                let mut whole = BytesMut::with_capacity(size);
                frames.iter().for_each(|frame| whole.extend_from_slice(frame));
                whole.freeze()
            }
        }
    }

    /// Iterates over the frames.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let (frames, whole, ends): (&[Bytes], &[u8], &[u32]) = match &self.0 {
            Shape::One(frame) => (std::slice::from_ref(frame), &[], &[]),
            Shape::Several(frames) => (frames, &[], &[]),
            Shape::Joined { bytes, ends } => (&[], bytes, ends),
        };
        let mut start = 0;
        let cut = ends.iter().map(move |end| {
            let frame = whole.get(start..*end as usize).unwrap_or_default();
            start = *end as usize;
            frame
        });
        frames.iter().map(|frame| &frame[..]).chain(cut)
    }
}

impl Default for Frames {
    fn default() -> Self {
        Self::none()
    }
}

impl FromIterator<Bytes> for Frames {
    fn from_iter<I: IntoIterator<Item = Bytes>>(frames: I) -> Self {
        let mut frames = frames.into_iter();
        Self(match (frames.next(), frames.next()) {
            (Some(only), None) => Shape::One(only),
            (first, second) => {
                Shape::Several(first.into_iter().chain(second).chain(frames).collect())
            }
        })
    }
}

impl FromIterator<Frame> for Frames {
    fn from_iter<I: IntoIterator<Item = Frame>>(frames: I) -> Self {
        frames.into_iter().map(|frame| frame.bytes).collect()
    }
}

impl PartialEq for Frames {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Frames {}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(String::from_utf8_lossy)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(frames: &Frames) -> Vec<&[u8]> {
        frames.iter().collect()
    }

    #[test]
    fn frames_compare_by_content() {
        for texts in [vec![], vec!["one"], vec!["one", "", "three"]] {
            let apart: Frames = texts.iter().map(|text| Bytes::from(*text)).collect();
            let ends = texts.iter().scan(0, |end, text| {
                *end += text.len() as u32;
                Some(*end)
            });
            let joined = Frames::joined(texts.concat().into(), ends.collect()).unwrap();
            assert_eq!(
                bytes_of(&joined),
                texts.iter().map(|text| text.as_bytes()).collect::<Vec<_>>()
            );
            assert_eq!(
                (bytes_of(&apart), apart.len(), apart.size()),
                (bytes_of(&joined), joined.len(), joined.size())
            );
            assert_eq!(apart, joined);
            assert_eq!(apart.into_bytes(), joined.into_bytes());
        }
    }

    #[test]
    fn impossible_packet_ends_are_refused() {
        for ends in [vec![], vec![2], vec![4], vec![3, 2], vec![2, 1, 3]] {
            assert!(Frames::joined("abc".into(), ends.clone()).is_none(), "{ends:?}");
        }
    }

    #[test]
    fn contiguous_frames_are_not_copied() {
        let frame = Bytes::from("a frame".repeat(9));
        let one: Frames = std::iter::once(frame.clone()).collect();
        assert_eq!(one.into_bytes().as_ptr(), frame.as_ptr());
        let joined = Frames::joined(frame.clone(), vec![7, 63]).unwrap();
        assert_eq!(joined.into_bytes().as_ptr(), frame.as_ptr());
    }
}
