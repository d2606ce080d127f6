// Whoever uses the page: with patience, with a keyboard only, on a narrow screen, or in a hurry.
import type { Locator, Page } from "playwright-core";
import { expect, test } from "vitest";

import { count, ended, lastTurn, say, textOf } from "./browser.js";
import { setStage } from "./stage.js";

const stage = setStage();

test("a run that waits goes on where it stood when its retry wakes", async () => {
  const page = await stage.start();
  await say(page, "/flaky 1 --wait 6");
  const toast = page.locator("[data-sonner-toast]");
  await toast.getByText("The answer broke off").waitFor();
  const retry = toast.getByRole("button", { name: /^Retry/ });
  expect(await retry.getAttribute("aria-disabled")).toBe("true");
  await toast.getByRole("button", { name: "Retry", exact: true }).click({ timeout: 10_000 });
  await ended(page, "closed");
  expect(await page.locator(".turn").count()).toBe(1);
  expect(await textOf(page)).toBe(await stage.whole("/flaky 0"));
  expect(await toast.count()).toBe(0);
});

/** Goes on with the Tab key until an element has the focus. */
async function tabTo(page: Page, target: Locator): Promise<void> {
  const isThere = () => target.evaluate((node) => node === document.activeElement);
  for (let n = 0; n < 40 && !(await isThere()); n += 1) await page.keyboard.press("Tab");
  expect(await isThere()).toBe(true);
}

test("a keyboard is enough", async () => {
  const page = await stage.start();
  await page.locator("textarea:focus").waitFor();
  await page.keyboard.type("/tokens 10000 --delay 20ms");
  await page.keyboard.press("Enter");
  await expect.poll(() => textOf(page)).toContain("tok3");
  await tabTo(page, page.getByRole("button", { name: "Cut my connection" }));
  await page.keyboard.press("Enter");
  await expect.poll(() => count(page, "resume")).toBe(1);
  await tabTo(page, page.getByRole("button", { name: "Stop" }));
  await page.keyboard.press("Enter");
  await ended(page, "closed");
  expect(await count(page, "cut")).toBe(1);

  await page.getByRole("textbox", { name: "Message" }).focus();
  await page.keyboard.type("/fault timeout --retry-after 1");
  await page.keyboard.press("Enter");
  const retry = page.getByRole("button", { name: "Retry", exact: true });
  await retry.waitFor();
  // sonner's own shortcut leads to the toasts.
  await page.keyboard.press("Alt+t");
  await tabTo(page, retry);
  await page.keyboard.press("Enter");
  await expect.poll(() => count(page, "resume")).toBe(1);
});

test("stop ends the run at the gateway", async () => {
  const page = await stage.start();
  await say(page, "/hang");
  await page.getByRole("button", { name: "Stop" }).click();
  await ended(page, "closed");
  expect(await lastTurn(page).getByTestId("status").innerText()).toContain("cancelled");
});

test("a narrow screen shows everything without a sideways scroll", async () => {
  const page = await stage.start({ viewport: { width: 320, height: 640 }, isMobile: true, hasTouch: true });
  await say(page, "/events");
  await ended(page, "closed");
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  expect(wider).toBe(0);
  await say(page, "/tokens 60 --delay 20ms");
  await page.locator(".composer").getByRole("button", { name: "Cut my connection" }).tap();
  await ended(page, "closed");
  expect(await count(page, "cut")).toBe(1);
});

test.each(["cap", "ag-ui"])("a question is a form, and its answer goes on in the same conversation (%s)", async (face) => {
  const page = await stage.start();
  await page.getByLabel("Face").selectOption(face);
  await say(page, "/ask Paint it blue?");
  await ended(page, "closed");
  const form = page.getByRole("form", { name: "Question" });
  await form.getByText("Paint it blue?").waitFor();
  await form.getByLabel("Go on").check();
  await form.getByLabel("Note").fill("navy");
  await form.getByRole("button", { name: "Answer" }).click();
  await expect.poll(() => textOf(page)).toBe('You answered {"approved":true,"note":"navy"}, so I go on.');
  expect(await form.getByRole("button", { name: "Answer" }).isDisabled()).toBe(true);
});
