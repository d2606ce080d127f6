// Checks the AG-UI events of Capstan against the schemas of both published client lines.
import * as core1 from "@ag-ui/core/schemas";
import * as core0 from "@ag-ui/core-0";
import { expect, test } from "vitest";

import {
  AGUI_HTTP_STATUS,
  AGUI_RETRYABLE,
  AGUIErrorCode,
  CATALOGUE,
} from "../src/generated/faults.js";
import { ErrorSeverity } from "../src/generated/wire.js";
import { capstan, vectors } from "./vectors.js";

const lines = {
  "1.0": { event: core1.EventSchema, input: core1.RunAgentInputSchema },
  "0.0.59": { event: core0.EventSchemas, input: core0.RunAgentInputSchema },
} as const;
type Line = keyof typeof lines;

test("the enum has the ten codes and each its status", () => {
  expect(Object.keys(AGUIErrorCode)).toHaveLength(10);
  for (const code of Object.values(AGUIErrorCode))
    expect(AGUI_HTTP_STATUS[code], code).toBeGreaterThanOrEqual(400);
});

test("three codes are retryable by themselves", () => {
  expect([...AGUI_RETRYABLE].sort()).toEqual(["RATE_LIMITED", "SERVICE_UNAVAILABLE", "TIMEOUT"]);
});

test("every fault maps onto one of the ten codes and a known severity", () => {
  for (const fault of CATALOGUE) {
    expect(Object.keys(AGUIErrorCode)).toContain(fault.agui_code);
    expect(Object.values(ErrorSeverity)).toContain(fault.severity);
  }
});

test("both published AG-UI lines accept every fault as RUN_ERROR", () => {
  for (const { code } of CATALOGUE) {
    const [{ dialects }] = JSON.parse(capstan("errors", code, "--json"));
    for (const [line, schemas] of Object.entries(lines)) {
      const seen = schemas.event.parse(dialects.run_error) as unknown as Record<string, never>;
      expect(seen["metadata"]?.["capstan"]?.["kind"], `${line} keeps the finer kind`).toBe(code);
      expect(seen["code"]).toBe(dialects.run_error.code);
    }
  }
});

test("both published AG-UI lines accept every event that Capstan writes", () => {
  for (const { lines: named, event } of vectors<{ lines: Line[]; event: { type: string } }>(
    "agui/events.jsonl",
  )) {
    for (const line of named) {
      const { success, error } = lines[line].event.safeParse(event);
      expect(success, `${line} ${event.type}: ${error}`).toBe(true);
    }
  }
});

test("run inputs get the verdict of the published AG-UI lines", () => {
  type Input = { lines: Line[]; accept: boolean; input: unknown; why: string };
  for (const { lines: named, accept, input, why } of vectors<Input>("agui/inputs.jsonl")) {
    for (const line of named)
      expect(lines[line].input.safeParse(input).success, `${line}: ${why}`).toBe(accept);
  }
});
