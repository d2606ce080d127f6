//! The manifest: the segments of the journal, and how far it is known to be synced.
//!
//! It is a text with a sum at the end, and is always replaced completely. A missing segment is
//! damage. A compacted segment is part of the journal only once it is listed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use super::files::{Files, read_range};
use super::format::sum;

const NAME: &str = "files";
const FIRST_LINE: &str = "capstan-journal files 1";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Segments from this id on are newer than the manifest.
    pub(crate) next: u32,
    /// The last group that is synced, and the last one that was written. After a kill the latter
    /// exists as well.
    pub(crate) synced: u64,
    pub(crate) written: u64,
    pub(crate) boot: [u8; 16],
    pub(crate) salt: [u8; 16],
    /// The segments, with the length of the sealed ones.
    pub(crate) segments: BTreeMap<u32, Option<u64>>,
}

impl Manifest {
    fn encode(&self) -> String {
        let mut text = format!(
            "{FIRST_LINE}\nnext {}\nsynced {}\nwritten {}\nboot {}\nsalt {}\n",
            self.next,
            self.synced,
            self.written,
            uuid::Uuid::from_bytes(self.boot).simple(),
            uuid::Uuid::from_bytes(self.salt).simple()
        );
        for (id, length) in &self.segments {
            // Writing to a string cannot fail.
            let _ = match length {
                Some(length) => writeln!(text, "segment {id} {length}"),
                None => writeln!(text, "segment {id} open"),
            };
        }
        let sum = sum(text.as_bytes());
        let _ = writeln!(text, "sum {sum:08x}");
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let (body, last) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let body = text.get(..body.len() + 1)?;
        let is_whole =
            u32::from_str_radix(last.strip_prefix("sum ")?, 16).ok()? == sum(body.as_bytes());
        let mut lines = body.lines();
        if !is_whole || lines.next()? != FIRST_LINE {
            return None;
        }
        let mut manifest = Self::default();
        for line in lines {
            let mut words = line.split(' ');
            let (name, value) = (words.next()?, words.next()?);
            match name {
                "next" => manifest.next = value.parse().ok()?,
                "synced" => manifest.synced = value.parse().ok()?,
                "written" => manifest.written = value.parse().ok()?,
                "boot" => manifest.boot = uuid::Uuid::try_parse(value).ok()?.into_bytes(),
                "salt" => manifest.salt = uuid::Uuid::try_parse(value).ok()?.into_bytes(),
                "segment" => {
                    let length = Some(words.next()?).filter(|word| *word != "open");
                    let length = length.map(str::parse).transpose().ok()?;
                    manifest.segments.insert(value.parse().ok()?, length);
                }
                _ => return None,
            }
        }
        Some(manifest)
    }

    /// Loads the manifest of a folder. `None` if there is none, `Err(())` if it is damaged.
    pub(crate) fn load(files: &dyn Files, folder: &Path) -> io::Result<Option<Result<Self, ()>>> {
        let file = match files.open(&folder.join(NAME)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let bytes = read_range(&*file, 0, file.length()?)?;
        let text = std::str::from_utf8(&bytes).ok();
        Ok(Some(text.and_then(Self::parse).ok_or(())))
    }

    /// Replaces the manifest, synced.
    pub(crate) fn save(&self, files: &dyn Files, folder: &Path) -> io::Result<()> {
        let unfinished = folder.join("files.new");
        let file = files.create(&unfinished)?;
        file.write_at(self.encode().as_bytes(), 0)?;
        file.sync()?;
        files.rename(&unfinished, &folder.join(NAME))?;
        files.sync_folder(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_round_trips_and_every_bit_flip_is_noticed() {
        let manifest = Manifest {
            next: 9,
            synced: 100,
            written: 120,
            boot: [1; 16],
            salt: [2; 16],
            segments: [(3, Some(70)), (8, None)].into(),
        };
        let text = manifest.encode();
        assert_eq!(Manifest::parse(&text), Some(manifest));
        for at in 0..text.len() {
            for bit in 0..7 {
                let mut flipped = text.clone().into_bytes();
                flipped[at] ^= 1 << bit;
                let Ok(flipped) = String::from_utf8(flipped) else { continue };
                // An upper-case digit of the sum is the same sum.
                assert!(
                    Manifest::parse(&flipped).is_none_or(|_| flipped.to_lowercase() == text),
                    "{flipped:?}"
                );
            }
            assert_eq!(Manifest::parse(&text[..at]), None);
        }
    }
}
