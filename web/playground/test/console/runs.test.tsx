// @vitest-environment happy-dom
// The list of runs does not move while the user reads it, and updates afterwards.
import { act } from "react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { Refused } from "../../src/console/api/api.js";
import { Runs } from "../../src/console/views/Runs.js";
import { rowOf } from "./rows.js";
import { type Stage, stage } from "./stage.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const api = {
  runs: async () => ({ runs: [rowOf(1)], next: null, looked_back_to: null, complete: true }),
  agents: async () => ({ agents: [] }),
};
const begin = (on: Stage, n: number) => on.tell({ type: "run", what: "began", run: rowOf(n) });
const first = (on: Stage) => on.find("[data-row='0']")?.dataset["run"];
const pass = (ms: number) => act(async () => void (await vi.advanceTimersByTimeAsync(ms)));
// React reports enter and leave by these events.
const point = (on: Stage, kind: "pointerover" | "pointerout") =>
  act(
    async () =>
      void on
        .find(".table")!
        .dispatchEvent(new PointerEvent(kind, { bubbles: true, relatedTarget: document.body })),
  );

test("a held-back run appears when the pointer leaves the list", async () => {
  const on = await stage(<Runs />, { api, at: "/console/runs" });
  await point(on, "pointerover");
  await begin(on, 2);
  await pass(5_000);
  expect([first(on), on.text().includes("Paused while you look.")]).toEqual([
    rowOf(1).stream_id,
    true,
  ]);
  await point(on, "pointerout");
  await pass(1_000);
  expect([first(on), on.text().includes("Live.")]).toEqual([rowOf(2).stream_id, true]);
});

test("the same with the focus, wherever in the list it is", async () => {
  const on = await stage(<Runs />, { api, at: "/console/runs" });
  await act(async () => on.find("[data-row='0'] a")!.focus());
  await begin(on, 2);
  await pass(5_000);
  expect(first(on)).toBe(rowOf(1).stream_id);
  await act(async () => on.find("[data-row='0'] a")!.blur());
  await pass(1_000);
  expect(first(on)).toBe(rowOf(2).stream_id);
});

test("an unknown state is refused, and never shown as any state", async () => {
  const runs = vi.fn(async () =>
    Promise.reject(
      new Refused(
        400,
        "invalid_request",
        'state: "bogus" is unknown; expected one of running, waiting',
        undefined,
      ),
    ),
  );
  const on = await stage(<Runs />, { api: { ...api, runs }, at: "/console/runs?state=bogus" });
  expect(runs).toHaveBeenCalledWith(expect.objectContaining({ state: "bogus" }), expect.anything());
  expect(on.find("[role=alert]")?.textContent).toContain('state: "bogus" is unknown');
  expect([on.find<HTMLSelectElement>("select")?.value, on.find("[data-row]")]).toEqual([
    "bogus",
    null,
  ]);
});
