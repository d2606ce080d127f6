// Addresses and choices map to each other in both directions.
import fc from "fast-check";
import { expect, test } from "vitest";

import {
  filled,
  type Filters,
  FILTERS,
  filtersOf,
  searchOf,
  to,
  viewOf,
  withQuery,
} from "../../src/console/url.js";

test.each([
  ["/console", { view: "overview" }],
  ["/console/", { view: "overview" }],
  ["/console/runs", { view: "runs" }],
  ["/console/runs/0190-abc", { view: "run", id: "0190-abc" }],
  ["/console/agents/a%20b", { view: "agent", name: "a b" }],
  ["/console/sessions/acme/x%2Fy", { view: "session", tenant: "acme", session: "x/y" }],
  ["/console/nothing", { view: "nowhere" }],
  ["/console/runs/a/b/c", { view: "nowhere" }],
  ["/console/agents/%E0%A4%A", { view: "agent", name: "%E0%A4%A" }],
])("%s is a view", (path, view) => expect(viewOf(path)).toEqual(view));

test("an id that is looked for is in the query", () => {
  const address = new URL(to.find("a b&c=d"), "http://test");
  expect(viewOf(address.pathname, address.search)).toEqual({ view: "find", q: "a b&c=d" });
});

test("filters survive their address, whatever they hold", () => {
  const word = fc.string({ unit: "binary" }).map((text) => text.trim());
  const filters = fc.record(
    Object.fromEntries(FILTERS.map((name) => [name, word])),
  ) as fc.Arbitrary<Filters>;
  fc.assert(
    fc.property(filters, (given) => {
      expect(filtersOf(searchOf(given))).toEqual({ ...given });
    }),
  );
});

test("equal filters have one address, and what is no filter is dropped", () => {
  expect(searchOf(filtersOf("?until=&state=failed&utm=1&agent=demo"))).toBe(
    "?agent=demo&state=failed",
  );
  expect(filtersOf("?state=nonsense").state).toBe("nonsense");
  expect(searchOf({ since: "2026-11-17T04:00:00.000Z" })).toBe("?since=2026-11-17T04:00:00.000Z");
});

test("one choice changes, the others stay", () => {
  expect(withQuery("/console/runs/1", "?tab=frames&at=7", { at: "8" })).toBe(
    "/console/runs/1?tab=frames&at=8",
  );
  expect(withQuery("/console/runs/1", "?tab=frames&at=7", { at: undefined })).toBe(
    "/console/runs/1?tab=frames",
  );
});

test("a session's link leads to that session, whatever its name", () => {
  const anyName = fc
    .string({ minLength: 1, unit: "grapheme" })
    .filter((name) => !/^\.\.?$/.test(name));
  fc.assert(
    fc.property(anyName, (session) => {
      const { pathname } = new URL(to.session("acme", session), "http://test");
      expect(viewOf(pathname)).toEqual({ view: "session", tenant: "acme", session });
    }),
  );
});

test("links out are filled whole, and are https", () => {
  expect(filled("https://traces.example/{trace_id}?a=1", { trace_id: "a/b" })).toBe(
    "https://traces.example/a%2Fb?a=1",
  );
  expect(filled("https://traces.example/{trace_id}", { trace_id: null })).toBeUndefined();
  expect(filled("javascript:alert({trace_id})", { trace_id: "1" })).toBeUndefined();
});
