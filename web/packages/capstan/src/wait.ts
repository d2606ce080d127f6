// Waits: for a time, for a promise with a limit, for a body up to a size. Each ends when a signal
// aborts.

/** The part of fetch that is needed. The platform's own fits. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/** The most bytes that are read of a refusal's body. */
export const PROBLEM_BYTES: number = 64 * 1024;
/** The longest delay of a timer. Timers with a longer one fire at once. */
const LONGEST_WAIT = 2 ** 31 - 1;
/** The deepest chain of causes. It also ends cycles. */
const DEEPEST = 4;

/** Resolves after `ms`; rejects with the signal's reason if that comes first. */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(
      () => {
        signal?.removeEventListener("abort", stop);
        resolve();
      },
      Math.min(Math.max(0, ms), LONGEST_WAIT),
    );
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** `work`, unless `ms` pass or the signal aborts first. */
export async function within<T>(
  work: Promise<T>,
  ms: number,
  what: string,
  signal?: AbortSignal,
): Promise<T> {
  const other = new AbortController();
  const stop = () => other.abort(signal?.reason);
  signal?.addEventListener("abort", stop, { once: true });
  if (signal?.aborted) stop();
  const late = pause(ms, other.signal).then(() => {
    throw new Error(`${what} within ${ms / 1000} s`);
  });
  // The promise that loses must not cause an unhandled rejection.
  late.catch(() => {});
  work.catch(() => {});
  try {
    return await Promise.race([work, late]);
  } finally {
    signal?.removeEventListener("abort", stop);
    other.abort();
  }
}

/**
 * The first `limit` bytes of a body, as text. The rest is not read, because its size is unknown.
 */
export async function readUpTo(response: Response, limit: number): Promise<string> {
  const decoder = new TextDecoder();
  const reader = response.body?.getReader();
  let text = "";
  for (let left = limit; reader && left > 0;) {
    const { done, value } = await reader.read();
    if (done) break;
    text += decoder.decode(value.subarray(0, left), { stream: true });
    left -= value.length;
  }
  reader?.cancel().catch(() => {});
  return text;
}

/** The reason of a failure as text, with its causes: "fetch failed" alone says nothing. */
export function reason(error: unknown): string {
  const texts: string[] = [];
  for (
    let at = error;
    at !== undefined && at !== null && texts.length < DEEPEST;
    at = (at as Error).cause
  ) {
    const text = textsOf(at);
    if (text && !texts.includes(text)) texts.push(text);
    if (!(at instanceof Error)) break;
  }
  return texts.join(": ") || String(error);
}

/** The texts of several failed tries, for example of both addresses of a name. */
function textsOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const tries =
    error instanceof AggregateError ? error.errors.map((each) => reason(each)).join(", ") : "";
  return error.message || tries;
}
