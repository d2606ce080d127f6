// The machine replays every trace that the Rust machine wrote: the same events in, the same
// actions out.
import { expect, test } from "vitest";

import { CAPConnectionError, CAPProtocolError, CAPRuntimeError } from "../src/errors.js";
import { type Action, Machine } from "../src/machine.js";
import { delay } from "../src/machine/backoff.js";
import type { Notice } from "../src/notice.js";
import { vectors } from "./vectors.js";

interface Trace {
  name: string;
  policy: {
    max_retries: number;
    max_wait: number;
    resume_patience: number;
    deadline?: number | null;
    backoff_first: number;
    backoff_max: number;
    strict: boolean;
    profile: "v1" | "v2";
    viewer: boolean;
  };
  last_event_id: string | null;
  steps: { now: number; in: Input; out: unknown[] }[];
}

type Input =
  | null
  | "ended"
  | { opened: { status: number; content_type: string } }
  | { refused: { status: number; retry_after: string | null; body: string } }
  | { bytes: string }
  | { failed: string }
  | { pass: number };

const traces = vectors<Trace>("machine/traces.jsonl");

test("there are traces", () => {
  expect(traces.length).toBeGreaterThan(50);
});

test.each(traces.map((trace) => [trace.name, trace] as const))(
  "%s",
  (_, { policy, last_event_id, steps }) => {
    const machine = new Machine(
      {
        maxRetries: policy.max_retries,
        maxWait: policy.max_wait,
        resumePatience: policy.resume_patience,
        deadline: policy.deadline ?? undefined,
        backoff: { first: policy.backoff_first, max: policy.backoff_max, jitter: false },
        isStrict: policy.strict,
        profile: policy.profile,
        isViewer: policy.viewer,
      },
      last_event_id,
    );
    for (const step of steps) {
      apply(machine, step.in, step.now);
      expect(drain(machine, step.now)).toEqual(step.out);
    }
  },
);

test("waits double up to the longest and stay in the upper half", () => {
  const plain = { first: 500, max: 30_000, jitter: false };
  const delays = [0, 1, 2, 3, 4, 5, 6, 7].map((step) => delay(plain, step, Math.random));
  expect(delays).toEqual([500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
  for (let step = 0; step < 100; step += 1) {
    const wait = delay({ ...plain, jitter: true }, step, Math.random);
    const whole = delay(plain, step, Math.random);
    expect(wait >= whole / 2 && wait <= whole).toBe(true);
  }
});

function apply(machine: Machine, input: Input, now: number): void {
  if (input === null) return;
  if (input === "ended") return machine.ended(now);
  if ("opened" in input)
    machine.opened({ status: input.opened.status, contentType: input.opened.content_type });
  if ("bytes" in input) machine.bytes(new TextEncoder().encode(input.bytes));
  if ("failed" in input) machine.failed(input.failed, now);
  if ("refused" in input) {
    const { status, retry_after, body } = input.refused;
    machine.refused({ status, retryAfter: retry_after, body }, now);
  }
}

/** All actions up to one for which the shell would have to wait. */
function drain(machine: Machine, now: number): unknown[] {
  const out: unknown[] = [];
  for (;;) {
    const action = machine.poll(now);
    out.push(written(action));
    if (["connect", "read", "wait", "done"].includes(action.do)) return out;
  }
}

function written(action: Action): unknown {
  switch (action.do) {
    case "connect":
      return { connect: { last_event_id: action.lastEventId } };
    case "wait":
      return { wait: { until: action.until } };
    case "packet":
      return { packet: action.packet };
    case "notice":
      return { notice: writtenNotice(action.notice) };
    case "fail":
      return { fail: writtenError(action.error) };
    case "read":
    case "done":
      return action.do;
  }
}

function writtenNotice(notice: Notice): unknown {
  const { type, ...rest } = notice;
  if (notice.type === "retrying") return { retrying: { wait: notice.wait } };
  return Object.keys(rest).length === 0 ? type : { [type]: rest };
}

function writtenError(error: Error): unknown {
  if (error instanceof CAPConnectionError) return { kind: "connection", retries: error.retries };
  if (error instanceof CAPProtocolError) return { kind: "protocol" };
  if (!(error instanceof CAPRuntimeError)) throw error;
  return {
    kind: "runtime",
    status: error.status ?? null,
    code: error.code,
    severity: error.severity,
    retry_after: error.retryAfter ?? null,
    is_retryable: error.isRetryable,
  };
}
