//! The segments that have frames of an owner.

/// An owner's frames in one segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) segment: u32,
    /// The size of its live data.
    pub(crate) weight: u32,
    /// The range of its packets or turns; empty if `first` is above `last`.
    pub(crate) first: u64,
    pub(crate) last: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Parts(pub(crate) Vec<Part>);

impl Parts {
    pub(crate) fn add(&mut self, segment: u32, weight: u32, seq: Option<u64>) {
        let known = self.0.iter_mut().rev().find(|part| part.segment == segment);
        let part = match known {
            Some(part) => part,
            None => {
                self.0.push(Part { segment, weight: 0, first: u64::MAX, last: 0 });
                let Some(part) = self.0.last_mut() else { return };
                part
            }
        };
        part.weight = part.weight.saturating_add(weight);
        if let Some(seq) = seq {
            (part.first, part.last) = (part.first.min(seq), part.last.max(seq));
        }
    }

    pub(crate) fn lighten(&mut self, segment: u32, weight: u32) {
        if let Some(part) = self.0.iter_mut().find(|part| part.segment == segment) {
            part.weight = part.weight.saturating_sub(weight);
        }
    }

    pub(crate) fn drop_segment(&mut self, segment: u32) {
        self.0.retain(|part| part.segment != segment);
    }
}

impl Parts {
    pub(crate) fn after(&self, after: u64) -> Vec<Part> {
        let mut parts: Vec<_> = self
            .0
            .iter()
            .filter(|part| part.first <= part.last && part.last > after)
            .copied()
            .collect();
        parts.sort_unstable_by_key(|part| part.first);
        parts
    }
}
