// Long lists and long streams, on a processor four times slower than this one. Only in `make soak`: filling takes its time.
import type { Page } from "playwright-core";
import { expect, test } from "vitest";

import { ask, fill } from "./console.js";
import { setStage } from "./stage.js";

const stage = setStage();
const isLong = process.env["CAPSTAN_SOAK"] !== undefined;
const RUNS = 10_000;
const PACKETS = 100_000;
/** Above this a person notices. */
const JANK = 50;
const HEAP = 80_000_000;

/** Slows the page down and notes every task that takes long. */
async function slow(page: Page): Promise<() => Promise<number[]>> {
  const session = await page.context().newCDPSession(page);
  await session.send("Emulation.setCPUThrottlingRate", { rate: 4 });
  await page.evaluate(() => {
    const tasks: number[] = [];
    Object.assign(window, { tasks });
    new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ entryTypes: ["longtask"] });
  });
  return () => page.evaluate(() => (window as unknown as { tasks: number[] }).tasks.splice(0));
}

async function heapOf(page: Page): Promise<number> {
  const session = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  return (await session.send("Runtime.getHeapUsage")).usedSize;
}

test.runIf(isLong)("ten thousand runs are scrolled through without a hitch", { timeout: 600_000 }, async () => {
  await fill(stage.gateway.url, RUNS);
  const page = await stage.start();
  await page.goto(`${stage.gateway.url}/console/runs`);
  await page.locator("[data-row='0']").waitFor();
  const rows = page.getByRole("rowgroup", { name: "Runs, newest first" });
  // To the very end, page by page.
  await expect.poll(async () => {
    await rows.evaluate((node) => node.scrollTo(0, node.scrollHeight));
    return page.getByText("That is all").count();
  }, { timeout: 300_000, interval: 50 }).toBe(1);
  expect(Number(await page.getByRole("table", { name: "Runs" }).getAttribute("aria-rowcount"))).toBeGreaterThan(RUNS);
  const tasks = await slow(page);
  await rows.hover();
  for (let n = 0; n < 60; n += 1) await page.mouse.wheel(0, n < 30 ? -3_000 : 2_400);
  expect((await tasks()).filter((took) => took > JANK)).toEqual([]);
  expect(await page.locator("[data-row]").count()).toBeLessThan(100);
  expect(await heapOf(page)).toBeLessThan(HEAP);
});

test.runIf(isLong)("a stream of a hundred thousand packets is zoomed into without a hitch", { timeout: 600_000 }, async () => {
  const { streamId, whole } = await ask(stage.gateway.url, `/tokens ${PACKETS}`);
  await whole;
  const page = await stage.start();
  await page.goto(`${stage.gateway.url}/console/runs/${streamId}?tab=attempts`);
  await page.getByText("A long stream").waitFor();
  const tasks = await slow(page);
  const canvas = page.locator("canvas");
  await canvas.hover();
  await page.keyboard.down("Control");
  for (let n = 0; n < 20; n += 1) await page.mouse.wheel(0, n < 10 ? -120 : 120);
  await page.keyboard.up("Control");
  expect((await tasks()).filter((took) => took > JANK)).toEqual([]);
});
