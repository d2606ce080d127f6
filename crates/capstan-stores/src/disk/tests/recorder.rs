//! The real file system with a record of all operations, and with failures and pauses on demand.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};

use super::super::files::{Data, Files, SystemFiles, read_range};
use super::Random;

/// An operation. Files have numbers, whatever their names, as on a disk.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Create(usize, PathBuf),
    Write(usize, u64, Vec<u8>),
    Length(usize, u64),
    Sync(usize),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    SyncFolder,
}

/// The operations that fail, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fault {
    /// Counted from the time when the fault is set.
    pub(super) at: usize,
    /// The number of failing operations.
    pub(super) count: usize,
}

#[derive(Default)]
struct State {
    ops: Vec<Op>,
    names: HashMap<PathBuf, usize>,
    next: usize,
    /// The synced contents of each file.
    synced: HashMap<usize, Vec<u8>>,
    fault: Option<Fault>,
    failed: usize,
    pauses: Vec<Waiting>,
}

/// An operation that has to wait: which one, its notification, and its end.
struct Waiting {
    is_it: fn(&Op) -> bool,
    reached: mpsc::Sender<()>,
    released: mpsc::Receiver<()>,
}

/// Delays one operation until this value is dropped.
pub(super) struct Pause {
    reached: mpsc::Receiver<()>,
    _released: mpsc::Sender<()>,
}

impl Pause {
    /// Waits until an operation is delayed.
    pub(super) fn reached(&self) {
        self.reached.recv().unwrap();
    }
}

#[derive(Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<State>>);

struct Recorded {
    number: usize,
    file: Arc<dyn Data>,
    recorder: Recorder,
}

impl Recorder {
    pub(super) fn fail(&self, fault: Option<Fault>) {
        self.0.lock().unwrap().fault = fault;
    }

    /// Delays the next operation of this kind.
    pub(super) fn pause(&self, is_it: fn(&Op) -> bool) -> Pause {
        let (reached, to_reach) = mpsc::channel();
        let (release, released) = mpsc::channel();
        self.0.lock().unwrap().pauses.push(Waiting { is_it, reached, released });
        Pause { reached: to_reach, _released: release }
    }

    fn wait(&self, op: &Op) {
        let mut state = self.0.lock().unwrap();
        let found = state.pauses.iter().position(|waiting| (waiting.is_it)(op));
        let Some(waiting) = found.map(|at| state.pauses.remove(at)) else { return };
        drop(state);
        let _ = waiting.reached.send(());
        let _ = waiting.released.recv();
    }

    /// The number of operations that failed.
    pub(super) fn failed(&self) -> usize {
        self.0.lock().unwrap().failed
    }

    pub(super) fn ops(&self) -> Vec<Op> {
        self.0.lock().unwrap().ops.clone()
    }

    pub(super) fn count(&self) -> usize {
        self.0.lock().unwrap().ops.len()
    }

    /// Whether this operation has to fail.
    fn is_due(&self) -> bool {
        let state = &mut *self.0.lock().unwrap();
        let Some(fault) = &mut state.fault else { return false };
        if fault.at > 0 {
            fault.at -= 1;
            return false;
        }
        if fault.count == 0 {
            state.fault = None;
            return false;
        }
        fault.count -= 1;
        state.failed += 1;
        true
    }

    fn check(&self) -> io::Result<()> {
        if self.is_due() { Err(io::Error::other("input/output error")) } else { Ok(()) }
    }

    fn note(&self, op: Op) {
        self.0.lock().unwrap().ops.push(op);
    }

    fn wrap(&self, path: &Path, file: Arc<dyn Data>, is_new: bool) -> Arc<dyn Data> {
        let state = &mut *self.0.lock().unwrap();
        let known = state.names.get(path).copied().filter(|_| !is_new);
        let number = known.unwrap_or_else(|| {
            state.next += 1;
            state.names.insert(path.to_owned(), state.next);
            state.next
        });
        if is_new {
            state.ops.push(Op::Create(number, path.to_owned()));
        }
        Arc::new(Recorded { number, file, recorder: self.clone() })
    }
}

impl Files for Recorder {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn Data>> {
        self.check()?;
        Ok(self.wrap(path, SystemFiles.create(path)?, true))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn Data>> {
        Ok(self.wrap(path, SystemFiles.open(path)?, false))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        SystemFiles.list(folder)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check()?;
        let op = Op::Rename(from.to_owned(), to.to_owned());
        self.wait(&op);
        SystemFiles.rename(from, to)?;
        self.note(op);
        let state = &mut *self.0.lock().unwrap();
        if let Some(number) = state.names.remove(from) {
            state.names.insert(to.to_owned(), number);
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check()?;
        let op = Op::Remove(path.to_owned());
        self.wait(&op);
        SystemFiles.remove(path)?;
        self.note(op);
        Ok(())
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        self.check()?;
        self.note(Op::SyncFolder);
        Ok(())
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        SystemFiles.free_bytes(folder)
    }
}

impl Data for Recorded {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.recorder.is_due() {
            // A full disk writes as much as fits.
            let half = &bytes[..bytes.len() / 2];
            self.file.write_at(half, offset)?;
            self.recorder.note(Op::Write(self.number, offset, half.to_vec()));
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no space left on device"));
        }
        let op = Op::Write(self.number, offset, bytes.to_vec());
        self.recorder.wait(&op);
        self.file.write_at(bytes, offset)?;
        self.recorder.note(op);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.recorder.check()?;
        self.file.set_len(length)?;
        self.recorder.note(Op::Length(self.number, length));
        Ok(())
    }

    /// A failed sync drops unsynced data, because the kernel marks its pages as clean.
    fn sync(&self) -> io::Result<()> {
        if self.recorder.is_due() {
            let synced = self
                .recorder
                .0
                .lock()
                .unwrap()
                .synced
                .get(&self.number)
                .cloned()
                .unwrap_or_default();
            self.file.set_len(synced.len() as u64)?;
            self.file.write_at(&synced, 0)?;
            return Err(io::Error::other("input/output error"));
        }
        // Does not really sync: the test process does not lose power.
        let whole = read_range(&*self.file, 0, self.file.length()?)?;
        let mut state = self.recorder.0.lock().unwrap();
        state.ops.push(Op::Sync(self.number));
        state.synced.insert(self.number, whole);
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}

/// A file as on a disk.
#[derive(Default, Clone)]
struct Inode {
    synced: Vec<u8>,
    pending: Vec<Op>,
}

fn apply(bytes: &mut Vec<u8>, op: &Op) {
    match op {
        Op::Write(_, offset, data) => {
            let end = *offset as usize + data.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*offset as usize..end].copy_from_slice(data);
        }
        Op::Length(_, length) => bytes.resize(*length as usize, 0),
        Op::Create(..) | Op::Sync(_) | Op::Rename(..) | Op::Remove(_) | Op::SyncFolder => {}
    }
}

/// Creates the folder as after a power cut: synced data, and a random part of the rest.
pub(super) fn after_power_cut(ops: &[Op], from: &Path, to: &Path, random: &mut Random) {
    let mut inodes: HashMap<usize, Inode> = HashMap::new();
    let (mut names, mut pending): (HashMap<PathBuf, usize>, Vec<&Op>) =
        (HashMap::new(), Vec::new());
    for op in ops {
        match op {
            Op::Write(number, ..) | Op::Length(number, _) => {
                inodes.entry(*number).or_default().pending.push(op.clone());
            }
            Op::Sync(number) => {
                let inode = inodes.entry(*number).or_default();
                let changes = std::mem::take(&mut inode.pending);
                changes.iter().for_each(|op| apply(&mut inode.synced, op));
            }
            Op::Create(..) | Op::Rename(..) | Op::Remove(_) => pending.push(op),
            Op::SyncFolder => pending.drain(..).for_each(|op| name(&mut names, op)),
        }
    }
    // Renames happen in order, up to a random one.
    let reached = random.below(pending.len() as u64 + 1) as usize;
    pending.into_iter().take(reached).for_each(|op| name(&mut names, op));
    for (path, number) in names {
        let Inode { mut synced, mut pending } = inodes.remove(&number).unwrap_or_default();
        // Writes reach the disk in any order, or not at all.
        pending.retain(|_| random.below(2) == 0);
        for at in (1..pending.len()).rev() {
            pending.swap(at, random.below(at as u64 + 1) as usize);
        }
        pending.iter().for_each(|op| apply(&mut synced, op));
        let path = to.join(path.strip_prefix(from).unwrap());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, synced).unwrap();
    }
}

fn name(names: &mut HashMap<PathBuf, usize>, op: &Op) {
    match op {
        Op::Create(number, path) => drop(names.insert(path.clone(), *number)),
        Op::Rename(from, to) => {
            if let Some(number) = names.remove(from) {
                names.insert(to.clone(), number);
            }
        }
        Op::Remove(path) => drop(names.remove(path)),
        Op::Write(..) | Op::Length(..) | Op::Sync(_) | Op::SyncFolder => {}
    }
}
