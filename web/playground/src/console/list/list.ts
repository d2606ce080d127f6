// The list of runs. It grows at its end by pages, and at its top by live events. Pure. Existing
// rows change in place. New rows wait until the user asks for them, so that nothing moves
// unexpectedly.
import type { RunRow, RunRows } from "../generated/answers.js";
import type { Filters } from "../url.js";

export interface List {
  /** Newest first; stream ids sort by time. */
  rows: readonly RunRow[];
  /** New rows that wait at the top. */
  fresh: readonly RunRow[];
  /** The start of the next page; undefined if there is none. */
  next: string | undefined;
  /** How far back the gateway searched, if its budget was used up before the page was full. */
  lookedBackTo: string | undefined;
}

export const EMPTY: List = { rows: [], fresh: [], next: undefined, lookedBackTo: undefined };

/**
 * Adds a page at the end. Fewer than `limit` rows with a next page mean that the gateway's budget
 * was used up.
 */
export function withPage(list: List, page: RunRows, limit: number): List {
  const isFirst = list.rows.length === 0;
  return {
    rows: merged(list.rows, page.runs),
    fresh: isFirst ? [] : list.fresh,
    next: page.next ?? undefined,
    lookedBackTo:
      page.next && page.runs.length < limit ? (page.looked_back_to ?? undefined) : undefined,
  };
}

/** Applies an event of the feed. `mayMove`: a row may be inserted at the top at once. */
export function withLive(list: List, row: RunRow, filters: Filters, mayMove: boolean): List {
  if (indexOf(list.rows, row.stream_id) >= 0) return { ...list, rows: merged(list.rows, [row]) };
  if (!matches(row, filters) || isBeyond(list, row))
    return { ...list, fresh: list.fresh.filter(({ stream_id }) => stream_id !== row.stream_id) };
  const fresh = merged(list.fresh, [row]);
  return mayMove ? withFresh({ ...list, fresh }) : { ...list, fresh };
}

/** Inserts the rows that wait at the top. */
export function withFresh(list: List): List {
  return { ...list, rows: merged(list.rows, list.fresh), fresh: [] };
}

/** Removes a run that was purged. */
export function without(list: List, id: string): List {
  const others = (rows: readonly RunRow[]) => rows.filter(({ stream_id }) => stream_id !== id);
  return { ...list, rows: others(list.rows), fresh: others(list.fresh) };
}

/** Whether the run is older than the loaded rows, and comes with its page. */
function isBeyond({ rows, next }: List, { stream_id }: RunRow): boolean {
  const last = rows.at(-1);
  return next !== undefined && last !== undefined && stream_id < last.stream_id;
}

/**
 * Merges two sorted lists, newest first. Of equal runs, the second list's row is used. Only the
 * overlapping part is compared, because there are many rows and frequent changes.
 */
function merged(rows: readonly RunRow[], more: readonly RunRow[]): readonly RunRow[] {
  const [newest, oldest] = [more[0], more.at(-1)];
  if (!newest || !oldest) return rows;
  const first = newerThan(rows, newest.stream_id);
  const end = Math.max(
    first,
    newerThan(rows, oldest.stream_id) + (indexOf(rows, oldest.stream_id) < 0 ? 0 : 1),
  );
  const between = new Map([...rows.slice(first, end), ...more].map((row) => [row.stream_id, row]));
  return [
    ...rows.slice(0, first),
    ...[...between.values()].sort((a, b) => (a.stream_id < b.stream_id ? 1 : -1)),
    ...rows.slice(end),
  ];
}

/** The number of rows that are newer than a run. */
function newerThan(rows: readonly RunRow[], id: string): number {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle]!.stream_id > id) low = middle + 1;
    else high = middle;
  }
  return low;
}

function indexOf(rows: readonly RunRow[], id: string): number {
  const at = newerThan(rows, id);
  return rows[at]?.stream_id === id ? at : -1;
}

/**
 * Whether a run matches the filters. The server decides for its pages; this is for events of the
 * feed.
 */
export function matches(row: RunRow, filters: Filters): boolean {
  const { tenant, agent, state, fault, session, since, until, before } = filters;
  const at = Date.parse(row.created_at);
  return (
    before === "" &&
    isEither(tenant, row.tenant) &&
    isEither(agent, row.agent) &&
    isEither(session, row.session) &&
    isEither(state, row.state) &&
    (fault === "" ||
      row.fault === fault ||
      row.attempts.some((attempt) => attempt.fault === fault)) &&
    !(Date.parse(since) > at) &&
    !(Date.parse(until) < at)
  );
}

function isEither(wanted: string, found: string | null | undefined): boolean {
  return wanted === "" || wanted === found;
}

/** The runs before and after a run, in the order of the list. */
export function neighbours(
  rows: readonly RunRow[],
  id: string,
): { newer: string | undefined; older: string | undefined } {
  const at = indexOf(rows, id);
  if (at < 0) return { newer: undefined, older: undefined };
  return { newer: rows[at - 1]?.stream_id, older: rows[at + 1]?.stream_id };
}
