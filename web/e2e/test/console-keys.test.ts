// Permissions in the console: operators see the shape of runs, content needs a right, and other
// tenants are invisible.
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { connect } from "./browser.js";
import { ask } from "./console.js";
import { type Gateway, startGateway } from "../../testing/gateway.mjs";

const hash = (key: string) => `sha256:${createHash("sha256").update(key).digest("hex")}`;
const [ACME, OTHER, OPERATOR] = [
  "sk_e2e_acme_0123456789",
  "sk_e2e_other_0123456789",
  "sk_e2e_operator_0123456789",
];
const CONFIG = `
[[tenants]]
name = "acme"
keys = ["${hash(ACME)}"]

[[tenants]]
name = "other"
keys = ["${hash(OTHER)}"]
limits = { tokens_per_day = 1 }

[[operators]]
name = "ada"
keys = ["${hash(OPERATOR)}"]
tenants = ["*"]
may = ["look"]
`;
/** A text that occurs nowhere else. */
const WORDS = "purple-elephant-0451";

let browser: Browser;
let gateway: Gateway;
const folder = mkdtempSync(join(tmpdir(), "capstan-har-"));

beforeAll(async () => {
  [browser, gateway] = await Promise.all([connect(), startGateway({ config: CONFIG })]);
});
afterAll(async () => {
  await Promise.all([browser?.close(), gateway?.stop()]);
  rmSync(folder, { recursive: true });
});

async function openWith(key: string, path: string) {
  const har = join(folder, `${key}.har`);
  const context = await browser.newContext({ recordHar: { path: har, content: "embed" } });
  const page = await context.newPage();
  await page.addInitScript((key) => sessionStorage.setItem("capstan-key", key), key);
  await page.goto(`${gateway.url}${path}`);
  const close = async () => {
    await context.close();
    return readFileSync(har, "utf8");
  };
  return { page, close };
}

test("an operator who may only look sees a run's shape and none of its content", async () => {
  const { streamId, whole } = await ask(gateway.url, `Tell me of ${WORDS}`, { key: ACME });
  await whole;
  const { page, close } = await openWith(OPERATOR, "/console/runs");
  await page.locator(`[data-run="${streamId}"] a`).first().click();
  await page.locator(".run-header").getByText("acme").waitFor();
  for (const tab of ["Frames", "Attempts", "Request", "Take home", "As seen"])
    await page.getByRole("tab", { name: tab }).click();
  await page.getByText("You may not see this content").waitFor();
  expect(await page.getByRole("button", { name: /Stop…|Purge…/ }).count()).toBe(0);
  const refused = await page.evaluate(
    async (id) =>
      (
        await fetch(`/v1/console/runs/${id}/frames`, {
          headers: { authorization: `Bearer ${sessionStorage.getItem("capstan-key")}` },
        })
      ).status,
    streamId,
  );
  expect(refused).toBe(403);
  const har = await close();
  expect(har).toContain(streamId);
  for (const secret of [WORDS, Buffer.from(WORDS).toString("base64").slice(0, 20)])
    expect(har).not.toContain(secret);
});

test("a tenant reads its own, asked for, and cannot tell another's run from none", async () => {
  const own = await ask(gateway.url, `Tell me of ${WORDS}`, { key: ACME });
  const { page, close } = await openWith(ACME, `/console/runs/${own.streamId}`);
  await page.getByRole("button", { name: "Show content" }).click();
  await page.locator(".seen .question").getByText(WORDS).waitFor();
  await close();
  const other = await openWith(OTHER, `/console/runs/${own.streamId}`);
  await other.page.getByRole("heading", { name: "No such run" }).waitFor();
  await other.close();
});

test("the id of a refused call leads to its refusal", async () => {
  await (
    await ask(gateway.url, "/tokens 1", { key: OTHER })
  ).whole;
  const refused = await ask(gateway.url, "/tokens 1", { key: OTHER });
  expect(refused.status).toBe(429);
  const { page, close } = await openWith(OPERATOR, `/console/find?q=${refused.requestId}`);
  const told = page.getByRole("region", { name: "A refused call" });
  await told.getByText(/429/).waitFor();
  expect(await told.innerText()).toMatch(/rate_limit_exceeded[\s\S]*There is no run/);
  await close();
});

test("a key is asked for, and a wrong one is said to be", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${gateway.url}/console/tenants`);
  const dialog = page.getByRole("dialog", { name: "A key, please" });
  await dialog.getByLabel("Key").fill("sk_wrong_0123456789");
  await page.keyboard.press("Enter");
  await dialog.getByRole("alert").waitFor();
  await dialog.getByLabel("Key").fill(ACME);
  await page.keyboard.press("Enter");
  await page.locator("main").getByText("acme").waitFor();
  expect(await page.locator("main").innerText()).not.toContain("other");
  await context.close();
});
