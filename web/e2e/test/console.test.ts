// The console against the real binary: from a ticket to the cause, content, stop and purge, links,
// and a list that does not move.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { newId } from "capstan";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";

import { ended, say, visit, type Visit } from "./browser.js";
import { ask, expectFit, setTheme } from "./console.js";
import { setStage } from "./stage.js";

const stage = setStage();
let open: Visit;
let page: Page;

beforeAll(async () => {
  open = await visit(stage.browser, `${stage.gateway.url}/console`);
  page = open.page;
  await page.getByRole("searchbox").waitFor();
});
afterEach(() => expect(open.complaints.splice(0), "the console has no errors").toEqual([]));
afterAll(() => page.context().close());

/** Navigates without a reload, as a link does. */
async function go(path: string): Promise<void> {
  await page.evaluate((path) => {
    history.pushState(null, "", path);
    dispatchEvent(new Event("popstate"));
  }, path);
}

const header = () => page.locator(".run-header");

test("from the id of a ticket to why it failed and what to do", async () => {
  const { requestId, whole } = await ask(stage.gateway.url, "/fault upstream_auth");
  await whole;
  await page.keyboard.press("/");
  await page.keyboard.type(requestId);
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/console\/runs\/[0-9a-f-]{36}$/);
  const panel = page.getByRole("region", { name: "Why it failed" });
  await panel.getByText("upstream_auth", { exact: true }).waitFor();
  expect(await panel.innerText()).toMatch(/What to do: .+/);
  expect(await header().locator(".badge").innerText()).toBe("failed");
  await header().getByText(requestId).waitFor();
});

test("a flaky run shows its attempts, their times, and what its user saw", async () => {
  const { streamId, whole } = await ask(stage.gateway.url, "/flaky 1");
  await whole;
  await go(`/console/runs/${streamId}?tab=attempts`);
  const cards = page.locator("[data-attempt]");
  await expect.poll(() => cards.count()).toBe(2);
  for (const [n, word] of [
    [0, /took\s+[\d.]+ m?s/],
    [1, /ended well/],
  ] as const)
    expect(await cards.nth(n).innerText()).toMatch(word);
  expect(await header().locator(".badge").innerText()).toBe("healed");
  await page.getByRole("tab", { name: "As seen" }).click();
  const text = (await stage.whole("/flaky 0")).replace(/\s+/g, "");
  const seen = async () =>
    (await page.locator(".seen .answer > .prose").allInnerTexts()).join("").replace(/\s+/g, "");
  await expect.poll(seen).toBe(text);
  expect(await page.locator(".seen .question").innerText()).toBe("/flaky 1");
  // One packet back by the keyboard. The address and the axis' table follow.
  await page.getByRole("slider", { name: "Packet" }).focus();
  for (const _ of [1, 2, 3]) await page.keyboard.press("ArrowLeft");
  await expect.poll(seen).not.toBe(text);
  await page.waitForURL(/[?&]at=\d+/);
  await page.getByRole("button", { name: "16×" }).click();
  await page.getByRole("button", { name: "Play" }).click();
  await expect.poll(seen).toBe(text);
  // From an attempt to the packet that ended it. The axis and its table follow.
  await page.getByRole("tab", { name: "Attempts" }).click();
  await cards
    .first()
    .getByRole("button", { name: /^packet \d+$/ })
    .click();
  await page.getByRole("button", { name: "Table" }).click();
  const table = page.getByRole("table", { name: "What happened, in its order" });
  await table.getByText("Attempt 1 fails").waitFor();
  await table.getByText("Attempt 2 begins").waitFor();
});

test("an attempt says how it continued the answer", async () => {
  const { streamId, whole } = await ask(stage.gateway.url, "/flaky 1");
  await whole;
  await go(`/console/runs/${streamId}?tab=attempts`);
  await page.locator("[data-attempt='2']").getByText("continued by").waitFor();
  await page.locator("[data-attempt='2']").getByText("comparison:").waitFor();
  expect(await page.locator("[data-attempt='1']").innerText()).not.toContain("continued by");
});

test("what is downloaded is the stream, byte for byte", async () => {
  const { streamId, whole } = await ask(stage.gateway.url, "/events");
  await whole;
  await go(`/console/runs/${streamId}?tab=home`);
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: ".sse, as sent" }).click(),
  ]);
  const sent = await (await fetch(`${stage.gateway.url}/v1/streams/${streamId}`)).text();
  const bare = (text: string) => text.replace(/^:.*\n\n?/gm, "").replace(/^retry:.*\n\n?/gm, "");
  const folder = mkdtempSync(join(tmpdir(), "capstan-run-"));
  await download.saveAs(join(folder, "run.sse"));
  expect(bare(readFileSync(join(folder, "run.sse"), "utf8"))).toBe(bare(sent));
  rmSync(folder, { recursive: true });
  expect(await page.locator(".command").first().innerText()).toContain("$CAPSTAN_KEY");
  await page.getByRole("tab", { name: "Frames" }).click();
  await page.getByLabel("Face").selectOption("ag-ui");
  await page.getByRole("table", { name: "Frames" }).getByText("RUN_STARTED").first().waitFor();
});

test("stopped is said once CLOSE is in the journal, and purged is gone", async () => {
  const { streamId } = await ask(stage.gateway.url, "/tokens 100000 --delay 50ms");
  await go(`/console/runs/${streamId}`);
  await page.getByRole("button", { name: "Stop…" }).click();
  const dialog = page.getByRole("dialog", { name: "Stop this run?" });
  expect(await dialog.innerText()).toMatch(/Agent demo, tenant local, session/);
  const lastOp = async () => {
    const { packets } = (await (
      await fetch(`${stage.gateway.url}/v1/streams/${streamId}/packets?limit=1000`)
    ).json()) as { packets: { op: string }[] };
    return packets.at(-1)?.op;
  };
  // While the request is pending, nothing is stopped, and the page does not claim it.
  const held = new Promise<() => Promise<void>>(
    (resolve) => void page.route("**/stop", (route) => resolve(() => route.continue())),
  );
  await dialog.getByRole("button", { name: "Stop it" }).click();
  const letGo = await held;
  await dialog.getByRole("button", { name: "Stopping…" }).waitFor();
  expect([await lastOp(), await dialog.getByRole("button", { name: "Stopped" }).count()]).toEqual([
    "DELTA",
    0,
  ]);
  await letGo();
  await dialog.getByRole("button", { name: "Stopped" }).waitFor();
  expect(await lastOp()).toBe("CLOSE");
  await page.unroute("**/stop");
  await dialog.getByRole("button", { name: "Close" }).click();
  await expect.poll(() => header().locator(".badge").innerText()).toBe("stopped");

  await page.getByRole("button", { name: "Purge…" }).click();
  const purge = page.getByRole("dialog", { name: "Erase this run?" });
  await purge.getByRole("textbox").fill("zzzz");
  expect(await purge.getByRole("button", { name: "Erase it" }).isDisabled()).toBe(true);
  await purge.getByRole("textbox").fill(streamId.slice(-4));
  await purge.getByRole("button", { name: "Erase it" }).click();
  await page.waitForURL(/\/console\/runs$/);
  await page.locator("[data-run]").first().waitFor();
  expect(await page.locator(`[data-run="${streamId}"]`).count()).toBe(0);
});

test("a filter is a link: the same rows in a browser that was never here", async () => {
  await go("/console/runs");
  await page.getByLabel("State").selectOption("failed");
  await page.waitForURL(/\?state=failed$/);
  const rows = (of: Page) =>
    of
      .locator("[data-run]")
      .evaluateAll((all) => all.map((row) => (row as HTMLElement).dataset["run"]));
  await expect.poll(async () => (await rows(page)).length).toBeGreaterThan(0);
  const fresh = await visit(stage.browser, page.url());
  await expect.poll(() => rows(fresh.page)).toEqual(await rows(page));
  await fresh.page.context().close();
  expect(fresh.complaints).toEqual([]);
});

test("a live list does not move under the pointer", async () => {
  await go("/console/runs");
  await page.mouse.move(0, 0);
  const first = () => page.locator("[data-row='0']").getAttribute("data-run");
  await page.getByText("Live.").waitFor();
  const shown = await ask(stage.gateway.url, "/tokens 1");
  await expect.poll(first).toBe(shown.streamId);
  await page.locator("[data-row='0']").hover();
  const held = await ask(stage.gateway.url, "/tokens 1");
  await page.getByRole("button", { name: "1 new" }).waitFor();
  expect(await first()).toBe(shown.streamId);
  await page.getByRole("button", { name: "1 new" }).click();
  await expect.poll(first).toBe(held.streamId);
  // When the user no longer reads the list, new rows are inserted.
  await page.locator("[data-row='0']").hover();
  const last = await ask(stage.gateway.url, "/tokens 1");
  await page.getByRole("button", { name: "1 new" }).waitFor();
  await page.mouse.move(0, 0);
  await expect.poll(first).toBe(last.streamId);
  await page.getByText("Live.").waitFor();
});

test("what is not there is said not to be: a state, a session, a packet", async () => {
  const { streamId, whole } = await ask(stage.gateway.url, "/tokens 2");
  await whole;
  await go("/console/runs?state=bogus");
  await page.getByRole("alert").getByText('"bogus" is unknown').waitFor();
  expect(await page.getByLabel("State").inputValue()).toBe("bogus");
  expect(open.complaints.splice(0).join()).toMatch(/400/);
  await go("/console/sessions/local/nobody-was-here");
  await page.getByRole("heading", { name: "No such session" }).waitFor();
  expect(await page.locator("main").getByRole("button").count()).toBe(0);
  expect(open.complaints.splice(0).join()).toMatch(/404/);
  await go(`/console/runs/${streamId}?at=999`);
  await page.getByText(/^There is no packet 999: you see the last one, \d+\.$/).waitFor();
});

test("a session is erased by Enter, once the end of its name is typed", async () => {
  const session = newId();
  await (
    await ask(stage.gateway.url, "/tokens 2", { session })
  ).whole;
  await go(`/console/sessions/local/${session}`);
  await page.getByRole("button", { name: "Purge…" }).click();
  await page
    .getByRole("dialog", { name: "Erase this session?" })
    .getByRole("textbox")
    .fill(session.slice(-4));
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/console\/runs$/);
  expect((await fetch(`${stage.gateway.url}/v1/console/sessions/local/${session}`)).status).toBe(
    404,
  );
});

test("Escape leaves the box, and the keys of the page work again", async () => {
  await page.keyboard.press("/");
  await page.keyboard.type("abc");
  await page.keyboard.press("Escape");
  for (const key of ["g", "a"]) await page.keyboard.press(key);
  await page.waitForURL(/\/console\/agents$/);
});

test("rows, neighbours and tabs by keyboard alone", async () => {
  await go("/console/runs");
  await page.mouse.move(0, 0);
  const row = (n: number) => page.locator(`[data-row='${n}']`).getAttribute("data-run");
  const [second, third] = [await row(1), await row(2)];
  await page.locator("main").focus();
  for (const key of ["j", "j", "Enter"]) await page.keyboard.press(key);
  await page.waitForURL(new RegExp(second!));
  await header().waitFor();
  await page.keyboard.press("]");
  await page.waitForURL(new RegExp(third!));
  await page.keyboard.press("[");
  await page.waitForURL(new RegExp(second!));
  await header().waitFor();
  await page.keyboard.press("t");
  await page.waitForURL(/tab=frames/);
  await page.keyboard.press("?");
  const keys = page.getByRole("dialog", { name: "Keys" });
  await keys.waitFor();
  await page.keyboard.press("Escape");
  await keys.waitFor({ state: "hidden" });
  for (const key of ["g", "r"]) await page.keyboard.press(key);
  await page.waitForURL(/\/console\/runs$/);
});

test("a conversation is read as its user saw it", async () => {
  const session = newId();
  for (const message of ["/tokens 2", "/fault content_refused", "/tokens 3"])
    await (
      await ask(stage.gateway.url, message, { session })
    ).whole;
  await go(`/console/sessions/local/${session}`);
  await expect.poll(() => page.locator(".conversation .turn").count()).toBe(3);
  expect(await page.locator(".conversation .question").allInnerTexts()).toEqual([
    "/tokens 2",
    "/fault content_refused",
    "/tokens 3",
  ]);
  expect(await page.locator(".conversation li").nth(1).innerText()).toContain("content_refused");
});

test(
  "every view is fit for all: axe, both themes, wide and narrow",
  { timeout: 120_000 },
  async () => {
    const { streamId } = await ask(stage.gateway.url, "/diverge");
    const failed = await ask(stage.gateway.url, "/fault upstream_timeout --after 3");
    await failed.whole;
    const views = [
      ["", "#attention"],
      ["/runs", "[data-row='3']"],
      [`/runs/${streamId}`, ".seen .turn"],
      [`/runs/${streamId}?tab=attempts`, "[data-attempt='1']"],
      [`/runs/${failed.streamId}?tab=frames&at=1`, ".frame-whole"],
      [`/runs/${failed.streamId}?tab=home`, ".command"],
      ["/faults", ".matrix"],
      ["/agents", ".cards .card"],
      ["/tenants", ".cards .card"],
      ["/find?q=nothing", "#looked"],
    ] as const;
    for (const [theme, width] of [
      ["light", 1280],
      ["dark", 360],
    ] as const) {
      await page.setViewportSize({ width, height: 760 });
      await setTheme(page, theme);
      for (const [view, shown] of views) {
        await go(`/console${view}`);
        await page.locator(shown).first().waitFor();
        await expectFit(page).catch((error: Error) => {
          throw new Error(`${theme} ${view || "/"}: ${error.message}`);
        });
      }
    }
    await page.setViewportSize({ width: 1280, height: 800 });
    await setTheme(page, "light");
  },
);

test("numbers follow what happens, without a reload", async () => {
  const shown = {
    faults: "/console/faults",
    agents: "/console/agents",
    tenants: "/console/tenants",
  };
  const number = (text: string, of: RegExp) => Number(of.exec(text)?.[1] ?? NaN);
  for (const [view, path] of Object.entries(shown)) {
    await go(path);
    const main = page.locator("main");
    const of = { faults: /· (\d+) faults?/, agents: /failed\s+(\d+)/, tenants: /sessions\s+(\d+)/ }[
      view
    ]!;
    await expect.poll(async () => number(await main.innerText(), of)).not.toBeNaN();
    const before = number(await main.innerText(), of);
    await (
      await ask(stage.gateway.url, "/fault content_refused")
    ).whole;
    await expect
      .poll(async () => number(await main.innerText(), of), { timeout: 15_000, message: view })
      .toBeGreaterThan(before);
  }
  // Every number of the matrix links to its runs.
  await go("/console/faults");
  await page.getByRole("link", { name: /^content_refused, all agents: \d+$/ }).click();
  await page.waitForURL(/\/console\/runs\?.*fault=content_refused/);
  await page.locator("[data-row='0']").waitFor();
});

test("a stretch of time is chosen by keyboard alone", async () => {
  await (
    await ask(stage.gateway.url, "/fault content_refused")
  ).whole;
  await go("/console/faults?hours=1");
  const picture = page.getByRole("slider", { name: /^\d+ faults? over time$/ });
  await page.getByLabel("How far back").focus();
  await page.keyboard.press("Tab");
  await expect.poll(() => picture.evaluate((it) => it === document.activeElement)).toBe(true);
  for (const key of ["End", "Shift+ArrowLeft", "Shift+ArrowLeft"]) await page.keyboard.press(key);
  await expect
    .poll(() => picture.getAttribute("aria-valuetext"), { timeout: 15_000 })
    .toMatch(/^\d\d:\d\d:\d\d to \d\d:\d\d:\d\d: [1-9]\d* fatal, \d+ tried again, \d+ refused$/);
  await expectFit(page);
  await page.evaluate(() => (document.documentElement.dataset["theme"] = "dark"));
  await expectFit(page);
  await page.evaluate(() => (document.documentElement.dataset["theme"] = "light"));
  await page.keyboard.press("Enter");
  await page.waitForURL(/since=[^&]+&until=/);
  const chosen = new URL(page.url()).searchParams;
  expect(Date.parse(chosen.get("until")!) - Date.parse(chosen.get("since")!)).toBe(3 * 60_000);
  // The selection continues from there.
  await expect.poll(() => picture.getAttribute("aria-valuemax")).toBe("2");
  expect(await picture.evaluate((it) => it === document.activeElement)).toBe(true);
});

test("the playground leads to each run's page", async () => {
  await page.goto(stage.gateway.url);
  await say(page, "/tokens 3");
  await ended(page, "closed");
  await page.getByRole("link", { name: "in the console" }).click();
  await page.waitForURL(/\/console\/runs\//);
  await expect.poll(() => header().locator(".badge").innerText()).toBe("done");
});
