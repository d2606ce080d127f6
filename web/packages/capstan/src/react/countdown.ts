// A live countdown: whole seconds that are left until a moment.
import { useEffect, useState } from "react";

/**
 * How often the rest is looked at: a second is never shown late, and a sleeping tab catches up at
 * once.
 */
const TICK = 250;

/**
 * Whole seconds until `deadline` (on the clock of `Date.now`); 0 when there is none or it has
 * passed.
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
