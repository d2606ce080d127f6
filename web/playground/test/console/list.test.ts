// The list grows at both ends, and never moves unexpectedly.
import { expect, test } from "vitest";

import {
  EMPTY,
  matches,
  neighbours,
  withFresh,
  withLive,
  without,
  withPage,
} from "../../src/console/list/list.js";
import { grow, range, reveal, total } from "../../src/console/list/window.js";
import { filtersOf } from "../../src/console/url.js";
import { rowOf } from "./rows.js";

const ALL = filtersOf("");
const ids = (rows: readonly { key: string }[]) => rows.map(({ key }) => key);
const page = (runs: ReturnType<typeof rowOf>[], next: string | null = null) => ({
  runs,
  next,
  looked_back_to: "2026-11-17T03:00:00.000Z",
  complete: next === null,
});
const first = withPage(EMPTY, page([rowOf(3), rowOf(2)], "c"), 2);

test("pages follow each other, each run once, newest first", () => {
  const list = withPage(first, page([rowOf(2), rowOf(1)]), 2);
  expect(ids(list.rows)).toEqual(["k3", "k2", "k1"]);
  expect(list.next).toBeUndefined();
});

test("a short page with more behind it says how far it looked; a full one does not", () => {
  expect(first.lookedBackTo).toBeUndefined();
  expect(withPage(first, page([], "d"), 2).lookedBackTo).toBe("2026-11-17T03:00:00.000Z");
  expect(withPage(first, page([]), 2).lookedBackTo).toBeUndefined();
});

test("a row that is there changes in place, even if it fits the filter no longer", () => {
  const running = filtersOf("?state=running");
  const list = withLive(
    withPage(EMPTY, page([rowOf(2, { state: "running" }), rowOf(1, { state: "running" })]), 9),
    rowOf(2, { state: "failed" }),
    running,
    false,
  );
  expect(list.rows.map(({ state }) => state)).toEqual(["failed", "running"]);
  expect(list.fresh).toEqual([]);
});

test("a new run waits while somebody looks, and then comes to the top", () => {
  const looked = withLive(first, rowOf(9), ALL, false);
  expect([ids(looked.rows), ids(looked.fresh)]).toEqual([["k3", "k2"], ["k9"]]);
  expect(ids(withFresh(looked).rows)).toEqual(["k9", "k3", "k2"]);
  expect(ids(withLive(looked, rowOf(10), ALL, true).rows)).toEqual(["k10", "k9", "k3", "k2"]);
  // A waiting row counts once, however often it changes.
  expect(withLive(looked, rowOf(9, { state: "failed" }), ALL, false).fresh).toHaveLength(1);
});

test("a run that lies behind what was read comes with its page, not before", () => {
  expect(withLive(first, rowOf(1), ALL, true)).toEqual(first);
});

test("a purged run is gone from both parts", () => {
  const id = rowOf(9).stream_id;
  expect(without(withLive(first, rowOf(9), ALL, false), id).fresh).toEqual([]);
  expect(ids(without(first, rowOf(3).stream_id).rows)).toEqual(["k2"]);
});

test.each([
  ["?agent=demo", true],
  ["?agent=other", false],
  ["?state=healed", true],
  ["?fault=timeout", true],
  ["?fault=upstream_error", false],
  ["?since=2026-11-17T04:00:01.000Z", false],
  ["?until=2026-11-17T03:00:00.000Z", false],
  ["?before=x", false],
])("%s fits: %s", (search, fits) => {
  expect(
    matches(
      rowOf(1, { state: "healed", attempts: [{ n: 1, fault: "timeout" }, { n: 2 }] }),
      filtersOf(search),
    ),
  ).toBe(fits);
});

test("neighbours are those of the list", () => {
  const { rows } = withPage(EMPTY, page([rowOf(3), rowOf(2), rowOf(1)]), 9);
  expect(neighbours(rows, rowOf(2).stream_id)).toEqual({
    newer: rowOf(3).stream_id,
    older: rowOf(1).stream_id,
  });
  expect(neighbours(rows, rowOf(3).stream_id).newer).toBeUndefined();
  expect(neighbours(rows, "elsewhere")).toEqual({ newer: undefined, older: undefined });
});

test("a window holds what is seen and a little more, and nothing that is not there", () => {
  expect(range(0, 400, 40, 10_000, 2)).toEqual({ first: 0, end: 12 });
  expect(range(4_000, 400, 40, 10_000, 2)).toEqual({ first: 98, end: 112 });
  expect(range(1e9, 400, 40, 5, 2)).toEqual({ first: 5, end: 5 });
  expect(total(40, 1_000_000)).toBe(15_000_000);
});

test("a row is scrolled to only if it cannot be seen", () => {
  expect(reveal(3, 0, 400, 40)).toBe(0);
  expect(reveal(20, 0, 400, 40)).toBe(440);
  expect(reveal(1, 400, 400, 40)).toBe(40);
});

test("rows come a few at a time, those on screen first, and those that are there stay", () => {
  const wanted = { first: 96, end: 126 };
  // A jump: none of its rows is rendered yet.
  const steps = [grow({ first: 0, end: 26 }, wanted, 100, 10)];
  while (steps.length < 4) steps.push(grow(steps.at(-1)!, wanted, 100, 10));
  expect(steps).toEqual([
    { first: 100, end: 110 },
    { first: 100, end: 120 },
    { first: 96, end: 126 },
    wanted,
  ]);
  // One row further, in both directions.
  expect(grow(wanted, { first: 97, end: 127 }, 101, 10)).toEqual({ first: 97, end: 127 });
  expect(grow(wanted, { first: 95, end: 125 }, 99, 10)).toEqual({ first: 95, end: 125 });
  // From an empty range, and to one.
  expect(grow({ first: 0, end: 0 }, { first: 0, end: 5 }, 0, 10)).toEqual({ first: 0, end: 5 });
  expect(grow(wanted, { first: 0, end: 0 }, 0, 10)).toEqual({ first: 0, end: 0 });
});
