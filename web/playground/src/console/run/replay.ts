// The clock of a replay. Pure: it is asked where it stands at a moment, and has no timer of its
// own.

export const SPEEDS = [1, 4, 16] as const;
export type Speed = (typeof SPEEDS)[number];

/** Pauses longer than this are cut down to it, where waits are skipped. */
export const LONGEST_PAUSE = 2_000;

/**
 * When each packet is shown, in milliseconds since the first. Never backwards, whatever the stamps
 * say.
 */
export function schedule(times: readonly number[], skipsWaits: boolean): readonly number[] {
  let at = 0;
  return times.map((time, n) => {
    const pause = n === 0 ? 0 : Math.max(0, time - times[n - 1]!);
    at += skipsWaits ? Math.min(pause, LONGEST_PAUSE) : pause;
    return at;
  });
}

export interface Replay {
  /** Where it stood when it was started or set. */
  from: number;
  /** Since when it plays; not at all if it rests. */
  since: number | undefined;
  speed: Speed;
}

export const RESTING: Replay = { from: 0, since: undefined, speed: 1 };

/** Where the replay stands. */
export function standing({ from, since, speed }: Replay, now: number): number {
  return since === undefined ? from : from + Math.max(0, now - since) * speed;
}

export function played(replay: Replay, now: number): Replay {
  return { ...replay, from: standing(replay, now), since: now };
}

export function rested(replay: Replay, now: number): Replay {
  return { ...replay, from: standing(replay, now), since: undefined };
}

/** Goes on at once from another place. */
export function set(replay: Replay, to: number, now: number): Replay {
  return { ...replay, from: Math.max(0, to), since: replay.since === undefined ? undefined : now };
}

export function paced(replay: Replay, speed: Speed, now: number): Replay {
  return { ...set(replay, standing(replay, now), now), speed };
}

/** How many packets have been shown by then. */
export function shownBy(schedule: readonly number[], at: number): number {
  let [low, high] = [0, schedule.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (schedule[middle]! <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}
