// @vitest-environment happy-dom
// The page of a session: whether it exists, and how it is erased.
import { act } from "react";
import { expect, test, vi } from "vitest";

import { Refused } from "../../src/console/api/api.js";
import type { RunRows } from "../../src/console/generated/answers.js";
import { Actions } from "../../src/console/run/Actions.js";
import { Session } from "../../src/console/views/Session.js";
import { at, rowOf } from "./rows.js";
import { type Stage, stage, type } from "./stage.js";

const page = (changed: Partial<RunRows> = {}): RunRows => ({
  runs: [rowOf(1)],
  next: null,
  looked_back_to: null,
  complete: true,
  ...changed,
});
const purgeSession = vi.fn(async () => new Response());
const purge = vi.fn(async () => new Response());
const shown = (runs: RunRows) =>
  stage(<Session tenant="acme" session="Session-aB12" />, {
    api: { runs: async () => runs, purgeSession },
    me: { content: "asked" },
  });
const buttons = ({ container }: Stage) =>
  [...container.querySelectorAll("button, .button")].map((button) => button.textContent?.trim());

test("a session that is there has its runs, its content and its end at hand", async () => {
  expect(buttons(await shown(page()))).toEqual(["Its runs", "Purge…", "Show content"]);
});

test("an unknown session offers nothing, before and after its content is requested", async () => {
  const missing = await shown(page({ runs: [] }));
  expect([missing.text(), buttons(missing)]).toEqual([
    expect.stringMatching(/^No such session.*It may have been purged/),
    [],
  ]);
  const session = async () =>
    Promise.reject(new Refused(404, "session_not_found", "There is none.", undefined));
  const refused = await stage(<Session tenant="acme" session="s" />, {
    api: { session },
    me: { content: "shown" },
  });
  expect([refused.text(), buttons(refused)]).toEqual([
    expect.stringContaining("No such session"),
    [],
  ]);
});

test("where the gateway has not looked at everything, it is said how far it did", async () => {
  const missing = await shown(
    page({ runs: [], complete: false, next: "x", looked_back_to: at(0) }),
  );
  expect(missing.text()).toMatch(/that you may see, back to .*\d\d:\d\d:\d\d\. Look on/);
});

test("a session that could not be asked about is not said to be missing", async () => {
  const runs = async () =>
    Promise.reject(new Refused(503, "journal_unavailable", "Not now.", undefined));
  const { text, find } = await stage(<Session tenant="acme" session="s" />, {
    api: { runs },
    me: { content: "asked" },
  });
  expect([text().includes("No such"), find("[role=alert]")?.textContent]).toEqual([
    false,
    expect.stringContaining("Not now."),
  ]);
});

const press = (on: Stage, words: string) =>
  act(async () =>
    [...on.container.querySelectorAll("button")]
      .find(({ textContent }) => textContent?.includes(words))!
      .click(),
  );
const enter = (on: Stage) =>
  act(async () => on.find<HTMLFormElement>("dialog form")!.requestSubmit());

test.each([
  ["a session", () => shown(page()), "aB12", purgeSession],
  [
    "a run",
    () => stage(<Actions row={rowOf(1)} onDone={() => {}} />, { api: { purge } }),
    "0001",
    purge,
  ],
] as const)(
  "Enter erases %s once its last characters are typed, and not before",
  async (_, show, last, erased) => {
    const on = await show();
    await press(on, "Purge…");
    const field = on.find<HTMLInputElement>("dialog input")!;
    await type(field, "zzzz");
    await enter(on);
    expect(erased).not.toHaveBeenCalled();
    await type(field, last);
    await enter(on);
    expect(erased).toHaveBeenCalledTimes(1);
  },
);
