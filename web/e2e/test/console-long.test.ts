// Long lists and long streams, on a processor four times slower than this one. Only in `make soak`: filling takes its time.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { visit } from "./browser.js";
import { ask } from "./console.js";
import { setStage } from "./stage.js";
import { type Gateway, startGateway } from "../../testing/gateway.mjs";

const stage = setStage();
const isLong = process.env["CAPSTAN_SOAK"] !== undefined;
const RUNS = 100_000;
/** So many are in the list before it is scrolled through. */
const LISTED = 10_000;
const PACKETS = 100_000;
/** Above this a person notices. */
const JANK = 50;
const HEAP = 80_000_000;
/** Milliseconds of a page, of nineteen in twenty. */
const PAGE = 60;
const ROOT = fileURLToPath(new URL("../../..", import.meta.url));

let folder: string;
let full: Gateway;
beforeAll(async () => {
  if (!isLong) return;
  folder = mkdtempSync(join(tmpdir(), "capstan-full-"));
  const journal = `disk:${join(folder, "journal")}`;
  execFileSync("cargo", ["run", "--quiet", "--package", "capstan-journal", "--example", "fill", "--", journal, String(RUNS)], { cwd: ROOT, stdio: "inherit" });
  full = await startGateway({ journal });
}, 600_000);
afterAll(async () => {
  await full?.stop();
  if (folder) rmSync(folder, { recursive: true });
});

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

/** Nothing took long since it was last asked. */
async function expectSmooth(tasks: () => Promise<number[]>, what: string): Promise<void> {
  expect((await tasks()).filter((took) => took > JANK), what).toEqual([]);
}

async function heapOf(page: Page): Promise<number> {
  const session = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  return (await session.send("Runtime.getHeapUsage")).usedSize;
}

test.runIf(isLong)("runs by the thousand are scrolled through without a hitch", { timeout: 600_000 }, async () => {
  const { page, complaints } = await visit(stage.browser, `${full.url}/console/runs`);
  await page.locator("[data-row='0']").waitFor();
  const rows = page.getByRole("rowgroup", { name: "Runs, newest first" });
  const listed = async () => Number(await page.getByRole("table", { name: "Runs" }).getAttribute("aria-rowcount"));
  // Page by page, as whoever scrolls on.
  await expect.poll(async () => {
    await rows.evaluate((node) => node.scrollTo(0, node.scrollHeight));
    return listed();
  }, { timeout: 300_000, interval: 20 }).toBeGreaterThan(LISTED);
  const tasks = await slow(page);
  await rows.hover();
  for (let n = 0; n < 60; n += 1) await page.mouse.wheel(0, n < 30 ? -3_000 : 2_400);
  await expectSmooth(tasks, "scrolling");
  expect(await page.locator("[data-row]").count()).toBeLessThan(100);
  expect(await heapOf(page)).toBeLessThan(HEAP);
  // What begins meanwhile is told, and moves nothing.
  await tasks();
  for (let n = 0; n < 20; n += 1) await (await ask(full.url, "/tokens 1")).whole;
  await page.getByRole("button", { name: /^\d+ new$/ }).waitFor();
  await expectSmooth(tasks, "news");
  expect(complaints).toEqual([]);
  await page.context().close();
});

test.runIf(isLong)("a page of a hundred thousand runs comes at once, whatever is asked", { timeout: 600_000 }, async () => {
  const took: number[] = [];
  for (const query of ["", "state=failed", "state=running", "fault=upstream_timeout", "fault=content_refused", "agent=steady&state=healed", "agent=nobody"]) {
    let before = "";
    do {
      const began = performance.now();
      const response = await fetch(`${full.url}/v1/console/runs?limit=100&${query}${before}`);
      const text = await response.text();
      took.push(performance.now() - began);
      expect(text.length, query).toBeLessThan(100_000);
      const { next } = JSON.parse(text) as { next: string | null };
      before = next ? `&before=${next}` : "";
    } while (before !== "");
  }
  took.sort((a, b) => a - b);
  const [middle, most] = [0.5, 0.95].map((share) => took[Math.floor(took.length * share)]!);
  console.log(`${took.length} pages: p50 ${middle!.toFixed(1)} ms, p95 ${most!.toFixed(1)} ms`);
  expect(most).toBeLessThan(PAGE);
});

test.runIf(isLong)("a stream of a hundred thousand packets is zoomed, scrolled and replayed without a hitch", { timeout: 600_000 }, async () => {
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
  await expectSmooth(tasks, "zooming");

  await page.getByRole("tab", { name: "Frames" }).click();
  const frames = page.getByRole("rowgroup", { name: "Frames" });
  await page.getByText(/^\d[\d,. ]* frames$/).waitFor({ timeout: 120_000 });
  await expectSmooth(tasks, "reading frames");
  await frames.hover();
  for (let n = 0; n < 40; n += 1) await page.mouse.wheel(0, n < 20 ? 30_000 : -25_000);
  await expectSmooth(tasks, "scrolling frames");

  await page.getByRole("tab", { name: "As seen" }).click();
  await page.getByRole("button", { name: "Play" }).waitFor();
  await tasks();
  await page.getByRole("button", { name: "16×" }).click();
  await page.getByRole("button", { name: "Play" }).click();
  await expect.poll(async () => Number(await page.getByRole("slider", { name: "Packet" }).inputValue()), { timeout: 60_000 }).toBeGreaterThan(PACKETS / 10);
  await page.getByRole("button", { name: "Pause" }).click();
  await expectSmooth(tasks, "replay");
  expect(await heapOf(page)).toBeLessThan(3 * HEAP);
});
