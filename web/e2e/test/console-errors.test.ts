// A failed query is an error on every view, and never looks like an empty answer.
import { once } from "node:events";

import type { Page } from "playwright-core";
import { expect, test } from "vitest";

import { visit } from "./browser.js";
import { ask } from "./console.js";
import { setStage } from "./stage.js";
import { startPostgres } from "./town.js";
import { startGateway } from "../../testing/gateway.mjs";

const stage = setStage();
/** The texts of views without data. */
const EMPTY =
  /No runs? (yet|fits)|That is all|Nothing (needs you|is known)|No such run|There is no such/;

async function expectError(page: Page, words: RegExp): Promise<void> {
  const main = page.locator("main");
  await main.getByRole("alert").getByText(words).first().waitFor({ timeout: 30_000 });
  expect(await main.innerText()).not.toMatch(EMPTY);
}

test("while the store is down views that ask it say so", { timeout: 120_000 }, async () => {
  const postgres = await startPostgres();
  const gateway = await startGateway({ journal: postgres.url });
  const { streamId, requestId, whole } = await ask(gateway.url, "/fault content_refused");
  await whole;
  const { page } = await visit(stage.browser, `${gateway.url}/console/runs`);
  await page.locator(`[data-run="${streamId}"]`).waitFor();
  postgres.child.stdin?.end();
  await once(postgres.child, "exit");
  const views = ["/runs?state=failed", `/runs/${streamId}`, `/find?q=${requestId}`];
  // In parallel, because each view waits a moment for the store.
  await Promise.all(
    views.map(async (view) => {
      const other = await page.context().newPage();
      await other.goto(`${gateway.url}/console${view}`);
      await expectError(other, /The journal's database does not answer/).catch((error: Error) => {
        throw new Error(`${view}: ${error.message}`);
      });
    }),
  );
  await page.getByText("The journal does not answer. What you see is from before.").waitFor();
  await page.context().close();
  await gateway.stop();
});

test("once the gateway is gone, what was seen stays and is said to be old", async () => {
  const gateway = await startGateway();
  const { streamId, whole } = await ask(gateway.url, "/tokens 2");
  await whole;
  const { page } = await visit(stage.browser, `${gateway.url}/console/runs`);
  const row = page.locator(`[data-run="${streamId}"]`);
  await row.waitFor();
  await page.getByText("Live.").waitFor();
  await gateway.stop();
  await page.getByText("Paused: the live feed is not connected.").waitFor();
  await page.getByText("The gateway does not answer. What you see is from before.").waitFor();
  expect(await row.count()).toBe(1);
  await page.getByLabel("State").selectOption("failed");
  await expectError(page, /The gateway cannot be reached/);
  await page.context().close();
});
