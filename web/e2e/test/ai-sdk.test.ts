// A real page with `useChat`: it reloads in mid-answer, loses its network, and is stopped from
// another tab.
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";

import type { Browser, BrowserContext, Page } from "playwright-core";
import { build } from "vite";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";

import { connect } from "./browser.js";
import { startCutter } from "../../packages/ag-ui-tests/support/cutter.mjs";
import { type Gateway, startGateway } from "../../testing/gateway.mjs";

const tokens = (n: number) => Array.from({ length: n }, (_, at) => `tok${at + 1}`).join(" ");

let browser: Browser, gateway: Gateway, pages: Server, url: string, context: BrowserContext;
beforeAll(async () => {
  const script = await bundle();
  pages = createServer((request, response) => {
    const isScript = request.url === "/page.js";
    response.setHeader("content-type", isScript ? "text/javascript" : "text/html");
    response.end(
      isScript
        ? script
        : '<!doctype html><title>chat</title><link rel="icon" href="data:,">' +
            '<body><script type="module" src="/page.js"></script>',
    );
  });
  await new Promise<void>((resolve) => pages.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${(pages.address() as AddressInfo).port}`;
  [browser, gateway] = await Promise.all([connect(), startGateway()]);
});
afterAll(() => Promise.all([browser?.close(), gateway?.stop(), pages?.close()]));
beforeEach(async () => void (context = await browser.newContext()));
afterEach(() => context.close());

/** The page in one file, as bundlers make it. */
async function bundle(): Promise<string> {
  const entry = fileURLToPath(new URL("../pages/ai-sdk.tsx", import.meta.url));
  // Otherwise JSX is compiled for a development build of React, which the page does not have.
  vi.stubEnv("NODE_ENV", "production");
  const built = await build({
    configFile: false,
    logLevel: "error",
    define: { "process.env.NODE_ENV": '"production"' },
    build: { write: false, minify: false, lib: { entry, formats: ["es"], fileName: "page" } },
  });
  vi.unstubAllEnvs();
  const { output } = [built].flat()[0] as unknown as { output: [{ code: string }] };
  return output[0].code;
}

async function open(chat: string, ask: string, at = gateway.url): Promise<Page> {
  const page = await context.newPage();
  await page.goto(`${url}/?${new URLSearchParams({ gateway: at, chat, ask })}`);
  await page.locator("main").waitFor();
  return page;
}

const textOf = async (page: Page) => (await page.locator("#answer").innerText()).trim();
const begun = (page: Page) =>
  page.waitForFunction(() => (document.querySelector("#answer")?.textContent ?? "").length > 60);
const ready = (page: Page) => page.locator('main[data-status="ready"][data-answers="1"]').waitFor();

test("a reload in the middle of an answer has all of it, once", async () => {
  const page = await open("reload", "/tokens 150 --delay 5ms");
  await page.locator("#ask").click();
  await begun(page);
  await page.reload();
  await begun(page);
  await page.reload();
  // A page that has just loaded is also ready, with its stored messages.
  await expect.poll(() => textOf(page)).toBe(tokens(150));
  await ready(page);
});

test("an answer goes on when the network is back", async () => {
  // The page requests an answer, sends a preflight, and posts. The post is cut.
  const cutter = await startCutter(gateway.url, (nth: number) => (nth === 2 ? 30 : undefined));
  const page = await open("network", "/tokens 150 --delay 5ms", cutter.url);
  await page.locator("#ask").click();
  await page.locator('main[data-status="error"]').waitFor();
  // The end of a connection may arrive before the bytes sent before it.
  expect(tokens(150).startsWith(await textOf(page))).toBe(true);
  // Browsers fire this event when the page becomes visible again.
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  // A page that has just loaded is also ready, with its stored messages.
  await expect.poll(() => textOf(page)).toBe(tokens(150));
  await ready(page);
  await cutter.stop();
});

test("a stop in one tab ends the answer in both", async () => {
  const one = await open("stop", "/tokens 100000 --delay 10ms");
  await one.locator("#ask").click();
  await begun(one);
  const other = await open("stop", "");
  await begun(other);
  await other.locator("#stop").click();
  await Promise.all([ready(one), ready(other)]);
  expect(await textOf(one)).toBe(await textOf(other));
  expect((await textOf(one)).startsWith("tok1 tok2")).toBe(true);
});
