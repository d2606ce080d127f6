// A chat heals before your eyes: cuts by hand and by count, repeats, an attempt that says something else.
import { CapClient } from "capstan";
import type { Browser } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";

import { count, ended, launch, say, textOf, visit, type Visit } from "./browser.js";
import { type Gateway, startGateway } from "./gateway.js";

let browser: Browser;
let gateway: Gateway;
let open: Visit | undefined;

beforeAll(async () => {
  [browser, gateway] = await Promise.all([launch(), startGateway()]);
});
afterAll(() => Promise.all([browser?.close(), gateway?.stop()]));
afterEach(async () => {
  const complaints = open?.complaints;
  await open?.page.context().close();
  open = undefined;
  expect(complaints, "the console has no errors").toEqual([]);
});

async function start(options = {}) {
  open = await visit(browser, gateway.url, options);
  return open.page;
}

/** What the gateway says to a message when nothing breaks. */
async function whole(message: string): Promise<string> {
  return (await new CapClient(`${gateway.url}/v1`).chat(message).collect()).trim();
}

test("a chat heals through five cuts with the exact text", async () => {
  const page = await start();
  await say(page, "/tokens 250 --delay 40ms");
  const cut = page.getByRole("button", { name: "Cut my connection" });
  for (let n = 1; n <= 5; n += 1) {
    const before = await textOf(page);
    await expect.poll(() => textOf(page)).not.toBe(before);
    await cut.click();
    await expect.poll(() => count(page, "resume"), { timeout: 10_000 }).toBe(n);
  }
  await ended(page, "closed");
  expect(await textOf(page)).toBe(await whole("/tokens 250"));
  expect([await count(page, "cut"), await count(page, "resume"), await count(page, "delta")]).toEqual([5, 5, 250]);
});

test("a line that forgets its place gets repeats, and drops them", async () => {
  const page = await start();
  await page.getByLabel("Cut by itself").selectOption("5");
  await page.getByRole("switch", { name: "Forget my place" }).check();
  // With everything coming again, five packets never get further than five: the cuts end by hand.
  await say(page, "/tokens 40 --delay 10ms");
  await expect.poll(() => count(page, "repeat"), { timeout: 10_000 }).toBeGreaterThan(3);
  await page.getByLabel("Cut by itself").selectOption("0");
  await ended(page, "closed");
  expect(await textOf(page)).toBe(await whole("/tokens 40"));
});

test("cuts after every few packets end in the same text", async () => {
  const page = await start();
  await page.getByLabel("Cut by itself").selectOption("10");
  await say(page, "/tokens 45");
  await ended(page, "closed");
  expect(await textOf(page)).toBe(await whole("/tokens 45"));
  expect(await count(page, "cut")).toBe(4);
  await page.getByText(/^Raw frames/).click();
  await expect.poll(() => page.locator(".frames pre").innerText()).toContain("event: stream.packet");
});

test("an attempt that says something else takes back what it must", async () => {
  const page = await start();
  await say(page, "/diverge");
  await ended(page, "closed");
  expect(await textOf(page)).toMatch(/^The answer, I am quite sure, depends on the question;.*before I spoke\.$/);
});
