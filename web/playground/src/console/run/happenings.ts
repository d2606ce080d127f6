// The events of the axis as sentences, in order of time. Pure.
import type { AttemptDetails, Mark, RunDetails, ViewerDetails } from "../generated/answers.js";
import { bytes, plural } from "../format.js";

export interface Happening {
  /** Milliseconds since the run's creation. */
  t: number;
  /**
   * The order among events of the same millisecond: an attempt begins before its first packet and
   * ends after its last.
   */
  place: number;
  seq: number | undefined;
  what: string;
  size: number | undefined;
}

export function happenings(
  { row, attempts, viewers }: RunDetails,
  marks: readonly Mark[],
): readonly Happening[] {
  const began = Date.parse(row.created_at);
  const at = (time: string, what: string, place = 0): Happening => ({
    t: Math.max(0, Date.parse(time) - began),
    place,
    seq: undefined,
    what,
    size: undefined,
  });
  const all = [
    ...attempts.flatMap((attempt) => ofAttempt(attempt, at)),
    ...(viewers ?? []).flatMap((viewer) => ofViewer(viewer, at)),
    ...marks.map(([seq, t, op, type, size]) => ({
      t,
      place: seq,
      seq,
      what: type ? `${op} ${type}` : op,
      size,
    })),
  ];
  return all.sort((a, b) => a.t - b.t || a.place - b.place);
}

type At = (time: string, what: string, place?: number) => Happening;

function ofAttempt(
  {
    n,
    began_at,
    ended_at,
    from_seq,
    to_seq,
    fault,
    continued_by,
    reset_to,
    swallowed_bytes,
  }: AttemptDetails,
  at: At,
): readonly Happening[] {
  const first = (from_seq ?? 0) - 0.5;
  const last = (to_seq ?? first) + 0.5;
  const begin = began_at ? [at(began_at, `Attempt ${n} begins`, first)] : [];
  if (!ended_at) return begin;
  const how = fault ? `fails: ${fault}` : "ends";
  const reset = reset_to == null ? "" : `, takes back what came after packet ${reset_to}`;
  const swallowed = swallowed_bytes ? `, ${bytes(swallowed_bytes)} said again were swallowed` : "";
  const continued = continued_by ? `, continued by ${continued_by.replace("_", " ")}` : "";
  return [...begin, at(ended_at, `Attempt ${n} ${how}${continued}${reset}${swallowed}`, last)];
}

const ENDS: Readonly<Record<string, string>> = {
  done: "has it all",
  left: "leaves",
  cut: "is cut off",
  stalled: "takes nothing any more and is cut off",
};

function ofViewer(
  { joined_at, left_at, ended, cursor_at_start, attached_behind, cursor }: ViewerDetails,
  at: At,
): readonly Happening[] {
  const came =
    attached_behind != null
      ? `A viewer repeats its request and reads ${placeOf(attached_behind)}`
      : cursor_at_start > 0
        ? `A viewer resumes after packet ${cursor_at_start}`
        : "A viewer joins";
  const written = cursor == null ? "" : `, written to its socket up to ${cursor}`;
  if (!left_at) return [at(joined_at, `${came} and is still there${written}`)];
  return [at(joined_at, came), at(left_at, `A viewer ${ENDS[ended ?? ""] ?? "leaves"}${written}`)];
}

function placeOf(behind: number): string {
  return behind > 0 ? `on behind ${plural(behind, "complete block")}` : "from the beginning";
}

/**
 * Each gateway counts only its own viewers. Asking the others, or storing the counts, would cost
 * more than it is worth.
 */
export const ONLY_HERE =
  "Only viewers at this gateway are shown; each gateway shows its own";

/**
 * The summary of viewers of a finished run. If several gateways share the journal, it covers the
 * gateway that ended the run.
 */
export function viewersSum(
  { viewers_sum: sum, row }: RunDetails,
  isShared: boolean,
): string | undefined {
  if (!sum) return undefined;
  const parts = [
    `${plural(sum.joined, "viewer")}${isShared ? " at the gateway that ended it" : ""}`,
    sum.resumed > 0 ? `${sum.resumed} resumed` : "",
    sum.attached > 0 ? `${sum.attached} repeated the request` : "",
    sum.cut > 0 ? `${sum.cut} cut off` : "",
    sum.stalled > 0 ? `${sum.stalled} stalled` : "",
  ];
  return (
    parts.filter(Boolean).join(", ") +
    (sum.last_cursor == null ? "" : `; ${sentBy(sum.last_cursor, row.packets)}`)
  );
}

/**
 * The sum is written together with the end, before clients can receive the end. So missing packets
 * in it do not mean that they were lost.
 */
function sentBy(last: number, packets: number): string {
  if (last >= packets) return "when its end was written, all its packets had been sent";
  const some =
    last === 0
      ? "no packet had been sent yet"
      : `${last} of ${plural(packets, "packet")} had been sent`;
  return `when its end was written, ${some}; whoever was still there was sent the rest`;
}
