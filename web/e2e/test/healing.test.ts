// A chat resumes visibly: after manual and counted cuts, repeats, and an attempt with another text.
import { expect, test } from "vitest";

import { count, ended, say, textOf } from "./browser.js";
import { setStage } from "./stage.js";

const stage = setStage();

test("a chat heals through five cuts with the exact text", async () => {
  const page = await stage.start();
  await say(page, "/tokens 80 --delay 100ms");
  const cut = page.getByRole("button", { name: "Cut my connection" });
  for (let n = 1; n <= 5; n += 1) {
    const before = await textOf(page);
    await expect.poll(() => textOf(page)).not.toBe(before);
    await cut.click();
    await expect.poll(() => count(page, "resume"), { timeout: 10_000 }).toBe(n);
  }
  await ended(page, "closed");
  expect(await textOf(page)).toBe(await stage.whole("/tokens 80"));
  expect([
    await count(page, "cut"),
    await count(page, "resume"),
    await count(page, "delta"),
  ]).toEqual([5, 5, 80]);
});

test("a line that forgets its place gets repeats, and drops them", async () => {
  const page = await stage.start();
  await page.getByLabel("Cut by itself").selectOption("5");
  await page.getByRole("switch", { name: "Forget my place" }).check();
  // If everything is sent again, five packets never become six. So the cuts are ended manually.
  await say(page, "/tokens 40 --delay 10ms");
  await expect.poll(() => count(page, "repeat"), { timeout: 10_000 }).toBeGreaterThan(3);
  await page.getByLabel("Cut by itself").selectOption("0");
  await ended(page, "closed");
  expect(await textOf(page)).toBe(await stage.whole("/tokens 40"));
});

test("cuts after every few packets end in the same text", async () => {
  const page = await stage.start();
  await page.getByLabel("Cut by itself").selectOption("10");
  await say(page, "/tokens 45");
  await ended(page, "closed");
  expect(await textOf(page)).toBe(await stage.whole("/tokens 45"));
  expect(await count(page, "cut")).toBe(4);
  await page.getByText(/^Raw frames/).click();
  await expect
    .poll(() => page.locator(".frames pre").innerText())
    .toContain("event: stream.packet");
});

test("an attempt that says something else takes back what it must", async () => {
  const page = await stage.start();
  await say(page, "/diverge");
  await ended(page, "closed");
  expect(await textOf(page)).toMatch(
    /^The answer, I am quite sure, depends on the question;.*before I spoke\.$/,
  );
});
