// Loads the marks of a run. While it runs, only new marks are loaded.
import { useEffect, useState } from "react";

import type { Mark, Marks } from "../generated/answers.js";
import { useConsole } from "../context.js";

/** The number of samples of a long stream: the columns of a wide screen. */
const COLUMNS = 1_000;

/** `last`: the run's last packet as far as known. */
export function useMarks(
  id: string,
  last: number,
): { marks: Marks | undefined; error: unknown; again: () => void } {
  const { api } = useConsole();
  const [marks, setMarks] = useState<Marks | undefined>(undefined);
  const [error, setError] = useState<unknown>(undefined);
  const [round, setRound] = useState(0);
  const from = (marks?.read_to ?? 0) + 1;
  const isWhole = marks !== undefined && (from > last || marks.sampled);
  useEffect(() => {
    if (isWhole) return;
    const left = new AbortController();
    api.marks(id, { from, columns: COLUMNS }, left.signal).then(
      (found) => {
        if (!left.signal.aborted) setMarks((before) => joined(before, found));
      },
      (failure: unknown) => {
        if (!left.signal.aborted) setError(failure);
      },
    );
    return () => left.abort();
  }, [api, id, from, isWhole, round]);
  const again = () => {
    setError(undefined);
    setRound((before) => before + 1);
  };
  return { marks, error, again };
}

/** Joins known and new marks, one per packet. */
export function joined(before: Marks | undefined, found: Marks): Marks {
  if (!before) return found;
  const last = before.marks.at(-1)?.[0] ?? 0;
  const fresh = found.marks.filter(([seq]: Mark) => seq > last);
  return {
    ...found,
    marks: [...before.marks, ...fresh],
    sampled: before.sampled || found.sampled,
    read_to: Math.max(before.read_to, found.read_to),
  };
}
