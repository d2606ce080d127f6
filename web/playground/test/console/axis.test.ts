// The axis: attempts and waits at their times, and a scale that can be inverted.
import fc from "fast-check";
import { expect, test } from "vitest";

import { after, axisOf, density, moved, scale, ticks, zoomed } from "../../src/console/run/axis.js";
import { happenings, viewersSum } from "../../src/console/run/happenings.js";
import { at, attemptOf, BEGAN, detailOf } from "./rows.js";

/** An attempt of two seconds that failed, half a minute of waiting, and one that ended well. */
const HEALED = detailOf(
  {
    attempts: [
      attemptOf(1, {
        began_at: at(0),
        first_packet_at: at(500),
        ended_at: at(2_000),
        fault: "timeout",
      }),
      attemptOf(2, {
        began_at: at(32_000),
        first_packet_at: at(32_100),
        ended_at: at(34_000),
        reset_to: 4,
        swallowed_bytes: 12,
      }),
    ],
  },
  { state: "healed", closed_at: at(34_000) },
);
const axis = axisOf(HEALED, BEGAN + 99_000);
const whole = { from: 0, to: axis.end };

test("attempts are hollow up to their first packet, and waits lie between them", () => {
  expect(axis.end).toBe(34_000);
  expect(axis.attempts.map(({ from, first, to }) => [from, first, to])).toEqual([
    [0, 500, 2_000],
    [32_000, 32_100, 34_000],
  ]);
  expect(axis.waits).toEqual([{ from: 2_000, to: 32_000, says: "waits for attempt 2" }]);
});

test("a run that waits does so until now, and says for whom", () => {
  const waiting = axisOf(
    {
      ...HEALED,
      attempts: HEALED.attempts.slice(0, 1),
      row: { ...HEALED.row, state: "waiting", closed_at: null },
      not_before: at(9_000),
    },
    BEGAN + 7_000,
  );
  expect(waiting.waits).toEqual([
    { from: 2_000, to: 7_000, says: "waits until its client comes back" },
  ]);
});

test("a folded wait takes a little of the width, and the rest keeps its proportions", () => {
  const folded = scale(axis, 1000, whole, true);
  const straight = scale(axis, 1000, whole, false);
  expect(folded.folds).toHaveLength(1);
  expect(straight.folds).toHaveLength(0);
  expect(folded.x(32_000) - folded.x(2_000)).toBeLessThan(80);
  expect(straight.x(32_000) - straight.x(2_000)).toBeGreaterThan(800);
  expect(folded.x(2_000)).toBeCloseTo(folded.x(34_000) - folded.x(32_000));
});

test("there and back again, in order, folded or not", () => {
  const moment = fc.double({ min: 0, max: axis.end, noNaN: true });
  fc.assert(
    fc.property(moment, moment, fc.boolean(), (a, b, isFolding) => {
      const { x, t } = scale(axis, 800, whole, isFolding);
      expect(t(x(a))).toBeCloseTo(a, 3);
      if (a < b) expect(x(a)).toBeLessThanOrEqual(x(b));
    }),
  );
});

test("a zoom keeps the moment under the pointer, and stays within the run", () => {
  const view = zoomed(whole, 8_500, 0.5, axis.end);
  expect(view).toEqual({ from: 4_250, to: 21_250 });
  expect(zoomed(view, 10_000, 100, axis.end)).toEqual(whole);
  expect(moved(view, -99_999, axis.end)).toEqual({ from: 0, to: 17_000 });
  expect(moved(view, 99_999, axis.end)).toEqual({ from: 17_000, to: 34_000 });
});

test("every packet falls into one column", () => {
  const times = Float64Array.from({ length: 10_000 }, (_, n) => (n * axis.end) / 10_000);
  const columns = density(times, scale(axis, 300, whole, true), 300);
  expect(columns.reduce((sum, n) => sum + n, 0)).toBe(10_000);
  expect(after(times, axis.end / 2)).toBe(5_000);
});

test("ticks are round and not too many", () => {
  expect(ticks(whole, scale(axis, 1000, whole, false))).toEqual([
    0, 5_000, 10_000, 15_000, 20_000, 25_000, 30_000,
  ]);
  expect(ticks(whole, scale(axis, 1000, whole, true))).toEqual([
    0, 500, 1_000, 1_500, 2_000, 32_000, 32_500, 33_000, 33_500, 34_000,
  ]);
  for (const to of [3, 999, 1e5, 1e9])
    expect(ticks({ from: 0, to }, { per: 800 / to, folds: [] }).length).toBeLessThanOrEqual(9);
});

test("what is drawn is told in words, in its order", () => {
  const viewers = [
    { joined_at: at(100), left_at: at(900), ended: "cut" as const, cursor_at_start: 2, cursor: 3 },
    { joined_at: at(600), cursor_at_start: 0, cursor: 2 },
  ];
  const told = happenings({ ...HEALED, viewers }, [
    [1, 500, "DELTA", null, 20],
    [2, 33_000, "EVENT", "stream_reset", 40],
  ]);
  expect(told.map(({ t, what }) => [t, what])).toEqual([
    [0, "Attempt 1 begins"],
    [100, "A viewer resumes after packet 2"],
    [500, "DELTA"],
    [600, "A viewer joins and is still there, written to its socket up to 2"],
    [900, "A viewer is cut off, written to its socket up to 3"],
    [2_000, "Attempt 1 fails: timeout"],
    [32_000, "Attempt 2 begins"],
    [33_000, "EVENT stream_reset"],
    [34_000, "Attempt 2 ends, takes back what came after packet 4, 12 B said again were swallowed"],
  ]);
  const watched = {
    ...HEALED,
    viewers_sum: { joined: 2, resumed: 1, attached: 1, cut: 1, stalled: 0, last_cursor: 3 },
  };
  expect(viewersSum(watched, false)).toBe(
    "2 viewers, 1 resumed, 1 repeated the request, 1 cut off; " +
      "when its end was written, all its packets had been sent",
  );
  expect(viewersSum(watched, true)).toContain("2 viewers at the gateway that ended it, 1 resumed");
  // The usual case: the last packets are sent after they were written, so the record has a lower
  // cursor.
  const usual = (last_cursor: number) =>
    viewersSum(
      {
        ...watched,
        viewers_sum: { joined: 1, resumed: 0, attached: 0, cut: 0, stalled: 0, last_cursor },
      },
      false,
    );
  expect(usual(2)).toBe(
    "1 viewer; when its end was written, 2 of 3 packets had been sent; " +
      "whoever was still there was sent the rest",
  );
  expect(usual(0)).toBe(
    "1 viewer; when its end was written, no packet had been sent yet; " +
      "whoever was still there was sent the rest",
  );
});

test("a continued answer and a repeated request are told", () => {
  const attempts = [
    attemptOf(2, { began_at: at(0), ended_at: at(50), continued_by: "upstream_resume" }),
  ];
  const repeated = (joined: number, attached_behind: number) => ({
    joined_at: at(joined),
    cursor_at_start: 0,
    attached_behind,
    cursor: 2,
  });
  const viewers = [repeated(10, 0), repeated(20, 2)];
  const told = happenings({ ...HEALED, attempts, viewers }, []);
  expect(told.map(({ what }) => what.replace(/ and is still there.*/, ""))).toEqual([
    "Attempt 2 begins",
    "A viewer repeats its request and reads from the beginning",
    "A viewer repeats its request and reads on behind 2 complete blocks",
    "Attempt 2 ends, continued by upstream resume",
  ]);
});

test("within a millisecond packets stand in the attempt that wrote them", () => {
  const attempts = [
    attemptOf(1, { began_at: at(0), ended_at: at(0), from_seq: 1, to_seq: 2, fault: "timeout" }),
    attemptOf(2, { began_at: at(0), ended_at: at(0), from_seq: 3, to_seq: 4 }),
  ];
  const told = happenings({ ...HEALED, attempts }, [
    [1, 0, "DELTA", null, 1],
    [2, 0, "ERROR", null, 1],
    [3, 0, "DELTA", null, 1],
    [4, 0, "CLOSE", null, 1],
  ]);
  expect(told.map(({ what }) => what)).toEqual([
    "Attempt 1 begins",
    "DELTA",
    "ERROR",
    "Attempt 1 fails: timeout",
    "Attempt 2 begins",
    "DELTA",
    "CLOSE",
    "Attempt 2 ends",
  ]);
});
