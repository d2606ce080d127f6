// Numbers, times, sentences and commands as short text, with an injected clock.
import { execFileSync } from "node:child_process";

import fc from "fast-check";
import { expect, test } from "vitest";

import { eventOf } from "../../src/console/api/feed.js";
import { search } from "../../src/console/api/api.js";
import {
  age,
  bytes,
  clock,
  count,
  durationOf,
  plural,
  span,
  tokens,
} from "../../src/console/format.js";
import type { Part } from "../../../packages/capstan/src/generated/wire.js";
import type { Marks } from "../../src/console/generated/answers.js";
import { presets } from "../../src/console/list/presets.js";
import { historyOf } from "../../src/console/run/AsAsked.js";
import {
  againCurl,
  attachCurl,
  downloadCurl,
  quoted,
  tailCommand,
} from "../../src/console/run/curl.js";
import { textOf } from "../../src/console/run/packets.js";
import { faultHeading, sentenceOf } from "../../src/console/run/sentence.js";
import { joined } from "../../src/console/run/use-marks.js";
import { percentiles } from "../../src/console/views/Agents.js";
import { barsOf, matrix } from "../../src/console/views/matrix.js";
import { at, attemptOf, BEGAN, detailOf, rowOf, turnOf } from "./rows.js";

test.each([
  [0, "0 ms"],
  [850, "850 ms"],
  [14_290, "14.2 s"],
  [59_990, "59.9 s"],
  [185_000, "3 min 5 s"],
  [7_800_000, "2 h 10 min"],
  [356_400_000, "4 d 3 h"],
  [-5, "0 ms"],
])("%i ms are %s", (ms, words) => expect(span(ms)).toBe(words));

test("how long ago, to the largest unit", () => {
  expect([500, 61_000, 3_700_000, 200_000_000].map((ms) => age(at(0), BEGAN + ms))).toEqual([
    "0 s",
    "1 min",
    "1 h",
    "2 d",
  ]);
  expect(age("nonsense", BEGAN)).toBe("–");
});

test("a time of day has its date only if that is another", () => {
  expect(clock(at(0), BEGAN, "en-GB")).toMatch(/^\d\d:\d\d:\d\d$/);
  expect(clock(at(0), BEGAN + 3 * 86_400_000, "en-GB")).toMatch(/^1\d Nov, \d\d:\d\d:\d\d$/);
});

test("counts, sizes, tokens", () => {
  expect([
    count(1_234_567),
    bytes(999),
    bytes(1_500),
    bytes(25_000_000),
    plural(1, "run"),
    plural(2_000, "run"),
  ]).toEqual(["1,234,567", "999 B", "1.5 kB", "25 MB", "1 run", "2,000 runs"]);
  expect(tokens({ input_tokens: 12, output_tokens: 4_000, details: {} })).toBe(
    "12 input, 4,000 output",
  );
  expect(tokens(null)).toBeUndefined();
});

test("a run that goes on takes longer and longer", () => {
  expect(durationOf(rowOf(1, { state: "running", duration_ms: 10 }), BEGAN + 5_000)).toBe(5_000);
  expect(durationOf(rowOf(1), BEGAN + 5_000)).toBe(1_000);
});

test("a run that waits has not failed: the sentence counts down to what comes", () => {
  const waiting = detailOf(
    {
      attempts: [
        attemptOf(1, { began_at: at(0), ended_at: at(10), fault: "timeout" }),
        attemptOf(2, { began_at: at(20), ended_at: at(30), fault: "timeout" }),
      ],
      not_before: at(3_000),
    },
    { state: "waiting" },
  );
  expect(sentenceOf(waiting, BEGAN + 200)).toBe("Attempt 2 failed, attempt 3 may begin in 3 s.");
  expect(sentenceOf(waiting, BEGAN + 4_000)).toBe(
    "Attempt 2 failed, attempt 3 may begin: its client has to come back.",
  );
  expect(sentenceOf(detailOf(), BEGAN)).toBe("Done in 1.0 s.");
  expect(faultHeading(waiting)).toBe("Attempt 2 failed, the run continues");
  expect(faultHeading(detailOf({}, { state: "failed" }))).toBe("Why it failed");
});

test("a command reaches its program as it was meant, whatever is in it", () => {
  fc.assert(
    fc.property(
      fc.string({ unit: "grapheme" }).filter((text) => !text.includes("\0")),
      (text) =>
        execFileSync("sh", ["-c", `printf %s ${quoted(text)}`], { encoding: "utf8" }) === text,
    ),
    { numRuns: 25 },
  );
});

test("no command holds a key, and a new run has a new name", () => {
  const commands = [
    attachCurl("http://h", "id"),
    tailCommand("http://h", "id"),
    againCurl("http://h", rowOf(1), '{"request_id":"old","a":"it\'s"}', "fresh"),
  ];
  expect(commands[0]).toBe(
    `curl -N -H "Authorization: Bearer $CAPSTAN_KEY" 'http://h/v1/streams/id'`,
  );
  expect(commands[2]).toContain(
    `--data '{"request_id":"fresh","a":"it'\\''s"}' 'http://h/v1/agents/demo/assist'`,
  );
  expect(againCurl("http://h", rowOf(1, { face: "ag-ui" }), '{"runId":"old"}', "fresh")).toContain(
    `{"runId":"fresh"}' 'http://h/v1/agents/demo/ag-ui'`,
  );
  expect(againCurl("http://h", rowOf(1, { face: "another" }), "{}", "fresh")).toBeUndefined();
  expect(againCurl("http://h", rowOf(1), "nonsense", "fresh")).toBeUndefined();
});

test("a download is named as the command that replays it wants it", () => {
  expect(downloadCurl("http://h", "id")).toBe(
    `curl -o id.sse -H "Authorization: Bearer $CAPSTAN_KEY" 'http://h/v1/console/runs/id/frames'`,
  );
});

test("an agent is given the whole turns before its own, and not those that broke off", () => {
  const turns = [turnOf(1), turnOf(2, { partial: true }), turnOf(3), turnOf(4)];
  const { given, left } = historyOf(turns, "3");
  expect([given.map(({ stream_id }) => stream_id), left]).toEqual([["1"], 1]);
});

test("the text of a stored message is in its parts", () => {
  const parts: Part[] = [
    { type: "text", content: "Hello " },
    { type: "reasoning", content: "hidden" },
    { type: "text", content: "world" },
  ];
  expect(textOf(parts)).toBe("Hello world");
  expect(textOf([{ type: "input_text", text: "a" }, { text: "b" }])).toBe("ab");
});

test("what is not set is not asked", () =>
  expect([search({}), search({ a: "", b: undefined, c: 0 })]).toEqual(["", "?c=0"]));

test("the feed's events are known by name, and later ones are left alone", () => {
  expect(eventOf("run", '{"what":"began","run":{"stream_id":"1"}}')).toEqual({
    type: "run",
    what: "began",
    run: { stream_id: "1" },
  });
  expect(eventOf("lagged", "")).toEqual({ type: "lagged" });
  expect(eventOf("something", "{}")).toBeUndefined();
});

test("marks are joined, each packet once", () => {
  const before: Marks = {
    marks: [[1, 0, "DELTA", null, 5]],
    complete: true,
    read_to: 1,
    sampled: false,
  };
  const found: Marks = {
    marks: [
      [1, 0, "DELTA", null, 5],
      [2, 9, "CLOSE", null, 5],
    ],
    complete: true,
    read_to: 2,
    sampled: false,
  };
  expect(joined(before, found).marks.map(([seq]) => seq)).toEqual([1, 2]);
});

test("faults are rows of codes and columns of agents, the most frequent first", () => {
  const cell = (code: string, agent: string, fatal: number, healed = 0) => ({
    code,
    title: code,
    agent,
    fatal,
    healed,
    refused: 0,
  });
  const { rows, agents } = matrix([cell("a", "x", 1), cell("b", "", 5), cell("b", "x", 0, 2)]);
  expect(agents).toEqual(["x", ""]);
  expect(rows.map(({ code, all, fatal }) => [code, all, fatal])).toEqual([
    ["b", 7, 5],
    ["a", 1, 1],
  ]);
  expect(rows[1]?.cells[1]).toBeUndefined();
});

test("a step without a fault is a bar without height", () => {
  const bars = barsOf({
    from: at(0),
    to: at(180_000),
    step_seconds: 60,
    series: [{ at: at(60_000), fatal: 1, healed: 2, refused: 0 }],
  });
  expect(bars).toEqual([
    { at: at(0), parts: [0, 0, 0] },
    { at: at(60_000), parts: [1, 2, 0] },
    { at: at(120_000), parts: [0, 0, 0] },
  ]);
});

test("minutes of a day are put together, and none is lost", () => {
  const series = Array.from({ length: 1_440 }, (_, n) => ({
    at: at(n * 60_000),
    fatal: 1,
    healed: 0,
    refused: 0,
  }));
  const bars = barsOf({ from: at(0), to: at(86_400_000), step_seconds: 60, series });
  expect(bars.length).toBeLessThanOrEqual(181);
  expect(bars.reduce((sum, { parts }) => sum + parts[0]!, 0)).toBe(1_440);
});

test("today begins at midnight", () => {
  const [since] = presets(BEGAN).flatMap(({ filters }) => filters.since ?? []);
  expect(new Date(since!).toTimeString()).toMatch(/^00:00:00/);
  expect(BEGAN - Date.parse(since!)).toBeLessThan(86_400_000);
});

test("times of first packets are told as the steps by which they are counted", () => {
  expect(percentiles({ p50: 800, p95: 12_000 })).toBe("p50 ≤ 800 ms, p95 ≤ 12 s");
  // All values above the last step count as the last step.
  expect(percentiles({ p50: 1_500, p95: 60_000 })).toBe("p50 ≤ 1.5 s, p95 > 30 s");
  expect(percentiles({ p50: null, p95: null })).toBe("–");
});
