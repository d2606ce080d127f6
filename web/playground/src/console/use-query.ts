// A query to the gateway as React state. The last answer stays on the screen during the next query.
// A failure is shown.
import { useCallback, useEffect, useRef, useState } from "react";

export interface QueryState<T> {
  value: T | undefined;
  error: unknown;
  again: () => void;
}

/** `name` identifies the query. Another name begins without an answer; undefined makes no query. */
export function useQuery<T>(
  name: string | null,
  ask: (signal: AbortSignal) => Promise<T>,
): QueryState<T> {
  const [round, setRound] = useState(0);
  const [found, setFound] = useState<{ name: string | null; value?: T; error?: unknown }>({ name });
  const latest = useRef(ask);
  useEffect(() => {
    latest.current = ask;
  });
  useEffect(() => {
    if (name === null) return;
    const left = new AbortController();
    latest.current(left.signal).then(
      (value) => {
        if (!left.signal.aborted) setFound({ name, value });
      },
      (error: unknown) => {
        if (!left.signal.aborted)
          setFound((before) => (before.name === name ? { ...before, error } : { name, error }));
      },
    );
    return () => left.abort();
  }, [name, round]);
  const again = useCallback(() => setRound((before) => before + 1), []);
  const isSame = found.name === name;
  return {
    value: isSame ? found.value : undefined,
    error: isSame ? found.error : undefined,
    again,
  };
}

/** The present time, updated at an interval while the tab is visible; `null` stops the updates. */
export function useNow(every: number | null = 1_000): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (every === null) return;
    const timer = setInterval(() => {
      if (!document.hidden) setNow(Date.now());
    }, every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

/**
 * Calls `act` at most once per interval: at once after a pause, else at the end of the interval.
 */
export function useSeldom(act: () => void, every: number): () => void {
  const last = useRef(0);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const latest = useRef(act);
  useEffect(() => {
    latest.current = act;
  });
  useEffect(() => () => clearTimeout(timer.current), []);
  return useCallback(() => {
    if (timer.current !== undefined) return;
    timer.current = setTimeout(
      () => {
        timer.current = undefined;
        last.current = Date.now();
        latest.current();
      },
      Math.max(0, last.current + every - Date.now()),
    );
  }, [every]);
}
