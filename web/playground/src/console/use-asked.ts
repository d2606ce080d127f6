// A question to the gateway as React state. What was answered stays on screen while it is asked
// again; a failure is said.
import { useCallback, useEffect, useRef, useState } from "react";

export interface Asked<T> {
  value: T | undefined;
  error: unknown;
  again: () => void;
}

/** `name` tells questions apart: another one begins with nothing; none is not asked. */
export function useAsked<T>(
  name: string | null,
  ask: (signal: AbortSignal) => Promise<T>,
): Asked<T> {
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

/** Now, told again every so often while the tab is seen; a rest of `null` stops it. */
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

/** The same, at most once in a while: at once after a rest, else when the while is over. */
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
