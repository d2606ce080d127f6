// A run for tests, in the form of the gateway's answer.
import type {
  AttemptDetails,
  NumberedTurn,
  RunDetails,
  RunRow,
} from "../../src/console/generated/answers.js";

export const BEGAN = Date.parse("2026-11-17T04:00:00.000Z");

export function rowOf(n: number, changed: Partial<RunRow> = {}): RunRow {
  return {
    stream_id: `01936d6e-0000-7000-8000-${n.toString().padStart(12, "0")}`,
    tenant: "local",
    agent: "demo",
    face: "cap",
    session: "s",
    key: `k${n}`,
    state: "done",
    created_at: at(0),
    updated_at: at(1_000),
    closed_at: at(1_000),
    duration_ms: 1_000,
    packets: 3,
    bytes: 300,
    tokens: 0,
    attempts: [{ n: 1 }],
    ...changed,
  };
}

/** The time so many milliseconds after the run began. */
export function at(ms: number): string {
  return new Date(BEGAN + ms).toISOString();
}

export function detailOf(changed: Partial<RunDetails> = {}, row: Partial<RunRow> = {}): RunDetails {
  return {
    row: rowOf(1, row),
    sentence: "Done in 1.0 s.",
    attempts: [],
    max_attempts: 3,
    viewers: [],
    may: { content: true, act: true },
    ...changed,
  };
}

export function attemptOf(n: number, changed: Partial<AttemptDetails> = {}): AttemptDetails {
  return { n, began_at: null, swallowed_bytes: 0, calls: 1, members: [], ...changed };
}

export function turnOf(n: number, changed: Partial<NumberedTurn> = {}): NumberedTurn {
  return { n, stream_id: String(n), messages: [], partial: false, closed_at: at(n), ...changed };
}
