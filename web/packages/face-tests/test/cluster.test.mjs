// A chat of the AI SDK at three gateways over one PostgreSQL, of which the one that works is killed in the middle of the answer: it comes back
// somewhere else, and has every word once. In the soak alone: leases end in real time.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { hasPostgres, startCluster } from "../../../testing/cluster.mjs";
import { answers, chatAt, sdks, textOf, tokens, until } from "../support/chat.mjs";

const WORDS = 300;
const LONG = `/tokens ${WORDS} --delay 10ms`;
const skip = process.env.CAPSTAN_SOAK && hasPostgres ? false : "soak: needs CAPSTAN_SOAK, and scripts/postgres";

describe("three gateways, one killed", { skip, concurrency: false, timeout: 120_000 }, () => {
  let cluster;
  before(async () => (cluster = await startCluster()));
  after(() => cluster?.stop());

  test("a chat of the AI SDK comes back and is whole", async () => {
    const [{ sdk }] = sdks;
    let id;
    const noting = async (...args) => {
      const response = await fetch(...args);
      id ??= response.headers.get("x-stream-id");
      return response;
    };
    const chat = chatAt(sdk, `${cluster.url}/v1/ai-sdk/chat`, { fetch: noting });
    const sent = chat.sendMessage({ text: LONG });
    await until(() => answers(chat).length > 0 && textOf(answers(chat)[0]).includes("tok20 "));
    await cluster.killOwnerOf(id);
    await sent;
    assert.equal(chat.status, "error");
    while (chat.status === "error") await chat.resumeStream();
    assert.equal(chat.status, "ready");
    assert.deepEqual(answers(chat).map(textOf), [tokens(WORDS)]);
  });
});
