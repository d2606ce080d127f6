// Claude Code through LiteLLM, for the column of docs/claude-code.md: what a turn costs there.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { hasLiteLlm, startLiteLlm } from "./support/litellm.mjs";
import { play } from "./support/play.mjs";
import { places } from "./support/suite.mjs";
import { Table } from "./support/table.mjs";

const isDue = process.env.CAPSTAN_SOAK && hasLiteLlm;
const skip = isDue ? false : "soak: needs CAPSTAN_SOAK and bench/peers/install";

describe("soak: Claude Code through LiteLLM", { skip, timeout: 900_000 }, () => {
  const table = new Table("what breaks once", ["through LiteLLM"]);
  let gateway;
  before(async () => (gateway = await startLiteLlm("claude")));
  after(() => {
    table.print();
    return gateway?.stop();
  });
  const start = ({ model }) => {
    gateway.pointTo(model);
    return { url: gateway.url, stop: () => {} };
  };
  const row = (name, options) =>
    test(name, async (t) => {
      const result = await play(t, { cli: "claude", capstan: start, ...options });
      table.set(name, "through LiteLLM", result);
      assert.ok(result.calls >= 2, `${result.calls} calls`);
    });

  row("nothing", {});
  for (const place of places)
    row(`the provider, ${place}`, { faults: [`close-mid-stream:${place}@1`] });
  for (const place of places) row(`the CLI's connection, ${place}`, { cutter: place });
  for (const status of [429, 500, 529])
    row(`the provider answers ${status}`, { faults: [`status-${status}@1`] });
  row("overloaded_error, mid-text", { faults: ["overloaded-in-stream:mid-text@1"] });
  row("the provider, mid-text, five times", { faults: ["close-mid-stream:mid-text@1-5"] });
});
