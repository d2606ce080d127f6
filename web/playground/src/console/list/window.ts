// Computes which rows of a long list are on the screen. All rows have the same height, so nothing
// is measured.

/** Rows beyond the edge that are rendered in advance. */
const BESIDE = 4;
/** The tallest layout of browsers. Beyond it positions are wrong. */
const TALLEST = 15_000_000;

export interface Range {
  first: number;
  /** The index after the last row. */
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
 * The next range of rows on the way to the wanted range. It adds at most `more` rows per step,
 * those on the screen first.
 */
export function grow(there: Range, wanted: Range, seen: number, more: number): Range {
  const both = { first: Math.max(there.first, wanted.first), end: Math.min(there.end, wanted.end) };
  const { first, end } = both.first < both.end ? both : { first: seen, end: seen };
  const below = Math.min(wanted.end - end, more);
  const above = Math.min(first - wanted.first, more - below);
  return { first: first - above, end: end + below };
}

function clamp(place: number, count: number): number {
  return Math.min(count, Math.max(0, place));
}

/** The height of all rows. */
export function total(row: number, count: number): number {
  return Math.min(TALLEST, row * count);
}

/** The scroll position that shows a row completely; the present one if the row is visible. */
export function reveal(at: number, top: number, height: number, row: number): number {
  if (at * row < top) return at * row;
  return (at + 1) * row > top + height ? (at + 1) * row - height : top;
}
