// Which rows of a long list are on screen. Rows are of one height, so that it is arithmetic and
// not measuring.

/** Rows beyond the edge that are there already when somebody scrolls. */
const BESIDE = 4;
/** No browser lays out more; beyond it positions are lost. */
const TALLEST = 15_000_000;

export interface Range {
  first: number;
  /** One past the last. */
  end: number;
}

export function range(
  top: number,
  height: number,
  row: number,
  count: number,
  beside = BESIDE,
): Range {
  const first = Math.floor(Math.max(0, top) / row) - beside;
  const end = Math.ceil((Math.max(0, top) + height) / row) + beside;
  return { first: clamp(first, count), end: clamp(end, count) };
}

/**
 * The rows to have next on the way from those that are there to those that shall be: only so many
 * more at a time, those on screen first.
 */
export function grow(there: Range, wanted: Range, seen: number, more: number): Range {
  const kept = { first: Math.max(there.first, wanted.first), end: Math.min(there.end, wanted.end) };
  const { first, end } = kept.first < kept.end ? kept : { first: seen, end: seen };
  const below = Math.min(wanted.end - end, more);
  const above = Math.min(first - wanted.first, more - below);
  return { first: first - above, end: end + below };
}

function clamp(place: number, count: number): number {
  return Math.min(count, Math.max(0, place));
}

/** How tall all rows are together. */
export function total(row: number, count: number): number {
  return Math.min(TALLEST, row * count);
}

/** Where to scroll so that a row can be seen whole: nowhere if it can. */
export function reveal(at: number, top: number, height: number, row: number): number {
  if (at * row < top) return at * row;
  return (at + 1) * row > top + height ? (at + 1) * row - height : top;
}
