// Codex, as it is published, in front of a model that fails. It writes a file by a shell command
// and then says so: two calls of the model, if nothing breaks. The provider counts its calls.
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";

import { holds, killed, play as playAny } from "./support/play.mjs";
import { Table } from "./support/table.mjs";

const places = ["before-events", "after-thinking", "mid-text", "mid-arguments", "before-end"];
const skip = process.env.CAPSTAN_TEST_POSTGRES ? false : "needs scripts/postgres";
const play = (t, options) => playAny(t, { cli: "codex", ...options });

describe("Codex", { concurrency: 2, timeout: 300_000 }, () => {
  const table = new Table("what breaks");
  after(() => table.print());

  /** The same with Capstan and, where there is time, without: a row of the table. */
  function row(name, options, { without, with: calls }) {
    test(`${name}, without Capstan`, { skip: !process.env.CAPSTAN_SOAK }, async (t) => {
      const told = await play(t, { ...options, capstan: false });
      table.set(name, "without Capstan", told);
      assert.ok([without].flat().includes(told.calls), `${told.calls} calls`);
    });
    test(`${name}, with Capstan`, async (t) => {
      const told = await play(t, options);
      table.set(name, "with Capstan", told);
      assert.ok([calls].flat().includes(told.calls), `${told.calls} calls`);
      holds(told, told.calls);
    });
  }

  row("nothing", {}, { without: 2, with: 2 });
  for (const place of places) {
    const without = place === "before-end" ? 2 : 3;
    const faults = [`close-mid-stream:${place}@1`];
    row(`the provider, ${place}`, { faults }, { without, with: [without, 3] });
  }
  for (const place of places) {
    const without = place === "before-end" ? 2 : 3;
    row(`the CLI's connection, ${place}`, { cutter: place }, { without, with: [2, without] });
  }
  // Codex takes these for the end of its turn.
  for (const [status, name] of [
    ["429", "limits the rate"],
    ["529", "is overloaded"],
  ]) {
    const without = status === "429" ? 1 : 3;
    row(`the provider ${name}`, { faults: [`status-${status}@1`] }, { without, with: 3 });
  }

  test("the gateway is killed in the middle of an answer, and comes back", async (t) => {
    const told = await play(t, { during: killed, slow: true });
    table.set("the gateway, killed", "with Capstan", told);
    assert.ok([3, 4].includes(told.calls), `${told.calls} calls`);
    holds(told, told.calls);
  });

  test("one of two gateways over PostgreSQL is killed, the other goes on", { skip }, async (t) => {
    const told = await play(t, { capstan: "pair", during: killed, slow: true });
    table.set("one of two gateways, killed", "with Capstan", told);
    assert.ok([3, 4].includes(told.calls), `${told.calls} calls`);
    holds(told, told.calls);
  });

  test("`capstan codex` starts it, with what stands behind `--`", async (t) => {
    const told = await play(t, { by: "capstan" });
    holds(told, 2);
  });
});
