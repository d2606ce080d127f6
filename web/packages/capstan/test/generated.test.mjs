// What Capstan writes and reads in AG-UI's words, held against the schemas of both published client lines; the
// generated types were compiled before this runs.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import * as core0 from "@ag-ui/core-0";
import * as core1 from "@ag-ui/core/schemas";

import { AGUIErrorCode, AGUI_HTTP_STATUS, AGUI_RETRYABLE, CATALOGUE } from "../dist/generated/faults.js";
import { ErrorSeverity } from "../dist/generated/wire.js";

const root = new URL("../../../../", import.meta.url);
const vectors = (file) => readFileSync(new URL(`vectors/${file}`, root), "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
const capstan = (...args) => execFileSync(process.env.CAPSTAN_BIN ?? fileURLToPath(new URL("target/debug/capstan", root)), args, { encoding: "utf8" });

const lines = {
  "1.0": { event: core1.EventSchema, input: core1.RunAgentInputSchema },
  "0.0.59": { event: core0.EventSchemas, input: core0.RunAgentInputSchema },
};

test("the enum has the ten codes and each its status", () => {
  assert.equal(Object.keys(AGUIErrorCode).length, 10);
  for (const code of Object.values(AGUIErrorCode)) assert.ok(AGUI_HTTP_STATUS[code] >= 400, code);
});

test("three codes are retryable by themselves", () => {
  assert.deepEqual([...AGUI_RETRYABLE].sort(), ["RATE_LIMITED", "SERVICE_UNAVAILABLE", "TIMEOUT"]);
});

test("every fault maps onto one of the ten codes and a known severity", () => {
  for (const fault of CATALOGUE) {
    assert.ok(fault.agui_code in AGUIErrorCode, fault.code);
    assert.ok(Object.values(ErrorSeverity).includes(fault.severity), fault.code);
  }
});

test("both published AG-UI lines accept every fault as RUN_ERROR", () => {
  for (const { code } of CATALOGUE) {
    const [{ dialects }] = JSON.parse(capstan("errors", code, "--json"));
    for (const [line, schemas] of Object.entries(lines)) {
      const seen = schemas.event.parse(dialects.run_error);
      assert.equal(seen.metadata.capstan.kind, code, `${line} keeps the finer kind`);
      assert.equal(seen.code, dialects.run_error.code);
    }
  }
});

test("both published AG-UI lines accept every event that Capstan writes", () => {
  for (const { lines: named, event } of vectors("agui/events.jsonl")) {
    for (const line of named) {
      const { success, error } = lines[line].event.safeParse(event);
      assert.ok(success, `${line} ${event.type}: ${error}`);
    }
  }
});

test("run inputs get the verdict of the published AG-UI lines", () => {
  for (const { lines: named, accept, input, why } of vectors("agui/inputs.jsonl")) {
    for (const line of named) assert.equal(lines[line].input.safeParse(input).success, accept, `${line}: ${why}`);
  }
});
