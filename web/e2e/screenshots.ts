// Takes the pictures of docs/pictures: `npm run screenshots --workspace capstan-e2e`.
import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { newId } from "capstan";
import { expect, test } from "vitest";

import { connect, count, say, visit } from "./test/browser.js";
import { ask } from "./test/console.js";
import { startGateway } from "../testing/gateway.mjs";

const folder = fileURLToPath(new URL("../../docs/pictures/", import.meta.url));

test("pictures", async () => {
  mkdirSync(folder, { recursive: true });
  const [browser, gateway] = await Promise.all([connect(), startGateway()]);
  const { page } = await visit(browser, gateway.url, { viewport: { width: 1180, height: 720 } });
  await page.getByLabel("Cut by itself").selectOption("10");
  await say(page, "Why does a rope hold on a capstan?");
  await expect.poll(() => count(page, "cut"), { timeout: 10_000, interval: 5 }).toBe(3);
  await page.locator('.turn[data-status="retrying"]').waitFor();
  await page.screenshot({ path: `${folder}healing.png` });
  await browser.close();
  await gateway.stop();
});

test("pictures of the console", async () => {
  const [browser, gateway] = await Promise.all([connect(), startGateway()]);
  for (const message of [
    "What is a capstan?",
    "/events",
    "/diverge",
    "/tokens 40",
    "/fault content_refused",
    "/flaky 1",
    "Why does a rope hold?",
    "/tokens 12",
    "/flaky 2",
    "/events",
    "/tokens 25",
  ])
    await (
      await ask(gateway.url, message)
    ).whole;
  const failed = await ask(gateway.url, "/diverge");
  await failed.whole;
  await ask(gateway.url, "/tokens 9000 --delay 30ms");
  await (
    await ask(gateway.url, "/fault upstream_timeout --retry-after 90")
  ).whole;
  const { page } = await visit(browser, `${gateway.url}/console/runs`, {
    viewport: { width: 1180, height: 560 },
  });
  await page.locator("[data-row='5']").waitFor();
  await page.screenshot({ path: `${folder}console-runs.png` });
  const dark = await visit(browser, `${gateway.url}/console/runs/${failed.streamId}`, {
    viewport: { width: 1180, height: 760 },
    colorScheme: "dark",
  });
  await dark.page.locator(".seen .prose").first().waitFor();
  await dark.page.screenshot({ path: `${folder}console-run.png` });
  await browser.close();
  await gateway.stop();
});

/**
 * Takes a picture of every view of the console, on a desktop and on a phone, light and dark:
 * `CAPSTAN_VIEWS=folder`.
 */
test.runIf(process.env["CAPSTAN_VIEWS"] !== undefined)(
  "every view of the console",
  { timeout: 300_000 },
  async () => {
    const views = process.env["CAPSTAN_VIEWS"]!;
    mkdirSync(views, { recursive: true });
    const [browser, gateway] = await Promise.all([connect(), startGateway()]);
    const session = newId();
    for (const message of ["What is a capstan?", "/fault content_refused", "/flaky 1", "/events"])
      await (
        await ask(gateway.url, message, { session })
      ).whole;
    for (const message of [
      "/fault upstream_timeout",
      "/tokens 40",
      "/flaky 2",
      "/fault upstream_auth",
    ])
      await (
        await ask(gateway.url, message)
      ).whole;
    const parted = await ask(gateway.url, "/diverge");
    await parted.whole;
    const failed = await ask(gateway.url, "/fault context_length_exceeded");
    await failed.whole;
    await ask(gateway.url, "/tokens 9000 --delay 100ms");
    const waiting = await ask(gateway.url, "/fault upstream_timeout --retry-after 90");
    await waiting.whole;
    const refused = await fetch(`${gateway.url}/v1/streams/${newId()}`, {
      headers: { "x-request-id": "ticket-refused" },
    });
    await refused.text();
    const run = `/console/runs/${parted.streamId}`;
    const paths: Record<string, string> = {
      overview: "/console",
      runs: "/console/runs",
      filtered: "/console/runs?state=failed&agent=demo",
      none: "/console/runs?fault=nobody_met_it",
      failed: `/console/runs/${failed.streamId}`,
      waiting: `/console/runs/${waiting.streamId}`,
      seen: run,
      asked: `${run}?as=asked`,
      frames: `${run}?tab=frames&at=3`,
      attempts: `${run}?tab=attempts`,
      request: `${run}?tab=request`,
      home: `${run}?tab=home`,
      session: `/console/sessions/local/${session}`,
      refusal: "/console/find?q=ticket-refused",
      nothing: "/console/find?q=nobody",
      faults: "/console/faults",
      agents: "/console/agents",
      tenants: "/console/tenants",
      replicas: "/console/replicas",
    };
    const sizes = {
      desk: { viewport: { width: 1280, height: 800 } },
      phone: { viewport: { width: 360, height: 740 }, isMobile: true },
    };
    for (const [size, options] of Object.entries(sizes)) {
      for (const colorScheme of ["light", "dark"] as const) {
        const { page } = await visit(browser, `${gateway.url}/console`, {
          ...options,
          colorScheme,
        });
        for (const [name, path] of Object.entries(paths)) {
          await page.goto(gateway.url + path);
          await page.waitForLoadState("load");
          await page.locator(".strip-line strong").waitFor();
          await page.waitForTimeout(400);
          await page.screenshot({
            path: `${views}/${name}-${size}-${colorScheme}.png`,
            fullPage: size === "phone",
          });
        }
        await page.context().close();
      }
    }
    await browser.close();
    await gateway.stop();
  },
);
