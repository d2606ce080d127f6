//! The writer of one attempt, which knows whether anything was said: after that, a call must not be made again.

use capstan_agent::{Output, Stopped, Writer};

pub(crate) struct AttemptWriter<'a> {
    out: &'a mut Writer,
    has_written: bool,
}

impl<'a> AttemptWriter<'a> {
    pub(crate) fn new(out: &'a mut Writer) -> Self {
        Self { out, has_written: false }
    }

    pub(crate) fn has_written(&self) -> bool {
        self.has_written
    }

    /// Writes what a decoder made; waits while the journal is slow.
    pub(crate) async fn say(&mut self, outputs: &mut Vec<Output>) -> Result<(), Stopped> {
        for output in outputs.drain(..) {
            self.has_written |= match output {
                Output::Delta(_) | Output::Event { .. } | Output::Again { .. } | Output::Interrupt(_) => true,
                Output::Warning(_)
                | Output::Model(_)
                | Output::Usage(_)
                | Output::Reason(_)
                | Output::FarId(_) => false,
            };
            self.out.put(output).await?;
        }
        Ok(())
    }
}
