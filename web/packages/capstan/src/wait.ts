// Waiting: for a while, for a promise but not too long, for the beginning of a body. All give way to a signal.

/** What is needed of a fetch; the platform's own fits. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/** A refusal's body is read up to this: a problem is small. */
const PROBLEM_CHARACTERS = 64 * 1024;

/** Resolves after `ms`; rejects with the signal's reason if that comes first. */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, Math.max(0, ms));
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** `work`, unless `ms` pass or the signal comes first. */
export async function within<T>(work: Promise<T>, ms: number, what: string, signal?: AbortSignal): Promise<T> {
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

/** The beginning of a body as text; what fails is simply not there. */
export async function readText(response: Response, ms: number): Promise<string> {
  const text = await within(response.text(), ms, "no answer").catch(() => "");
  return text.slice(0, PROBLEM_CHARACTERS);
}

/** Why something failed, in words. */
export function reason(error: unknown): string {
  return error instanceof Error && error.message ? error.message : String(error);
}
