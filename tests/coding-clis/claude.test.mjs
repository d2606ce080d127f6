// Claude Code, as it is published, in front of a model that fails. It writes a file by a tool and
// then says so: two calls of the model, if nothing breaks. The provider counts its calls.
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";

import { holds, killed, play as playAny } from "./support/play.mjs";
import { Table } from "./support/table.mjs";

const places = ["before-events", "after-thinking", "mid-text", "mid-arguments", "before-end"];
const skip = process.env.CAPSTAN_TEST_POSTGRES ? false : "needs scripts/postgres";
const play = (t, options) => playAny(t, { cli: "claude", ...options });

describe("Claude Code", { concurrency: 4, timeout: 300_000 }, () => {
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
      holds(told, calls);
    });
  }

  // Once its tool is complete the gateway does not ask again; the CLI may, if it is fast.
  const complete = { without: [2, 3], with: 2 };
  row("nothing", {}, { without: 2, with: 2 });
  for (const place of places) {
    const faults = [`close-mid-stream:${place}@1`];
    const calls = place === "before-end" ? complete : { without: 3, with: 3 };
    row(`the provider, ${place}`, { faults }, calls);
  }
  for (const place of places) {
    const calls = place === "before-end" ? complete : { without: 3, with: 2 };
    row(`the CLI's connection, ${place}`, { cutter: place }, calls);
  }
  const overloaded = ["overloaded-in-stream:mid-text@1"];
  row("the provider says overloaded, mid-text", { faults: overloaded }, { without: 3, with: 3 });
  for (const [status, name] of [
    ["529", "is overloaded"],
    ["429", "limits the rate"],
    ["500", "fails"],
  ]) {
    row(`the provider ${name}`, { faults: [`status-${status}@1`] }, { without: 3, with: 3 });
  }
  // More than Claude Code forgives: it goes on three times, and then its turn is dead.
  test("the provider, mid-text, again and again", async (t) => {
    const faults = ["close-mid-stream:mid-text@1-5"];
    const alone = await play(t, { faults, capstan: false });
    assert.deepEqual([alone.code, alone.calls], [1, 4]);
    table.set("the provider, mid-text, five times", "without Capstan", alone);
    const told = await play(t, { faults });
    table.set("the provider, mid-text, five times", "with Capstan", told);
    holds(told, 7);
  });

  test("the gateway is killed in the middle of an answer, and comes back", async (t) => {
    const told = await play(t, { during: killed, slow: true });
    table.set("the gateway, killed", "with Capstan", told);
    holds(told, 3);
  });

  test("one of two gateways over PostgreSQL is killed, the other goes on", { skip }, async (t) => {
    const told = await play(t, { capstan: "pair", during: killed, slow: true });
    table.set("one of two gateways, killed", "with Capstan", told);
    holds(told, 3);
  });

  test("`capstan claude` starts it, with what stands behind `--`", async (t) => {
    const told = await play(t, { by: "capstan" });
    holds(told, 2);
  });
});
