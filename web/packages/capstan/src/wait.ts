// Waiting: for a while, for a promise but not too long, for a body up to a size. All give way to
// a signal.

/** What is needed of a fetch; the platform's own fits. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/** A refusal's body is read up to this: a problem is small. */
export const PROBLEM_BYTES: number = 64 * 1024;
/** Timers know no longer wait; a longer one would be over at once. */
const LONGEST_WAIT = 2 ** 31 - 1;
/** Causes of causes; a cycle must end. */
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

/** `work`, unless `ms` pass or the signal comes first. */
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
  // Whichever loses must not end as an unhandled rejection.
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
 * The first `limit` bytes of a body, as text. The rest is not fetched: its size is unknown.
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

/** Why something failed, in words, with what caused it: by itself "fetch failed" says nothing. */
export function reason(error: unknown): string {
  const said: string[] = [];
  for (
    let at = error;
    at !== undefined && at !== null && said.length < DEEPEST;
    at = (at as Error).cause
  ) {
    const words = wordsOf(at);
    if (words && !said.includes(words)) said.push(words);
    if (!(at instanceof Error)) break;
  }
  return said.join(": ") || String(error);
}

/** Of several tries, such as both addresses of a name, each says why. */
function wordsOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const tries =
    error instanceof AggregateError ? error.errors.map((each) => reason(each)).join(", ") : "";
  return error.message || tries;
}
