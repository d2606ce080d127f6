// Codex, as it is published, in front of a model that fails. It writes a file by a shell command
// and then says so: two calls of the model, if nothing breaks. The provider counts its calls. The
// model of these tests has no WebSocket, so without Capstan there is only one way.
import assert from "node:assert/strict";

import { placesOfText } from "./support/cutter.mjs";
import { holds } from "./support/play.mjs";
import { places, suite } from "./support/suite.mjs";

const ways = { "with Capstan": {}, "with Capstan, WebSocket": { hasSocket: true } };

function body({ row, each, play, endures }) {
  row("nothing", {}, { without: 2, with: 2 });
  for (const place of places) {
    const calls = place === "before-end" ? 2 : 3;
    const faults = [`close-mid-stream:${place}@1`];
    row(`the provider, ${place}`, { faults }, { without: calls, with: calls, isLong: true });
  }
  for (const cutter of places) {
    const without = cutter === "before-end" ? 2 : 3;
    row(`the CLI's connection, ${cutter}`, { cutter }, { without, with: 2 });
  }
  for (const cutter of Object.keys(placesOfText)) {
    const options = { cutter, answer: 2 };
    row(`the CLI's connection, second answer, ${cutter}`, options, { without: 3, with: 2 });
  }
  // Codex ends its turn at a 429.
  for (const [status, name, without] of [
    ["429", "limits the rate", 1],
    ["500", "fails", 3],
    ["529", "is overloaded", 3],
  ]) {
    row(`the provider ${name}`, { faults: [`status-${status}@1`] }, { without, with: 3 });
  }
  const overloaded = ["overloaded-in-stream:mid-text@1"];
  const calls = { without: 3, with: 3, isLong: true };
  row("the provider says overloaded, mid-text", { faults: overloaded }, calls);

  each("`apply_patch` changes a file", async (t, way) => {
    holds(await play(t, { ...way, tool: "patch" }), 2);
  });

  each("`exec resume` continues a session", async (t, way) => {
    const result = await play(t, { ...way, again: true });
    holds(result, 4);
    const kinds = result.bodies[2].input.map((item) => item.type);
    const expected = { reasoning: 1, function_call: 1, function_call_output: 1 };
    for (const [kind, count] of Object.entries(expected))
      assert.equal(kinds.filter((one) => one === kind).length, count, kind);
  });

  endures(3);
}

suite("Codex", "codex", body, ways);
