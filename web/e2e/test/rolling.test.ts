// The page while all gateways restart, one after the other. Only in `make soak`, because it takes
// long and needs PostgreSQL and nginx.
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { connect, ended, say, textOf, visit } from "./browser.js";
import { Town } from "./town.js";

const TOKENS = 300;
const WHOLE = Array.from({ length: TOKENS }, (_, n) => `tok${n + 1}`).join(" ");

/** Records every failure that the page shows, even briefly, and which gateway serves it. */
async function watch(page: Page): Promise<() => Promise<{ told: string[]; served: string[] }>> {
  await page.evaluate(() => {
    const told: string[] = [];
    const served: string[] = [];
    Object.assign(window, { seen: { told, served } });
    const look = (): void => {
      for (const toast of document.querySelectorAll("[data-sonner-toast], [role=alert]"))
        told.push((toast as HTMLElement).innerText);
      const by = document.querySelector(".served strong")?.textContent;
      if (by && served.at(-1) !== by) served.push(by);
    };
    new MutationObserver(look).observe(document.body, {
      childList: true,
      subtree: true,
      characterData: true,
    });
  });
  return () =>
    page.evaluate(() => (window as unknown as { seen: { told: string[]; served: string[] } }).seen);
}

describe.runIf(process.env["CAPSTAN_SOAK"])("soak: a rolling restart", () => {
  let town: Town;
  let browser: Browser;
  beforeAll(async () => {
    [browser, town] = await Promise.all([connect(), Town.start()]);
  });
  afterAll(() => Promise.all([browser?.close(), town?.stop()]));

  test.each(["cap", "ag-ui"])(
    "is not noticed by whoever reads an answer in %s",
    { timeout: 120_000 },
    async (face) => {
      const { page } = await visit(browser, town.url);
      await page.getByLabel("Face").selectOption(face);
      const seen = await watch(page);
      await say(page, `/tokens ${TOKENS} --delay 40ms`);
      await expect.poll(() => textOf(page)).toContain("tok10");
      for (const n of [0, 1, 2]) {
        const before = await textOf(page);
        await town.restart(n);
        await expect.poll(() => textOf(page), { timeout: 20_000 }).not.toBe(before);
        expect(before).not.toContain(`tok${TOKENS}`);
      }
      await ended(page, "closed");
      expect(await textOf(page)).toBe(WHOLE);
      const { told, served } = await seen();
      expect(told, "the page says nothing of failures").toEqual([]);
      expect(
        served.every((name) => /^gateway-[123]$/.test(name)) && new Set(served).size > 1,
        `served by ${served.join(", ")}`,
      ).toBe(true);
      await page.context().close();
    },
  );
});
