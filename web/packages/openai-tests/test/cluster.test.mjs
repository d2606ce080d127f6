// The healing transport at three gateways over one PostgreSQL, of which the one that works is killed: the SDK notices nothing. In the soak
// alone: leases end in real time.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { hasPostgres, startCluster } from "../../../testing/cluster.mjs";
import { resumableFetch } from "../node_modules/.build/openai.mjs";
import { chat, clientFor, deltasOf, runsOf, textOf } from "../support/openai.mjs";

const skip = process.env.CAPSTAN_SOAK && hasPostgres ? false : "soak: needs CAPSTAN_SOAK, and scripts/postgres";
const WORDS = Array.from({ length: 300 }, (_, at) => `tok${at + 1} `).join("");
const LONG = "/tokens 300 --delay 10ms";

describe("three gateways, one killed", { skip, timeout: 120_000 }, () => {
  let cluster;
  before(async () => (cluster = await startCluster(3)));
  after(() => cluster?.stop());

  for (const [name, ask, said] of [
    ["responses", (client) => client.responses.create({ input: LONG, stream: true }), deltasOf],
    ["chat", (client) => client.chat.completions.create(chat(LONG, { stream: true })), textOf],
  ]) {
    test(`${name}: every event once, and one run`, async () => {
      const before = (await runsOf(cluster.url)).length;
      const client = clientFor(cluster.url, { fetch: resumableFetch(), maxRetries: 0 });
      const events = [];
      let isKilled = false;
      for await (const event of await ask(client)) {
        events.push(event);
        if (!isKilled && events.length > 20) {
          isKilled = true;
          await cluster.killOwnerOf((await runsOf(cluster.url))[0].stream_id);
        }
      }
      assert.equal(said(events), WORDS);
      assert.equal((await runsOf(cluster.url)).length, before + 1);
      const numbers = events.map((event) => event.sequence_number).filter((number) => number !== undefined);
      assert.deepEqual(numbers, [...new Set(numbers)].sort((a, b) => a - b), "in order, none twice");
    });
  }
});
