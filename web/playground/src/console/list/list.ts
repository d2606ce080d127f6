// The list of runs as it grows at its end, page by page, and at its top, live. Pure, and nothing
// moves unless it may: rows that are there change in place, new ones wait until somebody asks for
// them.
import type { RunRow, RunRows } from "../generated/answers.js";
import type { Filters } from "../url.js";

export interface List {
  /** Newest first; stream ids sort by time. */
  rows: readonly RunRow[];
  /** Rows that came while somebody looked. */
  fresh: readonly RunRow[];
  /** Where the next page begins; nothing is left if there is none. */
  next: string | undefined;
  /** How far back the gateway looked, if its budget ran out before the page was full. */
  lookedBackTo: string | undefined;
}

export const EMPTY: List = { rows: [], fresh: [], next: undefined, lookedBackTo: undefined };

/**
 * The list with one more page at its end; fewer than `limit` rows and more to come means that the
 * gateway's budget ran out.
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

/** The list after the feed told of a run. `mayMove`: nobody would notice a row more at the top. */
export function withLive(list: List, row: RunRow, filters: Filters, mayMove: boolean): List {
  if (indexOf(list.rows, row.stream_id) >= 0) return { ...list, rows: merged(list.rows, [row]) };
  if (!matches(row, filters) || isBeyond(list, row))
    return { ...list, fresh: list.fresh.filter(({ stream_id }) => stream_id !== row.stream_id) };
  const fresh = merged(list.fresh, [row]);
  return mayMove ? withFresh({ ...list, fresh }) : { ...list, fresh };
}

/** The list with what waited at its top. */
export function withFresh(list: List): List {
  return { ...list, rows: merged(list.rows, list.fresh), fresh: [] };
}

/** Without a run: it was purged. */
export function without(list: List, id: string): List {
  const others = (rows: readonly RunRow[]) => rows.filter(({ stream_id }) => stream_id !== id);
  return { ...list, rows: others(list.rows), fresh: others(list.fresh) };
}

/** It lies behind what was read so far, and comes with its page. */
function isBeyond({ rows, next }: List, { stream_id }: RunRow): boolean {
  const last = rows.at(-1);
  return next !== undefined && last !== undefined && stream_id < last.stream_id;
}

/**
 * Both, each run once and as the second has it, newest first. Both are sorted, so that only what
 * lies between is looked at: the rows are many, and runs begin by the dozen.
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

/** How many rows are newer than a run. */
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
 * Whether a run belongs into the list. The server decides for its pages; this is for what the feed
 * tells.
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

/** The runs before and after one, in the list's own order. */
export function neighbours(
  rows: readonly RunRow[],
  id: string,
): { newer: string | undefined; older: string | undefined } {
  const at = indexOf(rows, id);
  if (at < 0) return { newer: undefined, older: undefined };
  return { newer: rows[at - 1]?.stream_id, older: rows[at + 1]?.stream_id };
}
