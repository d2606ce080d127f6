// Long lists, on a processor four times slower than this one. Only in `make soak`, because filling
// takes long.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { afterAll, beforeAll, expect, test } from "vitest";

import { visit } from "./browser.js";
import { ask } from "./console.js";
import { expectSmooth, heapOf, HEAP, slow } from "./smooth.js";
import { setStage } from "./stage.js";
import { startPostgres } from "./town.js";
import { type Gateway, startGateway } from "../../testing/gateway.mjs";

const stage = setStage();
const isLong = process.env["CAPSTAN_SOAK"] !== undefined;
const RUNS = 100_000;
/** The number of runs in the list before the test scrolls. */
const LISTED = 10_000;
/** The limit for a page in milliseconds, for 95 % of the pages. */
const PAGE = 60;
const ROOT = fileURLToPath(new URL("../../..", import.meta.url));

/** A gateway over a journal of many runs. */
async function startFull(journal: string): Promise<Gateway> {
  execFileSync(
    "cargo",
    [
      "run",
      "--quiet",
      "--release",
      "--package",
      "capstan-stores",
      "--features",
      "postgres",
      "--example",
      "fill",
      "--",
      journal,
      String(RUNS),
    ],
    { cwd: ROOT, stdio: "inherit" },
  );
  return startGateway({ journal });
}

let folder: string;
let full: Gateway;
beforeAll(async () => {
  if (!isLong) return;
  folder = mkdtempSync(join(tmpdir(), "capstan-full-"));
  full = await startFull(`disk:${join(folder, "journal")}`);
}, 600_000);
afterAll(async () => {
  await full?.stop();
  if (folder) rmSync(folder, { recursive: true });
});

test.runIf(isLong)(
  "soak: runs by the thousand are scrolled through",
  { timeout: 600_000 },
  async () => {
    const { page, complaints } = await visit(stage.browser, `${full.url}/console/runs`);
    await page.locator("[data-row='0']").waitFor();
    const rows = page.getByRole("rowgroup", { name: "Runs, newest first" });
    const listed = async () =>
      Number(await page.getByRole("table", { name: "Runs" }).getAttribute("aria-rowcount"));
    // Page by page, as a user scrolls.
    await expect
      .poll(
        async () => {
          await rows.evaluate((node) => node.scrollTo(0, node.scrollHeight));
          return listed();
        },
        { timeout: 300_000, interval: 20 },
      )
      .toBeGreaterThan(LISTED);
    const tasks = await slow(page);
    await rows.hover();
    for (let n = 0; n < 60; n += 1) await page.mouse.wheel(0, n < 30 ? -3_000 : 2_400);
    await expectSmooth(tasks, "scrolling");
    expect(await page.locator("[data-row]").count()).toBeLessThan(100);
    expect(await heapOf(page)).toBeLessThan(HEAP);
    // New runs are announced, and nothing moves.
    await tasks();
    for (let n = 0; n < 20; n += 1) await (await ask(full.url, "/tokens 1")).whole;
    await page.getByRole("button", { name: /^\d+ new$/ }).waitFor();
    await expectSmooth(tasks, "news");
    expect(complaints).toEqual([]);
    await page.context().close();
  },
);

test.runIf(isLong)(
  "soak: pages of a hundred thousand runs come at once, from disk",
  { timeout: 600_000 },
  () => expectPages(full),
);

test.runIf(isLong)(
  "soak: pages of a hundred thousand runs come at once, from PostgreSQL",
  { timeout: 600_000 },
  async () => {
    const postgres = await startPostgres();
    const shared = await startFull(postgres.url);
    await expectPages(shared);
    await shared.stop();
    postgres.child.stdin?.end();
  },
);

async function expectPages({ url }: Gateway): Promise<void> {
  const took: number[] = [];
  for (const query of [
    "",
    "state=failed",
    "state=running",
    "fault=upstream_timeout",
    "fault=content_refused",
    "agent=steady&state=healed",
    "agent=nobody",
  ]) {
    let before = "";
    do {
      const began = performance.now();
      const response = await fetch(`${url}/v1/console/runs?limit=100&${query}${before}`);
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
}
