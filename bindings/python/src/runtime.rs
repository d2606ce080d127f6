//! The async runtimes that wait for the network.
//!
//! A blocking client runs a runtime in the calling thread, without other threads. Async clients
//! share one runtime with one worker thread, which lives as long as one of them is open. `close`
//! waits until no thread is left. Dropping a client does not wait; the exit of the interpreter
//! does.
//!
//! A forked child inherits no threads. It makes its own runtimes and does not touch those of its
//! parent: their sockets are shared, and a lock may be held forever by a thread that does not exist
//! in the child.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::sync::CancellationToken;

/// How long a close waits for calls of other threads.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often a blocking wait checks for Ctrl-C.
const TICK: Duration = Duration::from_millis(40);

/// How often a wait for threads checks whether they have ended.
const STEP: Duration = Duration::from_millis(5);

/// Locks a mutex, also after a panic in another thread.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A runtime that never blocks the thread that drops it: that thread may hold the interpreter,
/// which the worker may need.
#[derive(Debug)]
pub(crate) struct Worker {
    runtime: Option<Runtime>,
    /// The process that has its threads.
    process: u32,
}

impl Drop for Worker {
    fn drop(&mut self) {
        match self.runtime.take() {
            Some(runtime) if self.is_foreign() => std::mem::forget(runtime),
            Some(runtime) => runtime.shutdown_background(),
            None => {}
        }
    }
}

impl Worker {
    fn build(builder: &mut Builder) -> PyResult<Self> {
        // Threads resolve host names. They should end soon.
        let builder =
            builder.enable_all().max_blocking_threads(4).thread_keep_alive(Duration::from_secs(1));
        let runtime = builder.thread_name("coreason-client").build();
        runtime
            .map(|runtime| Self { runtime: Some(runtime), process: std::process::id() })
            .map_err(|e| PyRuntimeError::new_err(e.to_string()))
    }

    /// Whether this process was forked from the one that has its threads.
    fn is_foreign(&self) -> bool {
        self.process != std::process::id()
    }

    fn runtime(&self) -> PyResult<&Runtime> {
        self.runtime.as_ref().ok_or_else(closed_error)
    }

    pub(crate) fn handle(&self) -> PyResult<Handle> {
        self.runtime().map(|runtime| runtime.handle().clone())
    }

    /// Waits without the interpreter. Checks for Ctrl-C meanwhile, and raises.
    pub(crate) fn wait<F>(&self, py: Python<'_>, future: F) -> PyResult<F::Output>
    where
        F: Future + Send,
        F::Output: Send,
    {
        let runtime = self.runtime()?;
        let mut future = std::pin::pin!(future);
        loop {
            let done = py.detach(|| {
                // Inside, because a timer belongs to the runtime in which it is made.
                runtime.block_on(async { tokio::time::timeout(TICK, future.as_mut()).await })
            });
            match done {
                Ok(output) => return Ok(output),
                Err(_) => py.check_signals()?,
            }
        }
    }

    fn shut_down(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(PATIENCE);
        }
    }
}

/// The runtime that the async clients of a process share.
static SHARED: Mutex<Weak<Worker>> = Mutex::new(Weak::new());

/// A client's handle on a runtime. The runtime is made at the first use and dropped at the close.
#[derive(Debug)]
pub(crate) struct Engine {
    is_shared: bool,
    worker: Mutex<Option<Arc<Worker>>>,
    pub(crate) closed: CancellationToken,
}

pub(crate) fn closed_error() -> PyErr {
    PyRuntimeError::new_err("the client is closed")
}

fn forked_error() -> PyErr {
    PyRuntimeError::new_err(
        "the client was used before this process was forked, and its connections are the parent's: \
         make a client in each process, after the fork",
    )
}

impl Engine {
    pub(crate) fn new(is_shared: bool) -> Self {
        Self { is_shared, worker: Mutex::new(None), closed: CancellationToken::new() }
    }

    /// Whether its runtime belongs to the parent process. Then no lock but this one may be taken.
    /// Threads take this one only with the interpreter, which also holds during a fork.
    pub(crate) fn is_foreign(&self) -> bool {
        lock(&self.worker).as_ref().is_some_and(|worker| worker.is_foreign())
    }

    /// Fails if the client was used before this process was forked.
    pub(crate) fn check_process(&self) -> PyResult<()> {
        if self.is_foreign() { Err(forked_error()) } else { Ok(()) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        !self.is_foreign() && self.closed.is_cancelled()
    }

    pub(crate) fn worker(&self) -> PyResult<Arc<Worker>> {
        self.check_process()?;
        if self.closed.is_cancelled() {
            return Err(closed_error());
        }
        let mut mine = lock(&self.worker);
        if let Some(worker) = &*mine {
            return Ok(Arc::clone(worker));
        }
        let worker = if self.is_shared { shared()? } else { Arc::new(own()?) };
        *mine = Some(Arc::clone(&worker));
        Ok(worker)
    }

    /// Ends every call, and waits until the threads have ended. Does not touch those of a parent.
    pub(crate) fn close(&self, py: Python<'_>) {
        if self.is_foreign() {
            return;
        }
        self.closed.cancel();
        let Some(worker) = lock(&self.worker).take() else { return };
        let is_shared = self.is_shared;
        py.detach(|| retire(worker, is_shared));
    }
}

fn own() -> PyResult<Worker> {
    Worker::build(&mut Builder::new_current_thread())
}

fn shared() -> PyResult<Arc<Worker>> {
    let mut known = lock(&SHARED);
    if let Some(worker) = known.upgrade().filter(|worker| !worker.is_foreign()) {
        return Ok(worker);
    }
    THREADS.adopt();
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).on_thread_start(|| THREADS.start()).on_thread_stop(|| THREADS.stop());
    let worker = Arc::new(Worker::build(&mut builder)?);
    *known = Arc::downgrade(&worker);
    Ok(worker)
}

/// The threads of shared runtimes in this process. They call Python, and a call while the
/// interpreter exits would crash the process.
static THREADS: Threads = Threads { process: AtomicU32::new(0), alive: AtomicU32::new(0) };

struct Threads {
    /// The process in which they were counted. A forked child inherits the count without the
    /// threads.
    process: AtomicU32,
    alive: AtomicU32,
}

impl Threads {
    /// Resets the count in a new process.
    fn adopt(&self) {
        let process = std::process::id();
        if self.process.swap(process, Ordering::SeqCst) != process {
            self.alive.store(0, Ordering::SeqCst);
        }
    }

    fn start(&self) {
        self.alive.fetch_add(1, Ordering::SeqCst);
    }

    fn stop(&self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }

    fn are_gone(&self) -> bool {
        self.process.load(Ordering::SeqCst) != std::process::id()
            || self.alive.load(Ordering::SeqCst) == 0
    }
}

/// Waits until no thread of a dropped client can call Python. Runs at exit, after open clients were
/// closed.
#[pyfunction]
pub(crate) fn wait_for_threads(py: Python<'_>) {
    py.detach(|| {
        let mut waited = Duration::ZERO;
        while !THREADS.are_gone() && waited < PATIENCE {
            std::thread::sleep(STEP);
            waited += STEP;
        }
    });
}

/// The last handle shuts the runtime down. A blocking client waits for calls of other threads.
fn retire(mut worker: Arc<Worker>, is_shared: bool) {
    let mut waited = Duration::ZERO;
    loop {
        match Arc::try_unwrap(worker) {
            Ok(worker) => return worker.shut_down(),
            Err(_) if is_shared || waited >= PATIENCE => return,
            Err(back) => worker = back,
        }
        std::thread::sleep(STEP);
        waited += STEP;
    }
}
