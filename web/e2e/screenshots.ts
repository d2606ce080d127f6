// Takes the pictures of docs/pictures anew: `npm run screenshots --workspace capstan-e2e`.
import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { expect, test } from "vitest";

import { connect, count, ended, say, visit } from "./test/browser.js";
import { ask } from "./test/console.js";
import { startGateway } from "../testing/gateway.mjs";

const folder = fileURLToPath(new URL("../../docs/pictures/", import.meta.url));

test("pictures", async () => {
  mkdirSync(folder, { recursive: true });
  const [browser, gateway] = await Promise.all([connect(), startGateway()]);
  const size = { viewport: { width: 1180, height: 720 } };

  const { page } = await visit(browser, gateway.url, size);
  await page.getByLabel("Cut by itself").selectOption("10");
  await say(page, "Why does a rope hold on a capstan?");
  await expect.poll(() => count(page, "cut"), { timeout: 10_000, interval: 5 }).toBe(3);
  await page.locator('.turn[data-status="retrying"]').waitFor();
  await page.screenshot({ path: `${folder}healing.png` });

  const dark = await visit(browser, gateway.url, { ...size, colorScheme: "dark" });
  await say(dark.page, "What is a capstan?");
  await ended(dark.page, "closed");
  await say(dark.page, "/fault upstream_timeout --retry-after 12");
  await dark.page.getByText("Please retry in 11 seconds.").waitFor();
  await dark.page.screenshot({ path: `${folder}retry.png` });

  const phone = await visit(browser, gateway.url, { viewport: { width: 390, height: 844 }, isMobile: true, deviceScaleFactor: 2 });
  await say(phone.page, "/events");
  await ended(phone.page, "closed");
  await phone.page.screenshot({ path: `${folder}phone.png` });
  await browser.close();
  await gateway.stop();
});

test("pictures of the console", async () => {
  const [browser, gateway] = await Promise.all([connect(), startGateway()]);
  for (const message of ["What is a capstan?", "/events", "/diverge", "/tokens 40", "/fault content_refused", "/flaky 1", "Why does a rope hold?", "/tokens 12", "/flaky 2", "/events", "/tokens 25"]) await (await ask(gateway.url, message)).whole;
  const failed = await ask(gateway.url, "/diverge");
  await failed.whole;
  await ask(gateway.url, "/tokens 9000 --delay 30ms");
  await (await ask(gateway.url, "/fault upstream_timeout --retry-after 90")).whole;
  const { page } = await visit(browser, `${gateway.url}/console/runs`, { viewport: { width: 1180, height: 560 } });
  await page.locator("[data-row='5']").waitFor();
  await page.screenshot({ path: `${folder}console-runs.png` });
  const dark = await visit(browser, `${gateway.url}/console/runs/${failed.streamId}`, { viewport: { width: 1180, height: 760 }, colorScheme: "dark" });
  await dark.page.locator(".seen .prose").first().waitFor();
  await dark.page.screenshot({ path: `${folder}console-run.png` });
  await browser.close();
  await gateway.stop();
});
