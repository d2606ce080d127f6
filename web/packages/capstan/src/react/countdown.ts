// A countdown in whole seconds.
import { useEffect, useState } from "react";

/**
 * The interval of updates: short enough that no second is late, and that a tab catches up after
 * sleep.
 */
const TICK = 250;

/**
 * Whole seconds until `deadline` (on the clock of `Date.now`). 0 if there is none or it has passed.
 */
export function useSecondsLeft(deadline: number | null): number {
  const [seconds, setSeconds] = useState(() => secondsUntil(deadline));
  useEffect(() => {
    setSeconds(secondsUntil(deadline));
    if (secondsUntil(deadline) === 0) return;
    const timer = setInterval(() => {
      const left = secondsUntil(deadline);
      setSeconds(left);
      if (left === 0) clearInterval(timer);
    }, TICK);
    return () => clearInterval(timer);
  }, [deadline]);
  return seconds;
}

/** Rounded up, so that no retry is too early. */
export function secondsUntil(deadline: number | null): number {
  return deadline === null ? 0 : Math.max(0, Math.ceil((deadline - Date.now()) / 1000));
}
