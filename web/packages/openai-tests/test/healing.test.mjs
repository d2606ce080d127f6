// The drop-in transport: cuts without an effect on the SDK, and no second run.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { startGateway } from "../../../testing/gateway.mjs";
import { cutsOf, startCutter } from "../../ag-ui-tests/support/cutter.mjs";
import { resumableFetch } from "../node_modules/.build/openai.mjs";
import { chat, clientFor, drain, runsOf } from "../support/openai.mjs";

const quick = { backoff: { first: 1, max: 1, jitter: false } };
/** Removes values that differ between runs. */
const plain = (events) =>
  JSON.stringify(events)
    .replaceAll(/(resp_|chatcmpl-|msg_)[0-9a-f]{32}/g, "$1")
    .replaceAll(/"(created|created_at|completed_at)":\d+/g, "");

// One after the other, because runs are counted.
describe("healing", () => {
  let gateway;
  before(async () => (gateway = await startGateway()));
  after(() => gateway.stop());

  for (const [name, ask] of [
    ["responses", (client) => client.responses.create({ input: "/tokens 12", stream: true })],
    ["chat", (client) => client.chat.completions.create(chat("/tokens 12", { stream: true }))],
  ]) {
    test(
      `${name}: the same events whatever breaks, and one run`,
      { timeout: 60_000 },
      async (t) => {
        const whole = (await drain(await ask(clientFor(gateway.url)))).events;
        for (const cut of cutsOf(whole.length)) {
          // Cut once more after the first resume.
          const cutter = await startCutter(gateway.url, (n) => [cut, cut + 1][n]);
          t.after(cutter.stop);
          const before = (await runsOf(gateway.url)).length;
          const { events, error } = await drain(
            await ask(clientFor(cutter.url, { fetch: resumableFetch(quick), maxRetries: 0 })),
          );
          assert.equal(error, undefined, `cut after ${cut}`);
          assert.equal(plain(events), plain(whole), `cut after ${cut}`);
          assert.equal((await runsOf(gateway.url)).length, before + 1);
        }
      },
    );
  }

  test(
    "a response that is read again is healed, too; what is no stream is left alone",
    { timeout: 60_000 },
    async (t) => {
      const cutter = await startCutter(gateway.url, (n) => [undefined, 3][n]);
      t.after(cutter.stop);
      const client = clientFor(cutter.url, { fetch: resumableFetch(quick) });
      const response = await client.responses.create({ input: "/tokens 12" });
      const { events, error } = await drain(
        await client.responses.retrieve(response.id, { stream: true }),
      );
      assert.equal(error, undefined);
      assert.deepEqual(events.at(-1).response.output, response.output);
      await assert.rejects(client.responses.create({ input: "/fault content_refused" }), {
        status: 400,
      });
      const { error: failed } = await drain(
        await client.responses.create({ input: "/fault upstream_auth", stream: true }),
      );
      assert.equal(failed.error.kind, "upstream_auth");
    },
  );

  test("the SDK's own repeat keeps the key", { timeout: 60_000 }, async () => {
    let tries = 0;
    const broken = async (input, init) => {
      const response = await fetch(input, init);
      if (tries++ > 0) return response;
      await response.body.cancel();
      throw new TypeError("terminated");
    };
    const before = (await runsOf(gateway.url)).length;
    const client = clientFor(gateway.url, { fetch: resumableFetch({ ...quick, fetch: broken }) });
    assert.equal(
      (await client.chat.completions.create(chat("/echo once"))).choices[0].message.content,
      "once",
    );
    assert.equal((await runsOf(gateway.url)).length, before + 1);
  });
});
