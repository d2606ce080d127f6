// Codex, as it is published, in front of a model that fails. It writes a file by a shell command and
// then says so: two calls of the model, if nothing breaks. The provider counts its calls.
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";

import { holds, killed, play as playAny } from "./support/play.mjs";
import { Table } from "./support/table.mjs";

const places = ["before-events", "after-thinking", "mid-text", "mid-arguments", "before-end"];
const placesOfText = ["before-events", "after-begin", "mid-text", "after-text", "before-end"];
const skip = process.env.CAPSTAN_TEST_POSTGRES ? false : "needs scripts/postgres";
const isSoak = Boolean(process.env.CAPSTAN_SOAK);
const play = (t, options) => playAny(t, { cli: "codex", ...options });

const ALONE = "without Capstan";
const POST = "with Capstan";
const SOCKET = "with Capstan, WebSocket";

describe("Codex", { concurrency: 4, timeout: 300_000 }, () => {
  const table = new Table("what breaks once", [ALONE, POST, SOCKET]);
  after(() => table.print());

  /**
   * A row of the table. The model of these tests has no WebSocket, so there is none without
   * Capstan. In `make test` a failing provider is tried over one transport: between Capstan and the
   * provider nothing differs.
   */
  function row(name, options, { without, with: calls, isLong = false }) {
    test(`${name}, ${ALONE}`, { skip: !isSoak }, async (t) => {
      const result = await play(t, { ...options, capstan: false });
      table.set(name, ALONE, result);
      assert.equal(result.calls, without, result.stderr);
    });
    for (const [column, hasSocket] of [
      [POST, false],
      [SOCKET, true],
    ]) {
      const isSkipped = isLong && hasSocket && !isSoak;
      test(`${name}, ${column}`, { skip: isSkipped }, async (t) => {
        const result = await play(t, { ...options, hasSocket });
        table.set(name, column, result);
        holds(result, calls);
      });
    }
  }

  row("nothing", {}, { without: 2, with: 2 });
  for (const place of places) {
    const calls = place === "before-end" ? 2 : 3;
    const faults = [`close-mid-stream:${place}@1`];
    row(`the provider, ${place}`, { faults }, { without: calls, with: calls, isLong: true });
  }
  for (const cutter of places) {
    const without = cutter === "before-end" ? 2 : 3;
    row(`Codex's connection, ${cutter}`, { cutter }, { without, with: 2 });
  }
  for (const cutter of placesOfText) {
    const options = { cutter, answer: 2 };
    row(`Codex's connection, second answer, ${cutter}`, options, { without: 3, with: 2 });
  }
  // Codex ends its turn at a 429.
  for (const [status, name, without] of [
    ["429", "limits the rate", 1],
    ["500", "fails", 3],
    ["529", "is overloaded", 3],
  ]) {
    const faults = [`status-${status}@1`];
    row(`the provider ${name}`, { faults }, { without, with: 3 });
  }
  const overloaded = ["overloaded-in-stream:mid-text@1"];
  row("the provider says overloaded, mid-text", { faults: overloaded }, { without: 3, with: 3 });

  for (const hasSocket of [false, true]) {
    const column = hasSocket ? SOCKET : POST;
    test(`the gateway is killed in an answer, and comes back, ${column}`, async (t) => {
      const result = await play(t, { during: killed, slow: true, hasSocket });
      table.set("the gateway, killed", column, result);
      holds(result, 3);
    });

    test(`one of two gateways is killed, the other goes on, ${column}`, { skip }, async (t) => {
      const options = { capstan: "pair", during: killed, slow: true, hasSocket };
      const result = await play(t, options);
      table.set("one of two gateways, killed", column, result);
      holds(result, 3);
    });

    test(`\`apply_patch\` changes a file, ${column}`, async (t) => {
      holds(await play(t, { tool: "patch", hasSocket }), 2);
    });

    test(`\`exec resume\` continues a session, ${column}`, async (t) => {
      const result = await play(t, { again: true, hasSocket });
      holds(result, 4);
      const kinds = result.bodies[2].input.map((item) => item.type);
      const count = (kind) => kinds.filter((one) => one === kind).length;
      const expected = { reasoning: 1, function_call: 1, function_call_output: 1 };
      for (const [kind, n] of Object.entries(expected)) assert.equal(count(kind), n, kind);
    });
  }

  test("`capstan codex` starts it, with the arguments behind `--`", async (t) => {
    holds(await play(t, { by: "capstan" }), 2);
  });
});
