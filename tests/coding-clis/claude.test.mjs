// Claude Code, as it is published, in front of a model that fails. It writes a file by a tool and
// then says so: two calls of the model, if nothing breaks. The provider counts its calls.
import assert from "node:assert/strict";
import { test } from "node:test";

import { holds } from "./support/play.mjs";
import { places, suite } from "./support/suite.mjs";

suite("Claude Code", "claude", ({ row, play, table, endures }) => {
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
  // More than Claude Code forgives: it repeats some times, and then its turn fails.
  test("the provider, mid-text, again and again", async (t) => {
    const faults = ["close-mid-stream:mid-text@1-5"];
    const alone = await play(t, { faults, capstan: false });
    assert.equal(alone.code, 1, "the CLI gives up");
    table.set("the provider, mid-text, five times", "without Capstan", alone);
    const told = await play(t, { faults });
    table.set("the provider, mid-text, five times", "with Capstan", told);
    holds(told, 7);
  });

  endures(3);
});
