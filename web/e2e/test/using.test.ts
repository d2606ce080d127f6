// Ways to use the page: slowly, with a keyboard only, on a narrow screen, or in a hurry.
import type { Locator, Page } from "playwright-core";
import { expect, test } from "vitest";

import { count, ended, lastTurn, say, textOf } from "./browser.js";
import { setStage } from "./stage.js";

const stage = setStage();

test("a run that waits goes on where it stood when its retry wakes", async () => {
  const page = await stage.start();
  await say(page, "/flaky 1 --wait 6");
  const toast = page.locator("[data-sonner-toast]");
  await toast.getByText("External service unavailable.").waitFor();
  const retry = toast.getByRole("button", { name: "Retry", exact: true });
  expect(await retry.getAttribute("aria-disabled")).toBe("true");
  await retry.click({ timeout: 10_000 });
  await ended(page, "closed");
  expect(await page.locator(".turn").count()).toBe(1);
  expect(await textOf(page)).toBe(await stage.whole("/flaky 0"));
  expect(await toast.count()).toBe(0);
});

/** Presses Tab until an element has the focus. */
async function tabTo(page: Page, target: Locator): Promise<void> {
  const isThere = () => target.evaluate((node) => node === document.activeElement);
  for (let n = 0; n < 40 && !(await isThere()); n += 1) await page.keyboard.press("Tab");
  expect(await isThere()).toBe(true);
}

test("a keyboard is enough", async () => {
  const page = await stage.start();
  await page.locator("textarea:focus").waitFor();
  await page.keyboard.type("/tokens 10000 --delay 100ms");
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
  await page.keyboard.type("/fault timeout --retry-after 2");
  await page.keyboard.press("Enter");
  const retry = page.getByRole("button", { name: "Retry", exact: true });
  await expect.poll(() => retry.getAttribute("aria-disabled")).toBe("false");
  // sonner's own shortcut moves the focus to the toasts.
  await page.keyboard.press("Alt+t");
  await tabTo(page, retry);
  await page.keyboard.press("Enter");
  await expect.poll(() => count(page, "resume")).toBe(1);
});

test("stop ends the run at the gateway", async () => {
  const page = await stage.start();
  await say(page, "/tokens 5000 --delay 100ms");
  // A run can be stopped once the gateway has sent its id.
  await lastTurn(page).getByText("tok2").waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await ended(page, "closed");
  expect(await lastTurn(page).getByTestId("status").innerText()).toContain("cancelled");
});

test("a narrow screen shows everything without a sideways scroll", async () => {
  const page = await stage.start({
    viewport: { width: 320, height: 640 },
    isMobile: true,
    hasTouch: true,
  });
  await say(page, "/events");
  await ended(page, "closed");
  const wider = await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
  expect(wider).toBe(0);
  await say(page, "/tokens 20 --delay 100ms");
  await page.locator(".composer").getByRole("button", { name: "Cut my connection" }).tap();
  await ended(page, "closed");
  expect(await count(page, "cut")).toBe(1);
});

test("the way to the API's documentation is in sight, on a desk and on a phone", async () => {
  for (const width of [1280, 320]) {
    const page = await stage.start({ viewport: { width, height: 640 } });
    const link = page.getByRole("link", { name: "Docs" });
    expect(await link.isVisible()).toBe(true);
    const box = await link.boundingBox();
    expect(box && box.x >= 0 && box.x + box.width <= width && box.y + box.height <= 640).toBe(true);
    const [docs] = await Promise.all([page.context().waitForEvent("page"), link.click()]);
    await docs.getByRole("heading", { level: 1 }).waitFor();
    expect(new URL(docs.url()).pathname).toBe("/docs");
    await page.context().close();
  }
});
