// The clock of a replay. Pure: it computes its position from the time, and has no timer.

export const SPEEDS = [1, 4, 16] as const;
export type Speed = (typeof SPEEDS)[number];

/** Longer pauses are shortened to this, if waits are skipped. */
export const LONGEST_PAUSE = 2_000;

/**
 * When each packet is shown, in milliseconds since the first. Never decreasing, whatever the
 * timestamps.
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
  /** The position when it was started or set. */
  from: number;
  /** When it was started; undefined while it is paused. */
  since: number | undefined;
  speed: Speed;
}

export const RESTING: Replay = { from: 0, since: undefined, speed: 1 };

/** The present position of the replay. */
export function standing({ from, since, speed }: Replay, now: number): number {
  return since === undefined ? from : from + Math.max(0, now - since) * speed;
}

export function played(replay: Replay, now: number): Replay {
  return { ...replay, from: standing(replay, now), since: now };
}

export function rested(replay: Replay, now: number): Replay {
  return { ...replay, from: standing(replay, now), since: undefined };
}

/** Continues from another position. */
export function set(replay: Replay, to: number, now: number): Replay {
  return { ...replay, from: Math.max(0, to), since: replay.since === undefined ? undefined : now };
}

export function paced(replay: Replay, speed: Speed, now: number): Replay {
  return { ...set(replay, standing(replay, now), now), speed };
}

/** The number of packets that are shown by then. */
export function shownBy(schedule: readonly number[], at: number): number {
  let [low, high] = [0, schedule.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (schedule[middle]! <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}
