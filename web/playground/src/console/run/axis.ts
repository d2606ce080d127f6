// The time axis as numbers: bars of attempts, waits between them, and a scale on which long waits
// are folded. Pure; a canvas draws it.
import type { AttemptDetails, RunDetails, ViewerDetails } from "../generated/answers.js";
import { isOver } from "../format.js";

/** A range of the run, in milliseconds since its creation. */
export interface Stretch {
  from: number;
  to: number;
}

export interface AttemptBar extends Stretch {
  n: number;
  /** The end of the silence before the first packet. */
  first: number;
  isOpen: boolean;
  fault: string | undefined;
  /** Repeated bytes, which were not written again. */
  swallowed: number;
}

export interface Wait extends Stretch {
  /** Who starts the next attempt. */
  says: string;
}

export interface ViewerBar extends Stretch {
  ended: ViewerDetails["ended"];
  start: number;
  cursor: number | undefined;
}

export interface Axis {
  attempts: readonly AttemptBar[];
  waits: readonly Wait[];
  viewers: readonly ViewerBar[];
  /** The end of the run, or now. */
  end: number;
}

/** Longer waits are folded, unless the user unfolds them. */
export const LONG_WAIT = 10_000;
/** The width of a folded wait, as a share of the other width. */
const FOLDED = 0.06;

export function axisOf(detail: RunDetails, now: number): Axis {
  const { row } = detail;
  const began = Date.parse(row.created_at);
  const since = (at: string | null | undefined, otherwise: number) =>
    at ? Math.max(0, Date.parse(at) - began) : otherwise;
  const end = Math.max(1, isOver(row.state) ? since(row.closed_at, row.duration_ms) : now - began);
  const attempts = detail.attempts.reduce<AttemptBar[]>(
    (bars, attempt) => [
      ...bars,
      attemptBar(attempt, bars.at(-1)?.to ?? 0, since, end, isOver(row.state)),
    ],
    [],
  );
  const viewers = (detail.viewers ?? []).map((viewer) => ({
    from: since(viewer.joined_at, 0),
    to: since(viewer.left_at, end),
    ended: viewer.ended,
    start: viewer.cursor_at_start,
    cursor: viewer.cursor ?? undefined,
  }));
  const last = Math.max(end, ...attempts.map(({ to }) => to), ...viewers.map(({ to }) => to));
  return { attempts, waits: waitsOf(attempts, detail, last), viewers, end: last };
}

/** `before`: the end of the previous attempt, used if an attempt's start is unknown. */
function attemptBar(
  attempt: AttemptDetails,
  before: number,
  since: (at: string | null | undefined, otherwise: number) => number,
  end: number,
  isClosed: boolean,
): AttemptBar {
  const from = since(attempt.began_at, before);
  const to = Math.max(from, since(attempt.ended_at, end));
  const isOpen = !attempt.ended_at && !isClosed;
  return {
    n: attempt.n,
    from,
    to,
    first: Math.min(to, since(attempt.first_packet_at, to)),
    isOpen,
    fault: attempt.fault ?? undefined,
    swallowed: attempt.swallowed_bytes ?? 0,
  };
}

function waitsOf(
  attempts: readonly AttemptBar[],
  { row, not_before }: RunDetails,
  end: number,
): readonly Wait[] {
  const between = attempts.slice(1).flatMap((next, n) => {
    const from = attempts[n]!.to;
    return next.from > from ? [{ from, to: next.from, says: `waits for attempt ${next.n}` }] : [];
  });
  const last = attempts.at(-1);
  if (row.state !== "waiting" || !last || last.isOpen) return between;
  const says = not_before ? "waits until its client comes back" : "waits for its client";
  return end > last.to ? [...between, { from: last.to, to: end, says: says }] : between;
}

/** Converts between time and pixels: linear except for folds, and never decreasing. */
export interface Scale {
  x: (t: number) => number;
  t: (x: number) => number;
  /** Pixels per millisecond, outside of folds. */
  per: number;
  folds: readonly Stretch[];
}

export function scale(axis: Axis, width: number, view: Stretch, isFolding: boolean): Scale {
  const folds = isFolding ? axis.waits.filter(({ from, to }) => to - from > LONG_WAIT) : [];
  const rest = axis.end - folds.reduce((sum, { from, to }) => sum + to - from, 0);
  const fold = Math.max(1, rest * FOLDED);
  const virtual = (t: number) =>
    folds.reduce(
      (at, { from, to }) => at - covered(t, from, to) + (covered(t, from, to) / (to - from)) * fold,
      t,
    );
  const [left, right] = [virtual(view.from), virtual(view.to)];
  const per = width / Math.max(right - left, 1e-9);
  const real = (v: number) => {
    let t = v;
    for (const { from, to } of folds) {
      const start = virtual(from);
      if (v <= start) break;
      t = v < start + fold ? from + ((v - start) / fold) * (to - from) : to + (v - start - fold);
    }
    return t;
  };
  return { x: (t) => (virtual(t) - left) * per, t: (x) => real(x / per + left), per, folds };
}

/** The length of a range before a moment. */
function covered(t: number, from: number, to: number): number {
  return Math.min(Math.max(t - from, 0), to - from);
}

/**
 * The visible range, zoomed by a factor around a moment. It stays within the whole, and has at
 * least one millisecond.
 */
export function zoomed(view: Stretch, around: number, factor: number, end: number): Stretch {
  const length = Math.min(end, Math.max(1, (view.to - view.from) * factor));
  const share = (around - view.from) / Math.max(view.to - view.from, 1e-9);
  return within(around - share * length, length, end);
}

/** The visible range, moved sideways. */
export function moved(view: Stretch, by: number, end: number): Stretch {
  return within(view.from + by, view.to - view.from, end);
}

function within(from: number, length: number, end: number): Stretch {
  const left = Math.min(Math.max(0, from), Math.max(0, end - length));
  return { from: left, to: Math.min(end, left + length) };
}

/** The number of packets in each column of pixels. `xs` must be increasing. */
export function density(times: ArrayLike<number>, scale: Scale, width: number): Uint32Array {
  const columns = new Uint32Array(Math.max(1, Math.ceil(width)));
  const last = scale.t(width);
  for (let n = after(times, scale.t(0)); n < times.length && times[n]! <= last; n += 1) {
    const column = Math.min(columns.length - 1, Math.max(0, Math.floor(scale.x(times[n]!))));
    columns[column] = columns[column]! + 1;
  }
  return columns;
}

/** The index of the first time that is not before a moment. */
export function after(times: ArrayLike<number>, t: number): number {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle]! < t) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Round steps for the ruler, with a minimal distance in pixels. Folds have none, because they would
 * overlap.
 */
export function ticks(
  view: Stretch,
  { per, folds }: Pick<Scale, "per" | "folds">,
  apart = 90,
): readonly number[] {
  const least = Math.max(apart / per, 1);
  const power = 10 ** Math.floor(Math.log10(least));
  const step =
    [1, 2, 5, 10].map((n) => n * power).find((candidate) => candidate >= least) ?? 10 * power;
  return between(view, folds).flatMap(({ from, to }) => {
    const first = Math.ceil(from / step);
    return Array.from(
      { length: Math.max(0, Math.floor(to / step) - first + 1) },
      (_, n) => (first + n) * step,
    );
  });
}

/** A range without the folds in it. */
function between(view: Stretch, folds: readonly Stretch[]): readonly Stretch[] {
  const starts = [view.from, ...folds.map(({ to }) => to)];
  const ends = [...folds.map(({ from }) => from), view.to];
  return starts
    .map((from, n) => ({ from: Math.max(view.from, from), to: Math.min(view.to, ends[n]!) }))
    .filter(({ from, to }) => from <= to);
}
