//! The writer of one attempt, which knows whether anything was said: after that, a call must not be made again.

use capstan_agent::{Output, Stopped, Writer};
use serde_json::{Map, Value};

pub(crate) struct AttemptWriter<'a> {
    out: &'a mut Writer,
    has_written: bool,
    /// What the calls before this one took, and what this one has taken so far.
    earlier: Counts,
    present: Counts,
}

type Counts = Map<String, Value>;

impl<'a> AttemptWriter<'a> {
    pub(crate) fn new(out: &'a mut Writer) -> Self {
        Self { out, has_written: false, earlier: Counts::new(), present: Counts::new() }
    }

    pub(crate) fn has_written(&self) -> bool {
        self.has_written
    }

    /// The next call begins; what the one before took is paid for all the same.
    pub(crate) fn begin_call(&mut self) {
        add(&mut self.earlier, std::mem::take(&mut self.present));
    }

    /// Writes what a decoder made, in one go; waits while the journal is slow.
    pub(crate) async fn say(&mut self, outputs: &mut Vec<Output>) -> Result<(), Stopped> {
        for output in outputs.iter_mut() {
            self.has_written |= match output {
                Output::Delta(_) | Output::Event { .. } | Output::Again { .. } | Output::Interrupt(_) => true,
                Output::Usage(counts) => {
                    self.present.clone_from(counts);
                    let mut total = self.earlier.clone();
                    add(&mut total, std::mem::take(counts));
                    *counts = total;
                    false
                }
                Output::Warning(_) | Output::Model(_) | Output::Reason(_) | Output::FarId(_) => false,
            };
        }
        self.out.put_all(outputs).await
    }

    /// Something came that cannot be written yet.
    pub(crate) fn alive(&mut self) -> Result<(), Stopped> {
        self.out.alive()
    }
}

/// Adds counts up; of what is no count the later word holds.
fn add(total: &mut Counts, more: Counts) {
    for (name, value) in more {
        let sum = total.get(&name).and_then(Value::as_u64).zip(value.as_u64());
        let value = sum.and_then(|(a, b)| a.checked_add(b)).map_or(value, Value::from);
        total.insert(name, value);
    }
}
