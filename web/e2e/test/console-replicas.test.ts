// If gateways share a journal, the console of each shows the work of all.
import { expect, test } from "vitest";

import { visit } from "./browser.js";
import { ask, expectFit, setTheme } from "./console.js";
import { setStage } from "./stage.js";
import { startPostgres } from "./town.js";
import { startGateway } from "../../testing/gateway.mjs";

const stage = setStage();

test("what another gateway has to do is seen here", { timeout: 60_000 }, async () => {
  const postgres = await startPostgres();
  const start = (HOSTNAME: string) => startGateway({ journal: postgres.url, env: { HOSTNAME } });
  const [busy, idle] = [await start("busy"), await start("idle")];
  await ask(busy.url, "/tokens 100000 --delay 20ms");
  const told = async () => {
    const { replicas } = (await (await fetch(`${idle.url}/v1/replicas`)).json()) as {
      replicas: { responses?: number; append_p95_ms?: number }[];
    };
    return replicas.map(({ responses, append_p95_ms }) => [responses, append_p95_ms !== undefined]);
  };
  // The page queries every five seconds.
  await expect.poll(told, { timeout: 20_000 }).toEqual([
    [1, true],
    [0, false],
  ]);
  const { page, complaints } = await visit(stage.browser, `${idle.url}/console/replicas`);
  const row = (name: RegExp) => page.getByRole("row", { name }).getByRole("cell").allInnerTexts();
  await expect
    .poll(async () => (await row(/^busy/)).slice(-3))
    .toEqual(["1", "1", expect.stringMatching(/^[\d.]+ m?s$/)]);
  expect((await row(/^idle · this one/)).slice(-3)).toEqual(["0", "0", "–"]);
  for (const theme of ["light", "dark"] as const) {
    await setTheme(page, theme);
    await expectFit(page);
  }
  expect(complaints).toEqual([]);
  await page.context().close();
  await Promise.all([busy.stop(), idle.stop()]);
  postgres.child.stdin?.end();
});
