// Measures how smoothly a page works on a processor four times slower than this one.
import type { Page } from "playwright-core";
import { expect } from "vitest";

/** Users notice longer tasks, in milliseconds. */
const JANK = 50;
export const HEAP = 80_000_000;

/** Slows the page down, and records every long task. */
export async function slow(page: Page): Promise<() => Promise<number[]>> {
  const session = await page.context().newCDPSession(page);
  await session.send("Emulation.setCPUThrottlingRate", { rate: 4 });
  await page.evaluate(() => {
    const tasks: number[] = [];
    Object.assign(window, { tasks });
    new PerformanceObserver((list) =>
      tasks.push(...list.getEntries().map(({ duration }) => duration)),
    ).observe({ entryTypes: ["longtask"] });
  });
  return () => page.evaluate(() => (window as unknown as { tasks: number[] }).tasks.splice(0));
}

/** Expects no long task since the last call. */
export async function expectSmooth(tasks: () => Promise<number[]>, what: string): Promise<void> {
  expect(
    (await tasks()).filter((took) => took > JANK),
    what,
  ).toEqual([]);
}

export async function heapOf(page: Page): Promise<number> {
  const session = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  return (await session.send("Runtime.getHeapUsage")).usedSize;
}
